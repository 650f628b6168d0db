"""Blocks of figures in the pages of docs/, written from the newest JSON of a benchmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from result_tables import newest

__all__ = ["DOCS", "END", "block", "newest_record", "write"]

DOCS = Path(__file__).resolve().parent.parent / "docs"
END = "<!-- end of figures -->"


def newest_record(name: str) -> tuple[Path, dict[str, Any]]:
    path = newest(name)
    assert path is not None
    return path, json.loads(path.read_text(encoding="utf-8"))


def block(
    name: str,
    rows: Sequence[tuple[str, ...]],
    *,
    header: tuple[str, ...] = ("what", "measured"),
    threads: str = "one thread",
    part: str = "",
) -> str:
    """What was measured by benchmarks/NAME.py, as a table with its circumstances between markers.

    part: of several tables of one benchmark.
    """
    path, record = newest_record(name)
    cpu, torch = record["machine"]["cpu"], record["versions"]["torch"]
    lines = [
        _begin(name, part),
        f"Measured {record['date'][:10]} on {cpu}, torch {torch}, {threads}:",
        f"[{path.name}](../benchmarks/results/{path.name}); `python benchmarks/{name}.py` repeats it.",
        "",
        f"| {' | '.join(header)} |",
        "|---" * len(header) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
        END,
    ]
    return "\n".join(lines)


def write(page: Path, name: str, rendered: str, part: str = "") -> None:
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(_begin(name, part))
    page.write_text(before + rendered + rest.split(END, 1)[1], encoding="utf-8")


def _begin(name: str, part: str) -> str:
    return f"<!-- figures: written by benchmarks/{name}_figures.py{f': {part}' if part else ''} -->"
