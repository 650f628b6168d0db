"""What a device found out about kernels when it chose among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Choice"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How products of one kind are computed. product: shapes, layout and threads. way: that is taken.

    times: nanoseconds of one, by the ways that were measured; empty where the product is too small for that.
    """

    product: str
    way: str
    times: Mapping[str, float] = field(hash=False)
