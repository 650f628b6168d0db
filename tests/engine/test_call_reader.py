"""A reader of calls remembers what objects are like, and sees every change of them all the same."""

from __future__ import annotations

import gc
import random
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from airgraph.runtime.engine import python_engine
from airgraph.runtime.engine.loading import engine, engine_status

_native = pytest.mark.skipif(not engine_status().loaded, reason="the engine in Python remembers nothing")


class Layer:
    """Its instances keep their attributes inline until their `__dict__` is asked for."""

    def __init__(self, number: int = 3) -> None:
        self.number, self.on, self.cache = number, True, torch.zeros(2)

    def update(self) -> None: ...

    @property
    def is_wide(self) -> int:
        if not self.on:
            raise AttributeError
        return self.number


class Other(Layer):
    def __getattr__(self, name: str) -> Any:
        if name == "extra":
            return 3
        raise AttributeError(name)


class Slotted:
    __slots__ = ("__dict__", "number")

    def __init__(self) -> None:
        self.number, self.on, self.cache = 3, True, torch.zeros(2)


_OWN = {Slotted: ("on", "cache"), torch.nn.Module: (*vars(torch.nn.Module()), "number", "on", "cache")}


def _instructions(class_: type) -> list[tuple[Any, ...]]:
    """Of a call with one object: what tracing may ask of it, and of what it holds."""
    traits = (False, True, torch._C._dispatch_keys(torch.zeros(1)).raw_repr())
    return [
        ("of_class", 0, class_),
        ("inherits", 0, "update"),
        ("lacks", 0, "extra"),
        ("exactly", 0, _OWN.get(class_, ("number", "on", "cache"))),
        ("has", 0, "on"),
        ("attribute", 0, "number"),
        ("equals", 1, 3),
        ("attribute", 0, "on"),
        ("is", 2, True),
        ("attribute", 0, "cache"),
        ("tensor", 3, 0, torch.Tensor, *traits),
        ("attribute", 0, "number"),
        ("number", 4, 1),
    ]


def _readers(class_: type) -> tuple[Any, Any]:
    """The engine's, and one that remembers nothing."""
    instructions = _instructions(class_)
    return tuple(made.CallReader(1, instructions, [None, None]) for made in (engine(), python_engine))


def _agree(readers: tuple[Any, Any], *objects: Any) -> list[bool]:
    """Whether each object is served, by both readers alike and with the same arguments."""
    served = []
    for each in objects:
        found, expected = (reader.read((each,)) for reader in readers)
        assert (found is None) == (expected is None)
        if found is not None:
            assert found[0] is expected[0] and found[1:] == expected[1:]
        served.append(found is not None)
    return served


_CHANGES = {
    "another number": lambda each: setattr(each, "number", 4),
    "the same number": lambda each: setattr(each, "number", 3),
    "a bool for a number": lambda each: setattr(each, "number", True),
    "another tensor": lambda each: setattr(each, "cache", torch.ones(2)),
    "a tensor with gradients": lambda each: setattr(each, "cache", torch.ones(2, requires_grad=True)),
    "gradients of the tensor": lambda each: vars(each).get("cache", torch.ones(1)).requires_grad_(),
    "no number": lambda each: vars(each).pop("number", None),
    "a switch": lambda each: setattr(each, "on", not getattr(each, "on", True)),
    "one more attribute": lambda each: setattr(each, "extra", 1),
    "no more attribute": lambda each: vars(each).pop("extra", None),
    "a method of its own": lambda each: setattr(each, "update", lambda: None),
    "no method of its own": lambda each: vars(each).pop("update", None),
    "another class": lambda each: setattr(each, "__class__", Other),
    "its class": lambda each: setattr(each, "__class__", Layer),
    "another dict": lambda each: setattr(each, "__dict__", {**vars(each), "number": 5}),
    "a copied dict": lambda each: setattr(each, "__dict__", dict(vars(each))),
    "a cleared dict": lambda each: vars(each).clear(),
    "a new start": lambda each: each.__init__(),
    "nothing": lambda each: None,
}


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize("calls", [1, 2, 3, 5])
def test_each_change_of_an_object_is_seen(change: str, calls: int) -> None:
    readers, layer = _readers(Layer), Layer()
    for _ in range(calls):
        assert _agree(readers, layer) == [True]
    _CHANGES[change](layer)
    for _ in range(4):
        _agree(readers, layer)
    layer.__class__ = Layer
    vars(layer).clear()
    layer.__init__()
    assert _agree(readers, layer, layer, layer) == [True] * 3


@pytest.mark.parametrize("count", [1, 2, 4, 5, 9])
@pytest.mark.parametrize("seed", range(12))
def test_random_changes_of_objects_that_come_by_turns(count: int, seed: int) -> None:
    chosen = random.Random(seed)
    readers, layers = _readers(Layer), [Layer() for _ in range(count)]
    for _ in range(150):
        _agree(readers, layers[chosen.randrange(count)])
        if chosen.random() < 0.3:
            # Mostly put right soon, so that it is learned again.
            change = chosen.choice([*_CHANGES, *["its class", "a new start", "nothing"] * 8])
            _CHANGES[change](chosen.choice(layers))
        if chosen.random() < 0.05:
            layers[chosen.randrange(count)] = Layer(chosen.choice([3, 3, 4]))


def test_changes_of_a_class_are_seen() -> None:
    class Mine(Layer):
        pass

    readers, layer = _readers(Mine), Mine()
    assert _agree(readers, *[layer] * 4) == [True] * 4
    Mine.extra = 1  # type: ignore[attr-defined]
    assert _agree(readers, *[layer] * 4) == [False] * 4
    del Mine.extra  # type: ignore[attr-defined]
    assert _agree(readers, *[layer] * 4) == [True] * 4
    # A property, and a way of its own to look attributes up, come before what the object holds.
    Mine.number = property(lambda self: 7)  # type: ignore[assignment,method-assign]
    assert _agree(readers, *[layer] * 4) == [False] * 4
    del Mine.number
    Mine.__getattribute__ = lambda self, name: 8 if name == "number" else object.__getattribute__(self, name)  # type: ignore[method-assign,misc]
    assert _agree(readers, *[layer] * 4) == [False] * 4
    del Mine.__getattribute__
    Layer.extra = 1  # type: ignore[attr-defined]
    assert _agree(readers, *[layer] * 4) == [False] * 4
    del Layer.extra  # type: ignore[attr-defined]
    assert _agree(readers, *[layer] * 4) == [True] * 4


@pytest.mark.parametrize("class_", [Other, Slotted, SimpleNamespace, torch.nn.Module])
def test_objects_that_keep_their_attributes_otherwise(class_: type) -> None:
    def made() -> Any:
        each = class_()
        each.number, each.on, each.cache = 3, True, torch.zeros(2)
        return each

    readers, objects = _readers(class_), [made() for _ in range(2)]
    for name, value in (("number", 4), ("number", 3), ("on", False), ("on", True), ("extra", 1)):
        _agree(readers, *objects * 3)
        setattr(objects[0], name, value)
    _agree(readers, *objects * 3)
    del objects[0].extra
    assert _agree(readers, *objects * 3) == [class_ is not Other] * 6


@pytest.mark.parametrize("made", [engine(), python_engine])
def test_keys_of_a_dict_are_compared_with_their_order_and_classes(made: Any) -> None:
    reader = made.CallReader(1, [("keyed", 0, ("a", 1)), ("length", 0, 2)], [])
    served = [reader.read((each,)) for each in ({"a": 0, 1: 0}, {1: 0, "a": 0}, {"a": 0, True: 0}, {"a": 0}, [0, 0])]
    assert served == [[], None, None, None, None]


def test_what_a_property_says_is_asked_each_time() -> None:
    reader, layer = (
        engine().CallReader(1, [("has", 0, "is_wide"), ("attribute", 0, "is_wide"), ("number", 1, 0)], [None]),
        Layer(),
    )
    for number in (3, 3, 3, 4, 5):
        layer.number = number
        assert reader.read((layer,)) == [number]
    layer.on = False
    assert reader.read((layer,)) is None


@_native
@pytest.mark.skipif(sys.version_info[:3] == (3, 13, 0), reason="3.13.0 does not tell of all changes of objects")
@pytest.mark.parametrize("count", [1, 2, 4])
def test_objects_that_are_as_they_were_are_not_looked_into(count: int) -> None:
    class Name(str):
        """Counts how often it is looked up."""

        looked_up = 0

        def __hash__(self) -> int:
            Name.looked_up += 1
            return str.__hash__(self)

    reader = engine().CallReader(1, [("attribute", 0, Name("number")), ("equals", 1, 3)], [])
    layers = [Layer() for _ in range(count)]
    for _ in range(3):
        assert all(reader.read((layer,)) == [] for layer in layers)
    before = Name.looked_up
    for _ in range(10):
        assert all(reader.read((layer,)) == [] for layer in layers)
    assert Name.looked_up == before
    layers[0].number = 4
    assert reader.read((layers[0],)) is None and Name.looked_up > before


@_native
def test_objects_are_not_kept_alive() -> None:
    """Nor is a new object at an old address taken for the one that was there."""
    reader, _ = _readers(Layer)
    for number in range(200):
        layer = Layer(3 if number % 3 else 4)
        for _ in range(4):
            assert (reader.read((layer,)) is None) == (number % 3 == 0)
        gone = SimpleNamespace(cache=layer.cache)
        del layer
        # The slots of the last call are empty: the tensor is held here alone.
        assert len(gc.get_referrers(gone.cache)) == 1


def test_code_that_runs_within_a_reading_may_read_again() -> None:
    class Asking(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner: Any = None

    def ask(value: Any) -> bool:
        if value is not None:
            assert reader.read((value,)) is not None
            value.cache = torch.ones(1)
        return True

    traits = (False, True, torch._C._dispatch_keys(torch.zeros(1)).raw_repr())
    reader = engine().CallReader(
        1,
        [
            ("attribute", 0, "inner"),
            ("holds", 1, ask),
            ("attribute", 0, "cache"),
            ("tensor", 2, 0, torch.Tensor, *traits),
        ],
        [None],
    )
    outer, inner = Asking(), Asking()
    outer.inner = inner
    for _ in range(5):
        assert reader.read((outer,))[0] is outer.cache
        assert reader.read((inner,))[0] is inner.cache


def test_code_that_runs_within_a_reading_may_change_what_is_known() -> None:
    """What was remembered before it ran may be gone: the tensor is freed, and its memory taken by others."""

    class Acting:
        act: Any = None

        @property
        def p(self) -> int:
            if self.act is not None:
                self.act()
            return 1

    traits = (False, True, torch._C._dispatch_keys(torch.zeros(1)).raw_repr())
    reader = engine().CallReader(
        2,
        [
            ("attribute", 1, "p"),
            ("equals", 2, 1),
            ("attribute", 0, "cache"),
            ("tensor", 3, 0, torch.Tensor, *traits),
            ("attribute", 0, "number"),
            ("number", 4, 1),
        ],
        [None, None],
    )
    layer, acting = Layer(), Acting()
    for _ in range(4):
        assert reader.read((layer, acting)) == [layer.cache, 3]
    taken: list[Any] = []

    def act() -> None:
        layer.cache, layer.number = torch.ones(2), layer.number + 1
        taken[:] = [bytes(80) for _ in range(2000)]

    acting.act = act
    for _ in range(20):
        made = reader.read((layer, acting))
        assert made[0] is layer.cache and made[1] == layer.number


def test_an_interrupt_is_not_taken_for_a_missing_attribute() -> None:
    class Interrupted:
        def __getattr__(self, name: str) -> Any:
            raise {"number": KeyboardInterrupt, "on": ValueError}.get(name, AttributeError)

    for kind, expected in (("has", None), ("lacks", None)):
        reader = engine().CallReader(1, [(kind, 0, "on")], [])
        assert reader.read((Interrupted(),)) is expected
        reader = engine().CallReader(1, [(kind, 0, "number")], [])
        with pytest.raises(KeyboardInterrupt):
            reader.read((Interrupted(),))
    assert engine().CallReader(1, [("lacks", 0, "other")], []).read((Interrupted(),)) == []


def test_objects_that_change_in_other_threads() -> None:
    readers, layers = _readers(Layer), [Layer() for _ in range(3)]
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            for layer in layers:
                layer.cache = torch.zeros(2)

    threads = [threading.Thread(target=change) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for i in range(3000):
            found = readers[0].read((layers[i % 3],))
            assert found is not None and found[0].shape == (2,)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
