"""How long a call takes, roughly: enough to tell whether streams are worth running side by side.

An estimate, and not a measurement, so that equal programs are replayed in equal ways on every start.
"""

from __future__ import annotations

import math

from airgraph.program.collectives import NAMESPACE
from airgraph.runtime.cpu.tape import Call, TensorRef

__all__ = ["HAND_OVER_NS", "estimated_ns"]

# From one core's store to another that spins on it, and back.
HAND_OVER_NS = 300.0
_CALL_NS = 100.0
# Torch and our own kernels give about so much to one thread before they ask another.
_WORTH_SPLITTING_NS = 20_000.0
# Starting one, or waiting for one.
_COLLECTIVE_NS = 50_000.0
_NS_PER_BYTE = 1 / 20
_NS_PER_FLOP = 1 / 50
# The position of the argument whose last dimension is summed over.
_PRODUCTS = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::mv", "aten::linear", "aten::_int_mm"), 0),
    **dict.fromkeys(("airgraph::mixed_mm", "airgraph::grouped_mm"), 0),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm"), 1),
}


def estimated_ns(call: Call, threads: int = 1) -> float:
    """Nanoseconds: the most of what its memory and its arithmetic take, of products, convolutions and attention.

    threads: that share what is large enough.
    """
    if call.op.namespace == NAMESPACE:
        return _COLLECTIVE_NS
    outs = [out for out in call.outs if out is not None]
    nbytes = sum(_nbytes(ref) for ref in (*call.refs(), *outs))
    work = max(nbytes * _NS_PER_BYTE, _flops(call) * _NS_PER_FLOP)
    return _CALL_NS + min(work, max(work / threads, _WORTH_SPLITTING_NS))


def _flops(call: Call) -> float:
    name, refs = call.op._schema.name, call.refs()
    made = math.prod(call.outs[0].shape) if call.outs else 0
    if name in _PRODUCTS:
        summed = call.args[_PRODUCTS[name]] if len(call.args) > _PRODUCTS[name] else None
        return 2.0 * made * (summed.shape[-1] if isinstance(summed, TensorRef) and summed.shape else 1)
    if "convolution" in name and len(refs) > 1:
        weight = refs[1].shape
        return 2.0 * made * math.prod(weight[1:])
    if "attention" in name and len(refs) > 1 and len(refs[1].shape) > 1:
        # Of each query with each key, and the values by these.
        return 4.0 * made * refs[1].shape[-2]
    return 0.0


def _nbytes(ref: TensorRef) -> int:
    return math.prod(ref.shape) * ref.dtype.itemsize
