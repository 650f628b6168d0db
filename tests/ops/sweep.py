"""Sweeps PyTorch's own operator samples: every capture equals eager, or falls back by name.

    python -m tests.ops.sweep [--samples N] [--only TEXT] [--write docs/operators.md]

Operators run in a child process that says what it begins, so that a segmentation fault has a name.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

_FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
sys.path[:0] = _FOLDERS

from fork_server import Forked, Server  # noqa: E402
from samples import DTYPES, Kind, Outcome, operators, outcomes  # noqa: E402
from table import table  # noqa: E402

__all__ = ["ALL_SAMPLES", "failures", "run", "say", "sweep"]

ALL_SAMPLES = 1_000_000
# PyTorch's descriptions of operators take ten seconds to import.
_SERVER = Server(f"""
import gc, sys, warnings
sys.path[:0] = {_FOLDERS!r}
import torch
from samples import operators
torch.set_num_threads(1)
warnings.simplefilter("ignore")
operators()
gc.freeze()
""")


def sweep(
    names: Sequence[str] | slice, samples: int, dtypes: Sequence[str] = DTYPES, dies_at: str = ""
) -> Iterator[Outcome]:
    """Outcomes of up to `samples` samples of each operator and dtype. A child that dies is a CRASH, and replaced.

    names: or which of all operators. dies_at: the operator at which the child dies, for the test of the sweep itself.
    """
    if isinstance(names, slice):
        with _forked("from samples import operators; say(list(operators()))") as (_, said):
            names = next(said)[names]
    left = [(name, dtype) for name in names for dtype in dtypes]
    while left:
        with _forked(f"run({left!r}, {samples}, {dies_at!r})") as (child, said):
            for line in said:
                if line is None:
                    del left[0]
                else:
                    *fields, kind, detail = line
                    yield Outcome(*fields, Kind(kind), detail)
            code = child.wait()
        if left:
            yield Outcome(*left.pop(0), -1, Kind.CRASH, f"the process died with status {code}")


def run(asked: Iterable[tuple[str, str]], samples: int, dies_at: str) -> None:
    """Say the outcomes of operators and dtypes, and at the end of each that it is done."""
    for name, dtype in asked:
        if name == dies_at:
            os.abort()
        for o in outcomes(name, dtype, samples):
            say([o.operator, o.dtype, o.sample, o.kind.value, o.detail])
        say(None)


def say(what: object) -> None:
    """To the process that has asked for it: a line."""
    print(json.dumps(what), flush=True)


@contextlib.contextmanager
def _forked(statement: str) -> Iterator[tuple[Forked, Iterator[Any]]]:
    """A process that executes this with the names of this module, and what it says."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as said, open(os.devnull) as nothing:
        with os.fdopen(writing, "w") as stdout:
            child = Forked(_SERVER, f"from sweep import *; {statement}", nothing, stdout, sys.__stderr__)
        with child:
            yield child, map(json.loads, said)


def failures(found: Iterable[Outcome]) -> list[str]:
    """One line an outcome that must not be."""
    bad = (Kind.MISMATCH, Kind.CRASH)
    return [f"{o.kind.value} {o.operator} {o.dtype} sample {o.sample}: {o.detail}" for o in found if o.kind in bad]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=ALL_SAMPLES, help="samples an operator and dtype")
    parser.add_argument("--only", default="", help="operators whose name contains this text")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, help="names of torch dtypes")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table of counts")
    options = parser.parse_args()
    found = []
    names = [name for name in operators() if options.only in name]
    for outcome in sweep(names, options.samples, options.dtypes):
        found.append(outcome)
        for line in failures([outcome]):
            print(line[:400], flush=True)
    text = table(found)
    if options.write is not None:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(text)
    print({kind.value: sum(o.kind is kind for o in found) for kind in Kind})
    return 1 if failures(found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
