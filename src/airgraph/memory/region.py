"""CPU memory that grows where it lies, so that addresses captured in it stay good."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress

import torch

from airgraph.memory.plan import ALIGNMENT

__all__ = ["Region"]

# Address space that a region reserves; it costs nothing until it is touched.
_RESERVED_NBYTES = 64 << 30
# The beginning stays in small pages: a small graph would otherwise take a huge one of 2 MiB.
_SMALL_PAGES_NBYTES = 4 << 20


class Region:
    """Memory of at least `nbytes`, aligned to a page. Pages are taken when they are first written.

    capacity: bytes that may be used without asking. Freed with its last reference.
    """

    def __init__(self, nbytes: int) -> None:
        self._pages: mmap.mmap | None = None
        self._block: torch.Tensor | None = None
        for capacity in (max(nbytes, min(_RESERVED_NBYTES, _physical_nbytes())), nbytes):
            self._pages = _reserve(capacity)
            if self._pages is not None:
                self.capacity = capacity
                self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
                return
        # Where address space is limited or cannot be reserved without being taken.
        self._block = torch.empty(nbytes + ALIGNMENT, dtype=torch.uint8, device="cpu")
        self.capacity = nbytes
        self.address = (self._block.data_ptr() + ALIGNMENT - 1) & -ALIGNMENT

    def trim(self, nbytes: int) -> None:
        """Give back the pages past the first `nbytes`; their contents are lost."""
        if self._pages is None:
            return
        start = (nbytes + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        if start < len(self._pages):
            self._pages.madvise(mmap.MADV_DONTNEED, start, len(self._pages) - start)


def _physical_nbytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _reserve(nbytes: int) -> mmap.mmap | None:
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    # By number on Linux for Python before 3.13, which does not name it.
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)
    try:
        pages = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    except (OSError, ValueError, OverflowError):
        return None
    with suppress(OSError):
        # A kernel without huge pages refuses.
        pages.madvise(getattr(mmap, "MADV_NOHUGEPAGE", 15), 0, min(_SMALL_PAGES_NBYTES, len(pages)))
    return pages
