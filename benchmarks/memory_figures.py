"""Writes the figures of docs/memory.md from the newest JSON of memory.py.

python benchmarks/memory_figures.py
"""

from __future__ import annotations

import json
from pathlib import Path

from readme_table import newest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "memory.md"
BEGIN, END = "<!-- figures: written by benchmarks/memory_figures.py -->", "<!-- end of figures -->"


def render() -> str:
    """The block of figures, with its markers."""
    path = newest("memory")
    assert path is not None
    record = json.loads(path.read_text(encoding="utf-8"))
    sharing, models, captures, checks = (record[name] for name in ("sharing", "models", "captures", "checks"))
    cpu, torch = record["machine"]["cpu"], record["versions"]["torch"]
    orders = {name: row for name, row in sharing["orders"].items() if name != "not shared"}
    apart = sharing["orders"]["not shared"]["pools_nbytes"]
    alone = sharing["orders"]["not shared"]["sum_of_single_captures_nbytes"]
    arena = {name: row for name, row in record["arena"].items() if name != "measured"}
    ratios = ", ".join(f"{name} {row['ratio']:.3f}" for name, row in orders.items())
    lines = [
        BEGIN,
        f"Measured {record['date'][:10]} on {cpu}, torch {torch}, one thread:",
        f"[{path.name}](../benchmarks/results/{path.name}); `python benchmarks/memory.py` repeats it.",
        "",
        "| what | measured |",
        "|---|---|",
        f"| {sharing['description']}, pool against the largest capture | {ratios} |",
        f"| the same without sharing | {apart / 1e6:.1f} MB instead of "
        f"{orders['ascending']['pools_nbytes'] / 1e6:.1f} MB; the sum of captures made alone is {alone / 1e6:.1f} MB |",
        f"| {models['description']} | {models['ratio']:.3f} of the largest capture; "
        f"{models['sum_of_captures_nbytes'] / 1e6:.1f} MB apart |",
        f"| arena against the lower bound (the most bytes alive at a step), {len(arena)} models | at most "
        f"{max(row['arena_ratio'] for row in arena.values()):.3f} |",
        f"| {captures['captures']} captures, {captures['description']} | {captures['elapsed_s']:.1f} s for "
        f"{captures['nodes']} calls each; {captures['pools_nbytes'] / 1e6:.1f} MB instead of "
        f"{captures['sum_of_captures_nbytes'] / 1e6:.0f} MB |",
        f"| workload b, a call with all checks, copies and outputs against the tape alone | "
        f"{checks['ratio_with_all_checks']:.3f} |",
        f"| comparing 100 addresses | {checks['us_for_100_addresses']:.2f} µs |",
        f"| looking whether an output is held | {_ns(checks['ns_an_output_not_held'])} |",
        END,
    ]
    return "\n".join(lines)


def _ns(value: float) -> str:
    return f"{value:.0f} ns" if value >= 1 else "less than 1 ns"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + render() + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
