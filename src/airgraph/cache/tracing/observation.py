"""What Python code a trace uses: what Dynamo inlines, and what runs below it, such as a custom operator's fake kernel.

Method: the interpreter's profiling hook (`csrc/cache/observer.h`), which sees Dynamo at its work too.
"""

from __future__ import annotations

import dis
import gc
import importlib._bootstrap as import_system
import inspect
import io
import logging
import operator
import os
import posix
import signal
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch

from airgraph.cache.checking.called_by_torch import Called
from airgraph.cache.tracing.missing import Missing
from airgraph.errors import CacheError, Unwritable
from airgraph.program.code_identity import goes_by_version
from airgraph.program.names_read import FROZEN, UsedCode
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals import dynamo
from airgraph.torch_internals.dispatcher import settings_readers
from airgraph.torch_internals.dynamo_absence import code_that_asks_for_attributes, code_that_raises
from airgraph.torch_internals.dynamo_texts import calls_what_is_compiled

__all__ = ["Observation", "looks_at_hashes"]

_LOOK_UP = os._Environ.__getitem__.__code__
# They look at the environment as a whole, or change it.
_WHOLE = tuple(
    function.__code__
    for name in ("__iter__", "__len__", "copy", "__setitem__", "__delitem__", "__or__", "__ror__", "__ior__")
    if (function := vars(os._Environ).get(name)) is not None
)
# What runs below them belongs to the process that happened to trace: log handlers, hooks of imports and of warnings,
# the bodies of modules, the end of objects, what modules do when somebody goes over all that are loaded.
_PASSED_OVER = [
    function.__code__
    for module, name in (
        (logging.Logger, "_log"), (logging.Logger, "handle"), (warnings, "_showwarnmsg"),
        (import_system, "_find_and_load"), (weakref.finalize, "__call__"), (inspect, "getmodule"),
    )
    if (function := getattr(module, name, None)) is not None
]  # fmt: skip
# What only puts a path into another form.
_HARMLESS = {"fspath", "strerror", "get_terminal_size"}
# What code measures itself by, and waits by.
_MEASURING = ("perf_counter", "monotonic", "process_time", "thread_time", "pthread_", "clock", "sleep")
_OF_PROCESS = {"getrecursionlimit", "getrefcount", "getsizeof", "getswitchinterval", "get_ident", "getpid"}
_NOT_PYTHONS = ("torch", "airgraph")
_OF_SETS = {"BUILD_SET", "SET_ADD", "SET_UPDATE"}
# Names in code that goes on where something is missing, or looks at all that is there.
_OF_ABSENCE = {"AttributeError", "KeyError", "LookupError", "Exception", "suppress", "vars", "__dict__", "dir"}
# What `collections.namedtuple` writes to make one. Python's tokenizer makes a hundred thousand in a trace.
_MAKES_NAMED_TUPLES = NamedTuple("_Any", [("field", int)]).__new__.__code__.co_names
# Above it is who asks for the trace.
_TRACES = "airgraph.cache.tracing.trace"
_AROUND_ENVIRONMENT = ("os", "_collections_abc", "collections.abc")


class Observation:
    """Notes all code that is used by this thread within `with observation.observer:`.

    environment: the variables that were looked up, None where there was none. obstacle: what cannot be compared at
    another start. missing: what objects were found to lack.
    """

    def __init__(self) -> None:
        self._notes = notes = _Notes()
        self.missing = Missing()
        # The garbage collector does not know it, so what it calls must not lead back to it. Its block is native: no
        # exception of a signal handler leaves it installed.
        self.observer: Any = engine().Observer(
            watched=[
                (dynamo.code_that_inlines(), notes.on_inlined),
                (dynamo.code_that_stores_constants(), notes.on_constant),
                (_LOOK_UP, notes.on_lookup),
                (code_that_raises(), self.missing.on_raised),
                *((code, self.missing.on_asked) for code in code_that_asks_for_attributes()),
                *((code, notes.on_address(name)) for code, name in dynamo.code_that_asks_for_addresses().items()),
            ],
            passed_over=[*_PASSED_OVER, dynamo.code_that_defers(), *_called_at_any_moment()],
            built_in=_outside(),
            on_built_in=notes.on_outside,
            on_first=notes.on_first,
            is_own=notes.whose,
        )

    @property
    def environment(self) -> Mapping[str, str | None]:
        return self._notes.environment

    @property
    def obstacle(self) -> CacheError | None:
        return self._notes.obstacle

    @property
    def asks_for_absence(self) -> bool:
        """Whether what an object lacks may have decided something without a guard of Dynamo's."""
        inlined = (each for each in self._notes.inlined.values() if not each.is_foreign)
        return any(not _OF_ABSENCE.isdisjoint(each.code.co_names) for each in inlined)

    def called_by_torch(self) -> list[Called]:
        """Code of the program's that PyTorch calls by itself."""
        return list(self._notes.called.values())

    def used(self) -> list[UsedCode]:
        """What is compared by itself at another start, and not with the versions of what traces."""
        ran = (UsedCode(code, namespace, inlined=False) for code, namespace in self.observer.seen())
        inlined = (each for each in self._notes.inlined.values() if not each.is_foreign)
        return [*inlined, *(each for each in ran if not calls_what_is_compiled(each.code))]

    def add_inlined(self, code: CodeType, namespace: Mapping[str, Any]) -> None:
        self._notes.add_inlined(code, namespace)


class _Notes:
    """What the observed code objects were called with."""

    def __init__(self) -> None:
        self.environment: dict[str, str | None] = {}
        self.obstacle: CacheError | None = None
        self.inlined: dict[int, UsedCode] = {}
        self.called: dict[int, Called] = {}
        self._is_own: dict[int, bool] = {}

    def is_own(self, frame: FrameType) -> bool:
        """Whether a frame runs code of the program's, or what Dynamo has made of it."""
        known = self._is_own.get(id(frame.f_code))
        if known is None:
            used = UsedCode(frame.f_code, frame.f_globals, inlined=False)
            known = self._is_own[id(frame.f_code)] = not used.is_foreign
        return known

    def whose(self, frame: FrameType) -> bool | None:
        """Whether a frame runs code of the program's; None: it does not, but others of its module may."""
        if self.is_own(frame):
            return True
        return None if frame.f_code.co_filename.startswith(FROZEN) else False

    def on_first(self, frame: FrameType) -> Callable[[FrameType], None] | None:
        is_plain = frame.f_code.co_name == "<module>" or _makes_named_tuple(frame)
        return self._on_own if not is_plain and self._runs_own(frame) else None

    def _on_own(self, frame: FrameType) -> None:
        caller = frame.f_back
        while caller is not None and caller.f_globals.get("__name__") != _TRACES:
            if self._runs_own(caller):
                # What it is given comes from there.
                return
            caller = caller.f_back
        code = frame.f_code
        on = _called_on(frame)
        if on is not None and code.co_name.startswith("__") and code.co_name != "__call__":
            # What Python itself calls, such as to read an attribute of what Dynamo guards.
            return
        called = self.called.setdefault(id(code), Called(code))
        if on is not None and not any(on is each for each in called.on):
            called.on.append(on)
        contents = tuple(frame.f_locals.get(name) for name in code.co_freevars)
        if contents and not any(all(map(operator.is_, contents, each)) for each in called.contents):
            called.contents.append(contents)

    def _runs_own(self, frame: FrameType) -> bool:
        return self.is_own(frame) and not calls_what_is_compiled(frame.f_code)

    def add_inlined(self, code: CodeType, namespace: Mapping[str, Any]) -> None:
        used = self.inlined[id(code)] = UsedCode(code, namespace, inlined=True)
        if used.is_foreign:
            return
        if "_version" in code.co_names:
            self._refuse("it asks how often a tensor was written, which is another number at each call")
        if {"object", "__repr__"} <= set(code.co_names):
            self._refuse("it makes a text of an object's address, which is another one at each start")
        if asked := _OF_PROCESS.intersection(code.co_names):
            self._refuse(f"it asks {min(asked)} of its process, which may be something else at another start")

    def on_inlined(self, frame: FrameType) -> None:
        held = frame.f_locals
        code: CodeType = held["code"]
        if code is _LOOK_UP:
            try:
                key = held["symbolic_locals"]["key"].as_python_constant()
            except Exception:
                # Dynamo raises anything.
                self._refuse("it looks up variables of the environment whose names it computes")
            else:
                self._note(key)
        elif code in _WHOLE:
            self._refuse("it looks at the environment as a whole, or changes it")
        self.add_inlined(code, held["funcvar"].get_globals())

    def on_constant(self, frame: FrameType) -> None:
        name = frame.f_locals.get("name", "a function")
        self._refuse(f"{name} is marked by assume_constant_result, and its result may be another one at each start")

    def on_address(self, name: str) -> Callable[[FrameType], None]:
        def on_call(frame: FrameType) -> None:
            held = frame.f_locals
            inlines = held["tx"]
            if UsedCode(inlines.f_code, inlines.f_globals, inlined=True).is_foreign:
                return
            argument = held["arg"] if "arg" in held else next(iter(held["args"]), None)
            if name == "id" or _goes_by_address(argument, in_words=name != "hash"):
                self._refuse(f"it takes {name}() of an object, which comes of its address, another one at each start")

        return on_call

    def on_lookup(self, frame: FrameType) -> None:
        caller = frame.f_back
        while caller is not None and caller.f_globals.get("__name__") in _AROUND_ENVIRONMENT:
            caller = caller.f_back
        if caller is not None and not UsedCode(caller.f_code, caller.f_globals, inlined=False).is_foreign:
            self._note(frame.f_locals["key"])

    def on_outside(self, frame: FrameType, function: Any) -> None:
        caller: FrameType | None = frame
        while caller is not None and _hands_through(caller):
            caller = caller.f_back
        if caller is not None and self.is_own(caller):
            name = f"{caller.f_code.co_name} calls {function.__name__} while it is traced"
            self._refuse(f"{name}, which may answer otherwise at another start")

    def _note(self, key: Any) -> None:
        if isinstance(key, bytes):
            key = os.fsdecode(key)
        if isinstance(key, str):
            self.environment[key] = os.environ.get(key)

    def _refuse(self, reason: str) -> None:
        self.obstacle = self.obstacle or Unwritable(reason)


def _makes_named_tuple(frame: FrameType) -> bool:
    """Whether it runs what `collections.namedtuple` has written, which calls nothing but Python's own tuple."""
    (name,) = _MAKES_NAMED_TUPLES
    return frame.f_code.co_names == _MAKES_NAMED_TUPLES and frame.f_globals.get(name) == tuple.__new__


def _called_on(frame: FrameType) -> Any:
    """The object whose method a frame runs, or None."""
    code = frame.f_code
    if not code.co_argcount:
        return None
    on = frame.f_locals.get(code.co_varnames[0])
    functions = (vars(each).get(code.co_name) for each in type(on).__mro__)
    return on if any(getattr(each, "__code__", None) is code for each in functions) else None


def _goes_by_address(variable: Any, *, in_words: bool) -> bool:
    """Whether the hash of what Dynamo holds there comes of its address, or its text has the address in it."""
    try:
        value = variable.as_python_constant()
    except Exception:
        # Dynamo raises anything.
        value = getattr(variable, "value", getattr(variable, "fn", None))
    if isinstance(value, tuple):
        return any(_holds_address(each, in_words=in_words) for each in value)
    return _holds_address(value, in_words=in_words)


def _holds_address(value: Any, *, in_words: bool) -> bool:
    if in_words:
        class_: Any = type(value)
        writes = class_.__repr__ if class_.__str__ is object.__str__ else class_.__str__
        return writes in (object.__repr__, FunctionType.__repr__, MethodType.__repr__)
    return not isinstance(value, (str, bytes, int, float, complex, torch.dtype, torch.device, torch.Size))


def _called_at_any_moment() -> Iterator[CodeType]:
    """What the interpreter calls in the midst of anything: for signals, for collected garbage, for errors in both."""
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    for function in (*gc.callbacks, *handlers, sys.unraisablehook):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _outside() -> list[Any]:
    """Functions in C that look at files, at the process, at the date, and at PyTorch's settings."""
    of_system = [held for name, held in vars(posix).items() if name not in _HARMLESS]
    of_time = [held for name, held in vars(time).items() if not name.startswith(_MEASURING)]
    return [
        held for held in (io.open, *of_system, *of_time, *settings_readers()) if isinstance(held, BuiltinFunctionType)
    ]


def _hands_through(frame: FrameType) -> bool:
    """Whether it is Python's own, or one of PyTorch's that look settings up."""
    module = str(frame.f_globals.get("__name__"))
    return module.startswith("torch.backends") or (goes_by_version(module) and not module.startswith(_NOT_PYTHONS))


def looks_at_hashes(each: UsedCode) -> bool:
    """Whether it may look at the hash of a text, or at the order of a set of texts. What a module's own code makes of
    them is compared as its values."""
    code = each.code
    if code.co_name == "<module>":
        return False
    if not {"hash", "__hash__"}.isdisjoint(code.co_names) or _iterates_set(code):
        return True
    # Dynamo keeps the sets that it makes itself in the order in which they were filled.
    return not each.inlined and _makes_set(code)


def _makes_set(code: CodeType) -> bool:
    opcodes = {instruction.opname for instruction in dis.get_instructions(code)}
    return not {"set", "frozenset"}.isdisjoint(code.co_names) or not _OF_SETS.isdisjoint(opcodes)


def _iterates_set(code: CodeType) -> bool:
    """Whether a set of texts among a code's constants is used for anything but to ask what is in it."""
    instructions = list(dis.get_instructions(code))
    for each, following in zip(instructions, [*instructions[1:], None], strict=True):
        value = each.argval
        has_order = isinstance(value, frozenset) and len(value) > 1 and not all(isinstance(item, int) for item in value)
        if has_order and (following is None or following.opname != "CONTAINS_OP"):
            return True
    return False
