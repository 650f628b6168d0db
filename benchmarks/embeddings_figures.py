"""Writes the figures of an embedding server in docs/kernels.md from the newest JSON of embeddings.py.

python benchmarks/embeddings_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, write

PAGE = DOCS / "kernels.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("embeddings")
    rows = [
        (
            name,
            threads,
            f"{row['requests_per_s']:.0f}",
            f"{row['q1_us'] / 1e3:.2f}",
            f"{row['q3_us'] / 1e3:.2f}",
            f"{row['peak_nbytes'] / 2**20:.0f}",
        )
        for threads, contenders in record["embeddings"].items()
        for name, row in contenders.items()
    ]
    header = (
        "all-MiniLM-L6-v2, 32 lengths",
        "threads",
        "requests/s",
        "a request, first quartile, ms",
        "third quartile, ms",
        "peak memory of the process, MiB",
    )
    return block("embeddings", rows, header=header, threads="one request at a time")


if __name__ == "__main__":
    write(PAGE, "embeddings", render())
