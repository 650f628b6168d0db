"""Sweeps PyTorch's own operator samples: every capture equals eager, or falls back by name.

    python -m tests.ops.sweep [--samples N] [--only TEXT] [--write docs/operators.md]

Operators run in a child process that says what it begins, so that a segmentation fault has a name.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import gc
import json
import mmap
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from samples import DTYPES, Kind, Outcome, operators, outcomes
from table import table

__all__ = ["ALL_SAMPLES", "failures", "sweep"]

ALL_SAMPLES = 1_000_000


def sweep(
    names: Sequence[str] | slice, samples: int, dtypes: Sequence[str] = DTYPES, dies_at: str = ""
) -> Iterator[Outcome]:
    """Outcomes of up to `samples` samples of each operator and dtype. A child that dies is a CRASH, and replaced.

    names: or which of all operators. dies_at: the operator at which the child dies, for the test of the sweep itself.
    """
    child, known = _child()
    assert child.stdin is not None and child.stdout is not None
    for name in known[names] if isinstance(names, slice) else names:
        for dtype in dtypes:
            child.stdin.write(json.dumps([name, dtype, samples, name == dies_at]) + "\n")
            child.stdin.flush()
            for line in child.stdout:
                if line == "done\n":
                    break
                *fields, kind, detail = json.loads(line)
                yield Outcome(*fields, Kind(kind), detail)
            else:
                raise BrokenPipeError(f"no process is left to run {name}")


@functools.cache
def _child() -> tuple[subprocess.Popen[str], list[str]]:
    """A process that runs operators until this one ends, and the names of all."""
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(child.kill)
    assert child.stdout is not None
    return child, json.loads(child.stdout.readline())


def failures(found: Iterable[Outcome]) -> list[str]:
    """One line an outcome that must not be."""
    bad = (Kind.MISMATCH, Kind.CRASH)
    return [f"{o.kind.value} {o.operator} {o.dtype} sample {o.sample}: {o.detail}" for o in found if o.kind in bad]


def _serve() -> None:
    """Runs operators in a fork, for PyTorch's descriptions take ten seconds to import, and in the next if it dies."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(json.dumps(list(operators())), flush=True)
    gc.freeze()
    asked = mmap.mmap(-1, 1024)  # what was begun, which a process that dies leaves to this one
    while True:
        child = os.fork()
        if child == 0:
            _run(asked)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return
        name, dtype, *_ = json.loads(asked[:].rstrip(b"\0"))
        print(json.dumps([name, dtype, -1, Kind.CRASH.value, f"the process died with status {code}"]))
        print("done", flush=True)


def _run(asked: mmap.mmap) -> None:
    for line in sys.stdin:
        asked[:] = line.encode().ljust(len(asked), b"\0")
        name, dtype, samples, dies = json.loads(line)
        if dies:
            os.abort()
        for o in outcomes(name, dtype, samples):
            print(json.dumps([o.operator, o.dtype, o.sample, o.kind.value, o.detail]), flush=True)
        print("done", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=ALL_SAMPLES, help="samples an operator and dtype")
    parser.add_argument("--only", default="", help="operators whose name contains this text")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, help="names of torch dtypes")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table of counts")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _serve()
        return 0
    found = []
    names = [name for name in _child()[1] if options.only in name]
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
