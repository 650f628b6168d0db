"""Which programs can be captured, and why not."""

from __future__ import annotations

import functools
import re

import torch
from torch.fx import GraphModule, Node

from airgraph.errors import UnsupportedGraph
from airgraph.program import source_lines
from airgraph.program.host_reads import host_read, is_number
from airgraph.program.run_as_traced import HOST_WAITS
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
# Of ordinary tensors they make quantized ones; their fake results do not say so.
_QUANTIZING = {
    f"aten::{name}"
    for name in (
        "quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel", "_empty_affine_quantized",
        "_empty_per_channel_affine_quantized", "_make_per_tensor_quantized_tensor",
        "_make_per_channel_quantized_tensor",
    )
}  # fmt: skip
# Of torch's own streams and events.
_HOST_WAITS = {f"streams::synchronize_{what}" for what in ("event", "stream", "device")}
_QUANTIZED = "a tensor is quantized"
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
        return HOST_WAITS
    if op._schema.name in _QUANTIZING:
        return _QUANTIZED
    number = _returned_number(op)
    return None if number is None else f"it returns a number ({number}), which a replay would repeat"


def check_capturable(gm: GraphModule, device: torch.device) -> None:
    """Raises UnsupportedGraph for the first call that cannot be captured on this device, else for the first tensor."""
    for obstacle in (_call_obstacle, _tensor_obstacle):
        for node in gm.graph.nodes:
            reason = obstacle(node, device)
            if reason is not None:
                called = _ordered_by_token(node) or node.target
                operator = called.name() if isinstance(called, torch._ops.OpOverload) else str(called)
                raise UnsupportedGraph(reason, operator=operator, source=source_lines.of_node(node))


def _call_obstacle(node: Node, device: torch.device) -> str | None:
    if node.op != "call_function":
        known = node.op in ("placeholder", "output", "get_attr")
        return None if known else f"an FX node of kind {node.op} is not captured"
    op = node.target
    if isinstance(op, torch._ops.HigherOrderOperator):
        within = _ordered_by_token(node)
        reason = None if within is None else host_read(within, node.args[2:], node.kwargs)
        return reason or "higher-order operators are not captured"
    if not isinstance(op, torch._ops.OpOverload):
        return None
    return capture_obstacle(op) or (host_read(op, node.args, node.kwargs) if device.type == "cuda" else None)


def _ordered_by_token(node: Node) -> torch._ops.OpOverload | None:
    """The operator that is called for its effects alone, whose order with others a token keeps."""
    if not isinstance(node.target, torch._ops.HigherOrderOperator) or node.target.name() != "with_effects":
        return None
    return node.args[1] if isinstance(node.args[1], torch._ops.OpOverload) else None


def _tensor_obstacle(node: Node, device: torch.device) -> str | None:
    for tensor in leaves_of(torch.Tensor, node.meta.get("val")):
        if free_unbacked_symbols(tensor):
            return "the shape of its result depends on data"
        if tensor.device != device and not is_number(node):
            return f"a tensor lies on {tensor.device}, the graph on {device}"
        if is_traceable_wrapper_subclass(tensor):
            return f"a tensor is of the subclass {type(tensor).__name__}"
        if tensor.layout is not torch.strided:
            return f"a tensor has the layout {tensor.layout}"
        if tensor.is_quantized:
            return _QUANTIZED
    return None
