"""Writes the figures of docs/passes.md from the newest JSON of passes.py.

python benchmarks/passes_figures.py
"""

from __future__ import annotations

from figures import DOCS, block, newest_record, paragraph, write

PAGE = DOCS / "passes.md"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("passes")
    cache, compiling, cats = record["cache"], record["compile"], record["cats"]
    arenas = {name: row for name, row in record["arenas"].items() if name != "measured"}
    copied = {name: cache["captures"][name]["copied_nbytes_a_call"] for name in ("on", "off")}
    smaller = [1 - row["on"] / row["off"] for row in arenas.values() if row["off"]]
    timings = [
        (cache["description"], "input_inplace_pass", cache["timings"]),
        *((name, "remove_cat_ops", row["timings"]) for name, row in cats.items() if name != "measured"),
    ]
    rows = []
    for what, name, timing in timings:
        on, off = (timing[way]["median_us"] for way in ("on", "off"))
        rows.append((what, f"`{name}`", f"{on:.1f}", f"{off:.1f}", f"{off / on:.2f}"))
    header = ("case", "pass", "with the pass, µs a call", "without it, µs a call", "times as fast")
    rest = paragraph(
        f"With `input_inplace_pass` the decode step copies {copied['on'] / 1e3:.0f} kB a call instead of "
        f"{copied['off'] / 1e6:.0f} MB, and is {cache['speedup_over_eager']:.2f} times as fast as eager. With "
        f"`inplace_pass` the arenas of {len(arenas)} models are {100 * min(smaller):.0f} to {100 * max(smaller):.0f}% "
        f"smaller. All passes take {100 * compiling['share']:.1f}% of the {compiling['whole_s']:.1f} s of the "
        f"{compiling['description']}."
    )
    return block("passes", rows, header=header, more=(rest,))


if __name__ == "__main__":
    write(PAGE, "passes", render())
