"""How an argument reaches a capture is decided in one place: the options for it are read nowhere else."""

import ast
from pathlib import Path

import pytest

import airgraph

_PACKAGE = Path(airgraph.__file__).parent
_DECIDES = "runtime/recording/inputs.py"
# What is done when an argument has moved: a tape follows it, and a call raises or captures anew.
_ON_A_MOVE = {_DECIDES, "runtime/cpu/record.py", "capture/callable.py"}


@pytest.mark.parametrize(("option", "readers"), [("clone_input", {_DECIDES}), ("on_input_move", _ON_A_MOVE)])
def test_an_option_on_inputs_is_read_where_policies_are_decided(option: str, readers: set[str]) -> None:
    found = {
        path.relative_to(_PACKAGE).as_posix()
        for path in _PACKAGE.rglob("*.py")
        if path.name != "options.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr == option)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and f"'{option}'" in ast.unparse(node))
    }
    assert found == readers
