"""What takes part in a trace is compared at later starts; what merely happens while it runs is not."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import types
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from process import output_of
from torch import Tensor

from airgraph.cache.store.folder import read_manifest
from airgraph.cache.tracing.observation import Observation

happened = 0


def note(*_: Any, **__: Any) -> None:
    """Reads and writes a global of this module."""
    global happened
    happened += 1


@torch.compiler.allow_in_graph
def opaque(x: Tensor) -> Tensor:
    note_what_happens()
    return x * 2


def call_opaque(x: Tensor) -> Tensor:
    return opaque(x)


class Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note()


class Finder(MetaPathFinder):
    def find_spec(self, *_: Any) -> None:
        note()


class Ended:
    def __del__(self) -> None:
        note()


@contextmanager
def handler() -> Iterator[Callable[[], None]]:
    logger, made = logging.getLogger("airgraph.tests.observation"), Handler()
    logger.addHandler(made)
    try:
        yield lambda: logger.warning("noted")
    finally:
        logger.removeHandler(made)


@contextmanager
def warning_hook() -> Iterator[Callable[[], None]]:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        yield lambda: warnings.warn("noted", stacklevel=1)


@contextmanager
def import_hook() -> Iterator[Callable[[], None]]:
    finder = Finder()
    sys.meta_path.insert(0, finder)

    def missing() -> None:
        try:
            import airgraph_tests_missing  # type: ignore[import-not-found]  # noqa: F401
        except ImportError:
            return

    try:
        yield missing
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def garbage_collection() -> Iterator[Callable[[], None]]:
    def collected(phase: str, info: dict[str, int]) -> None:
        note()

    gc.callbacks.append(collected)
    try:
        yield lambda: gc.collect() and None
    finally:
        gc.callbacks.remove(collected)


@contextmanager
def signal_handler() -> Iterator[Callable[[], None]]:
    def handle(*_: Any) -> None:
        note()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield lambda: signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def end_of_an_object() -> Iterator[Callable[[], None]]:
    yield lambda: [Ended()].clear()


note_what_happens: Callable[[], Any] = note


@pytest.mark.parametrize(
    "hook", [handler, warning_hook, import_hook, garbage_collection, signal_handler, end_of_an_object]
)
def test_what_only_happens_while_tracing_is_not_compared(
    hook: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = happened
    with hook() as happen:
        monkeypatch.setattr(sys.modules[__name__], "note_what_happens", happen)
        torch.testing.assert_close(cached(call_opaque, tmp_path)(torch.ones(3)), torch.full((3,), 2.0))
    assert happened > before
    assert "=happened" not in _values(tmp_path)


def test_what_code_that_runs_while_tracing_reads_is_compared(tmp_path: Path) -> None:
    torch.testing.assert_close(cached(call_opaque, tmp_path)(torch.ones(3)), torch.full((3,), 2.0))
    assert "=happened" in _values(tmp_path)


class LazyModule(types.ModuleType):
    def __getattribute__(self, name: str) -> Any:
        note()
        return super().__getattribute__(name)


def _asks_what_is_loaded(x: Tensor) -> Tensor:
    return x * 2 if "airgraph_tests_missing" in sys.modules else x * 3


def test_modules_that_act_when_they_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airgraph_tests_lazy", LazyModule("airgraph_tests_lazy"))
    before = happened
    torch.testing.assert_close(cached(_asks_what_is_loaded, tmp_path)(torch.ones(3)), torch.full((3,), 3.0))
    assert happened > before
    assert "=happened" not in _values(tmp_path)


def _values(folder: Path) -> set[str]:
    (file,) = folder.rglob("*.airgraph")
    return {source.function for source in read_manifest(file).sources if source.module == __name__}


def test_what_makes_named_tuples_says_nothing_of_the_program() -> None:
    """The tokenizer of Python, which Dynamo asks for the names of functions, makes a hundred thousand in a trace."""
    made = namedtuple("made", ("first", "second"))
    as_the_trace: dict[str, Any] = {"__name__": "airgraph.cache.tracing.trace"}
    exec("def call(function): return function(1, 2)", as_the_trace)
    # Of the program's own that looks like it.
    of_program: dict[str, Any] = {"__name__": "of_program", "_tuple_new": lambda *given: given}
    exec("def alike(first, second): return _tuple_new(first, second)", of_program)
    observation = Observation()
    with observation.observer:
        assert as_the_trace["call"](made) == as_the_trace["call"](of_program["alike"]) == (1, 2)
    assert [each.code.co_name for each in observation.called_by_torch()] == ["alike"]


_WITH_AUDITS = """
import sys, threading, torch, airgraph

audited = []
# Python code that runs whenever a profiler is set, which tracing does.
sys.addaudithook(lambda event, arguments: audited.append(event) if event == "sys.setprofile" else None)

def step(x):
    return x * 2

def compiles():
    for size in range(2, 6):
        torch._dynamo.reset()
        torch.compile(lambda x: x + size, backend="eager")(torch.ones(size))

beside = threading.Thread(target=compiles)
with torch.no_grad():
    beside.start()
    call = airgraph.inference.cache_compile(step, cache_dir=FOLDER, strict=True)
    assert call(torch.ones(3)).tolist() == [2.0] * 3
    beside.join()
assert audited and sys.getprofile() is None
if sys.version_info[:2] == (3, 11):
    import ctypes
    python = ctypes.pythonapi
    python.PyInterpreterState_Get.restype = python._PyInterpreterState_GetEvalFrameFunc.restype = ctypes.c_void_p
    # Whoever still holds ours puts it back at the next frame.
    (lambda: None)()
    evaluates = python._PyInterpreterState_GetEvalFrameFunc(ctypes.c_void_p(python.PyInterpreterState_Get()))
    assert evaluates == ctypes.cast(python._PyEval_EvalFrameDefault, ctypes.c_void_p).value
print("right")
"""


def test_tracing_leaves_the_interpreter_as_it_was_beside_audits_and_other_compilers(tmp_path: Path) -> None:
    assert output_of(f"FOLDER = {str(tmp_path)!r}", _WITH_AUDITS).endswith("right\n")
