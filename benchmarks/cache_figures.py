"""Writes the figures of docs/cache.md from the newest JSON of cache.py, replay.py and door.py.

python benchmarks/cache_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, write

PAGE = DOCS / "cache.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("cache")
    _, replay = newest_record("replay")
    _, door = newest_record("door")
    calls = replay["workloads"]["1"]
    rows = []
    for result in record["workloads"].values():
        seconds = {way: row["median_s"] for way, row in result["starts"].items()}
        cached, inductor = seconds["airgraph, cache filled"], seconds["Inductor, caches filled"]
        rows.append(
            (
                f"{result['description']}: first result after a start",
                f"{cached:.2f} s from the cache ({result['file_nbytes'] / 1e3:.0f} kB); traced by torch.compile "
                f"{seconds['airgraph']:.2f} s; Inductor with its caches filled {inductor:.2f} s",
            )
        )
    rows += [
        (
            f"{result['description']}: a call",
            f"{result['contenders']['airgraph, cached']['median_us']:.1f} µs; through torch.compile "
            f"{result['contenders']['airgraph']['median_us']:.1f} µs",
        )
        for result in calls.values()
    ]
    rows += [
        (
            f"{row['description']}, {row['conditions']} conditions: a call beside its replay",
            f"{row['door_us']:.1f} µs; the replay {row['replay']['median_us']:.1f} µs",
        )
        for row in door["door"].values()
    ]
    rows += [
        (
            f"a first call that reads its file, {count} configuration{'s' * (count != '1')} of its class in the folder",
            f"{row['median_ms']:.1f} ms",
        )
        for count, row in door["readings"].items()
    ]
    return block("cache", rows)


if __name__ == "__main__":
    write(PAGE, "cache", render())
