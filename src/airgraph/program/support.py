"""Which programs can be captured, and why not."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from airgraph.errors import UnsupportedGraph
from airgraph.program import source_lines
from airgraph.program.trees import leaves_of
from airgraph.torch_internals.fake_tensors import is_traceable_wrapper_subclass
from airgraph.torch_internals.symbolic_shapes import free_unbacked_symbols

__all__ = ["capture_obstacle", "check_capturable"]

# Not dynamic_output_shape: index.Tensor carries it and has a fixed shape unless an index is boolean. What counts is
# the shape of the result, see `_node_obstacle`; a recorder meets the others when it propagates shapes.
_TAG_REASONS = (
    (torch.Tag.data_dependent_output, "it reads a tensor's value on the host"),
    (torch.Tag.cudagraph_unsafe, "it is marked cudagraph_unsafe"),
)


# Numbers that depend on nothing but the form of tensors and on settings, so that they may be part of a capture.
_METADATA = {
    *("size", "stride", "numel", "dim", "storage_offset", "is_contiguous", "is_same_size", "is_complex"),
    *("sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "sym_is_contiguous"),
    *("is_floating_point", "is_signed", "is_conj", "is_neg", "is_inference", "is_pinned"),
    *("is_non_overlapping_and_dense", "is_strides_like_format", "_has_same_storage_numel"),
    *("_has_compatible_shallow_copy_type", "_is_zerotensor", "_fused_sdp_choice", "_use_cudnn_rnn_flatten_weight"),
    *("cudnn_is_acceptable", "can_cast", "result_type", "promote_types", "_nnpack_available"),
}
# Of torch's own streams and events.
_HOST_WAITS = {f"streams::synchronize_{what}" for what in ("event", "stream", "device")}
_MASKED_WRITES = {f"aten::{name}" for name in ("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")}
_DRAWS_WITH_DEVIATIONS = {"aten::normal.Tensor_Tensor", "aten::normal.float_Tensor"}
_NUMBERS = {"int", "float", "bool", "number", "Scalar", "SymInt", "SymFloat", "SymBool", "complex"}


@functools.cache
def _returned_number(op: torch._ops.OpOverload) -> str | None:
    """The type of the first result that is a number, or a list of them, whose value a capture would repeat for ever."""
    namespace, _, name = op._schema.name.partition("::")
    if namespace in ("aten", "prim", "prims") and name in _METADATA:
        return None
    types = (str(result.type) for result in op._schema.returns)
    return next((each for each in types if _NUMBERS & set(re.split(r"\W+", each))), None)


def capture_obstacle(op: torch._ops.OpOverload) -> str | None:
    """Why this operator cannot be captured whatever its arguments, or None."""
    for tag, reason in _TAG_REASONS:
        if tag in op.tags:
            return reason
    if op.name() in _HOST_WAITS:
        return "the host waits for a stream or an event in it"
    number = _returned_number(op)
    return None if number is None else f"it returns a number ({number}), which a replay would repeat"


def check_capturable(gm: GraphModule, device: torch.device) -> None:
    """Raises UnsupportedGraph for the first node that cannot be captured on this device."""
    for node in gm.graph.nodes:
        reason = _node_obstacle(node, device)
        if reason is not None:
            operator = node.target.name() if isinstance(node.target, torch._ops.OpOverload) else str(node.target)
            raise UnsupportedGraph(reason, operator=operator, source=source_lines.of_node(node))


def _node_obstacle(node: Node, device: torch.device) -> str | None:
    if node.op == "call_function":
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return "higher-order operators are not captured"
        if isinstance(node.target, torch._ops.OpOverload):
            reason = capture_obstacle(node.target) or _host_read(node, device)
            if reason is not None:
                return reason
    elif node.op not in ("placeholder", "output", "get_attr"):
        return f"an FX node of kind {node.op} is not captured"
    for tensor in leaves_of(torch.Tensor, node.meta.get("val")):
        if free_unbacked_symbols(tensor):
            return "the shape of its result depends on data"
        if tensor.device != device and not _is_number(node):
            return f"a tensor lies on {tensor.device}, the graph on {device}"
        if is_traceable_wrapper_subclass(tensor):
            return f"a tensor is of the subclass {type(tensor).__name__}"
        if tensor.layout is not torch.strided:
            return f"a tensor has the layout {tensor.layout}"
        if tensor.is_quantized:
            return "a tensor is quantized"
    return None


def _host_read(node: Node, device: torch.device) -> str | None:
    """Which of a call's values CUDA's operator reads on the host, though no tag says so; a capture would fail of it."""
    if device.type != "cuda":
        return None
    name = node.target.name()  # type: ignore[union-attr]
    if name in _MASKED_WRITES and any(
        index.dtype in (torch.bool, torch.uint8) for index in leaves_of(torch.Tensor, _meta_of(node.args[1]))
    ):
        accumulates = len(node.args) > 3 and node.args[3] is True
        # A constant of the host's is filled in where the mask says, on the device. One that comes with a call is not:
        # it reaches the graph in memory of the device.
        if accumulates or not _is_constant_number(node.args[2]):
            return "how many elements its mask chooses is read on the host; torch.where and masked_scatter are captured"
    if name in _DRAWS_WITH_DEVIATIONS:
        return "whether its deviations are negative is read on the host; torch.randn(...) * std + mean is captured"
    return None


def _meta_of(argument: Any) -> Any:
    return map_arg(argument, lambda node: node.meta.get("val"))


def _is_constant_number(node: Any) -> bool:
    """Whether a tensor of one number on the host is the same at each call."""
    if not isinstance(node, Node) or not _is_number(node):
        return False
    return node.op == "get_attr" or (node.op == "call_function" and all(map(_is_constant_number, node.all_input_nodes)))


def _is_number(node: Node) -> bool:
    """Whether a tensor on the host is one that operators take as they take a number, computed from nothing but such.

    The graph computes with it on its device, or it is the same at each call, so it cannot be handed out.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.dim() != 0:
        return False
    if node.op == "placeholder":
        return True
    if node.op == "get_attr":
        return all(user.op != "output" for user in node.users)
    handed_out = any(user.op == "output" for user in node.users)
    sources = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    return not handed_out and bool(sources) and all(map(_is_number, sources))
