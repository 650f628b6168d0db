# SPDX-License-Identifier: Apache-2.0
"""Variables of the environment that a simulated runtime has read, and reads again."""

from __future__ import annotations

import ctypes

__all__ = ["read_settings"]


def read_settings(library: str, prefix: str) -> None:
    """Read a runtime's variables as they are now: for a process that was forked before it used the device.

    `library` is the name that the runtime was loaded by, `prefix` that of its functions. Raises RuntimeError where the
    device is in use already.
    """
    if not ctypes.CDLL(library)[f"{prefix}_read_settings"]():
        raise RuntimeError(f"{prefix}: the device is in use, with the settings that were read before.")
