"""`_engine.pyi` says what the native engine has, and the engine in Python has no name besides."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import airgraph
from airgraph.runtime.engine import python_engine

# What mypy finds in any class of pybind11's: its metaclass, and an __init__ that only refuses.
_OF_PYBIND11 = (
    "metaclass differs",
    'ReplayLockContext.__init__ is inconsistent, stub does not have *args parameter "args"',
)


# Names and parameters are compared; to read the types of torch takes half a minute, and `make lint` does.
_SETTINGS = "[mypy]\nfollow_imports = skip\n"


def test_the_stub_is_the_engines(tmp_path: Path) -> None:
    settings = tmp_path / "mypy.ini"
    settings.write_text(_SETTINGS)
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", f"--mypy-config-file={settings}", "airgraph._engine"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    differs = [line for line in done.stdout.splitlines() if not line.endswith(_OF_PYBIND11)]
    assert done.returncode in (0, 1) and not differs, done.stdout + done.stderr


def test_the_engine_in_python_has_its_names() -> None:
    stub = ast.parse(Path(airgraph.__file__).with_name("_engine.pyi").read_text())
    defined = {each.name for each in stub.body if isinstance(each, (ast.ClassDef, ast.FunctionDef))}
    constants = {
        each.target.id for each in stub.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    assert set(python_engine.__all__) <= defined | constants
