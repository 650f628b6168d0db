"""Writes the figures of a cached call's checks in docs/cache.md from the newest JSON of door.py.

python benchmarks/door_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, write

PAGE = DOCS / "cache.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("door")
    rows = [
        (
            f"{row['description']}, {row['conditions']} guards: a call beside its replay",
            f"{row['door']['median_us']:.1f} µs, or {row['door_alone']['median_us']:.1f} µs where the graph answers at "
            f"once; "
            f"the replay {row['replay']['median_us']:.1f} µs",
        )
        for row in record["door"].values()
    ]
    starts = record["smollm2_starts"]
    rows += [
        (
            f"SmolLM2-135M, a decode step: {what} of a start from files",
            f"{starts[key]['median_ms']:.0f} ms",
        )
        for key, what in (
            ("first_call", "the first call"),
            ("capture", "the capture within the first call"),
            ("capture_processor", "time of the processor in the capture"),
        )
    ]
    rows += [
        (
            "a first call that reads its file, "
            + ("alone in its folder" if count == 1 else f"among {count} configurations of its class")
            + f" (they differ by {row['difference']})",
            f"{row['median_ms']:.1f} ms",
        )
        for row in record["readings"]
        for count in (row["configurations"],)
    ]
    return block("door", rows)


if __name__ == "__main__":
    write(PAGE, "door", render())
