"""What becomes of calls that no cached graph serves: compiled without a cache, or run as they are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from airgraph.cache.call_form import CallForm
from airgraph.cache.format.torch_settings import without_gradients
from airgraph.capture.ledger import ledger
from airgraph.errors import CacheError, Overlapping
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.graphs import tree_leaves
from airgraph.user_warning import warn_user

__all__ = ["Uncached"]

# So many calls are traced in vain before no other is tried.
_MOST_FAILURES = 3


class Uncached:
    """Of one function as it is now. strict: raise CacheError instead.

    A reason is warned of once, and counted at each call in `refusals`.
    """

    def __init__(
        self,
        name: str,
        form: CallForm,
        compile_uncached: Callable[[Callable[..., Any]], Callable[..., Any]],
        refusals: Counter[str],
        *,
        strict: bool,
    ) -> None:
        self._name = name
        self._form = form
        self._compile_uncached = compile_uncached
        self._refusals = refusals
        self._strict = strict
        self._compiled: Callable[..., Any] | None = None
        self._failures: list[str] = []
        self._overlaps_refused = 0
        self._warned_of_arguments = False

    def takes(self, values: tuple[Any, ...]) -> bool:
        """Whether a call that no graph serves is not traced for the cache: as many like it were, in vain."""
        if len(self._failures) >= _MOST_FAILURES:
            return True
        return self._overlaps_refused >= _MOST_FAILURES and _overlap(values) is not None

    def compiled(self, values: tuple[Any, ...]) -> Any:
        """The call's result as torch.compile gives it."""
        overlap = _overlap(values)
        if overlap is not None:
            return self.as_it_is(overlap, values)
        if self._compiled is None:
            self._compiled = self._compile_uncached(self._form.function)
        return self._form.call(self._compiled, values)

    def refused(self, error: CacheError, values: tuple[Any, ...]) -> Any:
        """The result of a call that cannot be traced for the cache. An error of the function's own leaves all as it
        was."""
        overlap = _overlap(values)
        if overlap is not None and not self._strict:
            self._overlaps_refused += 1
            return self.as_it_is(overlap, values)
        self._refusals[str(error)] += 1
        if self._strict:
            raise CacheError(f"{self._name} is not cached: {error}") from error
        result = self.compiled(values)
        self.give_up(error)
        return result

    def as_it_is(self, reason: CacheError, values: tuple[Any, ...]) -> Any:
        """The function itself: what is traced for one overlap of arguments is wrong for another, and nobody looks."""
        self._refusals[str(reason)] += 1
        if self._strict:
            raise CacheError(f"{self._name} cannot be cached for this call: {reason}") from reason
        if not self._warned_of_arguments:
            self._warned_of_arguments = True
            hint = " Pass tensors that share no memory with what is written." if isinstance(reason, Overlapping) else ""
            warn_user(
                f"a call of {self._name} is not cached and runs as it is: {reason}. Its results are the same.{hint}"
            )
        ledger.count("eager_calls")
        with without_gradients():
            return self._form.call(self._form.function, values)

    def give_up(self, error: CacheError) -> None:
        """One more call that is compiled as without a cache, as all are after some."""
        # Numbers in it may be those of the call.
        reason = re.sub(r"\d+", "#", str(error))
        if reason not in self._failures:
            warn_user(
                f"a call of {self._name} is not cached but compiled at every start: {error}. Its results are the same."
            )
        self._failures.append(reason)


def _overlap(values: tuple[Any, ...]) -> Overlapping | None:
    """Whether two tensors of a call share memory, which torch.compile looks at when it traces and never again."""
    tensors = [each for each in tree_leaves(values) if isinstance(each, torch.Tensor) and each.layout is torch.strided]
    found = engine().first_overlap(tensors, list(range(len(tensors))))
    return None if found is None else Overlapping("two tensors among its arguments share memory")
