"""How AOTAutograd wraps operators that mutate their arguments."""

from __future__ import annotations

from torch._higher_order_ops.auto_functionalize import (
    AsStridedViewInfo,
    SliceViewInfo,
    auto_functionalized,
    auto_functionalized_v2,
    get_mutable_args,
    read_view_information_from_args,
)

__all__ = [
    "AsStridedViewInfo",
    "SliceViewInfo",
    "auto_functionalized",
    "auto_functionalized_v2",
    "get_mutable_args",
    "read_view_information_from_args",
]
