"""The check against other Pythons' headers finds what does not compile, and says what it left out."""

import sys
import sysconfig
from pathlib import Path

import check_headers
import pytest

_HERE = sysconfig.get_python_version()


def _check(folder: Path, monkeypatch: pytest.MonkeyPatch, *versions: str) -> int:
    monkeypatch.setattr(check_headers, "_ROOT", folder)
    monkeypatch.setattr(sys, "argv", ["check_headers.py", *versions])
    return check_headers.main()


@pytest.fixture
def csrc(tmp_path: Path) -> Path:
    """An engine of which one folder sees Python, through a header of its own."""
    folder = tmp_path / "csrc"
    (folder / "cache").mkdir(parents=True)
    (folder / "cache" / "watch.h").write_text("#include <Python.h>\nint size(PyObject* object);\n")
    (folder / "cache" / "watch.cpp").write_text(
        '#include "watch.h"\nint size(PyObject* object) { return object != nullptr; }\n'
    )
    (folder / "engine").mkdir()
    (folder / "engine" / "tape.cpp").write_text("#include <vector>\nint unseen(int unused) { return 0; }\n")
    return folder


def test_only_what_sees_python_is_compiled(csrc: Path) -> None:
    build = csrc.parent / "build"
    assert check_headers.python_facing(csrc.parent, build) == [build / "python.cpp"]


def test_what_compiles_passes(csrc: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _check(csrc.parent, monkeypatch, _HERE) == 0
    assert capsys.readouterr().out == f"the engine compiled on 1 of 1: Python {_HERE}\n"


def test_a_warning_fails(csrc: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (csrc / "cache" / "watch.cpp").write_text('#include "watch.h"\nint size(PyObject* object) { return 0; }\n')
    assert _check(csrc.parent, monkeypatch, _HERE) == 1
    assert f"the engine does not compile on Python {_HERE}:" in capsys.readouterr().out


def test_a_version_without_headers_is_named(
    csrc: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(csrc.parent, monkeypatch, _HERE, "3.98", "3.99") == 0
    assert "no headers of Python 3.98, 3.99 here: not compiled against them\n" in capsys.readouterr().out
