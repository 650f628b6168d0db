"""Replacements of patterns that users register, by torch's own pattern matcher."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from airgraph.errors import OptionError
from airgraph.torch_internals import inductor
from airgraph.torch_internals.fake_tensors import FakeTensor

__all__ = ["apply_replacements", "register_replacement", "registered_functions"]


@dataclass(frozen=True, slots=True)
class _Rule:
    """matcher: of torch._inductor.pattern_matcher. functions: what it was made of."""

    matcher: Any
    functions: tuple[Callable[..., Any] | None, ...]


# In the order of their registration.
_rules: list[_Rule] = []


def register_replacement(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    example_inputs: Sequence[Any],
    extra_check: Callable[[Any], bool] | None = None,
) -> Callable[[], None]:
    """Replace in every graph compiled from now on what looks like `pattern` by `replacement`.

    pattern, replacement: functions of the same tensors, traced to ATen on `example_inputs`, whose values do not matter.
    extra_check: is given each match (a torch._inductor.pattern_matcher.Match) and says whether to replace it.
    Returns a function that takes the rule back. Raises OptionError for what cannot be called or traced.
    """
    for name, function in (("pattern", pattern), ("replacement", replacement), ("extra_check", extra_check)):
        if not callable(function) and not (name == "extra_check" and function is None):
            raise OptionError(f"register_replacement: {name}: expected a function, got {function!r}.")
    patterns = inductor.pattern_matcher()
    matcher = patterns.PatternMatcherPass(pass_name="airgraph")
    # Without decompositions, as graphs reach the passes.
    trace = functools.partial(patterns.fwd_only, run_functional_passes=False, get_decomp_fn=dict)
    check = extra_check if extra_check is not None else lambda match: True
    try:
        patterns.register_replacement(
            pattern, replacement, list(example_inputs), trace, matcher, extra_check=check, get_decomp_fn=dict
        )
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise OptionError(f"register_replacement: the functions cannot be traced on example_inputs: {error}") from error
    rule = _Rule(matcher, (pattern, replacement, extra_check))
    _rules.append(rule)
    return lambda: _rules.remove(rule) if rule in _rules else None


def registered_functions() -> list[Callable[..., Any] | None]:
    """Pattern, replacement and check of every rule, in their order."""
    return [function for rule in _rules for function in rule.functions]


def apply_replacements(gm: GraphModule) -> int:
    """Apply the registered replacements in the order of their registration; returns how many matches were replaced."""
    if not _rules:
        return 0
    values = (node.meta.get("val") for node in gm.graph.nodes)
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    with inductor.with_fake_mode(mode):
        return sum(rule.matcher.apply(gm) for rule in _rules)
