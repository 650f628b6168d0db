# SPDX-License-Identifier: Apache-2.0
"""Running a program on a simulated runtime, as `python` itself would."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Sequence

from simdevice.installed import NotAvailable

__all__ = ["run_program"]


def run_program(runtime: str, enable: Callable[[], None], arguments: Sequence[str]) -> None:
    """Run the program that `arguments` name; exits with the program's status.

    runtime: the package, whose variables are named by it in capitals. enable: puts PyTorch on it, or raises
    NotAvailable.
    """
    usage = f"usage: python -m {runtime} [--null] (SCRIPT | -m MODULE) [ARGS...]"
    rest = list(arguments)
    if rest[:1] in (["-h"], ["--help"]):
        print(f"{usage}\n\n--null   run no kernels: results are undefined; what remains is the time of the host")
        return
    if rest[:1] == ["--null"]:
        os.environ[f"{runtime.upper()}_KERNELS"] = "off"
        rest.pop(0)
    as_module = rest[:1] == ["-m"]
    if as_module:
        rest.pop(0)
    if not rest or rest[0].startswith("-"):
        sys.exit(usage)
    try:
        enable()
    except NotAvailable as error:
        sys.exit(f"{runtime}: {error}")
    if as_module:
        sys.argv = rest  # runpy puts the module's file in the first place
        sys.path[0] = os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = rest
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")
