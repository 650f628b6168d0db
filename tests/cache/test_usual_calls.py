"""Calls that follow many like them: what they no longer look at one by one is seen when it changes all the same."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from cached_functions import Decoder, Mlp, cached
from native_engine import native
from process import output_of
from torch import Tensor, nn

from airgraph.cache.cached_function import CachedFunction
from airgraph.cache.entry import MISS
from airgraph.errors import CacheError, ReplayError
from airgraph.runtime.engine.loading import engine

# By then, arguments that do not come with a call are compared at once.
_MANY = 5


def _settled(call: CachedFunction, *args: Any) -> Any:
    """Its door, which serves all calls by now."""
    for _ in range(_MANY):
        call(*args)
    door: Any = call._entries[0].door
    served = door.calls
    call(*args)
    assert door.calls == served + 1
    return door


def _called_by_threads(call: CachedFunction, model: nn.Module, rows: tuple[int, ...]) -> None:
    """By one for each number of rows, many times; results are the model's."""

    def many(rows: int) -> None:
        for _ in range(100):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(call(x), model(x).detach())

    with ThreadPoolExecutor(len(rows)) as threads:
        # Raises what a thread raised.
        assert list(threads.map(many, rows)) == [None] * len(rows)


class _Weight(nn.Parameter):
    pass


def _grown(weight: Tensor) -> None:
    """Its memory moves, and nothing else does."""
    kept = weight.detach().clone()
    weight.untyped_storage().resize_(1 << 20)
    weight.data.copy_(kept)


def _given_an_offset(weight: Tensor) -> None:
    """Over its own storage still, three elements further on."""
    storage = weight.untyped_storage()
    storage.resize_(storage.nbytes() + 12)
    with torch.no_grad():
        weight.set_(storage, 3, weight.shape, weight.stride())
        # What the storage grew by is whatever lay there, at times not a number, which equals nothing.
        weight[-1, -3:] = 1.0


def _turned(weight: Tensor) -> None:
    """In place, over the same memory."""
    with torch.no_grad():
        weight.t_()


_CHANGES: dict[str, Callable[[nn.Linear], Any]] = {
    "values": lambda layer: layer.weight.data.mul_(2),
    "memory": lambda layer: setattr(layer.weight, "data", torch.randn(8, 8)),
    "memory of the storage": lambda layer: _grown(layer.weight),
    "offset": lambda layer: _given_an_offset(layer.weight),
    "strides": lambda layer: _turned(layer.weight),
    "strides of memory elsewhere": lambda layer: setattr(layer.weight, "data", torch.randn(8, 8).t()),
    "history": lambda layer: layer.weight.requires_grad_(False),
    "another tensor": lambda layer: setattr(layer, "weight", nn.Parameter(torch.randn(8, 8))),
    "no bias": lambda layer: setattr(layer, "bias", None),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_what_changes_in_a_weight_after_many_calls(change: Callable[[nn.Linear], Any], tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    _settled(call, x)
    change(model.inner)
    for _ in range(_MANY):
        torch.testing.assert_close(call(x), model(x).detach())
    _settled(call, x)


def test_a_weight_that_is_exchanged_after_many_calls(tmp_path: Path) -> None:
    cached(Mlp().forward, tmp_path)(torch.randn(4, 8))
    # Not traced in this process, or Dynamo's references to the weight would keep it as it is.
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    _settled(call, x)
    assert call.counts().traces == 0
    others = [nn.Parameter(torch.randn(8, 8)) for _ in range(3)]
    # The first exchanges dicts and classes too.
    swaps = (torch.utils.swap_tensors, torch._C._swap_tensor_impl, torch._C._swap_tensor_impl)
    for swap, other in zip(swaps, others, strict=True):
        swap(model.inner.weight, other)
        for _ in range(_MANY):
            torch.testing.assert_close(call(x), model(x).detach())


def test_a_weight_of_another_class_after_many_calls(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    _settled(call, x)
    model.inner.weight.__class__ = _Weight
    with pytest.raises(CacheError, match="got _Weight"):
        call(x)
    model.inner.weight.__class__ = nn.Parameter
    _settled(call, x)


def test_a_weight_of_another_dtype_after_many_calls(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    _settled(call, x)
    model.double()
    torch.testing.assert_close(call(x.double()), model(x.double()).detach())


def test_a_step_that_writes_its_cache_after_many_calls(tmp_path: Path) -> None:
    model = Decoder()
    call = cached(model.step, tmp_path)
    caches = [torch.zeros(4, 8) for _ in range(2)]
    for step in range(12):
        x, row = torch.randn(1, 8), torch.tensor([step % 4])
        right = model.step(x, caches[1], row)
        torch.testing.assert_close(call(x, caches[0], row), right)
        torch.testing.assert_close(caches[0], caches[1])
        # The cache lies elsewhere for the last calls, and its weights do not.
        caches[0] = caches[0].clone() if step > 7 else caches[0]


def test_shapes_that_take_turns(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    inputs = [torch.randn(rows, 8) for rows in (4, 4, 4, 4, 5, 4, 5, 4, 4, 4, 4)]
    for x in inputs:
        torch.testing.assert_close(call(x), model(x).detach())
    model.inner.weight.data = torch.randn(8, 8)
    for x in inputs:
        torch.testing.assert_close(call(x), model(x).detach())


def test_arguments_are_not_kept_alive(tmp_path: Path) -> None:
    call = cached(Mlp().forward, tmp_path)
    x = torch.randn(4, 8)
    _settled(call, x)
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None


def test_a_function_and_its_graphs_can_be_collected(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    _settled(call, torch.randn(4, 8))
    alive = [weakref.ref(each) for each in (call, model, model.inner.weight)]
    del call, model
    gc.collect()
    assert [each() for each in alive] == [None] * 3


def test_a_weight_that_moves_away_and_back_between_calls_of_two_graphs(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
            x = self.inner(x)
            return x if mask is None else x * mask

    model = Masked()
    call = cached(model.forward, tmp_path)
    x, mask = torch.randn(4, 8), torch.randn(8)

    def check(*given: Any) -> None:
        torch.testing.assert_close(call(*given), model(*given).detach())

    for _ in range(_MANY):
        check(x, None)
    for _ in range(_MANY):
        check(x, mask)
    check(x, None)
    before = model.inner.weight.data
    # The graph of the mask is pointed at it by a call that does not go through its door.
    model.inner.weight.data = torch.randn(8, 8)
    check(x, mask)
    model.inner.weight.data = before
    for _ in range(3):
        check(x, mask)


def test_a_weight_of_many_dimensions_that_is_resized(tmp_path: Path) -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.randn(2, 3, 1, 1, 1, 4))

        def forward(self, x: Tensor) -> Tensor:
            held: Any = self.held
            return held.sum((1, 2, 3, 4)) * x

    model = Held()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4)
    _settled(call, x)
    held: Any = model.held
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held.resize_(3, 2, 1, 1, 1, 4)
    for _ in range(_MANY):
        torch.testing.assert_close(call(x), model(x))


def test_calls_of_graphs_with_pools_of_their_own(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path, options={"reuse_graph_pool_in_same_fx": False})
    _called_by_threads(call, model, (3, 4, 5))


def test_calls_of_several_threads(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    _settled(call, torch.randn(4, 8))
    _called_by_threads(call, model, (4, 4, 4, 4))


@torch.library.custom_op("airgraph_usual_calls::fails_at_zero", mutates_args=())
def fails_at_zero(x: Tensor) -> Tensor:
    if not x.any():
        raise ValueError("all zero")
    return x + 1


@fails_at_zero.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_a_replay_that_fails_after_many_calls(tmp_path: Path) -> None:
    def shifted(x: Tensor) -> Tensor:
        return fails_at_zero(x * 2)

    call = cached(shifted, tmp_path)
    x = torch.ones(3)
    _settled(call, x)
    with pytest.raises(ReplayError, match=r"fails_at_zero.*all zero") as raised:
        call(torch.zeros(3))
    assert raised.value.__cause__ is not None
    torch.testing.assert_close(call(x), shifted(x))


def test_a_door_that_is_called_wrongly(tmp_path: Path) -> None:
    if engine().__name__.endswith("python_engine"):
        pytest.skip("the door in Python trusts who calls it")
    call = cached(Mlp().forward, tmp_path)
    x = torch.randn(4, 8)
    door = _settled(call, x)
    for wrong in ((), (x,), ([x],), ((x,), (x,))):
        with pytest.raises(TypeError):
            door(*wrong)
    with pytest.raises(TypeError, match="number of arguments"):
        door((x, x))
    with pytest.raises(TypeError):
        door(values=(x,))
    native = type(door)
    with pytest.raises(TypeError):
        native.__new__(native)((x,))
    assert door((torch.randn(4, 8, dtype=torch.float64),)) is MISS
    assert door((x,)) is not MISS


def _frames_of(call: CachedFunction, *args: Any) -> list[str]:
    """Which functions of Python's a call enters."""
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            entered.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call(*args)
    finally:
        sys.setprofile(before)
    return entered


@native
def test_a_usual_call_takes_no_frame_of_python(tmp_path: Path) -> None:
    model, x = Mlp(), torch.randn(4, 8)
    call = cached(model.forward, tmp_path)
    _settled(call, x)
    assert _frames_of(call, x) == []
    torch.testing.assert_close(call(x), model(x).detach())


class _Doubled(CachedFunction):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) * 2


def test_a_call_is_overridden_before_the_first(tmp_path: Path) -> None:
    # Where no class has got the native call yet, as in a new process.
    output = output_of(f"""
        import tempfile, torch
        from airgraph import inference
        from airgraph.cache.cached_function import CachedFunction
        own, calls = CachedFunction.__call__, []
        def counted(self, *args):
            calls.append(args)
            return own(self, *args) * 2
        CachedFunction.__call__ = counted
        call = inference.cache_compile(lambda x: x + 1, cache_dir={str(tmp_path)!r})
        x = torch.ones(3)
        print(all(torch.equal(call(x), (x + 1) * 2) for _ in range(5)), len(calls))
        CachedFunction.__call__ = own
        print(all(torch.equal(call(x), x + 1) for _ in range(5)), len(calls))
        import importlib, airgraph.cache.cached_function
        importlib.reload(airgraph.cache.cached_function)
        importlib.reload(inference)
        again = inference.cache_compile(lambda x: x + 3, cache_dir={str(tmp_path)!r})
        print(all(torch.equal(again(x), x + 3) and torch.equal(call(x), x + 1) for _ in range(5)))
    """)
    assert output.split() == ["True", "5", "True", "5", "True"]


@native
def test_a_native_call_comes_back_after_an_override(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Mlp(), torch.randn(4, 8)
    call = cached(model.forward, tmp_path)
    _settled(call, x)
    with monkeypatch.context() as patched:
        patched.setattr(CachedFunction, "__call__", lambda self, *args: None)
        assert call(x) is None
    torch.testing.assert_close(call(x), model(x).detach())
    assert _frames_of(call, x) == []


def test_a_place_that_a_class_no_longer_keeps_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a debugger or a profiler may put a property where the engine has read an object's own place.
    model = Mlp()
    call, x = cached(model.forward, tmp_path), torch.randn(3, 8)
    _settled(call, x)
    expected, asked = model(x).detach(), list[CachedFunction]()
    place = vars(CachedFunction)["_entries"]

    def entries(self: CachedFunction) -> Any:
        asked.append(self)
        return place.__get__(self)

    with monkeypatch.context() as patched:
        patched.setattr(CachedFunction, "_entries", property(entries, place.__set__))
        torch.testing.assert_close(call(x), expected)
        assert asked
    asked.clear()
    torch.testing.assert_close(call(x), expected)
    assert not asked


def test_the_place_of_another_class_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        __slots__ = tuple(f"place{number}" for number in range(100))

    call, x = cached(Mlp().forward, tmp_path), torch.randn(3, 8)
    _settled(call, x)
    for name in ("_entries", "_plain_arity"):
        with monkeypatch.context() as patched:
            patched.setattr(CachedFunction, name, vars(Other)["place99"])
            with pytest.raises(TypeError, match="place99"):
                call(x)
    _settled(call, x)


def test_doors_that_follow_one_another_share_their_count(tmp_path: Path) -> None:
    model, x = Mlp(), torch.randn(4, 8)
    call = cached(model.forward, tmp_path)
    door = _settled(call, x)
    calls = call.counts().hits
    # Read anew, as where a thread exchanges a weight while another one is in a call.
    linear = next(each for each in model.modules() if isinstance(each, nn.Linear))
    linear.weight = nn.Parameter(torch.randn_like(linear.weight))
    call(x)
    assert call._entries[0].door is not door
    assert door((x,)) is MISS
    _settled(call, x)
    assert call.counts().hits == calls + 1 + _MANY + 1


def test_what_a_call_is_overridden_by_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a subclass, and in the class itself."""
    model, x = Mlp(), torch.randn(4, 8)
    call = cached(model.forward, tmp_path)
    _settled(call, x)
    expected = model(x).detach()
    call.__class__ = _Doubled
    torch.testing.assert_close(call(x), expected * 2)
    call.__class__ = CachedFunction
    own = CachedFunction.__call__
    with monkeypatch.context() as patched:
        patched.setattr(CachedFunction, "__call__", lambda self, *args: own(self, *args) * 3)
        torch.testing.assert_close(call(x), expected * 3)
    torch.testing.assert_close(call(x), expected)
    torch.testing.assert_close(call(x=x), expected)


def test_a_call_by_name_is_served_by_the_door_too(tmp_path: Path) -> None:
    model, x = Mlp(), torch.randn(4, 8)
    call = cached(model.forward, tmp_path)
    door = _settled(call, x)
    served = door.calls
    for _ in range(3):
        torch.testing.assert_close(call(x=x), model(x).detach())
    assert door.calls == served + 3
    with pytest.raises(TypeError, match="missing"):
        call()
    with pytest.raises(TypeError, match="unexpected"):
        call(x, y=x)


def test_dynamo_calls_what_is_wrapped(tmp_path: Path) -> None:
    model, x = Mlp(), torch.randn(4, 8)
    call = cached(model.forward, tmp_path)
    door = _settled(call, x)
    served = door.calls
    program = torch.compile(lambda x: call(x) + 1, backend="eager", fullgraph=True)
    torch.testing.assert_close(program(x).detach(), model(x).detach() + 1)
    assert door.calls == served
