"""The second start of a cache script of TorchAir's: from the model on its device to the first result.

    torchair_starts.py [--starts 9]

The program is torchair_start_program.py, unchanged for all: with TorchAir itself and with airgraph in its place, both
by the real torch_npu on the simulated runtime, and with airgraph on CPU. A first start of each fills its cache; then
they take turns, each start a process of its own. Prints a table and writes
benchmarks/results/torchair-starts-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
from rich.console import Console
from rich.table import Table

_HERE = Path(__file__).resolve().parent
_WAYS = {
    "TorchAir, npu": ["--simulate", "--upstream"],
    "airgraph, npu": ["--simulate"],
    "airgraph, CPU": ["--device", "cpu"],
}


def start(way: str, folder: Path) -> dict[str, Any]:
    """One start of the program, whose caches are in `folder`."""
    command = [sys.executable, "-m", "airgraph_command", "run", *_WAYS[way], str(_HERE / "torchair_start_program.py")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise SystemExit(f"{way}: {done.stderr[-3000:]}")
    line = next(line for line in done.stdout.splitlines() if line.startswith("measured "))
    found: dict[str, Any] = json.loads(line.removeprefix("measured "))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--starts", type=int, default=9, help="of each way, after the one that fills its cache")
    starts = parser.parse_args().starts
    measured = measure.circumstances(starts)
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as name:
        folders = {way: Path(name) / way.replace(", ", "-") for way in _WAYS}
        empty = {}
        for way, folder in folders.items():
            folder.mkdir()
            empty[way] = start(way, folder)
        for number in range(starts):
            ways = list(_WAYS) if number % 2 else list(reversed(_WAYS))
            for way in ways:
                found[way].append(start(way, folders[way]))
    rows = {way: _row(empty[way], each) for way, each in found.items()}
    table = Table("second start", "first result", "quartiles", "all three", "cache empty", "imports Dynamo")
    for way, row in rows.items():
        quartiles_ = f"{row['first_s']['q1']:.3f} to {row['first_s']['q3']:.3f}"
        values = (row["first_s"]["median"], row["all_s"]["median"], row["cache_empty_first_s"])
        first, everything, filling = (f"{value:.3f} s" for value in values)
        table.add_row(way, first, quartiles_, everything, filling, str(row["dynamo"]))
    Console().print(table)
    body = {"measured": measured, "rows": rows}
    print(f"wrote {measure.write_json(_HERE / 'results', 'torchair-starts', [1], body)}")


def _row(empty: dict[str, Any], starts: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"cache_empty_first_s": empty["first_s"], "dynamo": starts[-1]["dynamo"]}
    for name in ("first_s", "all_s"):
        values = [each[name] for each in starts]
        q1, middle, q3 = measure.quartiles(values)
        row[name] = {"median": middle, "q1": q1, "q3": q3, "values": values}
    return row


if __name__ == "__main__":
    main()
