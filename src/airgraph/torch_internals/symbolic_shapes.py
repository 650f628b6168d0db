"""Sizes that are expressions of symbols."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch.fx.experimental import _config
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

__all__ = [
    "each_size_for_itself",
    "expression_of",
    "free_unbacked_symbols",
    "is_float_symbol",
    "statically_known_true",
    "values_of_symbols",
    "worked_out",
]


def each_size_for_itself() -> AbstractContextManager[Any]:
    """Traces within take sizes that happen to be equal for one only where the program needs them to be."""
    return _config.patch(use_duck_shape=False)  # type: ignore[attr-defined]


def expression_of(size: Any) -> Any:
    """The sympy expression of a SymInt or SymFloat as it was made, its symbols not replaced."""
    return size.node._expr


def values_of_symbols(shape_env: Any) -> Mapping[Any, Any]:
    """What each symbol was while tracing."""
    # Renamed in torch 2.11, and deprecated under the old name.
    return shape_env.backed_var_to_val if hasattr(shape_env, "backed_var_to_val") else shape_env.var_to_val


def is_float_symbol(symbol: Any) -> bool:
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    return symbol_is_type(symbol, SymT.FLOAT)


def worked_out(expression: Any, bound: dict[Any, Any]) -> Any:
    """An expression, with Python's operators, of what its symbols are bound to."""
    return sympy_interp(PythonReferenceAnalysis, bound, expression)
