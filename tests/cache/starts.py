"""Starts of a program one after another, each in a process of its own: forked from one that has imported torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from types import TracebackType
from typing import Any, NamedTuple

_SERVER = """
import gc, json, os, runpy, sys, traceback, warnings
import torch, torch._dynamo, torch._functorch.aot_autograd, airgraph
from airgraph.runtime.engine.loading import engine
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
__import__("unmeasured_guards").measure_no_guards()
del sys.path[0]
engine()
# What a first trace imports and builds, which every start would do again.
torch.compile(lambda x: x + 1, backend="airgraph")(torch.ones(2))
torch._dynamo.reset()
airgraph.reset()
gc.collect()
gc.freeze()
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    asked = json.loads(line)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        answer = {}
        try:
            os.environ.update(asked["environment"])
            sys.path.insert(0, asked["folder"])
            sys.dont_write_bytecode = True
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                answer["result"] = runpy.run_path(asked["script"], run_name="__main__")["result"]
            answer["warnings"] = [str(each.message) for each in caught if "airgraph" in str(each.message)]
        except BaseException:
            answer["error"] = traceback.format_exc()
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    print(text or '{"error": "the process ended"}', file=answers, flush=True)
"""


class Starts:
    """A context; `run` executes a script as the main module of a new process."""

    def __init__(self, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(Path(__file__).parents[1])],
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Starts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, script: Path, **environment: str) -> Any:
        """The variable `result` of the script, as JSON has it. Its folder is the first to import from.

        Raises AssertionError with what it raised or warned of.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        asked = {"script": str(script), "folder": str(script.parent), "environment": environment}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        assert not answer["warnings"], answer["warnings"]
        return answer["result"]


# What each script begins with: `compare` calls a cached function, and the function itself.
HEAD = """
import torch
import airgraph

result, traced = {}, []
compile = torch.compile
torch.compile = lambda *args, **given: traced.append(1) or compile(*args, **given)
x = torch.arange(-2.0, 3.0)


def cached(function, **given):
    return airgraph.inference.cache_compile(function, **{"strict": True, **given})


def compare(name, call, *others, eager=None):
    traced.clear()
    expected, error = None, ""
    try:
        with torch.no_grad():
            got, expected = call(x, *others), (eager or call.__wrapped__)(x, *others)
        torch.testing.assert_close(got, expected, equal_nan=True)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    result[name] = [error, repr(expected), len(traced), len(call.files)]


"""


class Outcome(NamedTuple):
    """Of one call: how it differs from eager, what eager gave, and how often it was traced; the graphs in use then."""

    error: str
    eager: str
    traced: int
    files: int


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Writes the modules of a project, and returns its script, the one named start."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((HEAD if name == "start" else "") + dedent(text))
    return folder / "start.py"


def outcomes_of(starts: Starts, script: Path, cache: Path, **environment: str) -> dict[str, Outcome]:
    found = starts.run(script, AIRGRAPH_CACHE_DIR=str(cache), **environment)
    return {name: Outcome(*each) for name, each in found.items()}


def check_right(outcomes: Sequence[Outcome]) -> None:
    """All as eager, which gave something else at each of the first two starts."""
    assert [each.error for each in outcomes] == [""] * len(outcomes)
    assert outcomes[0].eager != outcomes[1].eager
