"""What a graph of a device copies from the host and is the same at each call: it is put on the device.

`y[0] = 1.0`, `torch.tensor(5.0).to(x.device)` and `torch.arange(n).to(x.device)` copy from the host to the device,
which a capture refuses. Inductor moves constructors likewise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from airgraph.program.host_reads import by_name, fills_where_a_mask_says
from airgraph.program.nodes import computed, is_cast, nodes_in
from airgraph.program.operators import is_view_operator
from airgraph.program.streams import put_on, stream_of
from airgraph.torch_internals.modes import without_modes

__all__ = ["put_host_values_on_device"]

_aten = torch.ops.aten
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
_LITERAL = {_aten.lift_fresh_copy.default, _aten.lift_fresh.default}
# What depends on sizes alone, and gives the same wherever it is computed.
_FACTORIES = {"arange", "full", "zeros", "ones", "eye", "scalar_tensor"}
_ALIKE = {
    *("add", "sub", "rsub", "mul", "neg", "abs", "minimum", "maximum", "clamp", "tril", "triu", "clone", "_to_copy"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "bitwise_not", "where"),
    *("lift_fresh_copy", "cat", "stack", "flip", "repeat", "convert_element_type"),
}


def put_host_values_on_device(gm: GraphModule) -> int:
    """Replace, in place, what operators on a device copy from the host by the same on the device; returns how many.

    What is the same at each call is computed here, on the host, as eager does: it becomes a constant of the graph. What
    depends on sizes is made on the device at each call, on the stream of what uses it. What comes with a call, is
    random or may be written stays where it is; so does all where a graph of somebody else is being captured.
    """
    device = _device_of(gm)
    if device is None or _is_capturing(device):
        return 0
    mover = _Mover(gm, device)
    return sum(mover.move_for(node) for node in list(gm.graph.nodes))


def _device_of(gm: GraphModule) -> torch.device | None:
    values = (node.meta.get("val") for node in gm.graph.nodes)
    devices = (value.device for value in values if isinstance(value, torch.Tensor))
    return next((device for device in devices if device.type not in ("cpu", "meta")), None)


def _is_capturing(device: torch.device) -> bool:
    asked = getattr(torch.get_device_module(device), "is_current_stream_capturing", None)
    return asked is not None and bool(asked())


class _Mover:
    def __init__(self, gm: GraphModule, device: torch.device) -> None:
        self._gm, self._device = gm, device
        # Of nodes on the host: those that give the same at every call, and what they give where it was asked for.
        self._constant: set[Node] = set()
        self._values: dict[Node, torch.Tensor] = {}
        # By node and stream.
        self._moved: dict[tuple[Node, str | None], Node] = {}
        for node in gm.graph.nodes:
            if self._is_constant(node):
                self._constant.add(node)

    def move_for(self, user: Node) -> int:
        """How much of what a node copies from the host was replaced."""
        if user.op != "call_function" or not self._lies_on_device(user):
            return 0
        moved = 0
        for given in user.all_input_nodes:
            if _lies_on_host(given) and _is_copied(given, user):
                with self._gm.graph.inserting_before(user):
                    made = self._on_device(given, stream_of(user))
                if made is not None:
                    user.replace_input_with(given, made)
                    moved += 1
        return moved

    def _lies_on_device(self, node: Node) -> bool:
        value = node.meta.get("val")
        first = value[0] if isinstance(value, (tuple, list)) and value else value
        return isinstance(first, torch.Tensor) and first.device == self._device

    def _is_constant(self, node: Node) -> bool:
        if not _lies_on_host(node):
            return False
        if node.op == "get_attr":
            # Other tensors that a graph holds are the user's, who may write them.
            return all(user.target in _LITERAL for user in node.users)
        return _is_pure(node) and all(each in self._constant for each in node.all_input_nodes)

    def _on_device(self, node: Node, stream: str | None) -> Node | None:
        """A node that gives the same on the device, before the node that is inserted before; None if there is none."""
        parts = _made_of(node, until=lambda each: self._value_of(each) is not None)
        if not all(self._value_of(each) is not None or _is_alike_on_device(each) for each in parts):
            return None
        for each in parts:
            if (each, stream) not in self._moved:
                value = self._value_of(each)
                self._moved[each, stream] = (
                    self._as_made(each, stream) if value is None else self._as_constant(each, value)
                )
        return self._moved[node, stream]

    def _as_made(self, node: Node, stream: str | None) -> Node:
        op: Any = node.target
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: self._moved.get((each, stream), each))
        kwargs = _unpinned(kwargs)
        if any(each.name == "device" for each in op._schema.arguments):
            kwargs["device"] = self._device
        made = self._gm.graph.call_function(op, args, kwargs)
        made.meta = {**node.meta, "val": computed(op, *args, **kwargs)}
        put_on(made, stream)
        return made

    def _as_constant(self, node: Node, value: torch.Tensor) -> Node:
        with without_modes(), torch.inference_mode(False), torch.no_grad():
            on_device = value.to(self._device)
        number = 0
        while hasattr(self._gm, name := f"_on_device_{number}"):
            number += 1
        self._gm.register_buffer(name, on_device, persistent=False)
        made = self._gm.graph.get_attr(name)
        made.meta["val"] = computed(_aten._to_copy.default, node, device=self._device)
        return made

    def _value_of(self, node: Node) -> torch.Tensor | None:
        """What a constant node gives; None where it does not lie in memory row by row, or is large."""
        if node not in self._constant:
            return None
        for each in _made_of(node, until=self._values.__contains__):
            nbytes = each.meta["val"].numel() * each.meta["val"].element_size()
            if not isinstance(nbytes, int) or nbytes > _MOST_NBYTES:
                return None
            if each not in self._values:
                self._values[each] = self._computed_once(each)
        value = self._values[node]
        return value if value.is_contiguous() and not value.is_conj() and not value.is_neg() else None

    def _computed_once(self, node: Node) -> torch.Tensor:
        if node.op == "get_attr":
            held: torch.Tensor = operator.attrgetter(str(node.target))(self._gm)
            return held
        args, kwargs = map_arg((node.args, node.kwargs), self._values.__getitem__)
        with without_modes(), torch.inference_mode(False), torch.no_grad():
            made: torch.Tensor = node.target(*args, **_unpinned(kwargs))  # type: ignore[operator]
        return made


def _is_copied(given: Node, user: Node) -> bool:
    """Whether an operator on the device copies a tensor of the host's there, rather than take it as a number."""
    if is_cast(user):
        return True
    op = user.target
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return False
    copied = _COPIED.get(_name(op), frozenset())
    named = by_name(op, user.args, user.kwargs)
    if "values" in copied and fills_where_a_mask_says(named):
        copied = _INDICES
    return given in nodes_in([value for name, value in named.items() if name in copied])


def _made_of(node: Node, until: Callable[[Node], bool]) -> list[Node]:
    """A node and the tensors that it is made of, but not what those are made of which say so; in the graph's order."""
    found, open_ = {node}, [node]
    while open_:
        made = open_.pop()
        for each in [] if until(made) else made.all_input_nodes:
            if each not in found and isinstance(each.meta.get("val"), torch.Tensor):
                found.add(each)
                open_.append(each)
    return sorted(found)


def _unpinned(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name != "pin_memory"}


def _lies_on_host(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _name(op: torch._ops.OpOverload) -> str:
    return op._schema.name.partition("::")[2].removesuffix("_")


def _is_pure(node: Node) -> bool:
    """Whether a node gives the same whenever it is given the same, and does nothing else."""
    op = node.target
    return (
        isinstance(op, torch._ops.OpOverload)
        and op.namespace in ("aten", "prims")
        and not op._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in op.tags
        and not _name(op).startswith(("empty", "new_empty", "resize", "from_file"))
    )


def _is_alike_on_device(node: Node) -> bool:
    """Whether an operator gives on the device, bit for bit, what it gives on the host."""
    if not _is_pure(node):
        return False
    op: Any = node.target
    if _name(op) == "arange" and node.meta["val"].dtype.is_floating_point:
        return False
    return _name(op) in _FACTORIES | _ALIKE or is_view_operator(op)
