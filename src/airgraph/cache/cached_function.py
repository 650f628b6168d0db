"""The cached front door: a function whose traced graphs are kept in files, called without Dynamo and guards."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.compiler import is_dynamo_compiling

from airgraph.cache.call_form import CallForm
from airgraph.cache.checking.scope import Roots, without_grad_mode
from airgraph.cache.checking.staleness import why_stale
from airgraph.cache.entry import MISS, Entry
from airgraph.cache.format.fingerprint import Fingerprint
from airgraph.cache.format.manifest import Manifest
from airgraph.cache.store.fingerprint import fingerprint, form_of_owner
from airgraph.cache.store.folder import Store
from airgraph.cache.store.layout import AIRGRAPH, Function, Layout
from airgraph.cache.store.outdated import remove_outdated
from airgraph.cache.store.ranks import ALONE, Ranks
from airgraph.cache.tracing.trace import Executed, TraceRequest, full_name, short_name, trace
from airgraph.cache.uncached import Uncached
from airgraph.capture.ledger import CachedRecord, ledger
from airgraph.errors import CacheError, CannotCapture, Unsuited, Unwritable
from airgraph.memory.locks import renew_after_fork
from airgraph.options import Options
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.recording.collection import uncollected
from airgraph.user_warning import warn_user

__all__ = ["CachedFunction"]

log = logging.getLogger(__name__)

# As many as Dynamo makes of one function before it gives up.
_MOST_GRAPHS = 8


class CachedFunction:
    """Calls a function by replaying graphs of it that are kept in files.

    1. A call is served by the first graph that is right for it; the one that served the last call is asked first.
    2. If none is, the files are asked that were not read yet; a file that does not fit this process is passed over.
    3. If none is still, the function is traced, which executes nothing, and the graph is written and used.
    4. A call that cannot be cached is compiled by torch.compile, with one warning; if `strict`, CacheError is raised.

    Inference only: results have no gradients. Calls are serialised by the graphs' pools, from whatever thread.
    """

    # Read at each call by the engine, where they lie in the object.
    __slots__ = ("__dict__", "__weakref__", "_entries", "_plain_arity")

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        compile_uncached: Callable[[Callable[..., Any]], Callable[..., Any]],
        *,
        root: Path,
        layout: Layout = AIRGRAPH,
        ranks: Ranks = ALONE,
        dynamic: bool | None = True,
        decompositions: Mapping[Any, Callable[..., Any]] | None = None,
        strict: bool = False,
    ) -> None:
        # Without what torch.no_grad and its like put around it: a graph is replayed without gradients anyway.
        function = without_grad_mode(function)
        self.__wrapped__ = function
        functools.update_wrapper(self, function, updated=())
        self._name = full_name(function)
        self._options = options
        self._compile_uncached = compile_uncached
        # Where it was at this moment, wherever the process goes later.
        self._root = root.absolute()
        self._layout = layout
        self._ranks = ranks
        self._dynamic = dynamic
        self._decompositions = decompositions
        self._strict = strict
        self._lock = threading.RLock()
        renew_after_fork(self, "_lock")
        self._warned_of: set[str] = set()
        self._entries: tuple[Entry, ...] = ()
        self._counts = CachedRecord(self._name)
        ledger.add_cached(self)
        self._learn()

    def _learn(self) -> None:
        """What the function is now; graphs of what it was are forgotten."""
        self._form = CallForm(self.__wrapped__)
        self._roots = Roots.of(self._form.function, self._form.before)
        self._body = self._roots.body()
        self._plain_arity = self._form.plain_arity
        self._forget(self._entries)
        # Files that were read, as they were then, and those that may be written over.
        self._read: dict[Path, object] = {}
        self._replaceable: list[Path] = []
        self._fingerprint: Fingerprint | None = None
        self._uncached = Uncached(
            self._name, self._form, self._compile_uncached, self._counts.refusals, strict=self._strict
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return self.__wrapped__(*args, **kwargs)
        is_plain = not kwargs and len(args) == self._plain_arity
        if not is_plain:
            args = self._arranged(args, kwargs)
        entries = self._entries
        # Of the graph that served last. Most calls do not come here: see `_call_by_door`.
        door = entries[0].door if entries else None
        if door is not None:
            if is_plain and type(self) is CachedFunction:
                _call_by_door()
            if (result := door(args)) is not MISS:
                return result
        return self._without_door(args)

    def _without_door(self, args: tuple[Any, ...]) -> Any:
        """What the door has not served. Every call is a hit or a miss."""
        entries = self._entries
        try:
            for entry in entries:
                result = entry.call(args)
                if result is not MISS:
                    if entry is not entries[0]:
                        self._put_first(entry)
                    return result
        except Unsuited as reason:
            self._counts.misses += 1
            return self._uncached.as_it_is(reason, args)
        except CannotCapture as reason:
            self._counts.misses += 1
            return self._after_discarding(entry, reason, args)
        self._counts.misses += 1
        return self._uncached.compiled(args) if self._uncached.takes(args) else self._miss(args)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied or pickled with its object, it is the copy's method; it shares the files, and reads them anew."""
        settings: dict[str, Any] = {
            "root": self._root,
            "layout": self._layout,
            "ranks": self._ranks,
            "dynamic": self._dynamic,
            "decompositions": self._decompositions,
            "strict": self._strict,
        }
        make = functools.partial(CachedFunction, **settings)
        return make, (self.__wrapped__, self._options, self._compile_uncached)

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedFunction:
        function: Any = self.__wrapped__
        if hasattr(function, "__self__"):
            function = types.MethodType(function.__func__, copy.deepcopy(function.__self__, memo))
        make, (_, *others) = self.__reduce__()
        return make(function, *others)

    def _arranged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The values of all parameters in order. Raises TypeError as calling the function would."""
        if not self._body.is_still(self._roots.body()):
            self._learn()
        return self._form.values(args, kwargs)

    @property
    def files(self) -> list[Path]:
        """The files of the graphs in use, the one that serves calls first at the front."""
        return [entry.path for entry in self._entries]

    def counts(self) -> CachedRecord:
        """What its calls came to, since the last reset."""
        return replace(self._counts, hits=self._counts.hits + sum(entry.calls for entry in self._entries))

    def reset_counts(self) -> None:
        """Count from now on."""
        self._counts.refusals.clear()
        hits = -sum(entry.calls for entry in self._entries)
        self._counts = CachedRecord(self._name, hits, refusals=self._counts.refusals)

    def _forget(self, entries: Sequence[Entry]) -> None:
        self._counts.hits += sum(entry.calls for entry in entries)
        self._entries = tuple(each for each in self._entries if each not in entries)

    def _put_first(self, entry: Entry) -> None:
        # A new tuple: other threads may be going through the old one.
        self._entries = (entry, *(each for each in self._entries if each is not entry))

    def _miss(self, values: tuple[Any, ...]) -> Any:
        if not self._body.is_still(self._roots.body()):
            self._learn()
            if self._form.is_plain:
                # It may have other parameters now.
                values = self._arranged(values, {})
        # Nothing is executed while locks are held: it might wait for another process.
        with self._lock:
            entry = None
            try:
                entry = self._entry_for(values)
            except Executed as executed:
                self._uncached.give_up(executed)
                return executed.result
            except CacheError as error:
                reason = error
            else:
                self._put_first(entry)
                reason = CacheError("what it depends on changes while it is called")
        try:
            result = MISS if entry is None else entry.call(values)
        except Unsuited as overlap:
            return self._uncached.as_it_is(overlap, values)
        except CannotCapture as error:
            assert entry is not None
            return self._after_discarding(entry, error, values)
        if result is MISS:
            return self._uncached.refused(reason, values)
        # It counts as the miss that it was.
        self._counts.hits -= 1
        return result

    def _after_discarding(self, entry: Entry, reason: CacheError, values: tuple[Any, ...]) -> Any:
        """The call's result without a graph that turned out not to be what was written."""
        self._discard(entry, reason)
        return self._miss(values)

    def _discard(self, entry: Entry, reason: CacheError) -> None:
        if self._strict:
            raise CacheError(f"{entry.path}: {reason}") from reason
        self._forget([entry])
        self._pass_over(entry.path, CacheError(f"{entry.path}: {reason}"))

    def _serves(self, entry: Entry, values: tuple[Any, ...]) -> bool:
        try:
            return entry.serves(values)
        except CannotCapture as reason:
            self._discard(entry, reason)
            return False

    def _pass_over(self, path: Path, error: CacheError) -> None:
        warn_user(f"a cached graph is not used and made anew: {error}")
        self._replaceable.append(path)

    def _entry_for(self, values: tuple[Any, ...]) -> Entry:
        """The graph that serves a call: one that was read, or is in a file, or is traced. Raises CacheError."""
        found = next((entry for entry in self._entries if self._serves(entry, values)), None) or self._read_one(values)
        if found is None:
            store = self._opened()
            with store.locked() as writes:
                # Another process may have traced meanwhile.
                found = self._read_one(values) or self._traced(store, values, writes=writes)
        return found

    def _read_one(self, values: tuple[Any, ...]) -> Entry | None:
        """A graph that serves a call, from a file that was not read yet; those before it are kept as well."""
        # What is read stays. To look through all of a model's objects again and again would take as long as reading.
        with uncollected():
            return self._read_next(values)

    def _read_next(self, values: tuple[Any, ...]) -> Entry | None:
        store = self._opened()
        unread = [path for path in store.files() if self._read.get(path) != store.version(path)]
        others = store.why_not(self._roots.at(values)) if len(unread) > 1 else {}
        for path in unread:
            if path in others:
                # It may serve another call; to open and build it takes long.
                log.info("%s is not for this call: %s", path, others[path])
                continue
            start, version = time.perf_counter(), store.version(path)
            self._read[path] = version
            try:
                manifest = store.read(path)
                stale = why_stale(manifest, store.fingerprint, self._roots.function_globals)
                if stale is not None:
                    log.info("%s is passed over: %s", path, stale)
                    self._replaceable.append(path)
                    continue
                entry = self._add(manifest, path, distrusted=True)
            except Unwritable as obstacle:
                # No fault of the file, which is for calls on a device where nothing can be captured now.
                log.info("%s is passed over: %s", path, obstacle)
                continue
            except CacheError as error:
                if self._strict:
                    raise
                self._pass_over(path, error)
                continue
            self._counts.files_read += 1
            log.info("read %s in %.1f ms", path, (time.perf_counter() - start) * 1e3)
            store.layout.loaded(store.function, path)
            if self._serves(entry, values):
                return entry
        return None

    def _warn_once(self, message: str) -> None:
        if message not in self._warned_of:
            self._warned_of.add(message)
            warn_user(message)

    def _traced(self, store: Store, values: tuple[Any, ...], *, writes: bool) -> Entry:
        # Graphs of other objects of this class do not count.
        served = [entry for entry in self._entries if entry.calls]
        if len(served) >= _MOST_GRAPHS:
            reasons = "; ".join(f"{entry.path.name}: {entry.why_not(values)}" for entry in served)
            raise CacheError(f"{_MOST_GRAPHS} graphs are cached, and none is right for this call ({reasons})")
        if log.isEnabledFor(logging.INFO):
            for entry in self._entries:
                log.info("%s does not serve a call: %s", entry.path, entry.why_not(values))
            for path, difference in [] if store.files() else store.under_other_fingerprints():
                log.info("%s is not for this start: made under %s", path, difference)
        start = time.perf_counter()
        manifest = trace(
            TraceRequest(
                self._form.function,
                self._form.bound(values),
                self._options,
                # As Dynamo does by default: what has varied once is expected to vary.
                dynamic=bool(served) if self._dynamic is None else self._dynamic,
                decompositions=self._decompositions,
                fingerprint=store.fingerprint,
                varied={name for entry in served for name in entry.floats_that_vary(values)},
            )
        )
        try:
            if not writes:
                raise CacheError(f"another process has held the lock of {store.folder} for too long")
            over = next((path for path in self._replaceable if path.parent == store.folder), None)
            path = store.write(manifest, over=over)
            self._replaceable = [each for each in self._replaceable if each != over]
            manifest, self._read[path] = store.read(path), store.version(path)
            remove_outdated(store, manifest)
        except CacheError as error:
            if self._strict:
                raise
            self._warn_once(f"{self._name} is not kept for the next start: {error}")
            self._counts.unwritten[str(error)] += 1
            # As it would be read, so that what is used is what the format holds.
            manifest, path = Manifest.from_text(manifest.to_text()), Path("(not written)")
        self._counts.traces += 1
        log.info("traced %s in %.1f ms: %s", self._name, (time.perf_counter() - start) * 1e3, path)
        entry = self._add(manifest, path)
        reason = entry.why_not(values)
        if reason is not None:
            self._forget([entry])
            if path in self._read:
                # Nor is it for the next start.
                with suppress(OSError):
                    path.unlink()
            raise CacheError(f"its graph is not right for the call that it was traced for: {reason}")
        return entry

    def _add(self, manifest: Manifest, path: Path, *, distrusted: bool = False) -> Entry:
        entry = Entry(
            manifest, path, self._roots, self._options, function=short_name(self.__wrapped__), distrusted=distrusted
        )
        self._entries = (*self._entries, entry)
        return entry

    def _opened(self) -> Store:
        """The folder of graphs for the object as it is now: those of others would be read in vain."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(
                self.__wrapped__, self._options, dynamic=self._dynamic, decompositions=self._decompositions
            )
        owner = getattr(self.__wrapped__, "__self__", None)
        function = Function(
            self._name,
            signature=f"{self.__wrapped__.__qualname__}{inspect.signature(self.__wrapped__)}",
            of=self.__wrapped__.__name__ if owner is None else type(owner).__name__,
            method=self.__wrapped__.__name__,
            dynamic=self._dynamic,
            fingerprint=self._fingerprint,
            form=form_of_owner(self.__wrapped__),
            ranks=self._ranks,
        )
        return Store.of(self._root, self._layout, function)


_CALL = CachedFunction.__call__


def _call_by_door() -> None:
    """The next call takes no frame of Python's, unless somebody has put another `__call__` in the place of ours."""
    engine().call_by_door(CachedFunction, _CALL)
