"""Starts a program on two ranks, each in a process of its own.

A rank ends without the finalization of Python. torch's own thread of a gloo group outlives `destroy_process_group`, and
may drop the tensors of a finished collective late. To free their Python objects it asks for the interpreter's lock, and
a Python that finalizes (before 3.14) ends such a thread on the spot: that unwinds a destructor which must not throw,
and the process is aborted ("terminate called without an active exception"), rarely, and with plain torch too.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from process import output_on

__all__ = ["on_two_ranks", "under_torchrun"]

_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def on_two_ranks(script: Path, *arguments: str, device: str = "cpu", **environment: str) -> str:
    """What a script prints on two ranks that both end well. They are forked where torch is imported already.

    environment: variables that are read when a rank runs, or first uses its device.
    """
    return output_on(
        device,
        f"""
        import os, sys
        os.environ |= {environment!r}
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import ranks
        ranks.fork_ranks({[str(script), *arguments]!r})
        """,
        timeout_s=240,
    )


def under_torchrun(script: Path, *arguments: str) -> str:
    """The same, by the command that users type, of CPUs: what simulates a device is not among its processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, __file__, str(script), *arguments],
        env={**_ENVIRONMENT, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def fork_ranks(command: list[str]) -> NoReturn:
    """Run a script on two forks of this process, which ends as they do: with 1 as soon as one has failed."""
    from torch.distributed import TCPStore

    # Port 0 is any that is free; torchrun, too, serves the store and tells its ranks so.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    running = set()
    for rank in ("0", "1"):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
            _run_and_leave(command)
        running.add(child)
    while running:
        child, status = os.wait()
        running.discard(child)
        if status:
            # The other one would wait for it.
            for left in running:
                os.kill(left, signal.SIGKILL)
            print(f"a rank ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)
            os._exit(1)
    os._exit(0)


def _run_and_leave(command: list[str]) -> NoReturn:
    """Run a script as Python does, but for the finalization."""
    sys.argv[:], code = command, 0
    sys.path.insert(0, str(Path(command[0]).parent))
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _run_and_leave(sys.argv[1:])
