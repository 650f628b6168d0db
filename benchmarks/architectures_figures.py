"""Writes the table of architectures in docs/cache.md from the newest JSON of architectures.py.

python benchmarks/architectures_figures.py
"""

from __future__ import annotations

import textwrap
from typing import Any

from figures import DOCS, block, newest_record, write

PAGE = DOCS / "cache.md"
# Less than the record keeps, so that no word is cut.
REASON_CHARACTERS = 155


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("architectures")
    architectures = record["architectures"]
    kinds = list(next(iter(architectures.values())))
    rows = [(name, *(cell(result) for result in results.values())) for name, results in architectures.items()]
    return block("architectures", rows, header=("architecture", *kinds))


def cell(result: dict[str, Any]) -> str:
    if result["raised"] is not None:
        return f"fails: {quoted(result['raised'])}"
    wrong = "" if result["right"] else "WRONG RESULTS; "
    if not result["cached"]:
        return f"{wrong}not cached: {quoted(result['refused'])}"
    if result["refused"] is not None:
        return f"{wrong}cached, some calls not: {quoted(result['refused'])}"
    if not result["read_again"]:
        return f"{wrong}cached, but traced again at the next start"
    return f"{wrong}cached" if result["cached"] == 1 else f"{wrong}cached, {result['cached']} graphs"


def quoted(reason: str) -> str:
    """Its beginning as code, so that nothing of it is taken for Markdown."""
    plain = reason.replace("`", "'").replace("|", "\\|")
    return f"`{textwrap.shorten(plain, REASON_CHARACTERS, placeholder=' ...')}`"


if __name__ == "__main__":
    write(PAGE, "architectures", render())
