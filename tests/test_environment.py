"""Environment variables are read in one place, when they are needed, and a bad value is an error."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import airgraph
from airgraph import environment
from airgraph.cache.store.folder import default_folder
from airgraph.errors import OptionError

_PACKAGE = Path(airgraph.__file__).parent
_ROOT = _PACKAGE.parents[1]
_COMMAND = _PACKAGE.with_name("airgraph_command.py")
_SETS = re.compile(r"""os\.environ(?:\[|\.setdefault\()"(\w+)"(?:, |\] =)""")
# What cached graphs depend on is in the environment of the user's program.
_OF_THE_USERS_PROGRAM = ("cache/checking/", "cache/tracing/", "cache/format/process.py")


def _parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def _is_write(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether `os.environ` stands in `os.environ[...] = ...` or `os.environ.setdefault(...)`."""
    around = parents[node]
    if isinstance(around, ast.Subscript):
        return isinstance(around.ctx, ast.Store)
    return isinstance(around, ast.Attribute) and around.attr == "setdefault"


def _reads(text: str) -> Iterator[str]:
    """Where a file gets at the environment, but for what it sets."""
    tree = ast.parse(text)
    parents = _parents(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "getenvb"):
            if isinstance(node.value, ast.Name) and node.value.id == "os" and not _is_write(node, parents):
                yield f"line {node.lineno}: os.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", "posix"):
            yield from (
                f"line {node.lineno}: {each.name}" for each in node.names if each.name.startswith(("environ", "getenv"))
            )


def test_the_environment_is_read_in_one_place() -> None:
    found = {
        str(path.relative_to(_PACKAGE)): list(_reads(path.read_text()))
        for path in sorted(_PACKAGE.rglob("*.py"))
        if path != Path(environment.__file__)
    }
    elsewhere = {name: reads for name, reads in found.items() if reads and not name.startswith(_OF_THE_USERS_PROGRAM)}
    assert not elsewhere, "read it in airgraph/environment.py"


def test_the_command_reads_what_it_cannot_ask_the_package_for() -> None:
    text = _COMMAND.read_text()
    assert len(list(_reads(text))) == 1 and f'os.environ.get("{environment.TRACEBACK.name}")' in text


def test_each_variable_that_is_set_is_on_the_page() -> None:
    page = (_ROOT / "docs" / "environment.md").read_text()
    names = {name for path in [_COMMAND, *_PACKAGE.rglob("*.py")] for name in _SETS.findall(path.read_text())}
    assert names >= {"TORCH_DEVICE_BACKEND_AUTOLOAD", "HF_HUB_OFFLINE"}
    assert not [name for name in names if f"`{name}`" not in page]


def test_the_engine_reads_no_variable() -> None:
    assert not [path for path in (_ROOT / "csrc").rglob("*") if path.is_file() and "getenv" in path.read_text()]


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ.get('A')",
        "import os\nos.environ['A']",
        "import os\n'A' in os.environ",
        "import os\nos.getenv('A')",
        "from os import environ",
        "import os\nf(os.environ)",
    ],
)
def test_a_read_is_found(text: str) -> None:
    assert len(list(_reads(text))) == 1


@pytest.mark.parametrize("text", ["import os\nos.environ['A'] = '1'", "import os\nos.environ.setdefault('A', '1')"])
def test_a_write_is_no_read(text: str) -> None:
    assert not list(_reads(text))


def test_every_variable_is_listed_once() -> None:
    listed = [variable.name for variable in environment.VARIABLES]
    assert len(set(listed)) == len(listed)
    declared = [value for value in vars(environment).values() if isinstance(value, environment.Variable)]
    assert {variable.name for variable in declared} == set(listed)
    assert all(variable.meaning and variable.accepted and variable.default for variable in declared)


@pytest.mark.parametrize(("value", "wanted"), [(None, False), ("", False), ("native", False), ("python", True)])
def test_which_engine(monkeypatch: pytest.MonkeyPatch, value: str | None, wanted: bool) -> None:
    _set(monkeypatch, environment.ENGINE, value)
    assert environment.python_engine_wanted() is wanted


def test_an_unknown_engine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRGRAPH_ENGINE", "Python")
    with pytest.raises(OptionError, match="AIRGRAPH_ENGINE: expected 'native' or 'python', got 'Python'"):
        environment.python_engine_wanted()


@pytest.mark.parametrize(
    ("cache_dir", "xdg", "expected"),
    [
        ("own", "xdg", "own"),
        ("", "xdg", "xdg/airgraph"),
        (None, "xdg", "xdg/airgraph"),
        (None, "", "home/.cache/airgraph"),
        (None, None, "home/.cache/airgraph"),
    ],
)
def test_what_is_kept_lies_in_one_folder(
    monkeypatch: pytest.MonkeyPatch, cache_dir: str | None, xdg: str | None, expected: str
) -> None:
    monkeypatch.setenv("HOME", "home")
    _set(monkeypatch, environment.CACHE_DIR, cache_dir)
    _set(monkeypatch, environment.XDG_CACHE_HOME, xdg)
    assert environment.cache_folder() == Path(expected)
    assert default_folder() == Path(expected) / "graphs"


@pytest.mark.parametrize(("value", "wanted"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)])
def test_whether_a_traceback_is_shown(monkeypatch: pytest.MonkeyPatch, value: str | None, wanted: bool) -> None:
    _set(monkeypatch, environment.TRACEBACK, value)
    assert environment.traceback_wanted() is wanted


@pytest.mark.parametrize(("value", "wanted"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", False)])
def test_whether_torch_dumps(monkeypatch: pytest.MonkeyPatch, value: str | None, wanted: bool) -> None:
    _set(monkeypatch, environment.TORCH_COMPILE_DEBUG, value)
    assert environment.torch_dumps_wanted() is wanted


def test_which_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "ccache clang++ -O1")
    assert environment.compilers("c++") == ("ccache",)
    monkeypatch.setenv("CXX", "")
    assert environment.compilers("c++", "g++") == ("c++", "g++")
    monkeypatch.setenv("CXX", "clang++")
    assert environment.compilers("c++") == ("clang++",)
    monkeypatch.delenv("CXX")
    assert environment.compilers("c++") == ("c++",)


def _set(monkeypatch: pytest.MonkeyPatch, variable: environment.Variable, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv(variable.name, raising=False)
    else:
        monkeypatch.setenv(variable.name, value)
