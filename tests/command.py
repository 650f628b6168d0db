"""Runs the real command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

TIMEOUT_S = 300


def airgraph(*arguments: str, module: str = "airgraph", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m airgraph ARGUMENTS` and return its exit code and both streams."""
    # One thread: with more, a busy machine makes every small operator wait for its barrier.
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment}
    settings.pop("AIRGRAPH_TRACEBACK", None)
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
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
