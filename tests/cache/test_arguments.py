"""What comes with a call is compared with what tracing found: sizes, forms, constants, identities."""

from __future__ import annotations

import copy
import enum
import inspect
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import Mlp, cached, equal_to_eager
from reports import counters
from torch import Tensor, nn

import airgraph
from airgraph.cache import cached_function
from airgraph.cache.entry import Entry
from airgraph.cache.tracing.trace import trace
from airgraph.errors import CacheError


@pytest.mark.parametrize("dynamic", [True, False])
def test_shapes_vary(tmp_path: Path, dynamic: bool) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path, dynamic=dynamic)
    for size in (4, 7, 1, 4, 2):
        x = torch.randn(size, 8)
        torch.testing.assert_close(call(x), model(x).detach())
    # A size of one is a graph of its own.
    assert len(call.files) == (2 if dynamic else 4)


def test_a_call_that_is_traced_or_read_binds_its_arguments_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[str] = []
    for of, name in ((inspect.Signature, "bind"), (Entry, "_bind_at_once")):
        method = getattr(of, name)

        def counting(*args: Any, method: Any = method, name: str = name, **kwargs: Any) -> Any:
            bound.extend([name] * (name != "bind" or args[0].parameters.keys() == {"x", "gain"}))
            return method(*args, **kwargs)

        monkeypatch.setattr(of, name, counting)

    def scaled(x: Tensor, *, gain: float = 2.0) -> Tensor:
        return x * gain

    for traces in (1, 0):
        call = cached(scaled, tmp_path)
        bound.clear()
        assert call(torch.ones(2), gain=3.0).tolist() == [3.0] * 2
        assert call.counts().traces == traces
        assert bound == ["bind", "_bind_at_once"]


def test_sizes_must_stand_to_each_other_as_when_it_was_traced(tmp_path: Path) -> None:
    def total(x: Tensor, y: Tensor) -> Tensor:
        return x + y if x.shape[0] % 4 == 0 else x - y

    call = cached(total, tmp_path)
    for size in (8, 12, 6, 9, 16):
        x, y = torch.randn(size), torch.randn(size)
        torch.testing.assert_close(call(x, y), total(x, y))
    torch.testing.assert_close(call(torch.ones(4), torch.ones(1)), torch.full((4,), 2.0))


def test_dtypes_strides_and_ranks_are_told_apart(tmp_path: Path) -> None:
    def double(x: Tensor) -> Tensor:
        return x.transpose(0, -1) * 2

    call = cached(double, tmp_path)
    base = torch.randn(6, 6)
    for x in (base, base.double(), base.t(), base[::2], base[None].expand(3, 6, 6), base):
        torch.testing.assert_close(call(x), double(x))


def test_a_mutated_argument_in_another_form_at_the_same_address(tmp_path: Path) -> None:
    def fill(cache: Tensor, x: Tensor) -> Tensor:
        cache.add_(x)
        return cache.sum()

    call = cached(fill, tmp_path, dynamic=False)
    memory = torch.zeros(16)
    for view in (memory, memory.view(4, 4), memory[:8], memory.view(torch.int32), memory[::2], memory):
        expected = view.clone()
        total = fill(expected, torch.ones((), dtype=view.dtype))
        torch.testing.assert_close(call(view, torch.ones((), dtype=view.dtype)), total)
        torch.testing.assert_close(view, expected)


def test_constants_among_the_arguments(tmp_path: Path) -> None:
    def scale(x: Tensor, factor: float = 2.0, *, up: bool = True, name: str | None = None) -> Tensor:
        x = x * factor if up else x / factor
        return x if name is None else x + len(name)

    call = cached(scale, tmp_path)
    x = torch.randn(3)
    for args, kwargs in (
        ((x,), {}),
        ((x, 3.0), {}),
        ((x,), {"up": False}),
        ((x,), {"factor": 2.0}),
        ((x, 2), {}),
        ((x,), {"name": "abc", "up": True}),
        ((x,), {}),
    ):
        torch.testing.assert_close(call(*args, **kwargs), scale(*args, **kwargs))


def test_integers_are_sizes_where_they_are_dynamic(tmp_path: Path) -> None:
    def first(x: Tensor, count: int) -> tuple[Tensor, int]:
        return x[:count] * 2, count + 1

    call = cached(first, tmp_path)
    x = torch.randn(10)
    for count in (3, 5, 9, 3):
        torch.testing.assert_close(call(x, count), first(x, count))
    torch.testing.assert_close(call(x, True)[0], first(x, True)[0])
    assert counters()["eager_calls"] == 0


def test_containers_and_objects_as_arguments(tmp_path: Path) -> None:
    @dataclass
    class State:
        layers: list[Tensor]
        sizes: dict[str, Tensor]

    def advance(x: Tensor, state: State, *rest: Tensor, **named: Tensor) -> Tensor:
        for layer in state.layers:
            layer.add_(x)
        return sum(state.sizes.values()) + sum(rest) + named["y"] + len(state.layers)

    call = cached(advance, tmp_path)
    for layers, sizes, rest in ((2, "ab", 1), (2, "ab", 1), (3, "ab", 1), (2, "abc", 2), (2, "ba", 0)):
        state = State([torch.zeros(2) for _ in range(layers)], {name: torch.ones(2) for name in sizes})
        other = copy.deepcopy(state)
        x, tail = torch.randn(2), [torch.randn(2) for _ in range(rest)]
        torch.testing.assert_close(call(x, state, *tail, y=x), advance(x, other, *tail, y=x))
        torch.testing.assert_close(state.layers, other.layers)


def test_arguments_given_twice(tmp_path: Path) -> None:
    def step(x: Tensor, cache: Tensor) -> Tensor:
        cache.add_(1)
        return x * 2 + cache

    call = cached(step, tmp_path, strict=False)
    x, cache = torch.ones(3), torch.zeros(3)
    torch.testing.assert_close(call(x, cache), torch.full((3,), 3.0))
    both, expected = torch.ones(3), torch.ones(3)
    torch.testing.assert_close(call(both, both), step(expected, expected))
    torch.testing.assert_close(both, expected)
    # Where nothing has moved since the capture.
    x, cache = torch.ones(3), torch.zeros(3)
    for given in (x, cache, x):
        expected = cache.clone()
        result = step(expected if given is cache else given, expected)
        torch.testing.assert_close(call(given, cache), result)
        torch.testing.assert_close(cache, expected)
    memory, expected = torch.ones(4), torch.ones(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = call(memory[:3], memory[1:])
    torch.testing.assert_close(got, step(expected[:3], expected[1:]))
    torch.testing.assert_close(memory, expected)


@pytest.mark.filterwarnings("ignore:airgraph. a call of")
def test_arguments_that_share_memory_are_traced_a_few_times_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(cache: Tensor, x: Tensor) -> Tensor:
        cache.add_(1)
        return x * 2

    traced = []
    monkeypatch.setattr(cached_function, "trace", lambda request: traced.append(request) or trace(request))
    call = cached(step, tmp_path, strict=False)
    for _ in range(6):
        cache = torch.ones(4)
        torch.testing.assert_close(call(cache, cache[1:3]), torch.full((2,), 4.0))
    assert len(traced) == 3
    assert sum(call.counts().refusals.values()) == 6
    # Others are cached as ever.
    cache = torch.ones(4)
    torch.testing.assert_close(call(cache, torch.ones(2)), torch.full((2,), 2.0))
    assert len(call.files) == 1


class Mode(enum.Enum):
    A = 1
    B = 2


class Text(str, enum.Enum):
    A = "a"
    B = "b"


def test_sizes_of_tensors_that_are_not_computed_with(tmp_path: Path) -> None:
    def by_size(x: Tensor, y: Tensor) -> Tensor:
        return x * y.shape[0]

    five, seven = torch.ones(5), torch.ones(7)
    equal_to_eager(cached(by_size, tmp_path), (five, five.clone()), (five, seven), (seven, five), (five, five.clone()))

    def by_form(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 if y.is_contiguous() else x * 3

    square = torch.randn(4, 4)
    equal_to_eager(cached(by_form, tmp_path), (five, square), (five, square.t()), (five, square))


def test_numbers_that_equal_a_size(tmp_path: Path) -> None:
    def compare(x: Tensor, n: int) -> Tensor:
        return x * 2 if x.shape[0] == n else x * 3

    x, y = torch.ones(5), torch.ones(7)
    equal_to_eager(cached(compare, tmp_path), (x, 5), (x, 7), (y, 7), (y, 5), (x, 5))


def test_members_of_enums(tmp_path: Path) -> None:
    def by_mode(x: Tensor, mode: Any) -> Tensor:
        return x * 2 if mode is Mode.A else x * 3

    x = torch.ones(2)
    equal_to_eager(cached(by_mode, tmp_path), (x, Mode.A), (x, Mode.B), (x, Mode.A))

    class Moded(nn.Module):
        mode: Any = Mode.A

        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if self.mode == Mode.A else x * 3

    model = Moded()
    call = cached(model.forward, tmp_path)
    for mode in (Mode.A, Mode.B, Mode.A):
        model.mode = mode
        equal_to_eager(call, (x,))

    def returned(x: Tensor, text: Text) -> Any:
        return x * 2, text

    call = cached(returned, tmp_path, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [call(x, text)[1] for text in (Text.A, Text.B)] == [Text.A, Text.B]
        assert type(call(x, Text.A)[1]) is Text


def test_strides_of_what_is_copied(tmp_path: Path) -> None:
    def by_strides(x: Tensor) -> Tensor:
        return x * 2 if x.is_contiguous() else x * 3

    x = torch.randn(6, 6)
    equal_to_eager(cached(by_strides, tmp_path), (x,), (x.t(),), (x,))

    def turn(c: Tensor) -> Tensor:
        c.mul_(2j)
        return c + 0

    call = cached(turn, tmp_path, strict=False)
    base = torch.randn(3, dtype=torch.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for view in (base, base.conj(), base):
            expected = view.clone()
            torch.testing.assert_close(call(view), turn(expected))
            torch.testing.assert_close(view, expected)


def test_arguments_that_are_the_model_s_or_one_another_s(tmp_path: Path) -> None:
    class Added(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3), requires_grad=False)

        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return x * self.weight + w

    model = Added()
    x, other = torch.randn(3), torch.randn(3)
    for order in ((model.weight, other), (other, model.weight)):
        call = cached(model.forward, tmp_path)
        equal_to_eager(call, *((x, w) for w in order), (x, order[0]))

    def same(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 if x is y else x * 3

    for calls in ([(x, other), (x, x), (other, x)], [(x, x), (x, other)]):
        equal_to_eager(cached(same, tmp_path), *calls)


def test_what_must_not_move_may_come_in_another_form(tmp_path: Path) -> None:
    def add(cache: Tensor, x: Tensor) -> Tensor:
        cache.add_(x)
        return cache * 2

    call = cached(add, tmp_path, options={"on_input_move": "error"})
    for cache in (torch.zeros(4), torch.zeros(4, dtype=torch.float64), torch.zeros(4, 2)):
        call(cache, torch.ones((), dtype=cache.dtype))
        assert cache.unique().tolist() == [1.0]


def test_a_size_that_others_are_divided_by(tmp_path: Path) -> None:
    def divide(x: Tensor, y: Tensor) -> Tensor:
        if y.shape[0] == 0:
            return x + 1
        return (x * 2 if x.shape[0] % y.shape[0] == 0 else x * 3) + y.sum()

    call = cached(divide, tmp_path)
    x = torch.ones(12)
    equal_to_eager(call, (x, torch.ones(3)), (x, torch.ones(0)), (x, torch.ones(5)), (x, torch.ones(3)))


def test_sparse_tensors_are_not_dense_ones(tmp_path: Path) -> None:
    def multiply(a: Tensor, x: Tensor) -> Tensor:
        return torch.mm(a, x)

    call = cached(multiply, tmp_path, strict=False)
    a, x = torch.eye(3), torch.randn(3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in (a, a.to_sparse(), a):
            torch.testing.assert_close(call(given, x), x)


def test_whether_an_argument_has_a_property(tmp_path: Path) -> None:
    """A property is missing where its code raises AttributeError, by whatever that code reads."""

    class Past:
        def __init__(self, limit: int) -> None:
            self.limits = [limit]

        @property
        def is_full(self) -> bool:
            if self.limits[0] > 3:
                raise AttributeError("no limit")
            return True

    class Quick(Past):
        @property
        def is_full(self) -> bool:
            return False

    class Lazy(Past):
        is_full = None  # type: ignore[assignment]

    def change(x: Tensor, past: Any) -> Tensor:
        return x * 2 if hasattr(past, "is_full") else x - 1

    class Unset(Past):
        @property
        def is_full(self) -> bool:
            return bool(self.later)  # type: ignore[attr-defined]

    call = cached(change, tmp_path)
    unset = Unset(1)
    equal_to_eager(call, (torch.ones(3), unset))
    unset.later = True  # type: ignore[attr-defined]
    equal_to_eager(call, (torch.ones(3), unset))
    del unset.later  # type: ignore[attr-defined]
    equal_to_eager(call, (torch.ones(3), unset))
    past = Past(1)
    equal_to_eager(call, *[(torch.ones(3), each) for each in (past, past, Past(5), Quick(5), Lazy(5), past, Past(7))])
    past.limits[0] = 9
    equal_to_eager(call, *[(torch.ones(3), past)] * 3)
    Past.is_full = property(lambda self: self.limits[1])  # type: ignore[assignment,method-assign]
    with pytest.raises(IndexError):
        change(torch.ones(3), past)
    past.limits.append(1)
    equal_to_eager(call, *[(torch.ones(3), past)] * 3)


@pytest.mark.parametrize("as_argument", [True, False])
def test_attributes_that_a_class_gains_and_loses(as_argument: bool, tmp_path: Path) -> None:
    class Part:
        pass

    def by_class(x: Tensor, part: Any = None) -> Tensor:
        class_ = Part if part is None else type(part)
        return x * getattr(class_, "on", 9) if hasattr(class_, "other") else x * 2 + getattr(class_, "on", 9)

    call, given = cached(by_class, tmp_path), (torch.ones(3), *([Part()] if as_argument else []))
    for name, value in (("on", 1), ("other", 2), ("on", 3)):
        equal_to_eager(call, given, given)
        setattr(Part, name, value)
    equal_to_eager(call, given)
    for name in ("other", "on"):
        delattr(Part, name)
        equal_to_eager(call, given, given)


def test_a_number_that_has_no_square_root_is_refused_as_in_eager(tmp_path: Path) -> None:
    def root(x: Tensor, n: int) -> Tensor:
        return x * math.sqrt(n)

    call = cached(root, tmp_path)
    for n in (5, 7):
        torch.testing.assert_close(call(torch.ones(1), n), root(torch.ones(1), n))
    relaxed = airgraph.inference.cache_compile(root, cache_dir=tmp_path)
    with pytest.raises((ValueError, RuntimeError), match="math domain error"):
        relaxed(torch.ones(1), -4)
    torch.testing.assert_close(relaxed(torch.ones(1), 9), root(torch.ones(1), 9))


def test_tensors_without_values_are_refused(tmp_path: Path) -> None:
    def add(x: Tensor) -> Tensor:
        return x * 2 + 1

    with pytest.raises(CacheError, match="lie on meta"):
        cached(add, tmp_path)(torch.empty(4, device="meta"))
    relaxed = airgraph.inference.cache_compile(add, cache_dir=tmp_path)
    assert relaxed(torch.empty(4, device="meta")).device.type == "meta"
