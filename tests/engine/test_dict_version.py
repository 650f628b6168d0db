"""The engine's watch does not look into dicts that are as they were, whatever the interpreter offers for that."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections import OrderedDict

import pytest
from engine_watch import make_watch, watch_entries

from airgraph.runtime.engine.loading import engine_status

_native = pytest.mark.skipif(not engine_status().loaded, reason="the engine in Python compares everything")


@_native
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_an_unchanged_dict_is_not_looked_into(kind: type) -> None:
    watched = [kind((f"key{i}", object()) for i in range(100)) for _ in range(20)]
    watch = make_watch(
        items=[(each, key, value) for each in watched for key, value in each.items()],
        lengths=[(each, 100) for each in watched],
        absent=[(each, "other") for each in watched],
    )
    assert not watch.changed()
    assert watch.dicts_compared == 20
    for _ in range(10):
        assert not watch.changed()
    assert watch.dicts_compared == 20
    # One that has changed, and back: it alone is looked into, once.
    watched[3]["key5"] = watched[3].pop("key5")
    assert not watch.changed() and not watch.changed()
    assert watch.dicts_compared == 21


@_native
@pytest.mark.parametrize("keys", [(), ("a",)])
def test_an_ordered_dict_that_has_no_order_is_not_looked_into(keys: tuple[str, ...]) -> None:
    # Such as the hooks of all modules, at each cached call.
    watched = OrderedDict.fromkeys(keys)
    watch = make_watch(keys=[(watched, keys)])
    for _ in range(10):
        assert not watch.changed()
    assert watch.dicts_compared == 1


class _Plain:
    def __init__(self) -> None:
        self.a, self.b = 1, 2


@_native
@pytest.mark.skipif(sys.version_info[:3] == (3, 13, 0), reason="3.13.0 does not tell of all changes of objects")
def test_an_unchanged_object_is_not_looked_into() -> None:
    watched = _Plain()
    watch = watch_entries(vars(watched))
    for _ in range(10):
        assert not watch.changed()
    assert watch.dicts_compared == 1


_WITHOUT_WATCHERS = """
import ctypes
callback_type = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
callback = callback_type(lambda *event: 0)
import torch
from airgraph.runtime.engine.loading import engine
taken = 0
while True:
    try:
        if ctypes.pythonapi.PyDict_AddWatcher(callback) < 0:
            break
    except RuntimeError:
        break
    taken += 1
assert 0 < taken <= 8, taken
watched = {"a": 1}
watch = engine().Watch()
watch.add_item(watched, "a", 1)
assert [watch.changed() for _ in range(3)] == [False] * 3
assert watch.dicts_compared == 3
watched["a"] = 2
assert watch.changed()
del watch
print("seen")
"""


@_native
@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "PyDict_AddWatcher"), reason="this Python gives dicts versions")
def test_where_no_watcher_is_left_dicts_are_compared() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT_WATCHERS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "seen\n"), done.stderr


_AT_EXIT = """
import os, sys, torch
from airgraph.runtime.engine.loading import engine
watched = {"a": object()}
watch = engine().Watch()
watch.add_item(watched, "a", watched["a"])
assert not watch.changed()
class Late:
    def __init__(self, kept): self.kept = kept
    def __del__(self, write=os.write):
        self.kept[0]["a"] = 1
        assert self.kept[1].changed()
        write(1, b"late\\n")
sys.late = Late((watched, watch))
cycle = [watched, watch]; cycle.append(cycle)
watched["cycle"] = cycle
globals_watch = engine().Watch()
globals_watch.add_item(globals(), "watched", watched)
assert not globals_watch.changed()
"""


def test_watches_that_live_until_the_interpreter_ends() -> None:
    done = subprocess.run([sys.executable, "-c", _AT_EXIT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "late\n"), done.stderr
    assert not done.stderr
