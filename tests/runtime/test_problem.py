"""What the engine may say of a call is what Python has names for."""

import re
from pathlib import Path

import pytest

from airgraph.runtime.problem import ProblemKind

_SOURCES = Path(__file__).parents[2] / "csrc"


def test_the_engine_has_the_same_kinds() -> None:
    if not _SOURCES.is_dir():
        pytest.skip("not a checkout")
    (declared,) = re.findall(
        r"enum class Kind \{(.*?)\n  \};", (_SOURCES / "engine" / "inputs.h").read_text(), re.DOTALL
    )
    kinds = re.findall(r"(\w+)", re.sub(r"//.*", "", declared))
    names = re.findall(
        r"case Problem::Kind::(\w+):\s*return \"(\w+)\";", (_SOURCES / "python" / "launches.cpp").read_text()
    )
    assert sorted(each.name for each in ProblemKind) == sorted(kind.upper() for kind in kinds)
    assert sorted(names) == sorted((kind, kind.upper()) for kind in kinds)
