"""Compare replays with eager, and find where they part."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from airgraph.errors import ReplayError, UnsupportedGraph
from airgraph.options import Options
from airgraph.program import source_lines
from airgraph.program.inputs import InputRole, with_copies
from airgraph.program.nodes import is_view, written_nodes
from airgraph.program.program import CaptureProgram
from airgraph.runtime.problem import InputProblem
from airgraph.runtime.protocol import DeviceRuntime
from airgraph.runtime.recording.inputs import decide_inputs
from airgraph.torch_internals.dispatcher import without_autocast
from airgraph.torch_internals.fake_tensors import FakeTensorMode

__all__ = ["Snapshot", "Verification"]

# What a call may change, or what its result may lie in.
_COPIED = (InputRole.MUTATED, InputRole.USER)

# Relative and absolute, those of torch.testing.assert_close.
_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
_OF_OUR_KERNELS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a call starts from: arguments, and torch's random generators."""

    args: list[Any]
    generators: tuple[torch.Tensor, ...]


class Verification:
    """Runs the final FX graph eagerly on what a replay started from and compares all that the two have made."""

    def __init__(self, program: CaptureProgram, runtime: DeviceRuntime, options: Options) -> None:
        self._program = program
        self._runtime = runtime
        self._options = options

    def before(self, args: list[Any]) -> Snapshot:
        """Take it before the replay."""
        return Snapshot(with_copies(self._program.inputs, args, _COPIED), self._generators())

    def check(self, snapshot: Snapshot, args: list[Any], outputs: Sequence[Any]) -> None:
        """Compare outputs and mutated arguments with eager's.

        Raises ReplayError with the first node whose value differs, its operator and source line, and the largest
        difference. Generators are left as the replay left them.
        """
        after = self._generators()
        expected_args = with_copies(self._program.inputs, snapshot.args, _COPIED)
        expected = self._eager(self._program.gm, expected_args, snapshot)
        problem = self._difference(args, outputs, expected_args, expected)
        if problem is not None:
            found = self._first_difference(snapshot)
            self._set_generators(after)
            raise ReplayError(f"{self._program.name} differs from eager: {problem}. {found}")
        self._set_generators(after)

    def _difference(
        self, args: list[Any], outputs: Sequence[Any], expected_args: list[Any], expected: Sequence[Any]
    ) -> str | None:
        for index, (ours, theirs) in enumerate(zip(outputs, expected, strict=True)):
            size = self._size_of_difference(ours, theirs)
            if size is not None:
                return f"output {index} by {size}"
        for plan in self._program.inputs:
            if plan.role is InputRole.MUTATED:
                size = self._size_of_difference(args[plan.index], expected_args[plan.index])
                if size is not None:
                    return f"mutated input {plan.index} ({plan.source}) by {size}"
        return None

    def _first_difference(self, snapshot: Snapshot) -> str:
        """Bisect over the operators: capture the graph up to one, and compare what it makes and writes with eager's."""
        _make_known(self._program.gm, snapshot.args)
        nodes = [node for node in self._program.gm.graph.nodes if _computes(node)]
        low, high = 0, len(nodes)
        sizes: dict[int, str] = {}
        while low < high:
            middle = (low + high) // 2
            size = self._difference_at(nodes[middle], snapshot)
            if size is None:
                low = middle + 1
            else:
                sizes[middle] = size
                high = middle
        if low == len(nodes):
            return "Captured up to any one operator, the graph gives eager's values: only the whole capture does not."
        node = nodes[low]
        where = source_lines.of_node(node)
        place = f" at {where}" if where else ""
        return f"The first to differ is node {node.name}, {node.target.name()}{place}, by {sizes[low]}."

    def _difference_at(self, node: Node, snapshot: Snapshot) -> str | None:
        gm = _up_to(self._program.gm, node)
        program = CaptureProgram.build(self._program.name, gm, self._program.inputs, self._program.device)
        ours, theirs = (with_copies(self._program.inputs, snapshot.args, _COPIED) for _ in range(2))
        self._set_generators(snapshot.generators)
        try:
            follows_moves = self._runtime.capabilities.follows_moves
            inputs = decide_inputs(program, ours, self._options, follows_moves=follows_moves)
            graph = self._runtime.record(program, inputs, self._runtime.open_pool(program.device), self._options)
            made = graph.run(list(ours))
        except (UnsupportedGraph, ReplayError):
            return None
        expected = self._eager(gm, theirs, snapshot)
        if isinstance(made, InputProblem):
            return None
        sizes = (self._size_of_difference(a, b) for a, b in zip(made, expected, strict=True))
        return next((size for size in sizes if size is not None), None)

    def _eager(self, gm: GraphModule, args: list[Any], snapshot: Snapshot) -> Sequence[Any]:
        self._set_generators(snapshot.generators)
        with torch.no_grad(), without_autocast():
            return list(gm(*args))

    def _size_of_difference(self, ours: Any, theirs: Any) -> str | None:
        return _size_of_difference(ours, theirs, self._options.kernels == "exact")

    def _generators(self) -> tuple[torch.Tensor, ...]:
        states = [torch.get_rng_state()]
        if self._program.device.type not in ("cpu", "meta"):
            states.append(torch.get_device_module(self._program.device).get_rng_state(self._program.device))
        return tuple(states)

    def _set_generators(self, states: tuple[torch.Tensor, ...]) -> None:
        torch.set_rng_state(states[0])
        if len(states) > 1:
            torch.get_device_module(self._program.device).set_rng_state(states[1], self._program.device)


def _make_known(gm: GraphModule, args: Sequence[Any]) -> None:
    """Give nodes the forms of their values where they have none, as in a graph that was read from a cache."""
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    if all("val" in node.meta for node in gm.graph.nodes if node.op == "call_function"):
        return
    with torch.no_grad(), without_autocast():
        FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*args)


# A node, and which element of its value if that is several.
_Value = tuple[Node, int | None]


def _up_to(gm: GraphModule, node: Node) -> GraphModule:
    """The graph up to a node; its outputs are copies of what the node makes and writes, and of what is alive then.

    So whatever went wrong before, and matters later, shows.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    written: list[Node] = []
    for each in gm.graph.nodes:
        copies[each] = graph.node_copy(each, copies.__getitem__)
        written += written_nodes(each)
        if each is node:
            break
    alive = [each for each in copies if each.op == "call_function" and not copies.keys() >= each.users.keys()]
    values = [*_made(node), *((each, None) for each in reversed(written)), *(v for each in alive for v in _made(each))]
    outputs = []
    for each, element in dict.fromkeys(values):
        value, form = copies[each], each.meta["val"]
        if element is not None:
            value, form = graph.call_function(operator.getitem, (value, element)), form[element]
            value.meta["val"] = form
        outputs.append(graph.call_function(torch.ops.aten.clone.default, (value,)))
        outputs[-1].meta["val"] = form
    graph.output(tuple(outputs))
    return GraphModule(gm, graph)


def _computes(node: Node) -> bool:
    """Whether a node is an operator that makes or writes tensors."""
    is_operator = isinstance(node.target, torch._ops.OpOverload) and not is_view(node)
    return is_operator and bool(_made(node) or written_nodes(node))


def _made(node: Node) -> list[_Value]:
    """The tensors among a node's results."""
    value = node.meta.get("val")
    if isinstance(value, (tuple, list)):
        return [(node, i) for i, element in enumerate(value) if isinstance(element, torch.Tensor)]
    return [(node, None)] if isinstance(value, torch.Tensor) else []


def _size_of_difference(ours: Any, theirs: Any, exact: bool) -> str | None:
    """The largest difference where it is more than rounding explains; None if there is none.

    exact: by eager's own kernels. Others round sums otherwise, and where large numbers cancel out that is much of what
    is left: as much as rounding the largest.
    """
    if not isinstance(theirs, torch.Tensor):
        return None if ours == theirs else f"{ours!r} instead of {theirs!r}"
    rtol, atol = _TOLERANCES.get(theirs.dtype, (0.0, 0.0))
    if not exact and theirs.dtype in _OF_OUR_KERNELS and theirs.numel():
        largest = float(theirs.abs().nan_to_num(posinf=0.0).max())
        rounding = max(4 * torch.finfo(theirs.dtype).eps, 256 * torch.finfo(torch.float32).eps)
        atol = max(atol, largest * rounding)
    try:
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return str(error).splitlines()[0]
        apart = ours.to(torch.float64) - theirs.to(torch.float64) if not ours.is_complex() else ours - theirs
        return f"{apart.abs().max().item():.3g} at most"
    return None
