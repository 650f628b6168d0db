"""Warnings of the compiler are errors in CI only: who installs may have another compiler, or a newer Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_BUILD = [sys.executable, "setup.py", "build_ext", "--inplace"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A source checkout whose engine is one short file that compilers warn of."""
    folder = tmp_path / "checkout"
    shutil.copytree(_ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, folder)
    (folder / "csrc").mkdir()
    (folder / "csrc" / "warned.cpp").write_text("int warned(int unused) { return 0; }\n")
    return folder


def _run(command: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("AIRGRAPH_WERROR", "AIRGRAPH_ENGINE")}
    return subprocess.run(command, cwd=folder, env={**plain, **env}, capture_output=True, text=True, check=False)


def test_an_install_shows_warnings_and_goes_on(checkout: Path) -> None:
    done = _run(_BUILD, checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((checkout / "src" / "airgraph").glob("_engine*.so"))


def test_ci_stops_at_a_warning(checkout: Path) -> None:
    done = _run(_BUILD, checkout, AIRGRAPH_WERROR="1")
    assert done.returncode != 0
    assert "unused parameter" in done.stdout + done.stderr


def test_the_build_at_first_use_goes_on_also_in_ci(checkout: Path, tmp_path: Path) -> None:
    _run(
        [sys.executable, "-c", "from airgraph.runtime.engine.loading import engine; engine()"],
        checkout,
        PYTHONPATH=str(checkout / "src"),
        AIRGRAPH_CACHE_DIR=str(tmp_path / "cache"),
        AIRGRAPH_WERROR="1",
    )
    assert list((tmp_path / "cache").rglob("_engine.so"))
