"""Operators of our own, which passes put in the place of several: what they compute where no kernel serves them.

Their kernels are the native engine's (`csrc/kernels/own`). Their names stand in dumps and in cached graphs.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["DECODE_ATTENTION", "MIXED_MM"]

_library = torch.library.Library("airgraph", "FRAGMENT")
_library.define("mixed_mm(Tensor left, Tensor right, Tensor? scale=None) -> Tensor")
_library.define("decode_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale) -> Tensor")


def _mixed_mm(left: Tensor, right: Tensor, scale: Tensor | None = None) -> Tensor:
    """left [rows, k] @ right [k, n], of whole numbers, in the type of left; times scale [n], of any type of floats."""
    product = left @ right.to(left.dtype)
    return product if scale is None else product * scale.to(left.dtype)


def _decode_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attention of few queries [batch, heads, queries, size] to keys and values [batch, fewer heads, length, size].

    A head of keys serves as many heads of queries as there are to one, in order. mask is added to the scores.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    mixed: Tensor = flash(query, key, value, 0.0, False, attn_mask=mask, scale=scale)[0]
    return mixed


def _form_of_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    return torch.empty_like(query.transpose(1, 2)).transpose(1, 2)


def _form_of_product(left: Tensor, right: Tensor, scale: Tensor | None = None) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


_library.impl("mixed_mm", _mixed_mm, "CompositeExplicitAutograd")
_library.impl("decode_attention", _decode_attention, "CompositeExplicitAutograd")
torch.library.register_fake("airgraph::mixed_mm", _form_of_product, lib=_library)
torch.library.register_fake("airgraph::decode_attention", _form_of_attention, lib=_library)

MIXED_MM = torch.ops.airgraph.mixed_mm.default
DECODE_ATTENTION = torch.ops.airgraph.decode_attention.default
