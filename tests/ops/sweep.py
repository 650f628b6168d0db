"""Sweeps PyTorch's own operator samples: every capture equals eager, or falls back by name.

    python -m tests.ops.sweep [--samples N] [--only TEXT] [--write docs/operators.md]

Operators run in a child process that says what it begins, so that a segmentation fault has a name.
"""

from __future__ import annotations

import argparse
import json
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


def sweep(names: Sequence[str], samples: int, dtypes: Sequence[str] = DTYPES) -> Iterator[Outcome]:
    """Outcomes of up to `samples` samples of each operator and dtype. A child that dies is a CRASH, and replaced."""
    waiting = [(name, dtype) for name in names for dtype in dtypes]
    while waiting:
        begun: tuple[str, str] | None = None
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--child", "--samples", str(samples)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None and child.stdout is not None
        try:
            for name, dtype in list(waiting):
                begun = (name, dtype)
                child.stdin.write(json.dumps(begun) + "\n")
                child.stdin.flush()
                for line in child.stdout:
                    if line == "done\n":
                        break
                    *fields, kind, detail = json.loads(line)
                    yield Outcome(*fields, Kind(kind), detail)
                else:
                    raise BrokenPipeError
                waiting.pop(0)
        except BrokenPipeError:
            waiting.pop(0)
            yield Outcome(*begun, -1, Kind.CRASH, f"the process died with status {child.wait()}")
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()


def failures(found: Iterable[Outcome]) -> list[str]:
    """One line an outcome that must not be."""
    bad = (Kind.MISMATCH, Kind.CRASH)
    return [f"{o.kind.value} {o.operator} {o.dtype} sample {o.sample}: {o.detail}" for o in found if o.kind in bad]


def _child(samples: int) -> None:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name, dtype = json.loads(line)
        if name == os.environ.get("AIRGRAPH_SWEEP_DIES_AT"):  # for the test of the sweep itself
            os.abort()
        for o in outcomes(name, dtype, samples):
            print(json.dumps([o.operator, o.dtype, o.sample, o.kind.value, o.detail]))
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
        _child(options.samples)
        return 0
    found = []
    for outcome in sweep([name for name in operators() if options.only in name], options.samples, options.dtypes):
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
