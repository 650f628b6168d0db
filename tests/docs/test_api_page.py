"""docs/api.md names everything that is public, with its real signature."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import airgraph
from airgraph import errors
from airgraph.cli.main import app

_TEXT = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
# Without line breaks, and without those and the last comma within brackets.
_PAGE = re.sub(r",? \)", ")", " ".join(_TEXT.split()).replace("( ", "("))
_METHODS = (airgraph.cpu.CPUGraph, airgraph.cpu.Stream, airgraph.cpu.Event)


def _signature(function: Any) -> str:
    """Parameters and defaults, without self and types."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for name, each in signature.parameters.items()
        if name != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def _public() -> Iterator[tuple[str, Any]]:
    for name in airgraph.__all__:
        yield f"airgraph.{name}", getattr(airgraph, name)
    for module in (airgraph.cpu, airgraph.inference):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


@pytest.mark.parametrize(("name", "value"), [pytest.param(*each, id=each[0]) for each in _public()])
def test_a_public_name_is_there_with_its_signature(name: str, value: Any) -> None:
    # Reports are only handed out.
    text = name + _signature(value) if callable(value) and value is not airgraph.Report else name
    assert text in _PAGE


@pytest.mark.parametrize("kind", _METHODS)
def test_every_method_is_there_with_its_signature(kind: type) -> None:
    methods = {name: value for name, value in vars(kind).items() if inspect.isfunction(value) and name[0] != "_"}
    # For the package's own use.
    methods.pop("abort", None)
    assert methods and not [name for name, value in methods.items() if f"`{name}{_signature(value)}`" not in _PAGE]


@pytest.mark.parametrize("text", [_TEXT, errors.__doc__], ids=["page", "docstring"])
def test_every_error_is_in_the_tree_under_its_base(text: str) -> None:
    tree = "AirgraphError" + text.partition("\nAirgraphError")[2].partition("```")[0]
    path: list[str] = []
    found = {}
    for indent, name in re.findall(r"^([├└│─ ]*)(\w+)", tree, re.MULTILINE):
        del path[len(indent) // 4 :]
        found[name] = path[-1] if path else "Exception"
        path.append(name)
    assert found == {each.__name__: each.__bases__[0].__name__ for each in _errors()}


def _errors() -> list[type]:
    declared = vars(errors).values()
    return [each for each in declared if isinstance(each, type) and issubclass(each, errors.AirgraphError)]


def test_an_error_elsewhere_is_what_one_part_says_to_another() -> None:
    names = {each.__name__ for each in _errors()}
    package = Path(airgraph.__file__).parent
    elsewhere = {
        node.name
        for path in package.rglob("*.py")
        if path != Path(errors.__file__)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and names & {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    }
    assert elsewhere == {"Executed"}


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_every_key_of_the_report_is_there(tmp_path: Path) -> None:
    graph = airgraph.cpu.CPUGraph()
    with airgraph.cpu.graph(graph):
        torch.ones(2) * 2
    with torch.no_grad():
        compiled = torch.compile(lambda x: x * 2, backend="airgraph")
        compiled(torch.ones(2))
    call = airgraph.inference.cache_compile(_double, cache_dir=str(tmp_path))
    call(torch.ones(2))
    report = airgraph.explain().to_dict()
    for part in ("graphs", "pools", "counters", "cached"):
        (row,) = re.findall(rf'^\| `"{part}"` \|.*$', _TEXT, re.MULTILINE)
        held = report[part] if part == "counters" else report[part][0]
        assert not [key for key in held if f"`{key}`" not in row]
    assert set(report) == set(re.findall(r'^\| `"(\w+)"` \|', _TEXT, re.MULTILINE))


def test_every_class_of_errors_is_public() -> None:
    classes = [each for each in vars(airgraph.errors).values() if isinstance(each, type)]
    assert sorted(each.__name__ for each in classes) == sorted(airgraph.errors.__all__)


def test_the_members_of_a_pool_are_there() -> None:
    pool = airgraph.graph_pool_handle()
    members = re.findall(r"^\| `(\w+)(?:\(\))?` \|", _TEXT.partition("| member of a pool |")[2], re.MULTILINE)[:6]
    assert members == ["id", "device", "closed", "nbytes", "graphs", "close"]
    assert all(hasattr(pool, member) for member in members)


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for each, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{name} {each}")


def test_every_command_is_there_with_its_options() -> None:
    rows = {
        match[1]: match[0]
        for match in re.finditer(r"^\| `(airgraph[a-z ]*?)(?: \[?[A-Z]+\]?)?` \|.*$", _TEXT, re.MULTILINE)
    }
    for name, command in _commands(typer.main.get_command(app), "airgraph"):
        options = [
            flag
            for each in command.params
            if each.param_type_name == "option"
            for flag in (*each.opts, *each.secondary_opts)
            if flag != "--help"
        ]
        # A group of commands has no row of its own unless it has options.
        assert name in rows or (not options and hasattr(command, "commands")), name
        assert not [flag for flag in options if f"`{flag}" not in rows[name]]
