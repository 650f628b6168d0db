# SPDX-License-Identifier: Apache-2.0
"""python -m simcuda [--null] (SCRIPT | -m MODULE) [ARGS...]: run a program with PyTorch's CUDA build and no card."""

from __future__ import annotations

import sys

import simcuda
from simdevice import run_program

if __name__ == "__main__":
    run_program("simcuda", simcuda.enable, sys.argv[1:])
