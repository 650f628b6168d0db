"""Writes the figures of docs/memory.md from the newest JSON of memory.py.

python benchmarks/memory_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, write

PAGE = DOCS / "memory.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("memory")
    sharing, models, captures, checks = (record[name] for name in ("sharing", "models", "captures", "checks"))
    orders = {name: row for name, row in sharing["orders"].items() if name != "not shared"}
    apart = sharing["orders"]["not shared"]["pools_nbytes"]
    alone = sharing["orders"]["not shared"]["sum_of_single_captures_nbytes"]
    arena = {name: row for name, row in record["arena"].items() if name != "measured"}
    ratios = ", ".join(f"{name} {row['ratio']:.3f}" for name, row in orders.items())
    rows = [
        (f"{sharing['description']}, pool against the largest capture", ratios),
        (
            "the same without sharing",
            f"{apart / 1e6:.1f} MB instead of {orders['ascending']['pools_nbytes'] / 1e6:.1f} MB; the sum of captures "
            f"made alone is {alone / 1e6:.1f} MB",
        ),
        (
            models["description"],
            f"{models['ratio']:.3f} of the largest capture; {models['sum_of_captures_nbytes'] / 1e6:.1f} MB apart",
        ),
        (
            f"arena against the lower bound (the most bytes alive at a step), {len(arena)} models",
            f"at most {max(row['arena_ratio'] for row in arena.values()):.3f}",
        ),
        (
            f"{captures['captures']} captures, {captures['description']}",
            f"{captures['elapsed_s']:.1f} s for {captures['nodes']} calls each; "
            f"{captures['pools_nbytes'] / 1e6:.1f} MB instead of {captures['sum_of_captures_nbytes'] / 1e6:.0f} MB",
        ),
        (
            "workload b, a call with all checks, copies and outputs against the tape alone",
            f"{checks['ratio_with_all_checks']:.3f}",
        ),
        ("comparing 100 addresses", f"{checks['us_for_100_addresses']:.2f} µs"),
        ("looking whether an output is held", _ns(checks["ns_an_output_not_held"])),
    ]
    return block("memory", rows)


def _ns(value: float) -> str:
    return f"{value:.0f} ns" if value >= 1 else "less than 1 ns"


if __name__ == "__main__":
    write(PAGE, "memory", render())
