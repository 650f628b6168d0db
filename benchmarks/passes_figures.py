"""Writes the figures of docs/passes.md from the newest JSON of passes.py.

python benchmarks/passes_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, write

PAGE = DOCS / "passes.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("passes")
    cache, compiling, cats = record["cache"], record["compile"], record["cats"]
    arenas = {name: row for name, row in record["arenas"].items() if name != "measured"}
    copied = {name: cache["captures"][name]["copied_nbytes_a_call"] for name in ("on", "off")}
    smaller = [1 - row["on"] / row["off"] for row in arenas.values() if row["off"]]
    rows = [
        (
            f"{cache['description']}: with `input_inplace_pass` against without",
            f"{cache['speedup_over_off']:.1f} times as fast ({cache['speedup_over_eager']:.2f} times eager); "
            f"copied a call: {copied['on'] / 1e3:.0f} kB instead of {copied['off'] / 1e6:.0f} MB",
        ),
        (
            f"arena with `inplace_pass` against without, {len(arenas)} models",
            f"{100 * min(smaller):.0f} to {100 * max(smaller):.0f}% smaller",
        ),
        *(
            (
                f"{name}: with `remove_cat_ops` against without",
                f"{row['timings']['on']['median_us']:.1f} µs instead of {row['timings']['off']['median_us']:.1f} µs",
            )
            for name, row in cats.items()
            if name != "measured"
        ),
        (
            f"{compiling['description']}: time in passes",
            f"{100 * compiling['share']:.1f}% of {compiling['whole_s']:.1f} s",
        ),
    ]
    return block("passes", rows)


if __name__ == "__main__":
    write(PAGE, "passes", render())
