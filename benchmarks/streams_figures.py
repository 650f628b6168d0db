"""Writes the figures of streams in docs/streams.md from the newest JSON of streams.py.

python benchmarks/streams_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, write

PAGE = DOCS / "streams.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("streams")
    rows = []
    for name, found in record["stacks"].items():
        what = name if name.startswith("mixture") else f"two stacks of four Linear, {name}"
        medians = (f"{row['median_us']:.1f}" for row in found["rows"].values())
        rows.append((what, *medians, f"{found['to_one_stream']:.2f}", f"{found['to_two_threads']:.2f}"))
    header = (
        "µs a replay",
        "two streams",
        "one stream",
        "one stream, 2 threads",
        "times one stream",
        "times 2 threads",
    )
    cost = record["fork_and_join"]
    nothing = ("", "", "", "", "")
    rows += [
        (f"a fork and a join, hot: {cost['hot_us']:.2f} µs more", *nothing),
        (f"the same beside 4 µs of work: {cost['beside_work']['more_us']:.2f} µs more", *nothing),
        (f"after idling: {cost['after_idling_us']['median']:.1f} µs more", *nothing),
        (f"with all cores kept busy by others: {cost['on_busy_cores_us']['median']:.2f} µs more", *nothing),
        (
            "two threads with products of their own: what the machine allows",
            *nothing[:3],
            f"{record['independent_threads']:.2f}",
            "",
        ),
    ]
    return block("streams", rows, header=header, threads="two cores")


if __name__ == "__main__":
    write(PAGE, "streams", render())
