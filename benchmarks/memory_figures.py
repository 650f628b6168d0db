"""Writes the figures of docs/memory.md from the newest JSON of memory.py.

python benchmarks/memory_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, paragraph, write

PAGE = DOCS / "memory.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("memory")
    sharing, models, captures, checks = (record[name] for name in ("sharing", "models", "captures", "checks"))
    orders = {name: row for name, row in sharing["orders"].items() if name != "not shared"}
    apart = sharing["orders"]["not shared"]["pools_nbytes"]
    arena = {name: row for name, row in record["arena"].items() if name != "measured"}
    shared = [
        *((f"{sharing['description']}, {order}", row["pools_nbytes"], row, apart) for order, row in orders.items()),
        (models["description"], models["pool_nbytes"], models, models["sum_of_captures_nbytes"]),
        (
            f"{captures['captures']} captures, {captures['description']}",
            captures["pools_nbytes"],
            captures,
            captures["sum_of_captures_nbytes"],
        ),
    ]
    rows = [
        (
            what,
            _megabytes(pool),
            _megabytes(row["largest_capture_nbytes"]),
            f"{pool / row['largest_capture_nbytes']:.3f}",
            _megabytes(separate),
        )
        for what, pool, row, separate in shared
    ]
    header = ("graphs of one pool", "the pool, MB", "largest capture, MB", "pool / largest", "without sharing, MB")
    costs = paragraph(
        f"The arenas of {len(arena)} models take at most {max(row['arena_ratio'] for row in arena.values()):.3f} times "
        f"their lower bound, the most bytes alive at a step. The {captures['captures']} captures, of "
        f"{captures['nodes']} calls each, took {captures['elapsed_s']:.1f} s. A call of workload b with all checks, "
        f"copies and outputs takes {checks['ratio_with_all_checks']:.3f} times as long as its tape alone; comparing "
        f"100 addresses takes {checks['us_for_100_addresses']:.2f} µs, and looking whether an output is held "
        f"{_ns(checks['ns_an_output_not_held'])}."
    )
    return block("memory", rows, header=header, more=(costs,))


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f}"


def _ns(value: float) -> str:
    return f"{value:.0f} ns" if value >= 1 else "less than 1 ns"


if __name__ == "__main__":
    write(PAGE, "memory", render())
