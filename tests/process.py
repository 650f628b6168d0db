"""Runs a program in a process of its own: it may crash, hang, or be sent signals.

The process is forked from one that has imported torch and compiled something, which each would have to do again; with
variables of the environment of its own it is started from nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from devices import launched_with, simulator
from fork_server import Forked, Server

__all__ = ["output_of", "output_on", "prepared", "run_command", "run_program", "start_command"]

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

# A compilation asks for the device's streams, and a device that is in use cannot be forked.
_PREPARE = """
simulator = {simulator!r}
if simulator:
    __import__(simulator).enable()
import gc, sys
import torch, torch._dynamo, torch._functorch.aot_autograd, airgraph
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
__import__("unmeasured_guards").measure_no_guards()
del sys.path[0]
if simulator or not {with_engine}:
    import torch._dynamo.convert_frame, torch._inductor.fx_passes.post_grad, airgraph.backend
else:
    torch.compile(lambda x: x + 1, backend="airgraph")(torch.ones(2))
    torch._dynamo.reset()
    airgraph.reset()
gc.collect()
gc.freeze()
"""


def prepared(simulated_by: str = "", hash_seed: str = "1", *, with_engine: bool = True) -> Server:
    """What programs are forked from that use airgraph. with_engine: it is loaded, unless for a simulated device."""
    text = _PREPARE.format(simulator=simulated_by, tests=str(Path(__file__).parent), with_engine=with_engine)
    # Programs for the CPU find no device, whatever this process runs on.
    autoload = ("TORCH_DEVICE_BACKEND_AUTOLOAD", "1" if simulated_by else "0")
    return Server(text, (autoload, ("PYTHONHASHSEED", hash_seed)))


def run_program(*pieces: str, timeout_s: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pieces of a program after torch and airgraph are imported; a hang is a failure, with what was said."""
    program = "\n".join([_BEGIN, *map(textwrap.dedent, pieces)])
    return _started(["-c", program], timeout_s, environment) if environment else _forked(program, timeout_s, prepared())


def output_of(*pieces: str, timeout_s: float = 120, **environment: str) -> str:
    """What a program prints that ends well."""
    return _said_by(run_program(*pieces, timeout_s=timeout_s, **environment))


def output_on(device: str, *pieces: str, timeout_s: float = 120) -> str:
    """The same of a program that may use a device beside the CPU."""
    done = _forked("\n".join([_BEGIN, *map(textwrap.dedent, pieces)]), timeout_s, prepared(simulator(device) or ""))
    return _said_by(done)


def run_command(
    *command: str,
    folder: Path | None = None,
    timeout_s: float = 300,
    device: str = "cpu",
    with_engine: bool = True,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run what would follow `python`, a script or `-m` and a module, and arguments: forked, in a folder.

    device: what it may run on beside the CPU. with_engine: the engine is loaded. environment: variables that are read
    when it runs or uses the device, not when torch is loaded, or the engine where it is.
    """
    module = command[1] if command[0] == "-m" else None
    argv = list(command[1:] if module else command)
    first = str(folder or Path.cwd()) if module else str(Path(folder or ".", command[0]).resolve().parent)
    run = f"run_module({module!r}, alter_sys=True, " if module else f"run_path({command[0]!r}, "
    simulated_by = simulator(device) or ""
    return _forked(
        f"""
import os, runpy, sys
os.chdir({str(folder or Path.cwd())!r})
os.environ |= {environment!r}
if {simulated_by!r}:
    sys.modules[{simulated_by!r}].read_settings()
sys.argv, sys.path[0] = {argv!r}, {first!r}
runpy.{run} run_name="__main__")
""",
        timeout_s,
        prepared(simulated_by, with_engine=with_engine),
    )


def start_command(
    *command: str, folder: Path | None = None, timeout_s: float = 300, device: str = "cpu", **environment: str
) -> subprocess.CompletedProcess[str]:
    """The same from nothing. For the CPU also with options of `python`, which come first."""
    return _started([*launched_with(device), *command], timeout_s, environment, folder)


def _said_by(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _started(
    arguments: list[str], timeout_s: float, environment: dict[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=settings,
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            out, err = child.communicate()
            raise AssertionError(_hangs(timeout_s, out, err)) from None
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def _forked(program: str, timeout_s: float, server: Server) -> subprocess.CompletedProcess[str]:
    with (
        open(os.devnull) as nothing,
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
        Forked(server, program, nothing, out, err) as forked,
    ):
        code = forked.wait(timeout_s)
        if code is None:
            forked.kill()
        said = [file.seek(0) or file.read() for file in (out, err)]
    if code is None:
        raise AssertionError(_hangs(timeout_s, *said))
    return subprocess.CompletedProcess([], code, *said)


def _hangs(timeout_s: float, out: str, err: str) -> str:
    return f"still running after {timeout_s} s\n{out[-2000:]}\n{err[-2000:]}"
