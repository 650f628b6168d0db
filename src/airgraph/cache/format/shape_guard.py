"""What must hold between the sizes of a call for a graph to be right, as text: `Eq(Mod(s0, 8), 0)`."""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from airgraph.errors import UnsupportedExpression

__all__ = ["evaluate", "symbols"]


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
# As sympy and torch print them.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Eq": operator.eq,
    "Ne": operator.ne,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": float,
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "RoundToInt": round,
    "Max": max,
    "Min": min,
    "And": lambda *terms: all(terms),
    "Or": lambda *terms: any(terms),
    "Not": operator.not_,
    "Abs": abs,
}
_MOST_EXPONENT = 16
_LARGEST = 1 << 4096


def evaluate(text: str, sizes: Mapping[str, int]) -> Any:
    """The value of an expression. Raises UnsupportedExpression for what it does not know; nothing is executed."""
    try:
        return _value(_parsed(text), sizes, text)
    except (ZeroDivisionError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnsupportedExpression(f"{text!r} cannot be worked out: {error}") from error


def symbols(text: str) -> set[str]:
    """The names of sizes in an expression."""
    nodes = list(ast.walk(_parsed(text)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called}


def _bounded(value: Any, text: str, *, root: int = 1) -> Any:
    """root: how often it is to be multiplied with itself."""
    if abs(value) > 1 and (isinstance(value, int) and abs(value).bit_length() * root > _LARGEST.bit_length()):
        raise UnsupportedExpression(f"{text!r} leads to numbers that no size has")
    if abs(value) > _LARGEST:
        raise UnsupportedExpression(f"{text!r} leads to numbers that no size has")
    return value


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UnsupportedExpression(f"{text!r} is not an expression over sizes") from error


def _value(node: ast.expr, sizes: Mapping[str, int], text: str) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() as number):
            return number
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, sizes, text)
        case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=inner):
            return not _value(inner, sizes, text)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if 0 <= power <= _MOST_EXPONENT:
            return _bounded(_value(left, sizes, text), text, root=power) ** power
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left, sizes, text), _value(right, sizes, text)), text)
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARISONS for op in ops):
            values = [_value(each, sizes, text) for each in (left, *rights)]
            return all(_COMPARISONS[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(arg, sizes, text) for arg in args))
    raise UnsupportedExpression(f"{text!r} uses {ast.unparse(node)!r}, which is not known in guards on sizes")
