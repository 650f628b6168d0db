"""What tracing assumed about sizes, and the numbers that are worked out from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airgraph.cache.format.manifest import CachedInput
from airgraph.cache.format.result_spec import NumberLeaf, ViewLeaf
from airgraph.cache.format.shape_guard import evaluate, symbols
from airgraph.errors import UnsupportedExpression, Unwritable
from airgraph.torch_internals.symbolic_shapes import guards_of, is_float_symbol, ranges_of, settled, values_of_symbols

__all__ = ["check_numbers", "shape_guards"]


def shape_guards(shape_env: Any, inputs: Sequence[CachedInput]) -> tuple[str, ...]:
    """What tracing assumed about symbols, as expressions over those of the inputs."""
    if shape_env is None:
        return ()
    on_floats = [guard for guard in guards_of(shape_env) if any(map(is_float_symbol, guard.free_symbols))]
    if on_floats:
        # Also where the symbol has become a number since.
        raise Unwritable(f"a float decides more than what tensors are computed with: {on_floats[0]}")
    known = {size for each in inputs for size in (*each.shape, *each.stride, each.symbol) if isinstance(size, str)}
    names = {name for name in known if name.isidentifier()}
    # Symbols that were found to be equal are one by now, in the sizes of inputs too.
    guards = [text for text in (str(settled(shape_env, guard)) for guard in guards_of(shape_env)) if text != "True"]
    found: list[str] = []
    # First, since others may divide by a size.
    for symbol, (lower, upper) in ranges_of(shape_env).items():
        if str(symbol) in names:
            found += [f"{symbol} >= {lower}"] if _is_finite(lower) else []
            found += [f"{symbol} <= {upper}"] if _is_finite(upper) else []
    found += guards
    unknown = set().union(*map(symbols, found)) - names if found else set()
    if unknown:
        raise Unwritable(f"it depends on sizes of tensors that it does not compute with: {', '.join(sorted(unknown))}")
    hints = {str(symbol): int(value) for symbol, value in values_of_symbols(shape_env).items() if str(symbol) in names}
    for text in found:
        if names <= hints.keys() and not evaluate(text, hints):
            raise Unwritable(f"the guard {text} on sizes does not hold after tracing")
    return tuple(dict.fromkeys(found))


def check_numbers(leaves: Iterable[object], shape_env: Any) -> None:
    """Raises Unwritable for a number that a call could not work out."""
    hints = (
        {str(symbol): int(value) for symbol, value in values_of_symbols(shape_env).items()}
        if shape_env is not None
        else {}
    )
    for leaf in leaves:
        if isinstance(leaf, NumberLeaf):
            _check_number(leaf.text, leaf.now, hints)
        elif isinstance(leaf, ViewLeaf):
            for size in (*leaf.shape, *leaf.stride, leaf.offset):
                if isinstance(size, str):
                    _check_number(size, None, hints)


def _check_number(text: str, expected: int | None, hints: Mapping[str, int]) -> None:
    try:
        now = evaluate(text, hints)
    except UnsupportedExpression as error:
        raise Unwritable(f"the result holds a number that is not worked out from sizes: {error}") from error
    if type(now) is not int or expected not in (None, now):
        raise Unwritable(f"the result holds a number, {text}, which is {expected}, not {now}")


def _is_finite(bound: Any) -> bool:
    return bool(getattr(bound, "is_Integer", False)) and abs(int(bound)) < 2**62
