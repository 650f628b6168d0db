"""docs/cache_format.md as tests read it: its text, its tables, and the names in them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["PAGE", "names", "tables"]

PAGE = (Path(__file__).parents[2] / "docs" / "cache_format.md").read_text()


def tables(section: str) -> list[list[list[str]]]:
    """The tables under a heading, as cells, without their heads."""
    text = re.split(rf"^##+ {section}$", PAGE, flags=re.MULTILINE)[1]
    text = re.split(r"^##", text, flags=re.MULTILINE)[0]
    found = re.findall(r"^\|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in table.splitlines()] for table in found]


def names(section: str, table: int = 0, column: int = 0) -> list[str]:
    cells = [row[column] for row in tables(section)[table]]
    return [re.match(r"`([^`]+)`", cell)[1] for cell in cells if cell]  # type: ignore[index]
