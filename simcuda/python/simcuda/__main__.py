# SPDX-License-Identifier: Apache-2.0
"""python -m simcuda [--null] (SCRIPT | -m MODULE) [ARGS...]: run a program with PyTorch's CUDA build and no card."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

import simcuda

USAGE = "usage: python -m simcuda [--null] (SCRIPT | -m MODULE) [ARGS...]"

HELP = f"""{USAGE}

--null   run no kernels: every result is undefined, what remains is the time that the host takes
"""


def main(arguments: Sequence[str]) -> None:
    """Run the program that `arguments` name, as `python` itself would; exits with the program's status."""
    rest = list(arguments)
    if rest[:1] in (["-h"], ["--help"]):
        print(HELP, end="")
        return
    if rest[:1] == ["--null"]:
        os.environ["SIMCUDA_KERNELS"] = "off"
        rest.pop(0)
    as_module = rest[:1] == ["-m"]
    if as_module:
        rest.pop(0)
    if not rest or rest[0].startswith("-"):
        sys.exit(USAGE)
    try:
        simcuda.enable()
    except simcuda.NotAvailable as error:
        sys.exit(f"simcuda: {error}")
    if as_module:
        sys.argv = rest  # runpy puts the module's file in the first place
        sys.path[0] = os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = rest
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
