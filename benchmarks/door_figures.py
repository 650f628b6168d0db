"""Writes the figures of a cached call's checks in docs/cache.md from the newest JSON of door.py.

python benchmarks/door_figures.py
"""

from __future__ import annotations

from typing import Any

from figures import DOCS, block, newest_record, table, with_unit, write

PAGE = DOCS / "cache.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("door")
    rows = (
        (
            row["description"],
            f"{row['conditions']}",
            *(f"{row[what]['median_us']:.1f}" for what in ("door", "door_alone", "replay")),
        )
        for row in record["door"].values()
    )
    header = (
        "a cached call",
        "guards",
        *with_unit("µs", ("besides its replay", "the same where the graph answers at once", "its replay")),
    )
    return block("door", rows, header=header, more=(_starts(record["smollm2_starts"]), _readings(record["readings"])))


def _starts(starts: dict[str, Any]) -> str:
    rows = (
        (what, f"{starts[key]['median_ms']:.0f}")
        for key, what in (
            ("first_call", "the first call"),
            ("capture", "the capture within it"),
            ("capture_processor", "processor time of that capture"),
        )
    )
    return table(("a start from files: decode step of SmolLM2-135M", "ms"), rows)


def _readings(readings: list[dict[str, Any]]) -> str:
    """A row a kind of difference, a column a number of configurations."""
    times = {(row["difference"], row["configurations"]): f"{row['median_ms']:.1f}" for row in readings}
    differences, counts = (list(dict.fromkeys(each)) for each in zip(*times, strict=True))
    columns = ["alone in its folder" if count == 1 else f"among {count} of its class" for count in counts]
    return table(
        ("a first call that reads its file; configurations differ by", *with_unit("ms", columns)),
        ((difference, *(times[difference, count] for count in counts)) for difference in differences),
    )


if __name__ == "__main__":
    write(PAGE, "door", render())
