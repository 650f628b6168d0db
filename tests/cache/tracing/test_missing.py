"""What a function finds missing, or asks for, is looked for again at every call, however and wherever it asks."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections import ChainMap, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from airgraph.errors import CacheError
from airgraph.inference import cache_compile

HELD: Any = None
MISSING = KeyError


class _Plain:
    pass


class _Slotted:
    __slots__ = ("k",)


class _Method:
    def method(self) -> None:
        pass


class _Config(Mapping[str, int]):
    def __init__(self, held: dict[str, int]) -> None:
        self.held = held

    def __getitem__(self, key: str) -> int:
        return self.held[key]

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)


class _Swallows:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> bool:
        return True


def _helper(x: Tensor) -> Tensor:
    return x


def _has(x: Tensor) -> Tensor:
    return x * 2 if hasattr(HELD, "k") else x


def _default(x: Tensor) -> Tensor:
    return x * getattr(HELD, "k", 1)


def _attribute(x: Tensor) -> Tensor:
    try:
        return x * HELD.k
    except AttributeError:
        return x


def _bare_attribute(x: Tensor) -> Tensor:
    try:
        return x * HELD.k
    except:  # noqa: E722
        return x


def _key(x: Tensor) -> Tensor:
    try:
        return x * HELD["k"]
    except KeyError:
        return x


def _bare_key(x: Tensor) -> Tensor:
    try:
        return x * HELD["k"]
    except:  # noqa: E722
        return x


def _any_key(x: Tensor) -> Tensor:
    try:
        return x * HELD["k"]
    except BaseException:
        return x


def _named_key(x: Tensor) -> Tensor:
    try:
        return x * HELD["k"]
    except MISSING:
        return x


def _swallowed_key(x: Tensor) -> Tensor:
    with _Swallows():
        return x * HELD["k"]
    return x


def _suppressed_key(x: Tensor) -> Tensor:
    with contextlib.suppress(LookupError):
        return x * HELD["k"]
    return x


def _got(x: Tensor) -> Tensor:
    return x * HELD.get("k", 1)


def _in(x: Tensor) -> Tensor:
    return x * 2 if "k" in HELD else x


def _subscript(x: Tensor) -> Tensor:
    return x * HELD["k"]


def _module() -> types.ModuleType:
    module = sys.modules["flags_that_are_asked_for"] = types.ModuleType("flags_that_are_asked_for")
    return module


def _function() -> Callable[[Tensor], Tensor]:
    vars(_helper).clear()
    return _helper


def _weight() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(4), requires_grad=False)


def _weighed(x: Tensor) -> Tensor:
    y = x * HELD
    try:
        return y * HELD.k
    except AttributeError:
        return y


def _sets(held: Any) -> None:
    held.k = 11


def _puts(held: Any) -> None:
    held["k"] = 11


_ATTRIBUTES = [
    pytest.param(program, make, id=f"{program.__name__}-of-{make.__name__}")
    for program in (_has, _default, _attribute, _bare_attribute)
    for make in (_Plain, _Slotted, _module, _function)
]
_ITEMS = [
    pytest.param(program, make, id=f"{program.__name__}-of-{make.__name__}")
    for program in (_key, _bare_key, _any_key, _named_key, _swallowed_key, _suppressed_key)
    for make in (dict, OrderedDict)
]


def _looked_for_again(
    monkeypatch: pytest.MonkeyPatch, folder: Path, program: Any, held: Any, change: Callable[[Any], None]
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "HELD", held)
    x = torch.arange(1.0, 5.0)
    call = cache_compile(program, cache_dir=folder, strict=True)
    for _ in range(3):
        assert torch.equal(call(x), program(x))
    before = program(x)
    change(held)
    assert not torch.equal(program(x), before)
    for served in (call, cache_compile(program, cache_dir=folder, strict=True)):
        for _ in range(2):
            assert torch.equal(served(x), program(x))


@pytest.mark.parametrize(("program", "make"), _ATTRIBUTES)
def test_an_attribute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: Any, make: Any) -> None:
    _looked_for_again(monkeypatch, tmp_path, program, make(), _sets)


@pytest.mark.parametrize(("program", "make"), _ITEMS)
def test_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: Any, make: Any) -> None:
    _looked_for_again(monkeypatch, tmp_path, program, make(), _puts)


@pytest.mark.parametrize("program", [_got, _in, _key], ids=lambda each: each.__name__)
def test_a_key_that_pythons_own_library_looks_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: Any
) -> None:
    _looked_for_again(monkeypatch, tmp_path, program, _Config({"a": 1}), lambda held: _puts(held.held))


def test_a_key_that_an_earlier_dict_of_several_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _looked_for_again(monkeypatch, tmp_path, _subscript, ChainMap({"a": 1}, {"k": 2}), lambda held: _puts(held.maps[0]))


def test_an_attribute_of_a_weight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _looked_for_again(monkeypatch, tmp_path, _weighed, _weight(), _sets)


def test_an_attribute_of_a_methods_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def asked(x: Tensor) -> Tensor:
        return x * 2 if hasattr(HELD.method, "k") else x

    try:
        _looked_for_again(monkeypatch, tmp_path, asked, _Method(), lambda held: _sets(type(held).method))
    finally:
        vars(_Method.method).clear()


def test_a_key_among_others_that_no_file_can_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that a file can name is looked for, and with another the function is not cached."""
    for key, is_cached in ((torch.float64, True), ((1, 2), False)):

        def looked_up(x: Tensor, key: Any = key) -> Tensor:
            try:
                return x * HELD[key]
            except KeyError:
                return x

        monkeypatch.setattr(sys.modules[__name__], "HELD", held := {(0, 0): 5})
        x = torch.ones(3)
        call = cache_compile(functools.partial(looked_up).func, cache_dir=tmp_path, strict=True)
        if is_cached:
            assert torch.equal(call(x), x)
            held[key] = 7
            with pytest.raises(CacheError, match="is not a path of names and constant keys"):
                call(x)
        else:
            with pytest.raises(CacheError, match=r"HELD.* has keys that are neither text nor integers, and was asked"):
                call(x)


def test_what_python_asks_of_a_function_to_know_its_signature(tmp_path: Path) -> None:
    """As torch does where a buffer is assigned to, of a function that classes have by their own."""

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
            super().register_buffer(name, tensor, persistent)

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + self.calls

    call = cache_compile(Counting().forward, cache_dir=tmp_path, strict=True)
    assert [call(torch.zeros(1)).item() for _ in range(3)] == [1, 2, 3]


def test_what_classes_have_and_their_objects_do_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def named(x: Tensor) -> Tensor:
        return x * 2 if hasattr(HELD, "__name__") else x

    _looked_for_again(monkeypatch, tmp_path, named, _Plain(), lambda held: setattr(held, "__name__", "a name"))


def test_a_key_of_a_modules_dict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is PyTorch's own code that raises there."""

    def called(x: Tensor) -> Tensor:
        try:
            return HELD["k"](x)
        except KeyError:
            return x

    held = torch.nn.ModuleDict({"a": torch.nn.Identity()})
    _looked_for_again(monkeypatch, tmp_path, called, held, lambda each: each.update({"k": torch.nn.Softmax(0)}))


def test_an_attribute_of_pytorch_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def asked(x: Tensor) -> Tensor:
        return x * 2 if hasattr(torch, "set_by_a_test") else x

    _looked_for_again(
        monkeypatch, tmp_path, asked, None, lambda _: monkeypatch.setattr(torch, "set_by_a_test", 1, False)
    )


def test_other_keys_of_a_dict_may_come(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules[__name__], "HELD", held := {"a": 1})
    call = cache_compile(_bare_key, cache_dir=tmp_path, strict=True)
    for number in range(12):
        held[f"another {number}"] = number
        assert torch.equal(call(torch.ones(3)), torch.ones(3))
    assert len(call.files) == 1


def test_what_dynamo_does_not_find_is_not_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a partial, it says what any partial has."""

    def asked(x: Tensor) -> Tensor:
        return x * 2 if hasattr(HELD, "k") else HELD(x)

    monkeypatch.setattr(sys.modules[__name__], "HELD", functools.partial(torch.mul, other=3))
    call = cache_compile(asked, cache_dir=tmp_path, strict=True)
    assert call(torch.ones(1)).item() == 3
    HELD.k = 1
    with pytest.raises(CacheError, match="HELD.* has an attribute 'k', which Dynamo does not find"):
        call(torch.ones(1))
