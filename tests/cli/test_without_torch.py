"""Without a PyTorch that can be imported, every command says so in one line, and what to do."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
# As the console script that an install writes.
_SCRIPT = ("-c", "import sys; from airgraph_command import main; sys.exit(main())")
_MODULE = ("-m", "airgraph")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


def _run(*words: str, python: str, first: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python that finds the package's source, and before it what is in a folder."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AIRGRAPH"))}
    settings["PYTHONPATH"] = os.pathsep.join(map(str, filter(None, (first, _ROOT / "src"))))
    return subprocess.run(
        [python, *words], env={**settings, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


def _line(ended: subprocess.CompletedProcess[str]) -> str:
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", ["doctor", "--version", "generate hello", "bench tiny", "explain script.py", ""])
def test_every_command_says_that_torch_is_not_installed(command: str, bare_python: str) -> None:
    assert _line(_run(*_SCRIPT, *command.split(), python=bare_python)) == (
        "airgraph: error: airgraph needs PyTorch, which is not installed: install it with `pip install 'torch>=2.11'`"
    )


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (
            "raise OSError('libcudart.so.12: cannot open\\n  shared object file')",
            "OSError: libcudart.so.12: cannot open",
        ),
        ("raise ImportError('undefined symbol: xyz')", "ImportError: undefined symbol: xyz"),
        ("raise RuntimeError('Failed to load the backend extension')", "RuntimeError: Failed to load the backend"),
        ("import no_such_package", "PyTorch, which lacks the package no_such_package"),
    ],
)
@pytest.mark.parametrize("door", [_SCRIPT, _MODULE], ids=["script", "module"])
def test_a_torch_that_cannot_be_imported_is_told_with_its_reason(
    door: tuple[str, str], fails: str, reason: str, bare_python: str, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(fails)
    line = _line(_run(*door, "doctor", python=bare_python, first=tmp_path))
    assert reason in line and "pip install" in line


def test_python_m_airgraph_says_that_torch_is_not_installed(bare_python: str) -> None:
    line = _line(_run(*_MODULE, "doctor", python=bare_python))
    assert "airgraph needs PyTorch, which is not installed: install it with" in line


def test_the_package_itself_says_it_too_and_keeps_the_cause(bare_python: str) -> None:
    said = _run("-c", "import airgraph", python=bare_python).stderr
    assert "ModuleNotFoundError: No module named 'torch'" in said
    assert said.splitlines()[-1].startswith("ImportError: airgraph needs PyTorch, which is not installed")


def test_the_traceback_is_there_for_who_asks(bare_python: str) -> None:
    ended = _run(*_SCRIPT, "doctor", python=bare_python, AIRGRAPH_TRACEBACK="1")
    assert ended.returncode == 1 and "Traceback" in ended.stderr


def test_another_missing_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError(\"No module named 'typer'\", name='typer')")
    line = _line(_run(*_SCRIPT, "doctor", python=sys.executable, first=tmp_path))
    assert line == "airgraph: error: the Python package typer is missing: install it with `pip install typer`"


def test_the_installed_command_is_this_function() -> None:
    pyproject = (_ROOT / "pyproject.toml").read_text()
    ((module, function),) = re.findall(r'^airgraph = "(airgraph_command):(\w+)"$', pyproject, re.MULTILINE)
    assert callable(getattr(importlib.import_module(module), function))
    assert f'py-modules = ["{module}"]' in pyproject
