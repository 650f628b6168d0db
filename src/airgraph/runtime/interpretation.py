"""One walk over a program while it is recorded, the same on every device, and what becomes of each output."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from airgraph.errors import FailedOperator, UnsupportedGraph
from airgraph.program import source_lines
from airgraph.program.inputs import InputPlan
from airgraph.program.operators import is_view_operator
from airgraph.program.program import CaptureProgram
from airgraph.runtime.copies import copied_nbytes
from airgraph.runtime.cpu.engine import engine

__all__ = ["Constant", "InputView", "Interpretation", "Owned", "constants_of", "finish_output", "shares_memory"]

_OFFSETS = {"aten::sym_storage_offset", "aten::storage_offset"}
# What ATen raises for a call that eager would refuse as well.
_OPERATOR_ERRORS = (RuntimeError, TypeError, ValueError, IndexError)


@dataclass(frozen=True, slots=True)
class Owned:
    """Output `position` among those whose memory the graph writes."""

    position: int


@dataclass(frozen=True, slots=True)
class InputView:
    """A view of argument `index`; delta: of the storage offset, in elements. None: the argument itself."""

    index: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    delta: int | None


@dataclass(frozen=True, slots=True)
class Constant:
    """What is the same at every call: a number, None, or a tensor that the graph did not make."""

    value: Any


def finish_output(out: Owned | InputView | Constant, made: Sequence[torch.Tensor], args: Sequence[Any]) -> Any:
    """An output of a call from what a replay made and from the call's arguments."""
    if isinstance(out, Owned):
        return made[out.position]
    if isinstance(out, Constant):
        return out.value
    if out.delta is None:
        return args[out.index]
    return args[out.index].as_strided(out.shape, out.stride, args[out.index].storage_offset() + out.delta)


def constants_of(gm: torch.fx.GraphModule) -> Iterator[torch.Tensor]:
    """The tensors that a graph takes from its module."""
    values = (_attribute(gm, node.target) for node in gm.graph.find_nodes(op="get_attr"))
    return (value for value in values if isinstance(value, torch.Tensor))


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have one storage. It makes no Python object of it: that would count as a holder."""
    return bool(engine().share_storage(a, b))


class Interpretation:
    """One walk over the FX graph. A device says how an input comes in and what a call does.

    copied_nbytes: what the operators walked over copy at each replay.
    """

    def __init__(self, program: CaptureProgram, args: Sequence[Any]) -> None:
        self._program = program
        self._args = args
        self._values: dict[Node, Any] = {}
        self.copied_nbytes = 0

    def bring_in(self, plan: InputPlan, arg: Any) -> Any:
        """What the graph sees of an argument. Override: a user input has a buffer."""
        raise NotImplementedError

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        """Run or record an operator. Override."""
        raise NotImplementedError

    def made_here(self, value: torch.Tensor) -> bool:
        """Whether the graph writes this tensor at each replay. Override."""
        raise NotImplementedError

    def run(self) -> list[Any]:
        """The program's outputs: tensors that the graph makes, InputView and Constant. Raises UnsupportedGraph."""
        placeholders = iter(zip(self._program.inputs, self._args, strict=True))
        last_uses = _last_uses(self._program.gm.graph)
        for node in self._program.gm.graph.nodes:
            if node.op == "placeholder":
                self._values[node] = self.bring_in(*next(placeholders))
            elif node.op == "get_attr":
                self._values[node] = _attribute(self._program.gm, node.target)
            elif node.op == "call_function":
                self._values[node] = self._call(node)
                # As in eager, so that a device's allocator gives the memory to later values. Numbers stay: outputs that
                # are views of inputs are worked out with them at the end.
                for dead in last_uses.get(node, ()):
                    if isinstance(self._values[dead], (torch.Tensor, tuple, list)):
                        del self._values[dead]
        return [self._output(i, out) for i, out in enumerate(self._program.gm.graph.output_node().args[0])]  # type: ignore[arg-type]

    def _call(self, node: Node) -> Any:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._values.__getitem__)
        if not isinstance(node.target, torch._ops.OpOverload):
            return node.target(*args, **kwargs)  # type: ignore[operator]
        where = source_lines.of_node(node)
        if node.target._schema.name in _OFFSETS and self._views_an_input(node):
            # That of the argument: its copy begins elsewhere.
            return self._on_real_input(node)
        try:
            result = self.call(node.target, args, kwargs, where)
        except _OPERATOR_ERRORS as error:
            reason = f"it fails on these inputs ({(str(error).splitlines() or [''])[0]})"
            raise FailedOperator(reason, operator=node.target.name(), source=where) from error
        self.copied_nbytes += copied_nbytes(node.target, args, result)
        return result

    def _views_an_input(self, node: Node) -> bool:
        base: Any = node.args[0]
        while base.op == "call_function" and _is_view(base.target):
            base = base.args[0]
        return bool(base.op == "placeholder")

    def _placeholders(self) -> list[tuple[Node, Any, Any]]:
        nodes = self._program.gm.graph.find_nodes(op="placeholder")
        return list(zip(nodes, self._program.inputs, self._args, strict=True))

    def _output(self, index: int, out: Any) -> Any:
        if not isinstance(out, Node):
            return Constant(out)
        base = self._program.input_views.get(index)
        if base is not None:
            return self._input_view(base, out)
        value = self._values[out]
        if not isinstance(value, torch.Tensor):
            return Constant(value)
        for plan, arg in zip(self._program.inputs, self._args, strict=True):
            if isinstance(arg, torch.Tensor) and shares_memory(arg, value):
                # Written in place by the graph.
                delta = int(value.storage_offset() - arg.storage_offset())
                return InputView(plan.index, tuple(value.shape), value.stride(), delta)
        return value if self.made_here(value) else Constant(value)

    def _input_view(self, base: int, out: Node) -> InputView:
        arg = self._args[base]
        if out.op == "placeholder":
            return InputView(base, (), (), None)
        view = self._on_real_input(out)
        if view.dtype != arg.dtype or view.is_conj() != arg.is_conj() or view.is_neg() != arg.is_neg():
            raise UnsupportedGraph("an output is an input seen as another dtype", source=source_lines.of_node(out))
        return InputView(base, tuple(view.shape), view.stride(), view.storage_offset() - arg.storage_offset())

    def _on_real_input(self, node: Node) -> Any:
        if node.op == "placeholder":
            return next(arg for placeholder, _, arg in self._placeholders() if placeholder is node)
        rest = torch.fx.node.map_arg((node.args[1:], node.kwargs), self._values.__getitem__)
        return node.target(self._on_real_input(node.args[0]), *rest[0], **rest[1])  # type: ignore[operator,arg-type]


def _is_view(target: Any) -> bool:
    return target is operator.getitem or (isinstance(target, torch._ops.OpOverload) and is_view_operator(target))


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """For each node the nodes that nobody needs after it; outputs are needed to the end."""
    last: dict[Node, Node] = {}
    for node in graph.nodes:
        for used in (*node.all_input_nodes, node):
            last[used] = node
    found: dict[Node, list[Node]] = {}
    for node, user in last.items():
        if user.op != "output":
            found.setdefault(user, []).append(node)
    return found


def _attribute(gm: torch.fx.GraphModule, target: Any) -> Any:
    value: Any = gm
    for name in str(target).split("."):
        value = getattr(value, name)
    return value
