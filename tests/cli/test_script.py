"""A script that a command runs finds what it would find under `python`, and ends as it would."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from process import run_program

# What depends on who runs it, as one line of JSON.
_SEES = """
import inspect, json, os, sys

def defined():
    return 1

import beside
print(json.dumps({
    "argv": sys.argv,
    "path": sys.path[0],
    "name": __name__,
    "file": __file__,
    "package": __package__,
    "spec": getattr(__spec__, "name", None),
    "cached": __cached__ if __spec__ else None,
    "loader": type(__loader__).__name__,
    "module": sys.modules["__main__"].defined is defined,
    "builtins": hasattr(__builtins__, "print"),
    "source": inspect.getsource(defined),
    "beside": os.path.abspath(beside.__file__),
    "hook": sys.excepthook.__module__,
}))
"""


def _by_us(*words: str, folder: Path, module: bool = False) -> subprocess.CompletedProcess[str]:
    return run_program(
        f"import os, sys; os.chdir({str(folder)!r}); from airgraph.cli.script import run_script\n"
        f"sys.exit(run_script({words[0]!r}, {list(words[1:])}, module={module}))"
    )


def _by_python(*words: str, folder: Path, module: bool = False) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(("-m",) if module else ()), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script in a folder and one behind a link, a package, and the same as a zip file."""
    package = tmp_path / "lib" / "package"
    package.mkdir(parents=True)
    (tmp_path / "lib" / "script.py").write_text(_SEES)
    (tmp_path / "lib" / "beside.py").write_text("")
    (tmp_path / "link.py").symlink_to("lib/script.py")
    (tmp_path / "beside.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(_SEES)
    (package / "beside.py").write_text("")
    (tmp_path / "lib" / "__init__.py").write_text("")
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as file:
        file.writestr("__main__.py", _SEES)
        file.writestr("beside.py", "")
    return tmp_path


@pytest.mark.parametrize(
    ("target", "module"),
    [
        ("lib/script.py", False),
        ("link.py", False),
        ("lib/package", False),
        ("program.zip", False),
        ("lib.package", True),
        ("lib.script", True),
    ],
)
def test_a_program_finds_what_it_finds_under_python(target: str, module: bool, folder: Path) -> None:
    words = (target, "--option", "value", "-x")
    ours = _by_us(*words, folder=folder, module=module)
    assert ours.returncode == 0, ours.stderr
    assert json.loads(ours.stdout) == json.loads(_by_python(*words, folder=folder, module=module).stdout)


@pytest.mark.parametrize(
    "program",
    [
        "def f():\n    return 1 / 0\nf()",
        "x = (1,\ny =",
        "import sys\nsys.exit(7)",
        "import sys\nsys.exit()",
        "import sys\nsys.exit('what went wrong')",
        "raise SystemExit(True)",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('k') from error",
        "import sys\nsys.excepthook = lambda *e: print('hook', e[0].__name__, e[2].tb_lineno, e[2].tb_next)\n1 / 0",
        "import warnings\nwarnings.warn('look here')",
        "import threading\nthreading.Timer(0.01, lambda: print(later)).start()\nlater = 'after the end'",
        "import atexit\natexit.register(lambda: print(later))\nlater = 'after the end'",
    ],
    ids=["raises", "syntax", "code", "no code", "text", "bool", "chain", "hook", "warning", "thread", "atexit"],
)
def test_a_program_ends_and_speaks_as_under_python(program: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(program)
    ours, theirs = (run("script.py", folder=tmp_path) for run in (_by_us, _by_python))
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
    assert [each.name for each in tmp_path.iterdir()] == ["script.py"]


def test_an_interrupted_script_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("raise KeyboardInterrupt")
    ended = _by_us("script.py", folder=tmp_path)
    assert ended.returncode == 130
    assert ended.stderr.count("File ") == 1 and "KeyboardInterrupt" in ended.stderr


@pytest.mark.parametrize(
    ("target", "module", "message"),
    [
        ("nowhere.py", False, "there is no script nowhere.py"),
        (".", False, "there is no __main__.py in ."),
        ("nowhere", True, "there is no module nowhere"),
        ("nowhere.inside", True, "module nowhere.inside cannot be found"),
        ("math", True, "module math has no Python code"),
    ],
)
def test_nothing_to_run_is_an_error_that_names_it(target: str, module: bool, message: str, tmp_path: Path) -> None:
    ended = _by_us(target, folder=tmp_path, module=module)
    assert f"UsageProblem: {message}" in ended.stderr
