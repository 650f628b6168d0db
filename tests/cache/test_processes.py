"""Processes that share a folder: one traces, the others read; none sees a part of a file; a start needs no Dynamo."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from process import output_of, run_command
from torch import Tensor

import airgraph
from airgraph.cache.store.folder import default_folder
from airgraph.cache.store.ranks import Ranks

PROGRAM = """
import json, sys, time
import torch, airgraph

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(4))
        self.decode = airgraph.inference.cache_compile(self._decode, cache_dir=sys.argv[1], strict=True)

    def _decode(self, x, cache):
        for layer in self.layers:
            x = torch.relu(layer(x))
        cache.add_(x)
        return x.sum(-1)

compiles = []
compile = torch.compile
torch.compile = lambda *args, **kwargs: compiles.append(1) or compile(*args, **kwargs)
model = Model()
torch.manual_seed(1)
results = []
for rows in (2, 5, 2):
    x, cache, expected = torch.randn(rows, 16), torch.zeros(rows, 16), torch.zeros(rows, 16)
    out = model.decode(x, cache)
    torch.testing.assert_close(out, model._decode(x, expected).detach())
    torch.testing.assert_close(cache, expected)
    results.append(out.tolist())
print(json.dumps({"compiles": len(compiles), "results": results}))
"""


def forked(program: Path, folder: Path) -> dict[str, Any]:
    done = run_command(str(program), str(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_a_second_start_traces_nothing(program: Path, tmp_path: Path) -> None:
    first, second = (forked(program, tmp_path / "cache") for _ in range(2))
    assert (first["compiles"], second["compiles"]) == (1, 0)
    assert second["results"] == first["results"]


# Its starts are forked from one process, which waits for none of them.
STARTS = """
import os, pathlib, runpy, signal, sys
cache = pathlib.Path(CACHE)
sys.argv = [PROGRAM, str(cache)]

def start():
    child = os.fork()
    if child == 0:
        runpy.run_path(PROGRAM, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    return child
"""


def started(program: Path, cache: Path, what: str) -> list[dict[str, Any]]:
    """What the starts have printed that have ended well, in a process that starts them as a text says."""
    said = output_of(f"CACHE, PROGRAM = {str(cache)!r}, {str(program)!r}", STARTS, what)
    return [json.loads(line) for line in said.splitlines()]


def test_of_processes_that_start_together_one_traces(program: Path, tmp_path: Path) -> None:
    done = started(
        program,
        tmp_path / "cache",
        """
        children = [start() for _ in range(3)]
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
        """,
    )
    assert sorted(each["compiles"] for each in done) == [0, 0, 1]
    assert all(each["results"] == done[0]["results"] for each in done)
    assert len(list((tmp_path / "cache").rglob("*.airgraph"))) == 1
    # No draft is left behind.
    assert not list((tmp_path / "cache").rglob(".graph_*"))


def test_a_process_that_is_killed_while_it_traces_holds_up_nobody(program: Path, tmp_path: Path) -> None:
    *_, after = started(
        program,
        tmp_path / "cache",
        """
        killed, ended = start(), 0
        while not ended and not any(cache.rglob(".lock")):
            ended, _ = os.waitpid(killed, os.WNOHANG)
        if not ended:
            os.kill(killed, signal.SIGKILL)
            os.waitpid(killed, 0)
        assert os.waitpid(start(), 0)[1] == 0
        """,
    )
    assert after["compiles"] <= 1


def double(x: Tensor) -> Tensor:
    return x * 2


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    obstacle = tmp_path / "file"
    obstacle.write_text("")
    call = airgraph.inference.cache_compile(double, cache_dir=obstacle / "cache")
    with pytest.warns(
        UserWarning, match=r"double is not kept for the next start: cannot write .*Give another cache_dir"
    ):
        assert call(torch.ones(2)).tolist() == [2.0, 2.0]
    assert call(torch.ones(3)).tolist() == [2.0] * 3
    assert call.counts().traces == sum(call.counts().unwritten.values()) > 0


def test_files_are_for_everybody_to_read_and_nothing_is_executable(tmp_path: Path) -> None:
    call = airgraph.inference.cache_compile(double, cache_dir=tmp_path, strict=True)
    call(torch.ones(2))
    mode = call.files[0].stat().st_mode
    assert not mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def test_where_graphs_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRGRAPH_CACHE_DIR", str(tmp_path / "own"))
    call = airgraph.inference.cache_compile(double, strict=True)
    assert not (tmp_path / "own").exists()
    call(torch.ones(2))
    (file,) = call.files
    assert file.is_relative_to(tmp_path / "own" / "graphs" / "test_processes.double")
    monkeypatch.delenv("AIRGRAPH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "airgraph" / "graphs"


def test_ranks_have_folders_of_their_own(tmp_path: Path) -> None:
    assert Ranks().as_folder() == ""
    assert Ranks(3, 1, 0).as_folder() == "rank3_tp1_pp0"
    files = set()
    for rank in range(2):
        call = airgraph.inference.cache_compile(double, cache_dir=tmp_path, strict=True, global_rank=rank, tp_rank=rank)
        call(torch.ones(2))
        files.add(call.files[0])
    assert {file.parent.name for file in files} == {"rank0_tp0", "rank1_tp1"}
