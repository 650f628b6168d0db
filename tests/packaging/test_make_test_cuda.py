"""`make test-cuda` where the CUDA build of PyTorch cannot be had: one line, and nothing fails."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not here")

# Environments that it makes have this one's pip: to install one takes most of the time.
_LIBRARY = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
_PIP = importlib.metadata.distribution("pip").locate_file("pip")
_PYTHON = f"""#!/bin/sh
[ "$2" = venv ] || exec {sys.executable} "$@"
{sys.executable} -m venv --without-pip "$3" && ln -sfn {_PIP} "$3/{_LIBRARY}/pip"
"""


def _make(*arguments: str) -> str:
    """What it prints. Not as a part of the make that may run these tests."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PIP_"))}
    # Neither an index nor a folder of wheels, whatever pip is set up with.
    nothing = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(
        command, cwd=_ROOT, env={**inherited, **nothing}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_skipped_with_one_line_and_asked_for_again(tmp_path: Path) -> None:
    # An environment in which all is made but that one.
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text(_PYTHON)
    python.chmod(0o755)
    (venv / "stamps").mkdir()
    for stamp in ("venv", "weights", "torch", "demo", "dev"):
        (venv / "stamps" / stamp).touch()
    for _ in range(2):
        said = _make("test-cuda", f"VENV={venv}", f"CUDA_VENV={tmp_path / 'venv-cuda'}").splitlines()
        (line,) = [each for each in said if "skipped" in each]
        assert line == said[-1] and line.startswith("test-cuda is skipped: the CUDA build of PyTorch cannot be")
        assert not any("pytest" in each or "cmake" in each for each in said)
        assert not list((venv / "stamps").glob("cuda*"))


def test_it_can_be_left_out() -> None:
    assert "test-cuda" not in (said := _make("-n", "test", "CUDA=0", "NPU=0")) and "simcuda" not in said
    assert "simcuda" in _make("-n", "test", "NPU=0")
