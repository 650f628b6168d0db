"""Writes the figures of docs/cache.md from the newest JSON of cache.py.

python benchmarks/cache_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, write

PAGE = DOCS / "cache.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("cache")
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
    return block("cache", rows)


if __name__ == "__main__":
    write(PAGE, "cache", render())
