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
    rows = [(name, *(state(result) for result in results.values())) for name, results in architectures.items()]
    noted: dict[tuple[str, str], list[str]] = {}
    for name, results in architectures.items():
        for kind, result in results.items():
            if text := note(result):
                noted.setdefault((kind, text), []).append(name)
    notes = "\n".join(f"- {', '.join(names)} with {kind}: {text}" for (kind, text), names in noted.items())
    return block("architectures", rows, header=("architecture", *kinds), more=[notes] if notes else [])


def state(result: dict[str, Any]) -> str:
    if result["raised"] is not None:
        return "fails"
    if not result["right"]:
        return "WRONG RESULTS"
    if not result["cached"]:
        return "not cached"
    if result["refused"] is not None:
        return "some calls cached"
    return "cached" if result["read_again"] else "traced again"


def note(result: dict[str, Any]) -> str:
    """What the state leaves open."""
    if (reason := result["raised"] or result["refused"]) is not None:
        return quoted(reason)
    return "" if result["cached"] == 1 else f"{result['cached']} graphs"


def quoted(reason: str) -> str:
    """Its beginning as code, so that nothing of it is taken for Markdown."""
    plain = reason.replace("`", "'").replace("|", "\\|")
    return f"`{textwrap.shorten(plain, REASON_CHARACTERS, placeholder=' ...')}`"


if __name__ == "__main__":
    write(PAGE, "architectures", render())
