"""What a graph of a device takes from the host, and what of it is the same at each call: that is put on the device.

`y[0] = 1.0`, `torch.tensor(5.0).to(x.device)` and `torch.arange(n).to(x.device)` copy from the host to the device,
which a capture refuses. Inductor moves constructors likewise.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from airgraph.program.host_reads import by_name, fills_where_a_mask_says, is_number
from airgraph.program.nodes import computed, is_cast, nodes_in, written_nodes
from airgraph.torch_internals.modes import without_modes

__all__ = ["put_host_values_on_device"]

_aten = torch.ops.aten
_EMPTY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"}
# A table this large had better be a buffer of the model.
_MOST_NBYTES = 1 << 20
_INDICES = frozenset({"indices"})
_SOURCE = frozenset({"src"})
# Arguments that operators on a device take from the host by copying them there. Others take a number of the host's as
# they take one of Python's.
_COPIED: Mapping[str, frozenset[str]] = {
    "copy": _SOURCE,
    **dict.fromkeys(("select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter"), _SOURCE),
    "where": frozenset({"condition", "self", "other"}),
    **dict.fromkeys(("index", "_unsafe_index"), _INDICES),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), _INDICES | {"values"}),
}


def put_host_values_on_device(gm: GraphModule, device: torch.device) -> int:
    """Replace, in place, what operators on the device copy from the host by the same on the device; returns how many.

    What is the same at each call is computed here, on the host, as eager does: it becomes a constant of the graph. What
    depends on sizes is made on the device at each call. What comes with a call, is random or written stays.
    """
    if device.type == "cpu":
        return 0
    mover = _Mover(gm, device)
    moved = sum(mover.move_for(node) for node in list(gm.graph.nodes))
    if moved:
        mover.erase_unused()
        gm.recompile()
    return moved


class _Mover:
    def __init__(self, gm: GraphModule, device: torch.device) -> None:
        self._gm, self._device = gm, device
        self._written = {each for node in gm.graph.nodes for each in written_nodes(node)}
        self._values: dict[Node, torch.Tensor | None] = {}
        self._moved: dict[Node, Node | None] = {}

    def move_for(self, user: Node) -> bool:
        """Whether anything that a node takes from the host was replaced."""
        if user.op != "call_function" or not self._lies_on_device(user):
            return False
        found = {each for each in user.all_input_nodes if _lies_on_host(each) and self._is_copied(each, user)}
        with self._gm.graph.inserting_before(user):
            places = {each: self._on_device(each) for each in found}
        for old, new in places.items():
            if new is not None:
                user.replace_input_with(old, new)
        return any(new is not None for new in places.values())

    def erase_unused(self) -> None:
        """What only stood for what was replaced."""
        for node in reversed(list(self._gm.graph.nodes)):
            if node in self._moved and not node.users:
                self._gm.graph.erase_node(node)

    def _lies_on_device(self, node: Node) -> bool:
        value = node.meta.get("val")
        first = value[0] if isinstance(value, (tuple, list)) and value else value
        return isinstance(first, torch.Tensor) and first.device == self._device

    def _is_copied(self, given: Node, user: Node) -> bool:
        """Whether an operator on the device copies a tensor of the host's there, rather than take it as a number."""
        if not is_number(given) or is_cast(user):
            return True
        op = user.target
        if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
            return False
        copied = _COPIED.get(op._schema.name.partition("::")[2].removesuffix("_"), frozenset())
        named = by_name(op, user.args, user.kwargs)
        if "values" in copied and fills_where_a_mask_says(named):
            copied = _INDICES
        return given in nodes_in([value for name, value in named.items() if name in copied])

    def _on_device(self, node: Node) -> Node | None:
        """A node that gives the same on the device, before the node that is inserted before; None if there is none."""
        if node not in self._moved:
            self._moved[node] = self._made_on_device(node)
        return self._moved[node]

    def _made_on_device(self, node: Node) -> Node | None:
        constant = self._value_of(node)
        if constant is not None:
            try:
                with without_modes(), torch.inference_mode(False):
                    value = constant.to(self._device)
            except RuntimeError:
                # Such as amid a capture of the user's.
                return None
            return self._constant(node, value)
        if not _is_pure(node):
            return None
        tensors = [each for each in node.all_input_nodes if isinstance(each.meta.get("val"), torch.Tensor)]
        places = {each: self._on_device(each) for each in tensors}
        takes_device = any(each.name == "device" for each in node.target._schema.arguments)  # type: ignore[union-attr]
        if None in places.values() or not (tensors or takes_device):
            return None
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: places.get(each) or each)
        made = self._gm.graph.call_function(
            node.target,  # type: ignore[arg-type]
            args,
            {**kwargs, "device": self._device} if takes_device else kwargs,
        )
        made.meta = {**node.meta, "val": computed(made.target, *made.args, **made.kwargs)}
        return made

    def _constant(self, node: Node, value: torch.Tensor) -> Node:
        number = 0
        while hasattr(self._gm, name := f"_on_device_{number}"):
            number += 1
        self._gm.register_buffer(name, value, persistent=False)
        made = self._gm.graph.get_attr(name)
        made.meta["val"] = computed(_aten._to_copy.default, node, device=self._device)
        return made

    def _value_of(self, node: Node) -> torch.Tensor | None:
        """What a node on the host gives at every call; None where that is not known."""
        if node not in self._values:
            self._values[node] = self._computed_once(node)
        return self._values[node]

    def _computed_once(self, node: Node) -> torch.Tensor | None:
        if node in self._written or not _lies_on_host(node):
            return None
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(self._gm)
            return value if type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) else None
        if not _is_pure(node):
            return None
        values = {each: self._value_of(each) for each in node.all_input_nodes}
        size = node.meta["val"].numel()
        if any(each is None for each in values.values()) or not isinstance(size, int):
            return None
        if size * node.meta["val"].element_size() > _MOST_NBYTES:
            return None
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        with without_modes(), torch.inference_mode(False), torch.no_grad():
            value = node.target(*args, **kwargs)  # type: ignore[operator]
        return value if isinstance(value, torch.Tensor) else None


def _lies_on_host(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _is_pure(node: Node) -> bool:
    """Whether a node gives the same whenever it is given the same, and does nothing else."""
    op = node.target
    return (
        isinstance(op, torch._ops.OpOverload)
        and op.namespace == "aten"
        and not op._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in op.tags
        and op._schema.name.partition("::")[2] not in _EMPTY
    )
