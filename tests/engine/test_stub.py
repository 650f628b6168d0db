"""`_engine.pyi` says what the native engine has, and the engine in Python has no name besides."""

from __future__ import annotations

import ast
import inspect
import operator
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

import airgraph
from airgraph import _engine
from airgraph.runtime.engine import python_engine

# What mypy finds in any class of pybind11's: its metaclass, and an __init__ that only refuses.
_OF_PYBIND11 = (
    "metaclass differs",
    'ReplayLockContext.__init__ is inconsistent, stub does not have *args parameter "args"',
)


# Names are compared; to read the types of torch takes half a minute, and `make lint` does.
_SETTINGS = "[mypy]\nfollow_imports = skip\n"


def test_the_stub_is_the_engines(tmp_path: Path) -> None:
    settings = tmp_path / "mypy.ini"
    settings.write_text(_SETTINGS)
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", f"--mypy-config-file={settings}", "airgraph._engine"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    differs = [line for line in done.stdout.splitlines() if not line.endswith(_OF_PYBIND11)]
    assert done.returncode in (0, 1) and not differs, done.stdout + done.stderr


# What pybind11 gives to each enum, with parameters that are positional only.
_OF_ENUMS = {
    "__eq__",
    "__getstate__",
    "__hash__",
    "__index__",
    "__int__",
    "__ne__",
    "__repr__",
    "__setstate__",
    "__str__",
}


def test_the_stub_has_the_engines_parameters() -> None:
    """Which mypy cannot see: to Python, pybind11's functions take anything."""
    compared = set()
    for name, function in _functions():
        bound = operator.attrgetter(name)(_engine)
        signature = (bound.__doc__ or "").partition("\n")[0]
        if " -> " in signature and not _in_an_enum(name):
            assert _of_pybind11(signature) == _of_stub(function), name
            compared.add(name)
    assert {"UsualCall.__init__", "Launch.add_output", "RecordedCall.__init__", "Door.__init__", "view_at"} <= compared


def test_the_engine_in_python_takes_its_parameters() -> None:
    """A call that fits the stub fits it too, by the same names."""
    compared = set()
    for name, function in _functions():
        try:
            twin = operator.attrgetter(name)(python_engine)
        except AttributeError:
            continue  # what it cannot do, it has not
        # The rest is of an enum of Python's, or of object.
        if isinstance(twin, FunctionType) and not function.args.vararg:
            parameters = function.args
            positional = [None] * len(parameters.args)
            try:
                inspect.signature(twin).bind(*positional, **{each.arg: None for each in parameters.kwonlyargs})
            except TypeError as error:
                pytest.fail(f"{name}: {error}")
            compared.add(name)
    assert {"UsualCall.__init__", "Launch.add_output", "RecordedCall.__init__", "Door.__init__", "view_at"} <= compared


def _functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for each in _stub().body:
        if isinstance(each, ast.FunctionDef):
            yield each.name, each
        elif isinstance(each, ast.ClassDef):
            for member in each.body:
                if isinstance(member, ast.FunctionDef) and not member.decorator_list:
                    yield f"{each.name}.{member.name}", member


def _stub() -> ast.Module:
    return ast.parse(Path(airgraph.__file__).with_name("_engine.pyi").read_text())


def _in_an_enum(name: str) -> bool:
    owner, _, member = name.rpartition(".")
    return member in _OF_ENUMS and hasattr(getattr(_engine, owner), "__members__")


def _of_stub(function: ast.FunctionDef) -> list[str]:
    parameters = function.args
    rest = [f"*{parameters.vararg.arg}"] if parameters.vararg else ["*"] * bool(parameters.kwonlyargs)
    return [each.arg for each in parameters.args] + rest + [each.arg for each in parameters.kwonlyargs]


def _of_pybind11(signature: str) -> list[str]:
    """The names of `f(a: int, *, b: tuple[int, int] = 3) -> None`."""
    inner = signature[signature.index("(") + 1 : signature.rindex(") -> ")]
    while inner != (shorter := re.sub(r"\[[^][]*\]", "", inner)):
        inner = shorter
    return [re.split(r"[:=]", each)[0].strip() for each in inner.split(",") if each.strip()]


def test_the_engine_in_python_has_its_names() -> None:
    stub = _stub()
    defined = {each.name for each in stub.body if isinstance(each, (ast.ClassDef, ast.FunctionDef))}
    constants = {
        each.target.id for each in stub.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    assert set(python_engine.__all__) <= defined | constants
