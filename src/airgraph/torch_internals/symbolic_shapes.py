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
    "is_float_symbol",
    "statically_known_true",
    "values_of_symbols",
    "worked_out",
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
