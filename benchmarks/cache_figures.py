"""Writes the figures of docs/cache.md from the newest JSON of cache.py.

python benchmarks/cache_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, with_unit, write

PAGE = DOCS / "cache.md"
WAYS = {
    "airgraph, cache filled": "from the cache",
    "airgraph": "traced by torch.compile",
    "Inductor, caches filled": "Inductor with its caches filled",
}


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("cache")
    rows = []
    for result in record["workloads"].values():
        seconds = {way: row["median_s"] for way, row in result["starts"].items()}
        times = (f"{seconds[way]:.2f}" for way in WAYS)
        rows.append((result["description"], *times, f"{result['file_nbytes'] / 1e3:.0f}"))
    header = ("first result after a start", *with_unit("s", WAYS.values()), "file in the cache, kB")
    return block("cache", rows, header=header)


if __name__ == "__main__":
    write(PAGE, "cache", render())
