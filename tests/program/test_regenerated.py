"""A view of a mutated input that is returned is made of the input itself, so that nothing of it is copied."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from reports import counters, report
from torch import Tensor

import airgraph

Program = Callable[[Tensor, Tensor, Tensor], Any]


def _index_copy(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    k.index_copy_(0, i, v)
    return k[:2]


def _the_input_itself(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    k.index_copy_(0, i, v)
    return k


def _add(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    k.add_(v)
    return k.t()


def _add_to_a_part(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    k[:2].add_(v)
    return k[:2]


def _rows(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    k[1:2] = v
    return k[1:]


def _index_put(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    k[i] = v
    return k.unsqueeze(0)[..., :3]


def _index_put_flat(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    k.view(-1)[i] = v[0, :1]
    return k.view(-1)[2:]


def _views_of_views(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    view = k[1:]
    view.index_copy_(0, i, v)
    return view.t()[1:].unflatten(0, (-1, 1)).diagonal()


def _several(k: Tensor, i: Tensor, v: Tensor) -> tuple[Any, ...]:
    k.index_copy_(0, i, v)
    return k[:2].t(), k, {"sum": k.sum(1), "halves": k.chunk(2)}, v[0]


def _taken_before_it_is_written(k: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    first = k[:2]
    k.index_copy_(0, i, v)
    return first, first * 2


def _from_its_end(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    k.index_copy_(0, i, v)
    return k[k.shape[0] - 3 :]


def _written_twice(k: Tensor, i: Tensor, v: Tensor) -> Tensor:
    k.mul_(0.5)
    k.index_copy_(0, i, v)
    return k.detach().movedim(0, 1)


def _two_caches(k: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    v.mul_(0.5)
    k.index_copy_(0, i, v)
    return v[0], k[0]


_PROGRAMS: list[Program] = [
    *(_index_copy, _the_input_itself, _add, _add_to_a_part, _rows, _index_put, _index_put_flat, _views_of_views),
    *(_several, _taken_before_it_is_written, _from_its_end, _written_twice, _two_caches),
]


def _dense(device: str) -> Tensor:
    return torch.arange(4096.0, device=device).reshape(64, 64).clone()


def _in_a_larger_one(device: str) -> Tensor:
    return torch.arange(8192.0, device=device).reshape(128, 64)[32:96]


def _with_gaps(device: str) -> Tensor:
    return torch.arange(8192.0, device=device).reshape(64, 128)[:, 16:80]


def _tensors(value: Any) -> list[Tensor]:
    return [each for each in torch.utils._pytree.tree_leaves(value) if isinstance(each, Tensor)]


def _check(compiled: Program, program: Program, make: Callable[[str], Tensor], device: str) -> None:
    i = torch.tensor([3], device=device)
    ours, theirs = ([make(device), torch.full((1, 64), 0.25, device=device)] for _ in range(2))
    for _ in range(3):
        made, expected = _tensors(compiled(ours[0], i, ours[1])), _tensors(program(theirs[0], i, theirs[1]))
        for a, b in zip(made, expected, strict=True):
            assert torch.equal(a, b)
            forms = [(each.shape, each.stride(), each.dtype) for each in (a, b)]
            assert forms[0] == forms[1]
            # Each is a view of the same argument, at the same place, or memory of its own.
            for own, other in zip(ours, theirs, strict=True):
                shared = torch._C._is_alias_of(a, own)
                assert shared == torch._C._is_alias_of(b, other)
                assert not shared or a.data_ptr() - own.data_ptr() == b.data_ptr() - other.data_ptr()
        assert all(map(torch.equal, ours, theirs))


@torch.no_grad()
@pytest.mark.parametrize(("make", "dynamic"), [(_dense, False), (_in_a_larger_one, True), (_with_gaps, False)])
@pytest.mark.parametrize("program", _PROGRAMS)
@pytest.mark.sampled
def test_the_cache_is_not_copied(program: Program, make: Callable[[str], Tensor], dynamic: bool) -> None:
    if program is _index_put_flat and make is _with_gaps:
        pytest.skip("eager has no such view either")
    compiled = torch.compile(program, backend="airgraph", fullgraph=True, dynamic=dynamic)
    _check(compiled, program, make, "cpu")
    assert counters() == {"captures": 1, "recaptures": 0, "replays": 3, "eager_calls": 0}
    (graph,) = report()["graphs"]
    # Of a part of a larger tensor the new value has strides of its own, with which a view that is read was traced.
    if not (program is _taken_before_it_is_written and make is _with_gaps):
        assert graph["copied_nbytes"] < make("cpu").nbytes / 8


@torch.no_grad()
@pytest.mark.parametrize("options", [{"input_inplace_pass": False}, {"clone_output": True}, {"verify_every": 1}])
def test_results_are_eagers_whatever_the_options(options: dict[str, Any]) -> None:
    compiled = torch.compile(_several, backend="airgraph", fullgraph=True, options=options)
    _check(compiled, _several, _in_a_larger_one, "cpu")
    assert counters()["eager_calls"] == 0


@torch.no_grad()
def test_a_view_lies_where_the_call_s_argument_does() -> None:
    compiled = torch.compile(_from_its_end, backend="airgraph", fullgraph=True, dynamic=True)
    whole, i = torch.arange(256.0).reshape(32, 8), torch.tensor([1])
    for rows in (slice(0, 8), slice(8, 16), slice(5, 17), slice(20, 32)):
        mine, other = whole.clone()[rows], whole.clone()[rows]
        ours = compiled(mine, i, torch.ones(1, 8))
        assert torch.equal(ours, _from_its_end(other, i, torch.ones(1, 8)))
        assert ours.data_ptr() == mine[-3:].data_ptr() and torch.equal(mine, other)
        ours.zero_()
        assert not mine[-3:].any()


@torch.no_grad()
@pytest.mark.parametrize(
    "program",
    [
        lambda k, i, v: (k.add_(v), k.view(torch.int32))[1],
        lambda k, i, v: (k.add_(v), torch.ops.aten._neg_view(k))[1],
        lambda k, i, v: (k.add_(v), k.expand(2, 64, 64))[1],
        lambda k, i, v: (k.add_(v), k.as_strided((3,), (2,), 5))[1],
        lambda k, i, v: (k.resize_(32, 64), k.add_(v), k[:2])[2],
        lambda k, i, v: (k.t_(), k.add_(v), k[:2])[2],
        lambda k, i, v: (k.add_(v), k.clone()[:2], k[:2] + 0)[1:],
    ],
)
def test_other_views_and_changes_of_form_are_eagers(program: Program) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _check(torch.compile(program, backend="airgraph"), program, _dense, "cpu")


@torch.no_grad()
@pytest.mark.parametrize("program", [_index_copy, _several])
def test_a_function_with_a_cache_door_copies_nothing_either(program: Program, tmp_path: Path) -> None:
    _check(airgraph.inference.cache_compile(program, cache_dir=tmp_path), program, _dense, "cpu")
    (graph,) = report()["graphs"]
    assert graph["copied_nbytes"] < _dense("cpu").nbytes / 8
    assert counters()["eager_calls"] == 0


@torch.no_grad()
def test_one_tensor_as_two_arguments() -> None:
    def program(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a.add_(1)
        return a[1:], b[:2]

    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    for _ in range(2):
        mine, other = torch.zeros(8, 4), torch.zeros(8, 4)
        made, expected = compiled(mine, mine), program(other, other)
        assert all(map(torch.equal, made, expected)) and torch.equal(mine, other)
        assert made[0].data_ptr() == mine[1:].data_ptr() and made[1].data_ptr() == mine.data_ptr()
