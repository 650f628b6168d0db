"""Sizes that are expressions of symbols.

They are sympy's, which is imported where there is one: a start whose graphs are read from files has none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.fx.experimental import _config

__all__ = [
    "each_size_for_itself",
    "expression_of",
    "free_unbacked_symbols",
    "guards_of",
    "hint_of",
    "is_float_symbol",
    "ranges_of",
    "settled",
    "settled_expression_of",
    "statically_known_true",
    "values_of_symbols",
    "worked_out",
    "wrapped_by_dynamo",
]


def each_size_for_itself() -> AbstractContextManager[Any]:
    """Traces within take sizes that happen to be equal for one only where the program needs them to be."""
    return _config.patch(use_duck_shape=False)  # type: ignore[attr-defined]


def free_unbacked_symbols(tensor: torch.Tensor) -> Collection[Any]:
    """Symbols in a tensor's form that stand for what data decides."""
    from torch.fx.experimental import symbolic_shapes

    found: Collection[Any] = symbolic_shapes.free_unbacked_symbols(tensor)
    return found


def statically_known_true(condition: bool | torch.SymBool) -> bool:
    """Whether a condition holds for all sizes; what is no symbol's is what it is."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental import symbolic_shapes

    return symbolic_shapes.statically_known_true(condition)


def expression_of(size: Any) -> Any:
    """The sympy expression of a SymInt or SymFloat as it was made, its symbols not replaced."""
    return size.node._expr


def settled_expression_of(size: Any) -> Any:
    """The same with symbols replaced that were found to be equal to others, or to numbers."""
    return size.node.expr


def hint_of(size: Any) -> Any:
    """What it was while tracing."""
    return size.node.hint


def guards_of(shape_env: Any) -> list[Any]:
    """What tracing assumed about symbols, as it came to it."""
    return [guard.expr for guard in shape_env.guards]


def settled(shape_env: Any, expression: Any) -> Any:
    """An expression with its symbols replaced as `settled_expression_of` has them."""
    return shape_env.replace(expression)


def ranges_of(shape_env: Any) -> Mapping[Any, tuple[Any, Any]]:
    """Between which numbers each symbol lies: lower, upper."""
    return {symbol: (span.lower, span.upper) for symbol, span in shape_env.var_to_range.items()}


def wrapped_by_dynamo(shape_env: Any) -> list[tuple[Any, Any]]:
    """Tensors and numbers that a trace has wrapped: source and fake value."""
    return [(each.source, each.fake) for each in getattr(shape_env, "tracked_fakes", None) or ()]


def values_of_symbols(shape_env: Any) -> Mapping[Any, Any]:
    """What each symbol was while tracing."""
    # Renamed in torch 2.11, and deprecated under the old name.
    return shape_env.backed_var_to_val if hasattr(shape_env, "backed_var_to_val") else shape_env.var_to_val


def is_float_symbol(symbol: Any) -> bool:
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    return symbol_is_type(symbol, SymT.FLOAT)


def worked_out(expression: Any, bound: dict[Any, Any]) -> Any:
    """An expression, with Python's operators, of what its symbols are bound to."""
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    return sympy_interp(PythonReferenceAnalysis, bound, expression)
