"""Runs the command in a process of its own, forked where torch is imported, or started from nothing."""

from __future__ import annotations

import os
import subprocess
import sys

from process import run_command

TIMEOUT_S = 300


def airgraph(*arguments: str, module: str = "airgraph", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m airgraph ARGUMENTS` and return its exit code and both streams.

    environment: variables that are read when the command runs, not when torch or the engine are loaded.
    """
    settings = {"COLUMNS": "200", "AIRGRAPH_TRACEBACK": "", **environment}
    return run_command("-m", module, *arguments, timeout_s=TIMEOUT_S, **settings)


def started_airgraph(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same, as a user starts it."""
    # One thread: with more, a busy machine makes every small operator wait for its barrier.
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment}
    settings.pop("AIRGRAPH_TRACEBACK", None)
    return subprocess.run(
        [sys.executable, "-m", "airgraph", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=settings,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of a failure: nothing else on stderr, nothing on stdout."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("airgraph: error: "), result.stderr
    assert result.stdout == ""
    return lines[0]
