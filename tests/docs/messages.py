"""The texts of warnings and errors, as the package's source has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import airgraph

__all__ = ["Message", "messages", "messages_of_the_engine"]

_PACKAGE = Path(airgraph.__file__).parent
# What is given a message, and as which of its arguments.
_WARN = {"warn_user": 0, "warnings.warn": 0, "self.warn_once": 1, "self._warn_once": -1, "self._fallback.warn_once": 1}
_REFUSE = {"self._refuse": 0, "self._session.refuse": 0, "Failure": 1}
_VARIES = "…"
_EDGES = " :.,("
# Letters of a message that are enough before something that varies, and before a clause that explains it.
_TELLING, _CLAUSE = 6, 30


@dataclass(frozen=True, slots=True)
class Message:
    """kind: the error's class, "warning", or what takes the reason of a refusal. beginning: with … for what varies."""

    path: str
    kind: str
    beginning: str


def messages() -> Iterator[Message]:
    """All whose text is in the source; not those that hand on the text of another."""
    yield from _reasons("program/support.py")
    yield from _reasons("program/host_reads.py")
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = str(path.relative_to(_PACKAGE))
        for function in _scopes(ast.parse(path.read_text())):
            for node in _within(function):
                if not isinstance(node, ast.Call):
                    continue
                called = ast.unparse(node.func)
                for kind, given in _given(called, node):
                    for text in _texts(given, function):
                        beginning = _beginning(text)
                        if beginning.strip(_EDGES + _VARIES):
                            yield Message(name, kind, beginning)


def messages_of_the_engine(sources: Path) -> Iterator[Message]:
    """Those of its checks, by the longest of the texts that each is made of. Kernels say what PyTorch's own do."""
    for path in sorted([*sources.rglob("*.cpp"), *sources.rglob("*.h")]):
        name = path.relative_to(sources).as_posix()
        for found in re.findall(r"TORCH_CHECK(?:_\w+)?\((.*?)\);", path.read_text(), re.DOTALL):
            joined = re.sub(r'"\s*"', "", found)
            texts = re.findall(r'"((?:[^"\\]|\\.)*)"', joined)
            if texts and not name.startswith("kernels/"):
                yield Message(name, "engine", max(texts, key=len).strip(_EDGES))


def _reasons(name: str) -> Iterator[Message]:
    """Texts that the functions of a file return, and those in its tables."""
    tree = ast.parse((_PACKAGE / name).read_text())
    returned = (node.value for scope in _scopes(tree) for node in _within(scope) if isinstance(node, ast.Return))
    assigned = (node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
    tables = (each for value in assigned if value is not None for each in ast.walk(value))
    listed = (each for each in tables if isinstance(each, ast.Constant) and " " in str(each.value))
    for given in (*returned, *listed):
        for text in _texts(given, tree) if given is not None else ():
            yield Message(name, "reason", _beginning(text))


def _given(called: str, node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """What sort of message a call has, and the expression that makes it."""
    kind, position = called, 0
    if called in _WARN:
        kind, position = "warning", _WARN[called]
    elif called in _REFUSE:
        position = _REFUSE[called]
    elif not (called.isidentifier() and isinstance(getattr(airgraph.errors, called, None), type)) and called not in (
        "CommandError",
        "UsageProblem",
    ):
        return
    if node.args:
        yield kind, node.args[position]


def _scopes(tree: ast.Module) -> list[ast.AST]:
    """The module and its functions."""
    return [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, but for those of functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from _within(child)


def _texts(given: ast.expr, scope: ast.AST) -> Iterator[str]:
    """What an expression may be, also a variable that the scope gives a text."""
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        yield given.value
    elif isinstance(given, ast.JoinedStr):
        pieces = (str(part.value) if isinstance(part, ast.Constant) else _VARIES for part in given.values)
        yield "".join(pieces)
    elif isinstance(given, ast.IfExp):
        yield from _texts(given.body, scope)
        yield from _texts(given.orelse, scope)
    elif isinstance(given, ast.Name):
        for node in _within(scope):
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == given.id for target in node.targets
            ):
                yield from _texts(node.value, scope)


def _beginning(text: str) -> str:
    """As much of it as tells it from others."""
    while _VARIES * 2 in text:
        text = text.replace(_VARIES * 2, _VARIES)
    pieces = text.split(". ")[0].split(_VARIES)
    taken = pieces.pop(0)
    while pieces and len(taken.removeprefix("airgraph: ").replace(_VARIES, "").strip(_EDGES)) < _TELLING:
        taken += _VARIES + pieces.pop(0)
    return (taken[:_CLAUSE] + re.split(r"[:;,] ", taken[_CLAUSE:])[0]).strip(_EDGES)
