"""Writes the figures of streams in docs/streams.md from the newest JSON of streams.py.

python benchmarks/streams_figures.py
"""

from __future__ import annotations

import json

from figures import DOCS, END, begin, block, newest_record, paragraph, table, with_unit, write

PAGE = DOCS / "streams.md"
_ONE_STREAM = "one stream"
# Results of commits.py against the last commit before streams: the oldest is of the commit that brought them.
_AGAINST = "commits-bd83bfb"
_QUARTILES = (", first quartile", ", third quartile")
_DOORS = {"cached": "compile cache", "compiled": "`torch.compile`"}


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("streams")
    rows = []
    for name, found in record["stacks"].items():
        what = name if name.startswith("mixture") else f"two stacks of four Linear, {name}"
        if found["threads"] == 1:
            what += " (run on one stream)"
        medians = (f"{row['median_us']:.1f}" for row in found["rows"].values())
        # What runs on one stream gains nothing of streams.
        gain = f"{found['to_one_stream']:.2f}" if found["threads"] > 1 else "–"
        rows.append((what, *medians, gain, f"{found['to_two_threads']:.2f}"))
    header = (
        "a replay",
        *with_unit("µs", ("two streams", "one stream", "one stream with 2 threads")),
        "times as fast as one stream",
        "times as fast as one stream with 2 threads",
    )
    cost = record["fork_and_join"]
    hot, idle, busy = cost["hot_us"], cost["after_idling_us"], cost["on_busy_cores_us"]
    costs = (
        f"A fork and a join with nothing to do beside cost {hot:.2f} µs when hot, {idle['median']:.1f} µs "
        f"after idling, and {busy['median']:.2f} µs while others keep all cores busy (medians); the slowest call took "
        f"{idle['most']:.0f} µs after idling and {busy['most']:.0f} µs on busy cores."
    )
    if "beside_work" in cost:
        costs += (
            f" The two stacks of width 64 on two streams take {cost['beside_work']['more_us']:.2f} µs longer than one "
            "of them alone: work beside makes both slower."
        )
    if cost.get("hand_off_ns"):
        fastest, slowest = (choose(median for _, median, _ in cost["hand_off_ns"]) / 1000 for choose in (min, max))
        span = f"{fastest:.2f}" if slowest - fastest < 0.005 else f"{fastest:.2f} to {slowest:.2f}"
        costs += (
            f" Between the two cores of this machine a number there and one back take {span} µs; a fork and a join are "
            "these two, and what the other stream reads and writes goes the same ways."
        )
    return block("streams", rows, header=header, threads="two cores", more=(paragraph(costs),))


def render_one_stream() -> str:
    """What streams cost a graph that has none of its own, with its markers."""
    paths = sorted((DOCS.parent / "benchmarks" / "results").glob(f"{_AGAINST}-*.json"))
    first, last = (json.loads(paths[place].read_text(encoding="utf-8")) for place in (0, -1))
    rows = []
    for workload in ("a", "b", "c"):
        for door, called in _DOORS.items():
            ratios = [each["commits"]["rows"][f"{workload}, {door}"]["ratio_of_neighbours"] for each in (first, last)]
            cells = (f"{ratio[of]:.2f}" for ratio in ratios for of in ("median", "q1", "q3"))
            rows.append((f"{workload}, {called}", *cells))
    columns = (f"{what}{of}" for what in ("with streams", "with all since") for of in ("", *_QUARTILES))
    header = ("a call on one stream, times as long as before streams", *columns)
    files = [f"[{paths[place].name}](../benchmarks/results/{paths[place].name})" for place in (0, -1)]
    said = (
        "Workloads [a, b and c](results.md) on one stream, beside the commit before streams: the commit that let "
        f"streams run beside one another on the CPU, on {first['machine']['cpu']} ({files[0]}), and one of "
        f"{last['date'][:10]} with what else has changed, on {last['machine']['cpu']} ({files[1]}); blocks of calls by "
        "turns, `python benchmarks/commits.py` repeats it."
    )
    return "\n".join([begin("streams", _ONE_STREAM), paragraph(said), "", table(header, rows), END])


if __name__ == "__main__":
    write(PAGE, "streams", render())
    write(PAGE, "streams", render_one_stream(), _ONE_STREAM)
