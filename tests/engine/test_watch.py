"""The engine's watch sees every change of what it watches, by whatever way it is made."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from engine_watch import make_watch, watch_entries
from torch import nn


class Plain:
    """Its instances keep their attributes inline until their `__dict__` is asked for."""

    def __init__(self) -> None:
        self.a, self.b = 1, 2

    def set_a(self, value: Any) -> None:
        self.a = value


class Slotted:
    __slots__ = ("__dict__", "other")


def _with_dict(owner: Any) -> Any:
    owner.a, owner.b = 1, 2
    return owner


_OWNERS: dict[str, Callable[[], Any]] = {
    "instance": Plain,
    "instance with slots": lambda: _with_dict(Slotted()),
    "namespace": lambda: SimpleNamespace(a=1, b=2),
    "module": lambda: _with_dict(nn.Module()),
    "function": lambda: _with_dict(lambda: None),
}
_NEW = object()
_STORES: dict[str, Callable[[Any], Any]] = {
    "assignment": lambda owner: exec("owner.a = new", {"owner": owner, "new": _NEW}),
    "setattr": lambda owner: setattr(owner, "a", _NEW),
    "object.__setattr__": lambda owner: object.__setattr__(owner, "a", _NEW),
    "deletion": lambda owner: delattr(owner, "a"),
    "deletion and return": lambda owner: (delattr(owner, "a"), setattr(owner, "a", _NEW)),
    "its dict": lambda owner: vars(owner).update(a=_NEW),
    "its cleared dict": lambda owner: vars(owner).clear(),
}


@pytest.mark.parametrize("owner", _OWNERS)
@pytest.mark.parametrize("store", _STORES)
@pytest.mark.parametrize("checks", [0, 1, 3])
def test_a_stored_attribute_is_seen(owner: str, store: str, checks: int) -> None:
    # The interpreter stores attributes by several ways of its own; each must reach who watches the dict.
    watched = _OWNERS[owner]()
    watch = watch_entries(vars(watched))
    for _ in range(checks):
        assert not watch.changed()
    _STORES[store](watched)
    assert watch.changed()


def test_attributes_stored_by_hot_code_are_seen() -> None:
    # After some calls the interpreter replaces a store by one made for the class that it met there.
    watched = [Plain() for _ in range(50)]
    for each in watched:
        for number in range(50):
            each.set_a(number)
    for each in watched:
        value = each.a
        watch = watch_entries(vars(each))
        for number in range(100):
            assert not watch.changed()
            each.set_a(-1 - number)
            assert watch.changed()
            each.set_a(value)


_CHANGES: dict[str, Callable[[Any], Any]] = {
    "a value": lambda d: d.__setitem__("a", _NEW),
    "update": lambda d: d.update(a=_NEW),
    "merge": lambda d: d.__ior__({"a": _NEW}),
    "del": lambda d: d.__delitem__("a"),
    "pop": lambda d: d.pop("a"),
    "popitem": lambda d: [d.popitem() for _ in list(d)],
    "clear": lambda d: d.clear(),
    "clear and refill": lambda d: (d.clear(), d.update({"a": _NEW, "b": 2})),
    "init": lambda d: d.__init__(a=_NEW),
    "dict's own": lambda d: dict.__setitem__(d, "a", _NEW),
    "a copy into it": lambda d: (d.clear(), d.update(dict.fromkeys("abcdefgh", _NEW))),
}


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("change", _CHANGES)
def test_a_changed_dict_is_seen(kind: type, change: str) -> None:
    watched = kind(a=1, b=2)
    watches = [watch_entries(watched) for _ in range(3)]
    assert not any(watch.changed() for watch in watches)
    _CHANGES[change](watched)
    assert all(watch.changed() for watch in watches)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_keys_lengths_and_what_is_absent(kind: type) -> None:
    watched = kind(a=1, b=2)
    absent = make_watch(absent=[(watched, "c")])
    length = make_watch(lengths=[(watched, 2)])
    keys = make_watch(keys=[(watched, ("a", "b"))])
    watches = [absent, length, keys]
    assert [watch.changed() for watch in watches] == [False] * 3
    watched.setdefault("c", 3)
    assert [watch.changed() for watch in watches] == [True] * 3
    del watched["c"]
    assert [watch.changed() for watch in watches] == [False] * 3
    watched["a"] = _NEW
    assert [watch.changed() for watch in watches] == [False] * 3
    del watched["a"]
    watched["a"] = 1
    assert [watch.changed() for watch in watches] == [False, False, True]


def test_the_order_of_an_ordered_dict_is_seen() -> None:
    watched = OrderedDict(a=1, b=2)
    watch = make_watch(keys=[(watched, ("a", "b"))])
    assert not watch.changed()
    watched.move_to_end("a")
    assert watch.changed()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(b=2),
        lambda d: dict.__setitem__(d, "b", 2),
        lambda d: d.popitem(),
        lambda d: (d.popitem(), d.update(b=2)),
        lambda d: d.clear(),
    ],
)
def test_an_ordered_dict_that_has_no_order(change: Callable[[OrderedDict[str, int]], Any]) -> None:
    watched = OrderedDict(a=1)
    watch = make_watch(keys=[(watched, ("a",))])
    assert not watch.changed() and not watch.changed()
    change(watched)
    assert watch.changed()


def test_an_empty_ordered_dict() -> None:
    watched: OrderedDict[str, int] = OrderedDict()
    watch = make_watch(keys=[(watched, ())])
    assert not watch.changed() and not watch.changed()
    watched["a"] = 1
    assert watch.changed()
    del watched["a"]
    assert not watch.changed()


def test_what_is_put_back_is_unchanged() -> None:
    watched = {"a": _NEW}
    watch = watch_entries(watched)
    for _ in range(3):
        assert not watch.changed()
        watched["a"] = 1
        assert watch.changed() and watch.changed()
        watched["a"] = _NEW


def test_a_watch_that_goes_leaves_the_others() -> None:
    watched = {"a": 1}
    first, second = watch_entries(watched), watch_entries(watched)
    assert not first.changed() and not second.changed()
    del first
    gc.collect()
    watched["a"] = 2
    assert second.changed()
    del second
    gc.collect()
    third = watch_entries(watched)
    assert not third.changed()
    watched["a"] = 3
    assert third.changed()


def test_new_dicts_at_old_addresses() -> None:
    for _ in range(200):
        watched = {"a": object()}
        watch = watch_entries(watched)
        assert not watch.changed()
        watched["a"] = object()
        assert watch.changed()
        del watched, watch


def test_a_watch_in_a_cycle_with_its_dict_is_collected() -> None:
    class Noticed:
        pass

    watched: dict[str, Any] = {"noticed": Noticed()}
    notes: list[int] = []
    weakref.finalize(watched["noticed"], notes.append, 1)
    watched["watch"] = make_watch(items=[(watched, "noticed", watched["noticed"])])
    assert not watched["watch"].changed()
    del watched
    gc.collect()
    assert notes == [1]


def test_an_error_on_its_way_passes_a_watch_that_ends() -> None:
    def fail() -> None:
        watch = watch_entries({"a": 1})
        assert not watch.changed()
        raise KeyError("kept")

    with pytest.raises(KeyError, match="kept"):
        fail()


def test_changes_of_other_threads_are_seen() -> None:
    watched = {"a": 0}
    turns = 2000
    missed: list[int] = []

    def write(start: int) -> None:
        for number in range(turns):
            mine = {"a": number}
            watch = watch_entries(mine)
            if watch.changed():
                missed.append(number)
            mine["a"] = watched["a"] = start + number + 1
            if not watch.changed():
                missed.append(number)

    threads = [threading.Thread(target=write, args=(start * turns * 10,)) for start in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not missed
    watch = watch_entries(watched)
    assert not watch.changed()
    watched["a"] = -1
    assert watch.changed()


def test_a_class_that_changes_often_is_seen_each_time() -> None:
    # Python 3.13 gives a class a thousand versions, and none afterwards.
    class Changing:
        value: Any = None

    for number in range(3000):
        Changing.value = number
        watch = make_watch(attributes=[(Changing, "value", number)], class_absent=[(Changing, "added")])
        assert not watch.changed() and not watch.changed()
        if number % 2:
            Changing.value = object()
        else:
            Changing.added = 1
        assert watch.changed()
        if number % 2 == 0:
            del Changing.added


def test_a_class_that_loses_a_base_or_whose_base_changes() -> None:
    class Base:
        value = 1

    class Other:
        value = 2

    class Derived(Base):
        pass

    watch = make_watch(attributes=[(Derived, "value", 1)])
    assert not watch.changed()
    Base.value = 3
    assert watch.changed()
    Base.value = 1
    assert not watch.changed()
    Derived.__bases__ = (Other,)
    assert watch.changed()


def test_what_a_cell_holds_is_seen() -> None:
    def enclosing() -> tuple[Any, Callable[[Any], None]]:
        held: Any = 1

        def store(value: Any) -> None:
            nonlocal held
            held = value

        (cell,) = store.__closure__ or ()
        return cell, store

    cell, store = enclosing()
    watch = make_watch(cells=[(cell, cell.cell_contents)])
    assert not watch.changed()
    store(_NEW)
    assert watch.changed()
    watch = make_watch(cells=[(cell, _NEW)])
    assert not watch.changed()
    del cell.cell_contents
    assert watch.changed()


def test_an_entry_of_a_dict_with_its_own_look_up_is_seen() -> None:
    class Doubling(OrderedDict[str, int]):
        def __getitem__(self, key: str) -> Any:
            return [super().__getitem__(key)]

    held = Doubling(a=1)
    watch = make_watch(items=[(held, "a", 1)])
    assert not watch.changed()
    held["a"] = 2
    assert watch.changed()
