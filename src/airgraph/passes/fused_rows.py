"""Compute what lies between the large operators of a graph row by row, in one operator for all neighbours."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.few_rows import FLOATS
from airgraph.passes.analysis.in_place_forms import same_form
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.program.nodes import is_cast, is_view
from airgraph.program.own_operators import ROW_PROGRAM
from airgraph.program.row_programs import CASTS
from airgraph.program.streams import stream_of
from airgraph.torch_internals.symbolic_shapes import settled_expression_of

__all__ = ["fuse_rows"]

# As in csrc/kernels/own/row_program_step.cpp, the result among the tensors.
MOST_OPERANDS = 15
MOST_DIMS = 6
MOST_INSTRUCTIONS = 32
# Of a row which a mean or a cat needs whole: what a program makes of more would not stay in a core's caches.
LONGEST_ROW = 16384
# Shorter rows than this are worth it only where there are few numbers.
SHORT_ROW, FEW_NUMBERS = 32, 1 << 12
# Of more than this the memory is what takes the time, and ATen's loops stream as well as ours.
MOST_NUMBERS = 1 << 20

_aten = torch.ops.aten
_BINARY = {
    _aten.add.Tensor: "add",
    _aten.sub.Tensor: "sub",
    _aten.mul.Tensor: "mul",
    _aten.div.Tensor: "div",
}
_UNARY = {
    _aten.neg.default: "neg",
    _aten.silu.default: "silu",
    _aten.rsqrt.default: "rsqrt",
    _aten.relu.default: "relu",
}
_OF_WHOLE_ROWS = ("mean", "cat")


@dataclass(frozen=True, slots=True)
class Instruction:
    """What a node computes of rows: the operator's name in a row program, and its values, the last perhaps a number."""

    name: str
    values: tuple[Node | float, ...]

    @property
    def nodes(self) -> list[Node]:
        return [each for each in self.values if isinstance(each, Node)]


class _Reads:
    """Who takes the memory of a value, in the order of the graph."""

    def __init__(self, use: MemoryUse) -> None:
        self.use = use
        self._users: dict[Node, tuple[list[int], list[Node]]] = {}

    def come_between(self, operand: Node, first: Node, last: Node, members: set[Node]) -> bool:
        """Whether an operand is written before a later reader, or what could be written in its place would have to wait
        for that."""
        if self.use.written_between(operand, first, last):
            return True
        places, users = self._of(operand)
        begin = bisect.bisect_right(places, self.use.aliases.position(first))
        end = bisect.bisect_left(places, self.use.aliases.position(last))
        return any(user not in members for user in users[begin:end])

    def _of(self, operand: Node) -> tuple[list[int], list[Node]]:
        if operand not in self._users:
            position = self.use.aliases.position
            users = sorted((user for user in self.use.aliases.users(operand) if not is_view(user)), key=position)
            self._users[operand] = [position(user) for user in users], users
        return self._users[operand]


def fuse_rows(gm: GraphModule) -> int:
    """Replace neighbours that compute row by row, of which only the last is used elsewhere, by one operator; returns
    how many. For the CPU.
    """
    use = MemoryUse(gm.graph)
    found = {node: made for node in gm.graph.nodes if (made := _instruction(node)) is not None}
    reads = _Reads(use)
    # All is asked before anything changes.
    programs, taken = [], set[Node]()
    for node in reversed(list(found)):
        if node in taken or not _may_be_result(node):
            continue
        members = _neighbours(node, found, reads)
        if len(members) > 1 and _is_worth_it(members, found):
            programs.append((members, *_program(members, found, use)))
            taken.update(members)
    for members, (first, *others), text in programs:
        result = members[-1]
        with gm.graph.inserting_before(result):
            fused = gm.graph.call_function(ROW_PROGRAM, (first, others, text))
        fused.meta = dict(result.meta)
        result.replace_all_uses_with(fused)
        for node in reversed(members):
            gm.graph.erase_node(node)
    return len(programs)


def _is_worth_it(members: Sequence[Node], found: dict[Node, Instruction]) -> bool:
    """Whether rows are long, or there are few numbers at every call."""
    forms = [_form(each) for member in members for each in (member, *found[member].nodes)]
    lengths = [each.shape[-1] for each in forms if each.dim()]
    if any(not isinstance(length, int) or length >= SHORT_ROW for length in lengths):
        return True
    return all(_is_known(each) and math.prod(each.shape) <= FEW_NUMBERS for each in forms)


def _is_known(form: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in form.shape)


def _neighbours(result: Node, found: dict[Node, Instruction], reads: _Reads) -> list[Node]:
    """What can be computed together with a node, in the graph's order, itself last."""
    use = reads.use
    members = {result}
    operands = set(found[result].nodes)
    # The latest first: of each, all users are decided before it.
    waiting = [(-use.aliases.position(each), each.name, each) for each in operands]
    heapq.heapify(waiting)
    while waiting and len(members) < MOST_INSTRUCTIONS:
        *_, node = heapq.heappop(waiting)
        if node not in found or not _joins(node, members, result, found, reads):
            continue
        new = set(found[node].nodes) - operands
        if len(operands | new) - 1 > MOST_OPERANDS:
            continue
        members.add(node)
        operands = (operands | new) - {node}
        for each in new:
            heapq.heappush(waiting, (-use.aliases.position(each), each.name, each))
    made = sorted(members, key=use.aliases.position)
    # A cat may have had more from the first.
    is_served = len(operands) <= MOST_OPERANDS and all(_is_fed(found[each], members) for each in made)
    return made if is_served else [result]


def _joins(node: Node, members: set[Node], result: Node, found: dict[Node, Instruction], reads: _Reads) -> bool:
    return (
        all(user in members for user in node.users)
        and stream_of(node) == stream_of(result)
        and _plain_sizes(node)[:-1] == _plain_sizes(result)[:-1]
        # What it reads is read later now.
        and not any(reads.come_between(each, node, result, members) for each in found[node].nodes)
    )


def _is_fed(instruction: Instruction, members: set[Node]) -> bool:
    """Whether nothing that a cat puts together could be computed in its place right away, were it left alone."""
    return instruction.name != "cat" or all(
        each in members or each.op != "call_function" or is_view(each) for each in instruction.nodes
    )


def _program(members: Sequence[Node], found: dict[Node, Instruction], use: MemoryUse) -> tuple[list[Node], str]:
    """The operands of an operator that computes these, and its text. The first one is what the result may replace."""
    reads = (node for member in members for node in found[member].nodes)
    operands = list(dict.fromkeys(node for node in reads if node not in members))
    operands.sort(key=lambda node: not _may_be_replaced(node, members[-1], use))
    number = {node: place for place, node in enumerate((*operands, *members))}

    def text(value: Node | float) -> str:
        return str(number[value]) if isinstance(value, Node) else f"#{value!r}"

    parts = (" ".join((found[each].name, *map(text, found[each].values))) for each in members)
    return operands, "; ".join(parts)


def _may_be_replaced(node: Node, result: Node, use: MemoryUse) -> bool:
    """Whether the result could lie where an operand lies: nobody needs that, or the result is copied into it."""
    if not same_form(node, result):
        return False
    if any(user.target is _aten.copy_.default and user.args[:2] == (node, result) for user in result.users):
        return True
    is_made_here = all(root.op == "call_function" for root in use.aliases.roots(node))
    return is_made_here and use.aliases.used_after(node, result) is None


def _instruction(node: Node) -> Instruction | None:
    """What a node computes, if that is done row by row, of floats on the CPU."""
    if node.op != "call_function" or not _has_rows(node):
        return None
    made = _called(node)
    if made is None or not all(_has_rows(each) or _is_one_number(each) for each in made.nodes):
        return None
    if made.name not in CASTS.values() and any(_form(each).dtype is not _form(node).dtype for each in made.nodes):
        return None
    if made.name in _OF_WHOLE_ROWS and not all(_is_short(each) for each in (node, *made.nodes)):
        return None
    return made


def _is_short(node: Node) -> bool:
    count = _form(node).shape[-1]
    return isinstance(count, int) and 1 <= count <= LONGEST_ROW


def _called(node: Node) -> Instruction | None:
    args, kwargs = node.args, {name: value for name, value in node.kwargs.items() if value is not None}
    if is_cast(node):
        return _cast(node)
    if kwargs:
        return None
    if node.target in _BINARY and len(args) == 2:
        return _binary(_BINARY[node.target], *args)
    if node.target in _UNARY:
        return _of(_UNARY[node.target], args[0])
    if node.target is _aten.pow.Tensor_Scalar and not isinstance(args[1], Node) and args[1] == 2:
        return _of("square", args[0])
    if node.target is _aten.mean.dim and len(args) == 3 and args[2] is True and _is_last(args[1], args[0]):
        return _of("mean", args[0])
    if node.target is _aten.cat.default and len(args) == 2 and _is_last([args[1]], node):
        return _cat(args[0])
    return None


def _of(name: str, value: Any) -> Instruction | None:
    return Instruction(name, (value,)) if isinstance(value, Node) else None


def _binary(name: str, a: Any, b: Any) -> Instruction | None:
    if not isinstance(a, Node) and name in ("add", "mul"):
        a, b = b, a
    if not isinstance(a, Node) or not (isinstance(b, Node) or _is_number(b)):
        return None
    return Instruction(name, (a, b if isinstance(b, Node) else float(b)))


def _cast(node: Node) -> Instruction | None:
    (value, *others), kwargs = node.args, node.kwargs
    only_dtype = all(given is None for name, given in kwargs.items() if name != "dtype")
    (dtype,) = others or [kwargs.get("dtype")]
    if not only_dtype or dtype not in CASTS or not isinstance(value, Node):
        return None
    assert isinstance(dtype, torch.dtype)
    return _of(CASTS[dtype], value) if _form(value).dtype is not dtype else None


def _cat(values: Any) -> Instruction | None:
    if not isinstance(values, Sequence) or len(values) < 2 or not all(isinstance(each, Node) for each in values):
        return None
    # Of what is empty it takes none, whatever its dimensions.
    if not all(_has_rows(each) and _is_short(each) for each in values):
        return None
    return Instruction("cat", tuple(values))


def _is_number(value: Any) -> bool:
    """Whether it is a number that float32 reaches and that a double holds as it is."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= 2**53
    return value != value or abs(value) in (float("inf"), 0.0) or abs(value) <= _LARGEST


_LARGEST = torch.finfo(torch.float32).max


def _is_last(dims: Any, of: Any) -> bool:
    if not isinstance(of, Node) or not isinstance(dims, Sequence) or len(dims) != 1:
        return False
    return dims[0] in (-1, _form(of).dim() - 1)


def _has_rows(node: Node) -> bool:
    """Whether it is a tensor of floats on the CPU that lies in rows."""
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.dtype in FLOATS
        and 1 <= value.dim() <= MOST_DIMS
        and not value.is_neg()
        and _lies_in_rows(value)
    )


def _is_one_number(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.device.type == "cpu" and value.dtype in FLOATS


def _may_be_result(node: Node) -> bool:
    form = _form(node)
    return not _is_known(form) or form.numel() <= MOST_NUMBERS


def _lies_in_rows(form: torch.Tensor) -> bool:
    return any(isinstance(each, int) and each == 1 for each in (form.shape[-1], form.stride(-1)))


def _plain_sizes(node: Node) -> list[Any]:
    """Equal where they are so at every call: numbers, or one expression of symbols."""
    return [size if isinstance(size, int) else settled_expression_of(size) for size in _form(node).shape]


def _form(node: Node) -> torch.Tensor:
    form: torch.Tensor = node.meta["val"]
    return form
