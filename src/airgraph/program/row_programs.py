"""Row programs: operators that compute row by row, one after the other, as the text that `airgraph::row_program` takes.

Instructions are divided by "; ", an operator's name and its values by blanks. Values have numbers, the operands first
and then what each instruction makes; the last one is the result. A number of the program's own, which only the last
value can be, has a # before it. The root mean square norm of operand 0, times operand 1:

    square 0; mean 2; add 3 #1e-06; rsqrt 4; mul 0 5; mul 6 1

A value has the result's dimensions, but for the last, along which its rows lie: numbers that differ, or one for all.
Operators: add, sub, mul, div; neg, silu, rsqrt, square, relu; float32, bfloat16, float16, which are casts; mean, of a
row; cat, of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["CASTS", "run_row_program"]

CASTS = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}

_aten = torch.ops.aten
_Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
# As operators of torch: which, with which arguments.
_INSTRUCTIONS: dict[str, Callable[..., _Call]] = {
    "add": lambda a, b: (_aten.add.Tensor, (a, b), {}),
    "sub": lambda a, b: (_aten.sub.Tensor, (a, b), {}),
    "mul": lambda a, b: (_aten.mul.Tensor, (a, b), {}),
    "div": lambda a, b: (_aten.div.Tensor, (a, b), {}),
    "neg": lambda a: (_aten.neg.default, (a,), {}),
    "silu": lambda a: (_aten.silu.default, (a,), {}),
    "rsqrt": lambda a: (_aten.rsqrt.default, (a,), {}),
    "square": lambda a: (_aten.pow.Tensor_Scalar, (a, 2), {}),
    "relu": lambda a: (_aten.relu.default, (a,), {}),
    "mean": lambda a: (_aten.mean.dim, (a, [-1], True), {}),
    "cat": lambda *values: (_aten.cat.default, (list(values), -1), {}),
    "float32": lambda a: (_aten._to_copy.default, (a,), {"dtype": torch.float32}),
    "bfloat16": lambda a: (_aten._to_copy.default, (a,), {"dtype": torch.bfloat16}),
    "float16": lambda a: (_aten._to_copy.default, (a,), {"dtype": torch.float16}),
}


def _call(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return op(*args, **kwargs)


def run_row_program(operands: Sequence[Any], program: str, call: Callable[..., Any] = _call) -> Any:
    """What a program gives, by `call(operator, args, kwargs)` for each instruction; ValueError where it is none."""
    values = list(operands)
    for instruction in program.split("; "):
        name, *words = instruction.split(" ")
        if name not in _INSTRUCTIONS:
            raise _no_instruction(instruction, f"names are {', '.join(_INSTRUCTIONS)}")
        if len(words) != _counts(name, len(words)):
            raise _no_instruction(instruction, f"{name} takes {_counts(name, len(words))} values")
        given = [_value(word, values, instruction) for word in words]
        if any(isinstance(each, float) for each in given[:-1]):
            raise _no_instruction(instruction, "only the last value may be a number")
        values.append(call(*_INSTRUCTIONS[name](*given)))
    return values[-1]


def _counts(name: str, given: int) -> int:
    """How many values an instruction takes."""
    if name == "cat":
        return max(given, 1)
    return 2 if name in ("add", "sub", "mul", "div") else 1


def _value(word: str, values: Sequence[Any], instruction: str) -> Any:
    try:
        number = float(word[1:]) if word.startswith("#") else int(word)
    except ValueError:
        raise _no_instruction(instruction, f"{word!r} is neither a value nor a number after #") from None
    if isinstance(number, float):
        return number
    if number not in range(len(values)):
        raise _no_instruction(instruction, f"there are {len(values)} values, counted from 0")
    return values[number]


def _no_instruction(instruction: str, why: str) -> ValueError:
    return ValueError(f"{instruction!r} is no instruction of a row program here: {why}")
