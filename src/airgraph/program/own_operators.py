"""Operators of our own, which passes put in the place of several: what they compute where no kernel serves them.

Their kernels are the native engine's (`csrc/kernels/own`). Their names stand in dumps and in cached graphs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from airgraph.program.row_programs import run_row_program

__all__ = ["DECODE_ATTENTION", "GROUPED_MM", "MIXED_MM", "ROW_PROGRAM", "ROW_PROGRAM_"]

_library = torch.library.Library("airgraph", "FRAGMENT")
_library.define("mixed_mm(Tensor left, Tensor right, Tensor? scale=None) -> Tensor")
_library.define("grouped_mm(Tensor left, Tensor right, Tensor scale, Tensor? zero=None, Tensor? bias=None) -> Tensor")
_library.define("decode_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale) -> Tensor")
# Element by element or row by row: a result may lie where an operand of its form lay.
_pointwise = (torch.Tag.pointwise,)
_library.define("row_program(Tensor self, Tensor[] others, str program) -> Tensor", tags=_pointwise)
_library.define(
    "row_program.out(Tensor self, Tensor[] others, str program, *, Tensor(a!) out) -> Tensor(a!)", tags=_pointwise
)
_library.define("row_program_(Tensor(a!) self, Tensor[] others, str program) -> Tensor(a!)", tags=_pointwise)


def _mixed_mm(left: Tensor, right: Tensor, scale: Tensor | None = None) -> Tensor:
    """left [rows, k] @ right [k, n], of whole numbers, in the type of left; times scale [n], of any type of floats."""
    product = left @ right.to(left.dtype)
    return product if scale is None else product * scale.to(left.dtype)


def _grouped_mm(
    left: Tensor, right: Tensor, scale: Tensor, zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """left [rows, k] @ the transpose of right [n, k], of int8, less zero [n, groups], of int8, times scale [n, groups].

    Each zero and each scale is of as many numbers of a row as there are to one, in order. In the type of left, which is
    that of bias [n] too.
    """
    numbers = right.view(*scale.shape, -1).to(left.dtype)
    if zero is not None:
        numbers = numbers - zero.to(left.dtype).unsqueeze(-1)
    weight = (numbers * scale.to(left.dtype).unsqueeze(-1)).view(right.shape)
    return torch.nn.functional.linear(left, weight, bias)


def _decode_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attention of few queries [batch, heads, queries, size] to keys and values [batch, fewer heads, length, size].

    A head of keys serves as many heads of queries as there are to one, in order. mask is added to the scores.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    mixed: Tensor = flash(query, key, value, 0.0, False, attn_mask=mask, scale=scale)[0]
    return mixed


def _row_program(self: Tensor, others: list[Tensor], program: str) -> Tensor:
    """What the instructions of a program give, one after the other: see `row_programs`. self is operand 0."""
    result: Tensor = run_row_program([self, *others], program)
    return result


def _row_program_(self: Tensor, others: list[Tensor], program: str) -> Tensor:
    return self.copy_(_row_program(self, others, program))


def _row_program_out(self: Tensor, others: list[Tensor], program: str, *, out: Tensor) -> Tensor:
    return out.copy_(_row_program(self, others, program))


def _form_of_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    return torch.empty_like(query.transpose(1, 2)).transpose(1, 2)


def _form_of_product(left: Tensor, right: Tensor, scale: Tensor | None = None) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


def _form_of_grouped(
    left: Tensor, right: Tensor, scale: Tensor, zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[0])


_library.impl("mixed_mm", _mixed_mm, "CompositeExplicitAutograd")
_library.impl("grouped_mm", _grouped_mm, "CompositeExplicitAutograd")
_library.impl("decode_attention", _decode_attention, "CompositeExplicitAutograd")
_library.impl("row_program", _row_program, "CompositeExplicitAutograd")
_library.impl("row_program_", _row_program_, "CompositeExplicitAutograd")
_library.impl("row_program.out", _row_program_out, "CompositeExplicitAutograd")
torch.library.register_fake("airgraph::mixed_mm", _form_of_product, lib=_library)
torch.library.register_fake("airgraph::grouped_mm", _form_of_grouped, lib=_library)
torch.library.register_fake("airgraph::decode_attention", _form_of_attention, lib=_library)
torch.library.register_fake("airgraph::row_program", _row_program, lib=_library)
torch.library.register_fake("airgraph::row_program_", _row_program_, lib=_library)
torch.library.register_fake("airgraph::row_program.out", _row_program_out, lib=_library)

MIXED_MM = torch.ops.airgraph.mixed_mm.default
GROUPED_MM = torch.ops.airgraph.grouped_mm.default
DECODE_ATTENTION = torch.ops.airgraph.decode_attention.default
ROW_PROGRAM = torch.ops.airgraph.row_program.default
ROW_PROGRAM_ = torch.ops.airgraph.row_program_.default
