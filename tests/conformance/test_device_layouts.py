"""A capture is about the arguments as they lie in memory, not about dense copies of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors, through
from reports import counters
from strided_arguments import LAYOUTS, PROGRAMS, read_rows, strides_of
from torch import Tensor
from twins import check_against_eager, twins

pytestmark = pytest.mark.filterwarnings("ignore:airgraph. a call of .* is not cached")

# A few of all layouts: each differs from the dense one in another way.
_SOME = ["turned", "a box", "every other column", "one row expanded", "windows", "end of a longer one"]


def _by_turns(cases: Sequence[Any], turn: int, *, of: int) -> Sequence[Any]:
    """One of so many parts of the cases, so that each case meets some of the tests: all do in a full sweep."""
    return cases[turn % of :: of]


def _calls(program: Callable[..., Any], call: Callable[..., Any], layout: str, device: str) -> None:
    """Twice with a layout, once dense, and with it again."""
    for each in (layout, layout, "dense", layout):
        _check_where_eager_can(call, program, LAYOUTS[each](device))


def _skip_where_new_values_lie_otherwise(device: str, name: str) -> None:
    if device == "npu" and name.endswith("what_it_makes"):
        pytest.skip("torch_npu's operators give other strides than their fake kernels say")


def _check_where_eager_can(call: Callable[..., Any], program: Callable[..., Any], *args: Tensor) -> None:
    try:
        program(*twins(args))
    except (RuntimeError, ValueError):
        # Such as a write to a tensor whose elements overlap.
        return
    check_against_eager(call, program, *args)


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled
def test_programs_that_can_tell_how_an_argument_lies(
    device: str, door: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    _skip_where_new_values_lie_otherwise(device, name)
    every = request.config.getoption("--full-sweep")
    # The next test takes more of them. What is compared is the engine's, on each device the same.
    some = _by_turns(_SOME, list(PROGRAMS).index(name), of=len(_SOME))
    for dynamic in (True, False) if every else (True,):
        for layout in LAYOUTS if every else some:
            torch._dynamo.reset()
            call = through(door, PROGRAMS[name], tmp_path / f"{layout}{dynamic}", dynamic=dynamic)
            _calls(PROGRAMS[name], call, layout, device)


@torch.no_grad()
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_callable_for_arguments_that_lie_in_many_ways(
    device: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Sizes and strides known, and nobody else to compare them."""
    _skip_where_new_values_lie_otherwise(device, name)
    call = through("cached", PROGRAMS[name], tmp_path)
    every = request.config.getoption("--full-sweep")
    # Which layouts may share a trace is decided alike for all devices: more of them are taken on the CPU.
    turns = 2 if device == "cpu" else len(_SOME)
    some = _SOME if every else _by_turns(_SOME, list(PROGRAMS).index(name), of=turns)
    for layout in [*some, *some]:
        _calls(PROGRAMS[name], call, layout, device)


@torch.no_grad()
@pytest.mark.parametrize("options", [{"clone_input": False}, {"clone_input": False, "on_input_move": "copy"}], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled
def test_arguments_used_in_place_that_lie_in_many_ways(
    device: str, name: str, options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    _skip_where_new_values_lie_otherwise(device, name)
    program = PROGRAMS[name]
    call = torch.compile(program, backend="airgraph", dynamic=False, options=options)
    every = request.config.getoption("--full-sweep")
    for layout in _SOME[:4] if every else _by_turns(_SOME[:4], list(PROGRAMS).index(name), of=4):
        x = LAYOUTS[layout](device)
        for _ in range(2):
            # Of the argument that was kept, "copy" writes the values anew.
            ours, theirs = twins([x])[0], twins([x])[0]
            try:
                expected = program(theirs)
            except (RuntimeError, ValueError):
                continue
            out = call(ours)
            torch.testing.assert_close(out, expected, check_stride=False)


def four_dimensions(x: Tensor) -> tuple[Tensor, ...]:
    return x * x.stride(1), strides_of(x), strides_of(x[:, :2].transpose(0, 1)), x.sum((2, 3))


def channels_last(x: Tensor) -> Tensor:
    """In this memory format, which torch_npu does not make by `contiguous`."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


@torch.no_grad()
@both_doors
def test_channels_last(device: str, door: str, tmp_path: Path) -> None:
    call = through(door, four_dimensions, tmp_path, dynamic=True)
    plain = torch.arange(2.0 * 3 * 4 * 6, device=device).view(2, 3, 4, 6)
    for x in (
        channels_last(plain),
        plain,
        channels_last(plain)[:, 1:],
        channels_last(plain[:, :1]),
        plain.permute(1, 0, 3, 2),
        plain[1:, :, ::2],
    ):
        check_against_eager(call, four_dimensions, x)


def asks_for_strides(x: Tensor) -> tuple[Tensor, ...]:
    return strides_of(x), x + 1


def asks_for_its_own_strides(x: Tensor) -> tuple[Tensor, ...]:
    """Of what is computed from it torch's fake tensors have other strides, where a dimension has no or one element."""
    return strides_of(x), strides_of(x.unsqueeze(0)), x + 1


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.sampled
def test_strides_of_dimensions_of_size_one(
    device: str, door: str, dynamic: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """They move nothing, but an operator may be told of them."""
    whole = torch.arange(1000.0, device=device)
    every = [(1, 77), (5, 1), (6, 6), (1, 0), (6, 1)]
    for i, strides in enumerate(every if request.config.getoption("--full-sweep") else _by_turns(every, dynamic, of=2)):
        torch._dynamo.reset()
        call = through(door, asks_for_its_own_strides, tmp_path / str(i), dynamic=dynamic)
        for shape in ((4, 1), (1, 4), (1, 1), (4, 1)):
            check_against_eager(call, asks_for_its_own_strides, whole.as_strided(shape, strides, 2))
            check_against_eager(call, asks_for_its_own_strides, whole[: shape[0] * shape[1]].view(shape))


@torch.no_grad()
@both_doors
def test_zero_elements_and_no_dimensions(device: str, door: str, tmp_path: Path) -> None:
    call = through(door, asks_for_its_own_strides, tmp_path)
    whole = torch.arange(24.0, device=device).view(4, 6)
    for x in (whole[:, :0], whole[:0], whole[1, 2], whole[:0].t(), whole[3:, 5:], whole[0, :0]):
        check_against_eager(call, asks_for_its_own_strides, x)


def two_of_one(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return a * 2 + b, strides_of(a), strides_of(b), read_rows(b, b.stride(0), b.shape[0])


def one_is_written(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(2)
    return a + b


def both_are_written(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    b.mul_(3)
    return a - b


def other_is_written_by_rows(a: Tensor, b: Tensor) -> Tensor:
    b[1:].add_(a[:-1])
    return a * 10


# How two arguments lie to one another; of 64 numbers.
_PAIRS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "apart": lambda x, y: (x[:24].view(4, 6), y[:24].view(4, 6)),
    "apart in one storage": lambda x, y: (x[:24].view(4, 6), x[24:48].view(4, 6)),
    "apart in one storage, the other first": lambda x, y: (x[24:48].view(4, 6), x[:24].view(4, 6)),
    "the same": lambda x, y: (x[:24].view(4, 6),) * 2,
    "twice the same memory": lambda x, y: (x[:24].view(4, 6), x[:24].view(4, 6)),
    "one row in common": lambda x, y: (x[:24].view(4, 6), x[18:42].view(4, 6)),
    "one row in common, the other first": lambda x, y: (x[18:42].view(4, 6), x[:24].view(4, 6)),
    "columns by turns": lambda x, y: (x[:48].view(4, 12)[:, ::2], x[:48].view(4, 12)[:, 1::2]),
    "begin together": lambda x, y: (x[:24].view(4, 6), x[:48].view(4, 12)[:, :6]),
}


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("program", [two_of_one, one_is_written, both_are_written, other_is_written_by_rows])
@pytest.mark.parametrize("clone_input", [True, False])
@pytest.mark.sampled
def test_arguments_that_overlap_only_at_a_later_call(
    device: str, door: str, program: Callable[..., Any], clone_input: bool, tmp_path: Path
) -> None:
    call = through(door, program, tmp_path, clone_input=clone_input)
    for name in [*_PAIRS, "apart", *reversed(_PAIRS)]:
        if name == "begin together" and program is other_is_written_by_rows:
            # Functionalization itself loses the gaps there.
            continue
        x, y = (torch.arange(64.0, device=device) + i for i in (0.0, 100.0))
        try:
            _check_where_eager_can(call, program, *_PAIRS[name](x, y))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@torch.no_grad()
@pytest.mark.parametrize("program", [one_is_written, both_are_written])
@pytest.mark.parametrize("first", ["the same", "one row in common", "columns by turns"])
@pytest.mark.sampled
def test_arguments_that_overlap_only_at_the_first_call(
    device: str, program: Callable[..., Any], first: str, tmp_path: Path
) -> None:
    """Through the cached door; torch.compile merges them before any backend sees them, and never looks again."""
    call = through("cached", program, tmp_path)
    for name in (first, "apart", "apart in one storage", first):
        x, y = (torch.arange(64.0, device=device) + i for i in (0.0, 100.0))
        check_against_eager(call, program, *_PAIRS[name](x, y))


def the_cache_is_read_elsewhere(cache: Tensor, row: Tensor, x: Tensor) -> Tensor:
    cache.index_copy_(0, row, x * 2)
    return x + cache[0]


@torch.no_grad()
@both_doors
def test_an_input_that_is_a_row_of_the_cache_at_a_later_call(device: str, door: str, tmp_path: Path) -> None:
    """As a decode step that is fed a row which it has written before."""
    call = through(door, the_cache_is_read_elsewhere, tmp_path)
    for i in range(8):
        cache, x = torch.arange(12.0, device=device).view(4, 3), torch.full((1, 3), float(i), device=device)
        for given in (x, cache[i % 4 : i % 4 + 1], cache[:1]):
            check_against_eager(call, the_cache_is_read_elsewhere, cache, torch.tensor([i % 4], device=device), given)


@torch.no_grad()
def test_a_weight_that_lies_in_the_cache(device: str) -> None:
    """Static inputs overlap with written ones too, once they move."""
    weight, cache, whole = (torch.arange(6.0, device=device) for _ in range(3))
    for tensor in (weight, whole):
        torch._dynamo.mark_static_address(tensor)

    def program(cache: Tensor, weight: Tensor) -> Tensor:
        cache.mul_(2)
        return cache + weight

    call = torch.compile(program, backend="airgraph", dynamic=False)
    for mine, other in ((cache, weight), (whole, weight), (whole, whole), (cache, whole), (cache, weight)):
        expected_cache, expected = twins([mine, other])
        theirs = program(expected_cache, expected)
        torch.testing.assert_close(call(mine, other), theirs)
        torch.testing.assert_close([mine, other], [expected_cache, expected])


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("place", [0, 6, 7])
@pytest.mark.sampled
def test_offsets_that_change_between_calls(device: str, door: str, place: int, tmp_path: Path) -> None:
    """With strides as before: as_strided counts from the storage's begin."""
    program = PROGRAMS["as_strided_from_the_start"]
    call = through(door, program, tmp_path)
    whole = torch.arange(80.0, device=device)
    for offset in (0, place, 12, 5, place, 0):
        check_against_eager(call, program, whole[offset : offset + 24].view(4, 6))


@torch.no_grad()
@pytest.mark.parametrize("name", ["operator_that_writes", "offset_as_a_number"])
def test_a_cache_that_moves_within_its_storage(device: str, name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    call = through("cached", program, tmp_path)
    whole = torch.arange(80.0, device=device)
    for offset in (0, 24, 12, 5, 24, 0):
        check_against_eager(call, program, whole[offset : offset + 24].view(4, 6))
        check_against_eager(call, program, whole[offset : offset + 48].view(4, 12)[:, :6])


def lazy_conjugate(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x * 2 + y, x.real + 1, torch.view_as_real(x.resolve_conj()) * 3


@torch.no_grad()
@both_doors
def test_lazy_conjugates_and_negatives(device: str, door: str, tmp_path: Path) -> None:
    if device == "npu":
        pytest.skip("complex numbers are not simulated")
    call = through(door, lazy_conjugate, tmp_path)
    x, y = (torch.randn(3, 4, dtype=torch.complex64, device=device) for _ in range(2))
    for a, b in ((x, y), (x.conj(), y), (x, y.conj()), (x.t().conj().t(), y), (x.conj()[:, ::2].t(), y[:, 1::2].t())):
        torch.testing.assert_close(call(a, b), lazy_conjugate(a, b))
    negative = x.conj().imag
    call = through(door, asks_for_strides, tmp_path)
    for z in (negative, x.imag, negative.t()):
        torch.testing.assert_close(call(z), asks_for_strides(z))


@torch.no_grad()
def test_strided_arguments_are_replayed_and_not_run_eagerly(device: str) -> None:
    """Being right by giving up would be no solution for plain programs."""
    call = torch.compile(lambda x: (x * 2).relu() + x.sum(0), backend="airgraph", dynamic=False)
    for layout in _SOME[:5]:
        x = LAYOUTS[layout](device)
        for _ in range(2):
            torch.testing.assert_close(call(x), (x * 2).relu() + x.sum(0))
    assert counters()["eager_calls"] == 0 and counters()["captures"] == 5


def write_before(x: Tensor) -> Tensor:
    x.as_strided((2,), (1,), 0).add_(1)
    return x * 2


def write_between(x: Tensor) -> Tensor:
    x.as_strided((x.shape[0],), (1,)).mul_(3)
    return x + 1


@both_doors
@pytest.mark.parametrize("program", [write_before, write_between])
@pytest.mark.filterwarnings("ignore:airgraph. .* is not cached", "ignore:airgraph. .* runs eagerly where")
@torch.no_grad()
@pytest.mark.sampled
def test_what_is_written_beside_an_argument_is_not_lost(
    program: Callable[[Tensor], Tensor], door: str, device: str, tmp_path: Path
) -> None:
    """torch.compile loses it: a part of a storage is written through as_strided, outside that part."""
    call = through(door, program, tmp_path)
    for make in (lambda whole: whole[2:6], lambda whole: whole[::2], lambda whole: whole, lambda whole: whole[4:]):
        ours, theirs = (torch.arange(8.0, device=device) for _ in range(2))
        for _ in range(2):
            torch.testing.assert_close(call(make(ours)), program(make(theirs)))
            torch.testing.assert_close(ours, theirs)
