"""Starts of a program one after another, each in a process of its own: forked from one that has imported torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

_SERVER = """
import gc, json, os, runpy, sys, traceback, warnings
import torch, torch._dynamo, torch._functorch.aot_autograd, airgraph
from airgraph.runtime.cpu.engine import engine
torch.set_num_threads(1)
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
            [sys.executable, "-c", _SERVER],
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
