"""Writes the figures of small kernels in docs/kernels.md from the newest JSON of small_kernels.py.

python benchmarks/small_kernels_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, with_unit, write

PAGE = DOCS / "kernels.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("small_kernels")
    rows = [
        (row["description"], *(f"{row['median_q1_q3_us'][name][0]:.2f}" for name in ("fast", "exact", "eager")))
        for row in record["small_kernels"].values()
    ]
    header = ("one operator", *with_unit("µs", ('`kernels="fast"`', '`kernels="exact"`', "eager")))
    return block("small_kernels", rows, header=header)


if __name__ == "__main__":
    write(PAGE, "small_kernels", render())
