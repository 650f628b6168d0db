# SPDX-License-Identifier: Apache-2.0
"""Programs that run in processes of their own on the simulated runtime, forked where torch_npu is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from process import run_command, start_command


def run_program(folder: Path, source: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `source` with `python -m simcann`. Its output is text, and a hang fails the test.

    variables: of the environment, read when the device is first used and not when torch_npu is imported.
    """
    return run_module(*options, _script(folder, source), **variables)


def start_program(folder: Path, source: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same in a process that imports torch_npu itself."""
    return start_command(*options, _script(folder, source), device="npu", timeout_s=120, **_none_but(variables))


def run_module(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m simcann` with these arguments."""
    return run_command("-m", "simcann", *arguments, device="npu", timeout_s=120, **_none_but(variables))


def output_of(folder: Path, source: str, *options: str, **variables: str) -> str:
    """What a program that must succeed wrote to its standard output."""
    return said_by(run_program(folder, source, *options, **variables))


def said_by(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


def _script(folder: Path, source: str) -> str:
    script = folder / "program.py"
    script.write_text(source)
    return str(script)


def _none_but(variables: dict[str, str]) -> dict[str, str]:
    """Those of this process mean nothing to a program: an empty one is as none."""
    return {**{name: "" for name in os.environ if name.startswith("SIMCANN_")}, **variables}
