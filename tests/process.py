"""Runs a program in a process of its own: it may crash, hang, or be sent signals."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

__all__ = ["output_of", "run_program"]

_BEGIN = """
import faulthandler, threading, warnings
import torch
from torch import Tensor
import airgraph
from airgraph.cpu import CPUGraph, graph
from airgraph.errors import *
faulthandler.enable()
torch.set_num_threads(1)
warnings.filterwarnings("ignore", category=DeprecationWarning)
"""


def run_program(*pieces: str, timeout_s: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pieces of a program after torch and airgraph are imported; a hang is a failure, with what was said."""
    command = [sys.executable, "-c", "\n".join([_BEGIN, *map(textwrap.dedent, pieces)])]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings, start_new_session=True
    ) as child:
        try:
            out, err = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            out, err = child.communicate()
            raise AssertionError(f"still running after {timeout_s} s\n{out[-2000:]}\n{err[-2000:]}") from None
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def output_of(*pieces: str, timeout_s: float = 120, **environment: str) -> str:
    """What a program prints that ends well."""
    done = run_program(*pieces, timeout_s=timeout_s, **environment)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
