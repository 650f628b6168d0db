"""One walk over a program while it is recorded, the same on every device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from airgraph.errors import FailedOperator, UnsupportedGraph
from airgraph.program import source_lines
from airgraph.program.nodes import without_views
from airgraph.program.operators import copied_nbytes
from airgraph.program.program import CaptureProgram
from airgraph.program.stream_marks import is_mark, is_record_of_stream
from airgraph.program.streams import stream_of
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.recording.inputs import BufferForm, CaptureInput
from airgraph.runtime.recording.outputs import Constant, InputView

__all__ = ["Walk", "constants_of", "shares_memory"]

_OFFSETS = {"aten::sym_storage_offset", "aten::storage_offset"}
# What ATen raises for a call that eager would refuse as well.
_OPERATOR_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, OverflowError)


def constants_of(gm: torch.fx.GraphModule) -> Iterator[torch.Tensor]:
    """The tensors that a graph takes from its module."""
    values = (_attribute(gm, node.target) for node in gm.graph.find_nodes(op="get_attr"))
    return (value for value in values if isinstance(value, torch.Tensor))


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have one storage. It makes no Python object of it: that would count as a holder."""
    return bool(engine().share_storage(a, b))


class Walk:
    """One walk over the FX graph. A device says where inputs are copied to and what a call does.

    copied_nbytes: what the operators walked over copy at each replay. stream: of the node that is walked over. is_done:
    whether all of them have been called.
    overlaps: whether the device runs streams beside one another; memory that two of them use then lives to the end.
    """

    overlaps = False

    def __init__(self, program: CaptureProgram, inputs: Sequence[CaptureInput]) -> None:
        self._program = program
        self._inputs = inputs
        self._args = [each.arg for each in inputs]
        self._values: dict[Node, Any] = {}
        self.copied_nbytes = 0
        self.stream: str | None = None
        self.is_done = False

    def buffer_for(self, given: CaptureInput, form: BufferForm) -> torch.Tensor:
        """The tensor that stands for an input which is copied in. Override."""
        raise NotImplementedError

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        """Run or record an operator. Override."""
        raise NotImplementedError

    def mark(self, node: Node) -> None:
        """Do what a record of an event, a wait or a use of memory says. Override where streams overlap.

        The order of the program is one that all marks allow.
        """

    def made_here(self, value: torch.Tensor) -> bool:
        """Whether the graph writes this tensor at each replay. Override."""
        raise NotImplementedError

    def run(self) -> list[Any]:
        """The program's outputs: tensors that the graph makes, InputView and Constant. Raises UnsupportedGraph."""
        inputs = iter(self._inputs)
        last_uses = _last_uses(self._program.gm.graph, across_streams=not self.overlaps)
        for node in self._program.gm.graph.nodes:
            if node.op == "placeholder":
                given = next(inputs)
                self._values[node] = given.arg if given.form is None else self.buffer_for(given, given.form)
            elif node.op == "get_attr":
                self._values[node] = _attribute(self._program.gm, node.target)
            elif node.op == "call_function":
                self._values[node] = self._call(node)
                # As in eager, so that a device's allocator gives the memory to later values. Numbers stay: outputs that
                # are views of inputs are worked out with them at the end.
                for dead in last_uses.get(node, ()):
                    if isinstance(self._values[dead], (torch.Tensor, tuple, list)):
                        del self._values[dead]
        self.is_done = True
        return [self._output(i, out) for i, out in enumerate(self._program.gm.graph.output_node().args[0])]  # type: ignore[arg-type]

    def _call(self, node: Node) -> Any:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._values.__getitem__)
        if is_mark(node.target):
            self.mark(node)
            return None
        self.stream = stream_of(node)
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
        return bool(without_views(node.args[0]).op == "placeholder")

    def _output(self, index: int, out: Any) -> Any:
        if not isinstance(out, Node):
            return Constant(out)
        base = self._program.input_views.get(index)
        if base is not None:
            return self._input_view(base, out)
        value = self._values[out]
        if not isinstance(value, torch.Tensor):
            return Constant(value)
        for index, arg in enumerate(self._args):
            if isinstance(arg, torch.Tensor) and shares_memory(arg, value):
                # Written in place by the graph.
                delta = int(value.storage_offset() - arg.storage_offset())
                return InputView(index, tuple(value.shape), value.stride(), delta)
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
            placeholders = self._program.gm.graph.find_nodes(op="placeholder")
            return self._args[placeholders.index(node)]
        rest = torch.fx.node.map_arg((node.args[1:], node.kwargs), self._values.__getitem__)
        return node.target(self._on_real_input(node.args[0]), *rest[0], **rest[1])  # type: ignore[operator,arg-type]


def _last_uses(graph: Graph, *, across_streams: bool) -> dict[Node, list[Node]]:
    """For each node the nodes that nobody needs after it; outputs are needed to the end.

    across_streams: also those that a node on another stream than their own uses, or that `record_stream` keeps for one.
    """
    last: dict[Node, Node] = {}
    kept: set[Node] = set()
    for node in graph.nodes:
        for used in (*node.all_input_nodes, node):
            last[used] = node
            if not across_streams and (stream_of(used) != stream_of(node) or is_record_of_stream(node.target)):
                kept.add(used)
    for used in kept:
        del last[used]
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
