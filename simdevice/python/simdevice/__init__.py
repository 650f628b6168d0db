# SPDX-License-Identifier: Apache-2.0
"""What the Python sides of the simulated runtimes have in common."""

from __future__ import annotations

from simdevice.installed import NotAvailable, torch_folder
from simdevice.program import run_program

__all__ = ["NotAvailable", "run_program", "torch_folder"]
