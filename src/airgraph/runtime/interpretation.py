"""One walk over a program while it is recorded, the same on every device, and what becomes of each output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from airgraph.errors import UnsupportedGraph
from airgraph.program import source_lines
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.copies import copied_nbytes

__all__ = ["Constant", "InputView", "Interpretation", "Owned", "finish_output", "shares_memory"]

_ABSOLUTE_VIEWS = {"aten::as_strided", "aten::as_strided_copy", "aten::as_strided_scatter"}
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


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have one storage. It makes no Python object of it: that would count as a holder."""
    return torch._C._is_alias_of(a, b)  # type: ignore[attr-defined]


class Interpretation:
    """One walk over the FX graph. A device says how an input comes in and what a call does.

    clone_input: whether user inputs are copied in. copied_nbytes: what the operators walked over copy at each replay.
    """

    def __init__(self, program: CaptureProgram, args: Sequence[Any], *, clone_input: bool) -> None:
        self._program = program
        self._args = args
        self._clone_input = clone_input
        self._values: dict[Node, Any] = {}
        self.copied_nbytes = 0

    def clones(self, plan: InputPlan) -> bool:
        """Whether an input is copied into a buffer of the graph's."""
        return self._clone_input and plan.role is InputRole.USER

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
        if node.target._schema.name in _ABSOLUTE_VIEWS:
            self._check_absolute_view(node, where)
        try:
            result = self.call(node.target, args, kwargs, where)
        except _OPERATOR_ERRORS as error:
            reason = f"it fails on these inputs ({str(error).splitlines()[0]})"
            raise UnsupportedGraph(reason, operator=node.target.name(), source=where) from error
        self.copied_nbytes += copied_nbytes(node.target, args, result)
        return result

    def _check_absolute_view(self, node: Node, where: str) -> None:
        """Strides and offset of as_strided are those of the caller's storage; a copied input has another."""
        base: Any = node.args[0]
        while base.op == "call_function" and isinstance(base.target, torch._ops.OpOverload) and base.target.is_view:
            base = base.args[0]
        if base.op != "placeholder":
            return
        plan, arg = next((p, a) for n, p, a in self._placeholders() if n is base)
        if self.clones(plan) and not _fills_its_storage(arg):
            reason = f"it addresses the storage of {plan.source}, of which only the tensor's part is copied in"
            raise UnsupportedGraph(reason, operator=node.target.name(), source=where)  # type: ignore[union-attr]

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


def _fills_its_storage(tensor: torch.Tensor) -> bool:
    dense = torch.ops.aten.is_non_overlapping_and_dense.default(tensor)
    return dense and tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == tensor.nbytes


def _attribute(gm: torch.fx.GraphModule, target: Any) -> Any:
    value: Any = gm
    for name in str(target).split("."):
        value = getattr(value, name)
    return value
