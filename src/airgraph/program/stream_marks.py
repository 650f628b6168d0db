"""Streams and events as a program's author writes them, which a trace keeps as marks in the graph.

A scope is an annotation of the nodes traced within it; what an event does, and `record_stream`, are operators without a
result, which no rewrite may move or drop. Outside of a trace they do nothing: eager work runs in the program's order.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator, Sequence

import torch
from torch.fx import Graph, Node
from torch.fx.traceback import annotate

from airgraph.arguments import shown
from airgraph.errors import OptionError, StreamError

__all__ = [
    "DEFAULT",
    "PRIORITY",
    "SCOPE",
    "Event",
    "check_priority",
    "create_event",
    "current_scope",
    "event_of",
    "is_mark",
    "is_record",
    "is_record_of_stream",
    "is_token",
    "is_wait",
    "is_wait_for_tensors",
    "keep_for",
    "record",
    "record_of",
    "record_stream",
    "scope_depth",
    "stream",
    "torchs_stream",
    "wait",
    "wait_for",
]

# Of the stream that everything outside of a scope runs on.
DEFAULT = "default"
# In `node.meta["custom"]`: AOTAutograd reads the key "stream" itself, as a number.
SCOPE, PRIORITY = "airgraph_stream", "airgraph_priority"


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.tags: list[str] = []


_scopes = _Scopes()

_library = torch.library.Library("airgraph", "DEF")
_library.define("record_event(str tag) -> ()")
_library.define("wait_event(str tag) -> ()")
_library.define("record_stream(Tensor tensor, str tag) -> ()")
_library.define("record() -> Tensor")
_library.define("wait(Tensor[] tensors) -> ()")
for _name in ("record_event", "wait_event", "record_stream", "wait"):
    _library.impl(_name, lambda *_: None, "CompositeExplicitAutograd")
_library.impl("record", lambda: torch.empty(0), "CompositeExplicitAutograd")
torch.library.register_fake("airgraph::record", lambda: torch.empty(0), lib=_library)
_RECORD = torch.ops.airgraph.record_event.default
_WAIT = torch.ops.airgraph.wait_event.default
_RECORD_STREAM = torch.ops.airgraph.record_stream.default
_RECORD_TOKEN = torch.ops.airgraph.record.default
_WAIT_FOR_TENSORS = torch.ops.airgraph.wait.default
# Under torch.vmap a mark is about the whole batch.
torch.library.register_vmap("airgraph::record_stream", lambda _, __, *args: (_RECORD_STREAM(*args), None), lib=_library)
torch.library.register_vmap("airgraph::wait", lambda _, __, *args: (_WAIT_FOR_TENSORS(*args), None), lib=_library)
for _operator in (_RECORD, _WAIT, _RECORD_STREAM, _RECORD_TOKEN, _WAIT_FOR_TENSORS):
    torch.fx.node.has_side_effect(_operator)


@contextlib.contextmanager
def stream(tag: str, priority: int = 0) -> Iterator[None]:
    """A block whose operators run on the stream of this tag, within the model that they belong to.

    Equal tags are one stream, "default" is the one of all that is in no block; the innermost block counts. A stream
    starts when its graph starts and has ended when the graph ends; beyond that only events order streams. priority:
    lower is more urgent, on devices that have priorities. Raises StreamError for a tag that is no text or empty, and
    for a priority that is no integer of 32 bits.
    """
    _check_tag(tag)
    check_priority(priority)
    if torch.compiler.is_compiling():
        # A key of its own for each tag: keys keep the order in which blocks were entered.
        with annotate({SCOPE: tag, PRIORITY: priority, _entered(tag): True}):
            yield
    else:
        _scopes.tags.append(tag)
        try:
            yield
        finally:
            _scopes.tags.pop()


def _entered(tag: str) -> str:
    return f"{SCOPE} {tag}"


def torchs_stream(node: Node) -> int | None:
    """The number of torch's own stream whose block a traced node lies in, where no block of a tag lies within that."""
    custom = node.meta.get("custom") or {}
    number = custom.get("stream")
    if not isinstance(number, int) or SCOPE not in custom:
        return number
    keys = list(custom)
    return number if keys.index("stream") > keys.index(_entered(custom[SCOPE])) else None


def current_scope() -> str | None:
    """The tag of the innermost block of `stream` that this thread is in, outside of a trace."""
    return _scopes.tags[-1] if _scopes.tags else None


def scope_depth() -> int:
    """How many blocks of `stream` this thread is in, outside of a trace."""
    return len(_scopes.tags)


class Event:
    """A point in the order of a model's streams, by its tag. Make it once, such as in `__init__`.

    `record` marks what its stream has done by then, and work that a stream is given after `wait` begins after that. A
    wait sees the latest record before it in program order. Raises StreamError for a tag that is no text or empty, and
    when a compiled model is called that waits for what it never recorded.
    """

    def __init__(self, tag: str) -> None:
        _check_tag(tag)
        self.tag = tag

    def record(self) -> None:
        """Mark what the stream of the block around it, or the default one, has been given so far."""
        _RECORD(self.tag)

    def wait(self) -> None:
        """Let later work of the stream of the block around it, or of the default one, begin after the latest record.

        A compiled model that waits for what it never recorded raises StreamError when it is called.
        """
        _WAIT(self.tag)

    def __repr__(self) -> str:
        return f"airgraph.Event({self.tag!r})"


_created: weakref.WeakValueDictionary[str, Event] = weakref.WeakValueDictionary()
_creating = threading.Lock()


def create_event(tag: str) -> Event:
    """An event whose tag no other one that was created so has, as long as it lives.

    One that a compiled function makes is its graph's own. Raises OptionError for a tag in use, and StreamError for one
    that is no text or empty.
    """
    if torch.compiler.is_compiling():
        return Event(tag)
    with _creating:
        if tag in _created:
            # A model that was dropped lives on in cycles of its own until it is collected.
            gc.collect()
        if tag in _created:
            raise OptionError(
                f"tag: expected one that no event has, got {tag!r} of an event that is alive. Use that event."
            )
        event = _created[tag] = Event(tag)
    return event


def record_stream(tensor: torch.Tensor, tag: str) -> None:
    """Keep the memory of a tensor until the stream of this tag has done what it was given so far.

    Raises StreamError for anything but a tensor, and for a tag that is no text or empty.
    """
    if not isinstance(tensor, torch.Tensor):
        raise StreamError(f"record_stream: expected a tensor, got {type(tensor).__name__}")
    _check_tag(tag)
    _RECORD_STREAM(tensor, tag)


def record() -> torch.Tensor:
    """A token for what the current stream has done so far, which `wait` takes; it is an empty tensor."""
    token: torch.Tensor = _RECORD_TOKEN()
    return token


def wait(tensors: Sequence[torch.Tensor]) -> None:
    """Let the current stream go on when all of these are made: tensors, and tokens of `record`.

    Raises OptionError for an empty list, and StreamError for what is no list of tensors.
    """
    if not isinstance(tensors, (list, tuple)):
        raise StreamError(f"wait: expected a list of tensors and tokens, got {type(tensors).__name__}")
    if not tensors:
        raise OptionError("wait: expected at least one tensor or token, got an empty list")
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise StreamError(f"wait: expected tensors and tokens, got {type(tensor).__name__}")
    _WAIT_FOR_TENSORS(list(tensors))


def is_mark(target: object) -> bool:
    """Whether an operator only marks the order of work, and computes nothing."""
    return target in (_RECORD, _WAIT, _RECORD_STREAM, _RECORD_TOKEN, _WAIT_FOR_TENSORS)


def is_token(target: object) -> bool:
    """Whether a mark makes a token."""
    return target is _RECORD_TOKEN


def is_wait_for_tensors(target: object) -> bool:
    """Whether a mark waits for tensors and tokens."""
    return target is _WAIT_FOR_TENSORS


def is_wait(target: object) -> bool:
    """Whether a mark waits for an event."""
    return target is _WAIT


def is_record_of_stream(target: object) -> bool:
    """Whether it is `record_stream`."""
    return target is _RECORD_STREAM


def is_record(target: object) -> bool:
    """Whether a mark records an event."""
    return target is _RECORD


def event_of(node: Node) -> tuple[str, bool] | None:
    """The tag of the event that a node records or waits for, and whether it waits; None for any other node."""
    if node.target not in (_RECORD, _WAIT):
        return None
    return str(node.args[0]), node.target is _WAIT


def record_of(graph: Graph, tag: str) -> Node:
    """Insert a record of an event where the graph inserts."""
    return graph.call_function(_RECORD, (tag,))


def wait_for(graph: Graph, tag: str) -> Node:
    """Insert a wait for an event where the graph inserts."""
    return graph.call_function(_WAIT, (tag,))


def keep_for(graph: Graph, tensor: Node, tag: str) -> Node:
    """Insert where the graph inserts that a stream of this tag uses the memory of a tensor."""
    return graph.call_function(_RECORD_STREAM, (tensor, tag))


def check_priority(priority: int) -> None:
    """Raises StreamError for what a device could not take as a priority."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not -(1 << 31) <= priority < 1 << 31:
        raise StreamError(f"priority: expected an integer of Python's that fits in 32 bits, got {shown(priority)}")


def _check_tag(tag: str) -> None:
    if not isinstance(tag, str) or not tag:
        raise StreamError(f"tag: expected a text that is not empty, got {shown(tag)}")
    if any("\ud800" <= letter <= "\udfff" for letter in tag):
        # Half of a pair of UTF-16, which no file and no operator takes.
        raise StreamError(f"tag: expected a text that can be written as UTF-8, got {tag!r}")
