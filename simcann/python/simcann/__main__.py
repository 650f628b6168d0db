# SPDX-License-Identifier: Apache-2.0
"""python -m simcann [--null] (SCRIPT | -m MODULE) [ARGS...]: run a program with the real torch_npu and no card."""

from __future__ import annotations

import sys

import simcann
from simdevice import run_program

if __name__ == "__main__":
    run_program("simcann", simcann.enable, sys.argv[1:])
