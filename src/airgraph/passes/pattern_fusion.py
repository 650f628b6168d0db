"""Replacements of patterns that users register, by torch's own pattern matcher."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, GraphModule, Node

from airgraph.errors import OptionError
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.program.stream_marks import is_mark
from airgraph.program.streams import put_on, stream_of
from airgraph.torch_internals import inductor
from airgraph.torch_internals.fake_tensors import fake_mode_of

__all__ = ["apply_replacements", "register_replacement", "registered_forms", "registered_functions"]


@dataclass(frozen=True, slots=True)
class _Rule:
    """matcher: of torch._inductor.pattern_matcher. functions: what it was made of. form: what else, in words."""

    matcher: Any
    functions: tuple[Callable[..., Any] | None, ...]
    form: str


# In the order of their registration.
_rules: list[_Rule] = []


def register_replacement(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    example_inputs: Sequence[Any],
    extra_check: Callable[[Any], bool] | None = None,
    *,
    expression: Any = None,
    numbers: Mapping[str, int | float] | None = None,
    skip_duplicates: bool = False,
) -> Callable[[], None]:
    """Replace in every graph compiled from now on what looks like `pattern` by `replacement`.

    pattern, replacement: functions of the same tensors, traced to ATen on `example_inputs`, whose values do not matter.
    extra_check: is given each match (a torch._inductor.pattern_matcher.Match) and says whether to replace it. A match
    lies on one stream, and what replaces it on the same. expression: what to look for as one of
    torch._inductor.pattern_matcher's PatternExpr, in place of what tracing `pattern` gives. numbers: parameters of the
    functions that are numbers, with a value for tracing that stands nowhere else in the pattern; any number matches.
    skip_duplicates: register nothing where a rule of the same functions is there.
    Returns a function that takes the rule back. Raises OptionError for what cannot be called or traced.
    """
    for name, function in (("pattern", pattern), ("replacement", replacement), ("extra_check", extra_check)):
        if not callable(function) and not (name == "extra_check" and function is None):
            raise OptionError(f"register_replacement: {name}: expected a function, got {function!r}.")
    functions = (pattern, replacement, extra_check)
    if skip_duplicates and (known := next((rule for rule in _rules if rule.functions == functions), None)):
        return lambda: _take_back(known)
    patterns = inductor.pattern_matcher()
    matcher = patterns.PatternMatcherPass(pass_name="airgraph")
    # Without decompositions, as graphs reach the passes.
    trace = functools.partial(patterns.fwd_only, run_functional_passes=False, get_decomp_fn=dict)

    def check(match: Any) -> bool:
        return _can_be_one(match) and (extra_check is None or extra_check(match))

    try:
        patterns.register_replacement(
            pattern,
            replacement,
            list(example_inputs),
            trace,
            matcher,
            extra_check=check,
            scalar_workaround=dict(numbers or {}),
            search_fn_pattern=expression,
            **inductor.without_decompositions(),
        )
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise OptionError(f"register_replacement: the functions cannot be traced on example_inputs: {error}") from error
    rule = _Rule(matcher, functions, f"{expression!r} {sorted((numbers or {}).items())}")
    _rules.append(rule)
    return lambda: _take_back(rule)


def _take_back(rule: _Rule) -> None:
    if rule in _rules:
        _rules.remove(rule)


def registered_functions() -> list[Callable[..., Any] | None]:
    """Pattern, replacement and check of every rule, in their order."""
    return [function for rule in _rules for function in rule.functions]


def registered_forms() -> list[str]:
    """What rules are made of beside functions, in their order; not the same in two processes where it holds an object
    that has no text of its own."""
    return [rule.form for rule in _rules]


def apply_replacements(gm: GraphModule) -> int:
    """Apply the registered replacements in the order of their registration; returns how many matches were replaced."""
    if not _rules:
        return 0
    mode = fake_mode_of(node.meta.get("val") for node in gm.graph.nodes)
    before = set(gm.graph.nodes)
    with inductor.with_fake_mode(mode):
        replaced = sum(rule.matcher.apply(gm) for rule in _rules)
    _put_on_streams(gm.graph, before)
    return replaced


def _can_be_one(match: Any) -> bool:
    """Whether one stream computes it all, and nobody can tell that it does so in one place: that of the last of it, or
    of the first of several results.

    Others can who write, after an event that is recorded in between, what it reads; or it may be ahead of a wait.
    """
    called = [node for node in match.nodes if node.op == "call_function"]
    streams = {stream_of(node) for node in called}
    if len(streams) != 1:
        return False
    node, last = min(called), max(called)
    while node is not last and not (is_mark(node.target) and stream_of(node) in streams):
        node = node.next
    if node is last:
        return True
    if len(match.output_nodes()) > 1:
        return False
    use = MemoryUse(last.graph)
    return not any(use.written(read) for each in called for read in each.all_input_nodes)


def _put_on_streams(graph: Graph, before: set[Node]) -> None:
    """Put what is new on the stream of its match: the matcher says it only of the results."""
    for node in reversed([node for node in graph.nodes if node not in before]):
        users = [user for user in node.users if user not in before]
        if node.op == "call_function" and users and not node.meta.get("custom"):
            put_on(node, stream_of(users[0]))
