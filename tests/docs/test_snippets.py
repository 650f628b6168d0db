"""The examples on these pages are whole programs, and run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

_DOCS = Path(__file__).parents[2] / "docs"
_SNIPPETS = [
    pytest.param(code, id=f"{page}-{number}")
    for page in ("memory", "passes", "kernels")
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", (_DOCS / f"{page}.md").read_text(), re.M | re.S))
]


@pytest.mark.parametrize("code", _SNIPPETS)
def test_an_example_runs_as_it_stands(code: str) -> None:
    names: dict[str, object] = {"__name__": "example"}
    try:
        exec(compile(code, "example.py", "exec"), names)
    finally:
        torch._dynamo.reset()
        if "undo" in names:
            names["undo"]()  # type: ignore[operator]
