"""TorchAir's way to register replacements of patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airgraph.errors import OptionError
from airgraph.passes import pattern_fusion
from airgraph.torch_internals import inductor

__all__ = ["register_replacement"]


def register_replacement(
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Sequence[Any],
    trace_fn: Callable[..., Any] | None = None,
    extra_check: Callable[[Any], bool] | None = None,
    search_fn_pattern: Any = None,
    scalar_workaround: Mapping[str, int | float] | None = None,
    skip_duplicates: bool = False,
) -> None:
    """Replace in every graph compiled from now on what looks like `search_fn` by `replace_fn`.

    See `airgraph.register_replacement`, whose `expression` is `search_fn_pattern` and whose `numbers` is
    `scalar_workaround`. trace_fn: `fwd_only` of torch's pattern matcher or nothing, as graphs of training are not
    captured. Raises OptionError for what cannot be called or traced, and for another trace_fn.
    """
    if trace_fn is not None and trace_fn is not inductor.pattern_matcher().fwd_only:
        raise OptionError(
            f"register_replacement: trace_fn: expected None or fwd_only of the pattern matcher, got {trace_fn!r}."
        )
    pattern_fusion.register_replacement(
        search_fn,
        replace_fn,
        example_inputs,
        extra_check,
        expression=search_fn_pattern,
        numbers=scalar_workaround,
        skip_duplicates=skip_duplicates,
    )
