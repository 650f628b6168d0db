"""Starts of a program one after another, each in a process of its own: forked from one that has imported torch."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from fork_server import Forked
from process import prepared

# Ends at once: what is left to the end of a process is not what a start is about.
_PROGRAM = """
def _answer():
    import runpy, sys, traceback, warnings
    sys.path.insert(0, {folder!r})
    sys.dont_write_bytecode = True
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = runpy.run_path({script!r}, run_name="__main__")["result"]
        said = [str(each.message) for each in caught]
        return {{"result": result, "warnings": [each for each in said if "airgraph" in each]}}
    except BaseException:
        return {{"error": traceback.format_exc()}}


import json, os
os.environ.update({environment!r})
with open({answer!r}, "w") as file:
    json.dump(_answer(), file)
os._exit(0)
"""


class Starts(NamedTuple):
    """Of processes in which Python orders the elements of sets by this seed."""

    hash_seed: str

    def run(self, script: Path, **environment: str) -> Any:
        """The variable `result` of the script, as JSON has it. Its folder is the first to import from.

        Raises AssertionError with what it raised or warned of.
        """
        with (
            tempfile.NamedTemporaryFile("r") as file,
            open(os.devnull, "r+") as nothing,
            Forked(
                prepared(hash_seed=self.hash_seed),
                _PROGRAM.format(
                    folder=str(script.parent), script=str(script), environment=environment, answer=file.name
                ),
                nothing,
                nothing,
                sys.__stderr__,
            ) as forked,
        ):
            forked.wait()
            answer = json.loads(file.read() or '{"error": "the process ended"}')
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
