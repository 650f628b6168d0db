"""What the stand-in does not serve is refused by name."""

from __future__ import annotations

from airgraph.errors import NotOffered

__all__ = ["NotServed"]


class NotServed(NotOffered, AttributeError):
    """A name of torch_npu's that the stand-in does not have; `hasattr` says so as well."""
