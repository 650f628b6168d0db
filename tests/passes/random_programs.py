"""Random programs over a few tensors: views, in-place operators, mutated inputs, scatters and gathers, aliases.

A program is a list of instructions. It is made by executing it, and what eager refuses is left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Program", "make_inputs", "make_program", "make_strided_inputs"]

_ROWS, _COLUMNS = 4, 6
Step = Callable[..., "Tensor | tuple[Tensor, ...] | None"]


@dataclass(frozen=True)
class Instruction:
    name: str
    step: Step
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(inputs)
        for instruction in self.instructions:
            _extend(values, instruction.step(*(values[i] for i in instruction.operands)))
        return tuple(values[i] for i in self.outputs)

    def __str__(self) -> str:
        lines = [f"{i.name}{i.operands}" for i in self.instructions]
        return "; ".join([*lines, f"return {self.outputs}"])


def make_inputs(seed: int) -> list[Tensor]:
    """Indices, three tensors of rows and columns, one column vector, and a mask.

    Of the three one is dense, one a part of a larger tensor, and one turned.
    """
    generator = torch.Generator().manual_seed(seed)
    wide = [
        torch.randn(_ROWS, _COLUMNS, generator=generator),
        torch.randn(2 * _ROWS, 2 * _COLUMNS, generator=generator)[2 : 2 + _ROWS, 3 : 3 + _COLUMNS],
        torch.randn(_COLUMNS, _ROWS, generator=generator).t(),
    ]
    mask = torch.rand(_ROWS, _COLUMNS, generator=generator) > 0.5
    return [*_indices(), *wide, torch.randn(_ROWS, 1, generator=generator), mask]


def make_strided_inputs(seed: int) -> list[Tensor]:
    """As `make_inputs`, with the three at random strides and offsets: they may overlap, and share storages."""
    choose = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    count = choose.choice([1, 2, 3])
    storages = [torch.randn(_STORAGE, generator=generator) for _ in range(count)]
    wide = []
    for _ in range(3):
        storage = choose.choice(storages)
        strides = choose.choice(_STRIDES)
        last = (_ROWS - 1) * strides[0] + (_COLUMNS - 1) * strides[1]
        # Often at few places, so that some lie side by side, one in another, or at one place.
        offset = choose.choice([0, 1, _ROWS * _COLUMNS, choose.randrange(_STORAGE - last)])
        wide.append(storage.as_strided((_ROWS, _COLUMNS), strides, min(offset, _STORAGE - last - 1)))
    column = torch.randn(2 * _ROWS, 2, generator=generator)[:: choose.choice([1, 2]), :1][:_ROWS]
    mask = torch.rand(_COLUMNS, _ROWS, generator=generator).t() > 0.5
    return [*_indices(), *wide, column, mask]


_STORAGE = 120
# Dense, turned, with gaps in rows or columns or both, expanded, windows that overlap, turned with gaps.
_STRIDES = [(6, 1), (6, 1), (1, 4), (9, 1), (12, 2), (13, 2), (0, 1), (1, 0), (2, 1), (1, 1), (1, 7), (3, 12)]


# Where the first inputs lie, which steps use as indices only.
_SOME_ROWS, _OTHER_ROWS, _GATHERED, _SCATTERED = range(4)


def _indices() -> list[Tensor]:
    return [
        torch.tensor([1, 3]),
        torch.tensor([0, 2]),
        torch.tensor([[0, 2], [1, 1], [3, 0], [2, 2]]),
        torch.tensor([[0, 1, 2, 3, 0, 1]]),
    ]


def make_program(
    seed: int, length: int, inputs: Sequence[Tensor] | None = None, more: Sequence[tuple[Any, ...]] = ()
) -> Program:
    """A program of about `length` instructions, the same for the same seed, that eager runs on `inputs`.

    more: instructions that every other one is chosen from, each with its name, its arity and how its step is made.
    """
    choose = random.Random(seed)
    values = list(make_inputs(seed) if inputs is None else inputs)
    instructions: list[Instruction] = []
    for _ in range(4 * length):
        if len(instructions) == length:
            break
        name, arity, make, *indices = choose.choice(more if more and choose.random() < 0.5 else _INSTRUCTIONS)
        step = make(choose)
        operands = tuple(_operand(choose, len(values)) for _ in range(arity))
        if indices:
            operands += (choose.choice(indices[0]),)
        if _writes(name) and _overlaps(*(values[i] for i in operands)):
            # What is written would depend on the order in which elements are.
            continue
        # On copies that share memory as the values do, so that a refused step leaves no trace.
        copies = _copies(values)
        try:
            result = step(*(copies[i] for i in operands))
        except (RuntimeError, IndexError, ValueError, TypeError):
            continue
        after = list(copies)
        _extend(after, result)
        if any(value.is_floating_point() and not (value.abs() < 1e4).all() for value in after):
            continue
        if any(value.numel() == 0 or value.numel() > 200 for value in after):
            continue
        values = after
        instructions.append(Instruction(name, step, operands))
    outputs = tuple(_operand(choose, len(values)) for _ in range(choose.randint(1, 6)))
    return Program(tuple(instructions), outputs)


def _operand(choose: random.Random, count: int) -> int:
    """One of the values so far, every other time a late one, so that not too much is dead in the end."""
    first = len(_indices())
    return choose.randrange(max(first, count - 5) if choose.random() < 0.5 else first, count)


def _writes(name: str) -> bool:
    return name.endswith("_") or name.startswith("write")


def _overlaps(target: Tensor, *others: Tensor) -> bool:
    storage = target.untyped_storage()._cdata
    return bool(torch._debug_has_internal_overlap(target)) or storage in {o.untyped_storage()._cdata for o in others}


def _extend(values: list[Tensor], result: Tensor | tuple[Tensor, ...] | None) -> None:
    if isinstance(result, Tensor):
        values.append(result)
    elif result is not None:
        values.extend(result)


def _copies(values: Sequence[Tensor]) -> list[Tensor]:
    storages: dict[int, Tensor] = {}
    copied = []
    for value in values:
        storage = value.untyped_storage()
        if storage._cdata not in storages:
            storages[storage._cdata] = torch.empty(0, dtype=torch.uint8).set_(storage).clone()
        new = torch.empty(0, dtype=value.dtype)
        new.set_(storages[storage._cdata].untyped_storage(), value.storage_offset(), value.shape, value.stride())
        copied.append(new)
    return copied


def _fixed(step: Step) -> Callable[[random.Random], Step]:
    return lambda choose: step


def _with(numbers: Sequence[object], step: Step) -> Callable[[random.Random], Step]:
    """A step that takes a number chosen when the program is made."""

    def make(choose: random.Random) -> Step:
        number = choose.choice(numbers)
        return lambda *operands: step(*operands, number)

    return make


def _ignored(step: Step) -> Step:
    """For operators in place: what they return is their operand."""

    def run(*operands: Tensor) -> None:
        step(*operands)

    return run


_ROW_INDICES = (_SOME_ROWS, _OTHER_ROWS)
# Name, how many operands, how the step is made, and which of the indices it takes last.
_INSTRUCTIONS: list[tuple[Any, ...]] = [
    ("relu", 1, _fixed(torch.relu)),
    ("sigmoid", 1, _fixed(torch.sigmoid)),
    ("neg", 1, _fixed(torch.neg)),
    ("tanh", 1, _fixed(torch.tanh)),
    ("gelu", 1, _fixed(torch.nn.functional.gelu)),
    ("silu", 1, _fixed(torch.nn.functional.silu)),
    ("add", 2, _fixed(torch.add)),
    ("sub", 2, _fixed(torch.sub)),
    ("mul", 2, _fixed(torch.mul)),
    ("add number", 1, _with((0.5, 2, -1), torch.add)),
    ("mul number", 1, _with((0.5, 1, 1.0, -2), torch.mul)),
    ("pow", 1, _with((1, 2), torch.pow)),
    ("maximum", 2, _fixed(torch.maximum)),
    ("where", 3, _fixed(lambda m, a, b: torch.where(m > 0, a, b))),
    ("to double and back", 1, _fixed(lambda a: a.double().mul(2).to(torch.float32))),
    ("clone", 1, _fixed(torch.clone)),
    ("cumsum", 1, _with((0, 1), torch.cumsum)),
    ("softmax", 1, _with((0, 1), torch.softmax)),
    ("sum", 1, _with((0, 1), lambda a, d: a.sum(d, keepdim=True))),
    ("mean", 1, _with((0, 1), lambda a, d: a.mean(d, keepdim=True))),
    ("var_mean", 1, _with((0, 1), lambda a, d: torch.var_mean(a, d, keepdim=True))),
    ("matmul", 2, _fixed(lambda a, b: a @ b.t())),
    ("cat", 2, _with((0, 1), lambda a, b, d: torch.cat([a, b], d).clamp(-50, 50))),
    ("cat of new values", 2, _with((0, 1), lambda a, b, d: torch.cat([a.sin(), b + 1], d))),
    ("cat with a new value", 2, _with((0, 1), lambda a, b, d: torch.cat([a, b.relu()], d))),
    ("cat of cats", 3, _fixed(lambda a, b, c: torch.cat([torch.cat([a.sin(), b * 2], 1), torch.cat([c, c.cos()], 1)]))),
    ("stack", 2, _fixed(lambda a, b: torch.stack([a, b]).sum(0))),
    ("cat one", 1, _fixed(lambda a: torch.cat([a]))),
    ("index_select", 1, _fixed(lambda a, i: a.index_select(0, i)), _ROW_INDICES),
    ("gather", 1, _fixed(lambda a, i: a.gather(1, i)), (_GATHERED,)),
    ("index_copy", 2, _fixed(lambda a, b, i: a.index_copy(0, i, b[:2])), _ROW_INDICES),
    ("index_add", 2, _fixed(lambda a, b, i: a.index_add(0, i, b[:2])), _ROW_INDICES),
    ("index_put", 2, _fixed(lambda a, b, i: a.index_put((i,), b[:2])), _ROW_INDICES),
    ("scatter", 2, _fixed(lambda a, b, i: a.scatter(0, i, b)), (_SCATTERED,)),
    ("masked_fill", 2, _fixed(lambda a, m: a.masked_fill(m > 0, 0.25))),
    ("slice_scatter", 2, _fixed(lambda a, b: a.slice_scatter(b[1:3], 0, 1, 3))),
    ("select_scatter", 2, _fixed(lambda a, b: a.select_scatter(b[0], 0, 2))),
    ("sort", 1, _fixed(lambda a: a.sort(1).values)),
    # Views.
    ("t", 1, _fixed(torch.t)),
    ("rows", 1, _with((1, 2), lambda a, k: a[k : k + 2])),
    ("all rows", 1, _fixed(lambda a: a[:])),
    ("every other", 1, _fixed(lambda a: a[:, ::2])),
    ("column", 1, _with((0, 1), lambda a, k: a[:, k : k + 1])),
    ("select", 1, _with((0, 1), lambda a, k: a.select(0, k).unsqueeze(0))),
    # Not reshape: functionalization may change strides, and with them whether it copies.
    ("view", 1, _fixed(lambda a: a.view(a.shape[1], a.shape[0]))),
    ("reshaped copy", 1, _fixed(lambda a: a.clone(memory_format=torch.contiguous_format).view(a.shape[1], a.shape[0]))),
    ("expand", 1, _fixed(lambda a: a[:, :1].expand(-1, 3))),
    ("chunk", 1, _with((0, 1), lambda a, d: a.chunk(2, d))),
    ("diagonal", 1, _fixed(lambda a: a.diagonal().unsqueeze(0))),
    # In place, also on inputs and on views.
    ("add_", 2, _fixed(_ignored(lambda a, b: a.add_(b)))),
    ("mul_", 1, _with((0.5, -1), lambda a, n: _ignored(lambda x: x.mul_(n))(a))),
    ("relu_", 1, _fixed(_ignored(torch.relu_))),
    ("sub_", 2, _fixed(_ignored(lambda a, b: a.sub_(b)))),
    ("copy_", 2, _fixed(_ignored(lambda a, b: a.copy_(b)))),
    ("zero_", 1, _fixed(_ignored(lambda a: a.zero_()))),
    ("fill_", 1, _with((0.5, 3.0), lambda a, n: _ignored(lambda x: x.fill_(n))(a))),
    ("index_copy_", 2, _fixed(_ignored(lambda a, b, i: a.index_copy_(0, i, b[:2]))), _ROW_INDICES),
    ("index_put_", 2, _fixed(_ignored(lambda a, b, i: a.index_put_((i,), b[:2]))), _ROW_INDICES),
    ("scatter_", 2, _fixed(_ignored(lambda a, b, i: a.scatter_(0, i, b))), (_SCATTERED,)),
    ("masked_fill_", 2, _fixed(_ignored(lambda a, m: a.masked_fill_(m > 0, 0.75)))),
    ("cumsum_", 1, _fixed(_ignored(lambda a: a.cumsum_(0)))),
    ("write rows", 2, _fixed(_ignored(lambda a, b: a[1:3].copy_(b[:2])))),
    ("write row", 2, _fixed(_ignored(lambda a, b: a[0].copy_(b[1])))),
    ("write column", 1, _fixed(_ignored(lambda a: a[:, 1].add_(1)))),
]
