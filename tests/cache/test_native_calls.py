"""Usual calls come to the engine without a frame of Python, as long as nobody has put something else in their way."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from cached_functions import MANY, Mlp, cached, settled
from native_engine import native
from process import output_of
from torch import nn

from airgraph.cache.cached_function import CachedFunction
from airgraph.cache.entry import MISS
from airgraph.runtime.engine.loading import engine


def test_a_door_that_is_called_wrongly(tmp_path: Path) -> None:
    if engine().__name__.endswith("python_engine"):
        pytest.skip("the door in Python trusts who calls it")
    call = cached(Mlp().forward, tmp_path)
    x = torch.randn(4, 8)
    door = settled(call, x)
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
    settled(call, x)
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
    settled(call, x)
    with monkeypatch.context() as patched:
        patched.setattr(CachedFunction, "__call__", lambda self, *args: None)
        assert call(x) is None
    torch.testing.assert_close(call(x), model(x).detach())
    assert _frames_of(call, x) == []


def test_a_place_that_a_class_no_longer_keeps_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a debugger or a profiler may put a property where the engine has read an object's own place.
    model = Mlp()
    call, x = cached(model.forward, tmp_path), torch.randn(3, 8)
    settled(call, x)
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
    settled(call, x)
    for name in ("_entries", "_plain_arity"):
        with monkeypatch.context() as patched:
            patched.setattr(CachedFunction, name, vars(Other)["place99"])
            with pytest.raises(TypeError, match="place99"):
                call(x)
    settled(call, x)


def test_doors_that_follow_one_another_share_their_count(tmp_path: Path) -> None:
    model, x = Mlp(), torch.randn(4, 8)
    call = cached(model.forward, tmp_path)
    door = settled(call, x)
    calls = call.counts().hits
    # Read anew, as where a thread exchanges a weight while another one is in a call.
    linear = next(each for each in model.modules() if isinstance(each, nn.Linear))
    linear.weight = nn.Parameter(torch.randn_like(linear.weight))
    call(x)
    assert call._entries[0].door is not door
    assert door((x,)) is MISS
    settled(call, x)
    assert call.counts().hits == calls + 1 + MANY + 1


def test_what_a_call_is_overridden_by_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a subclass, and in the class itself."""
    model, x = Mlp(), torch.randn(4, 8)
    call = cached(model.forward, tmp_path)
    settled(call, x)
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
    door = settled(call, x)
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
    door = settled(call, x)
    served = door.calls
    program = torch.compile(lambda x: call(x) + 1, backend="eager", fullgraph=True)
    torch.testing.assert_close(program(x).detach(), model(x).detach() + 1)
    assert door.calls == served
