# SPDX-License-Identifier: Apache-2.0
"""Programs run in a fresh process on the simulated runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_program(folder: Path, source: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `source` with `python -m simcann`; `variables` are added to the environment. Its output is text."""
    script = folder / "program.py"
    script.write_text(source)
    return run_module(*options, str(script), **variables)


def run_module(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m simcann` with these arguments. A hang fails the test."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIMCANN_")}
    command = [sys.executable, "-m", "simcann", *arguments]
    return subprocess.run(
        command, env={**environment, **variables}, capture_output=True, text=True, timeout=120, check=False
    )


def output_of(folder: Path, source: str, *options: str, **variables: str) -> str:
    """What a program that must succeed wrote to its standard output."""
    result = run_program(folder, source, *options, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout
