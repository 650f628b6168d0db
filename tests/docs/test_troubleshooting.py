"""Every warning, error and reason that a user may meet is in docs/troubleshooting.md."""

import ast
from pathlib import Path

import pytest
from messages import Message, messages, messages_of_the_engine

import airgraph

_ROOT = Path(__file__).parents[2]
_PAGE = " ".join((_ROOT / "docs" / "troubleshooting.md").read_text().split())
# What is said of a file that airgraph has not written: one row of the page is for all of it.
_MALFORMED = ("cache/format/", "cache/checking/", "cache/entry.py")
# What only a fault of this package brings out.
_OF_FAULTS = {
    "a segment waits for what is not there",
    "a stream without segments",
    "is missing or no tensor",
    "bytes does not fit a buffer of",
    "a call does not fit its schema",
}
_OF_FILES = ("CacheError", "CannotCapture")


def _missing(kept: list[Message]) -> list[str]:
    return [f"{each.path}: {each.kind}: {each.beginning}" for each in kept if each.beginning not in _PAGE]


def test_every_warning_is_explained() -> None:
    warned = [each for each in messages() if each.kind == "warning"]
    assert len(warned) >= 13
    assert not _missing(warned)


def test_every_error_and_every_reason_is_explained() -> None:
    met = [
        each
        for each in messages()
        if not (each.kind in _OF_FILES and each.path.startswith(_MALFORMED))
        # Its class tells what to do.
        and each.kind != "InternalError"
    ]
    assert len(met) >= 150
    assert not _missing(met)


def test_what_the_engine_says_is_explained() -> None:
    said = list(messages_of_the_engine(_ROOT / "csrc"))
    assert {each.beginning for each in said} >= _OF_FAULTS
    met = [each for each in said if each.beginning not in _OF_FAULTS]
    assert len(met) >= 5
    assert not _missing(met)


def test_every_class_of_errors_is_explained() -> None:
    declared = vars(airgraph.errors).values()
    classes = [each for each in declared if isinstance(each, type) and issubclass(each, airgraph.errors.AirgraphError)]
    assert not [each.__name__ for each in classes if f"| `{each.__name__}` |" not in _PAGE]


def test_what_the_build_says_is_explained() -> None:
    tree = ast.parse((_ROOT / "setup.py").read_text())
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    said = [node.args[0] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "SystemExit"]
    texts = [str(each.value).split(". ")[0] for each in said if isinstance(each, ast.Constant)]
    assert texts and not [text for text in texts if text not in _PAGE]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('warnings.warn(f"airgraph: {a} is slow: {b}. Do that.")', "airgraph: … is slow"),
        (
            'def f(self):\n    text = f"{a}: too many, such as {b}"\n    self.warn_once("many", text)',
            "…: too many, such as",
        ),
        ('OptionError("option is wrong. Give another.")', "option is wrong"),
    ],
)
def test_what_is_found(text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program").mkdir()
    for name in ("support.py", "host_reads.py"):
        (tmp_path / "program" / name).write_text("")
    (tmp_path / "module.py").write_text(text)
    monkeypatch.setattr("messages._PACKAGE", tmp_path)
    assert [each.beginning for each in messages()] == [expected]
