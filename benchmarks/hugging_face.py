"""A second start of Hugging Face's generate on a cached model: from the weights to the first answer.

    hugging_face.py [--starts 5]

SmolLM2-135M, `model.forward = airgraph.inference.cache_compile(model.forward)`, then
`generate(cache_implementation="static", max_new_tokens=16)`. The first start traces and writes the files; each of the
next is a process of its own. Writes benchmarks/results/hugging-face-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import measure

_RESULTS = Path(__file__).resolve().parent / "results"


def work(folder: str) -> None:
    """One start: prints the seconds of two answers, how often it traced, and whether the tokens are eager's."""
    import smollm2
    import torch

    import airgraph

    model, ids = smollm2.load(), smollm2.prompt_ids()
    forward, seconds, answers = model.forward, [], []
    model.forward = airgraph.inference.cache_compile(forward, cache_dir=folder)
    settings = {"cache_implementation": "static", "max_new_tokens": 16, "do_sample": False}
    for _ in range(2):
        start = perf_counter()
        answers.append(model.generate(ids, **settings))
        seconds.append(perf_counter() - start)
    traces = model.forward.counts().traces
    model.forward = forward
    expected = model.generate(ids, **settings)
    right = all(torch.equal(answer, expected) for answer in answers)
    print(json.dumps({"first_s": seconds[0], "second_s": seconds[1], "traces": traces, "right": right}))


def start(folder: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--worker", folder], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5, help="after the one that traces (default: 5)")
    starts = parser.parse_args().starts
    measured = measure.circumstances(starts)
    with tempfile.TemporaryDirectory() as folder:
        tracing, later = start(folder), [start(folder) for _ in range(starts)]
    if tracing["traces"] != 2 or any(each["traces"] for each in later):
        raise SystemExit(f"expected two traces at the first start and none later, got {tracing} and {later}")
    if not all(each["right"] for each in (tracing, *later)):
        raise SystemExit("tokens differ from eager's")
    row: dict[str, Any] = {"tracing_start": tracing}
    for name in ("first_s", "second_s"):
        q1, middle, q3 = measure.quartiles([each[name] for each in later])
        row[name] = {"median": middle, "q1": q1, "q3": q3, "values": [each[name] for each in later]}
        print(f"{name}: {middle:.2f} s ({q1:.2f} to {q3:.2f}); at the start that traces {tracing[name]:.2f} s")
    body = {"measured": measured, "model": "SmolLM2-135M, batch 1, 16 new tokens", **row}
    print(f"wrote {measure.write_json(_RESULTS, 'hugging-face', [1], body)}")


if __name__ == "__main__":
    main()
