"""Writes the figures of products in docs/kernels.md from the newest JSON of products.py.

python benchmarks/products_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, with_unit, write

PAGE = DOCS / "kernels.md"
WAYS = {
    "fast": '`kernels="fast"`',
    "one place": "read at one place",
    "packed": "with `pack_weights`",
    "exact": '`kernels="exact"`',
    "eager": "eager",
}


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("products")
    rows = [
        (
            row["description"],
            threads,
            *(f"{times[way][0]:.0f}" if way in (times := row["median_q1_q3_us"]) else "" for way in WAYS),
        )
        for threads, cases in record["products"].items()
        for row in cases.values()
    ]
    header = ("one product", "threads", *with_unit("µs", WAYS.values()))
    return block("products", rows, header=header, threads=record["machine"]["simd"])


if __name__ == "__main__":
    write(PAGE, "products", render())
