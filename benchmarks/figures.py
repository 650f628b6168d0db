"""Blocks of figures in the pages of docs/, written from the newest JSON of a benchmark."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["DOCS", "END", "begin", "block", "newest_record", "paragraph", "table", "with_unit", "write"]

DOCS = Path(__file__).resolve().parent.parent / "docs"
END = "<!-- end of figures -->"
# Of a line of a page.
WIDTH = 128


def newest_record(name: str, section: str = "") -> tuple[Path, dict[str, Any]]:
    """section: which the record has, since a run may leave some out."""
    for path in sorted((DOCS.parent / "benchmarks" / "results").glob(f"{name}-*.json"), reverse=True):
        record = json.loads(path.read_text(encoding="utf-8"))
        if not section or section in record:
            return path, record
    raise FileNotFoundError(f"no result of {name} {section}")


def block(
    name: str,
    rows: Iterable[Sequence[str]],
    *,
    header: Sequence[str],
    threads: str = "one thread",
    part: str = "",
    section: str = "",
    more: Iterable[str] = (),
) -> str:
    """What was measured by benchmarks/NAME.py, as a table with its circumstances between markers.

    part, section: of several blocks of one benchmark, and what the record must have.
    more: tables and paragraphs that follow.
    """
    path, record = newest_record(name, section)
    cpu, torch = record["machine"]["cpu"], record["versions"]["torch"]
    lines = [
        begin(name, part),
        f"Measured {record['date'][:10]} on {cpu}, torch {torch}, {threads}:",
        f"[{path.name}](../benchmarks/results/{path.name}); `python benchmarks/{name}.py` repeats it.",
        "",
        "\n\n".join([table(header, rows), *more]),
        END,
    ]
    return "\n".join(lines)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Of one value a cell, whose unit the header says."""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def with_unit(unit: str, names: Iterable[str]) -> tuple[str, ...]:
    """Headers of columns of one unit."""
    return tuple(f"{name}, {unit}" for name in names)


def paragraph(text: str) -> str:
    """In lines of the page's width; code stays in one piece."""
    whole = re.sub("`[^`]+`", lambda code: code[0].replace(" ", "\0"), text)
    return textwrap.fill(whole, WIDTH, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def write(page: Path, name: str, rendered: str, part: str = "") -> None:
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(begin(name, part))
    page.write_text(before + rendered + rest.split(END, 1)[1], encoding="utf-8")


def begin(name: str, part: str) -> str:
    """The marker that a block begins with."""
    return f"<!-- figures: written by benchmarks/{name}_figures.py{f': {part}' if part else ''} -->"
