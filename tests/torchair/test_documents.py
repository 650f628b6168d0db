"""Programs as TorchAir's documentation writes them run unchanged: on CPU, and with the real torch_npu."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from devices import simulator
from process import run_command, start_command

_DOCUMENTS = Path(__file__).parent / "documents"
_SERVED_BY = {"cpu": ["--device", "cpu"], "npu": ["--simulate"], "cuda": ["--device", "cuda"]}


def _run(device: str, name: str, folder: Path, *python: str) -> str:
    """What a program says; python: options of the interpreter, with which all that it says counts."""
    command = ["-m", "airgraph_command", "run", *_SERVED_BY[device], str(_DOCUMENTS / name)]
    done = (
        start_command(*python, *command, folder=folder)
        if python
        else run_command(*command, folder=folder, device=device)
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr if python else done.stdout


def test_a_program_of_the_documentation_runs(device: str, tmp_path: Path) -> None:
    # The others are run below.
    assert "before: torch.Size([3, 1]) torch.Size([1, 1]) on" in _run(device, "cache_before.py", tmp_path)


def _captured(device: str, name: str, folder: Path) -> dict[str, Any]:
    """The report of a program that has come to its end."""
    reporting = str(Path(__file__).parent / "reporting_program.py")
    command = ["-m", "airgraph_command", "run", *_SERVED_BY[device], reporting, str(_DOCUMENTS / name)]
    done = run_command(*command, folder=folder, device=device)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "done" in done.stdout
    last = next(line for line in done.stdout.splitlines() if line.startswith("captured: "))
    report: dict[str, Any] = json.loads(last.removeprefix("captured: "))
    assert all(graph["state"] == "captured" for graph in report["graphs"])
    assert report["counters"]["eager_calls"] == 0
    return report


def test_memory_is_shared_as_the_settings_say(device: str, tmp_path: Path) -> None:
    graphs = _captured(device, "memory_reuse.py", tmp_path)["graphs"]
    pools: dict[str, list[int]] = {}
    for graph in graphs:
        pools.setdefault(graph["name"], []).append(graph["pool"])
    own, other, together, apart, _ = pools.values()
    assert own == other and len(own) == 1
    assert len(together) == len(apart) == 3
    assert len(set(together)) == 1 and len(set(apart)) == 3
    # With clone_input=False nothing of the caller's is copied.
    assert graphs[-1]["copied_nbytes"] == 0 < graphs[0]["copied_nbytes"]


def test_passes_do_what_the_settings_say(device: str, tmp_path: Path) -> None:
    report = _captured(device, "fx_passes.py", tmp_path)
    assert report["passes"]["input_inplace_pass"] == 1
    assert report["passes"]["inplace_pass"] > 0
    # On CPU the cat is computed with its parts, as one operator.
    assert report["passes"]["remove_cat_ops"] > 0 or report["passes"]["fused_rows"] > 0
    assert report["passes"]["pattern_fusion_pass"] == 1


def test_streams_are_those_of_the_program(device: str, tmp_path: Path) -> None:
    report = _captured(device, "multi_stream.py", tmp_path)
    assert [graph["streams"] for graph in report["graphs"]] == [3]
    assert report["counters"]["captures"] == 1 and report["counters"]["replays"] == 20
    # Nothing orders too little, and the buffer is written in place.
    assert report["passes"]["stream_check"] == 0 and report["passes"]["input_inplace_pass"] == 1


def test_upstreams_own_runs_when_it_is_asked_for(device: str, tmp_path: Path) -> None:
    if device != "npu":
        pytest.skip("TorchAir itself runs on Ascend only")
    script = tmp_path / "script.py"
    script.write_text("import torch, torch_npu, torchair; print(torchair.CompilerConfig.__module__)")
    said = []
    for more in ([], ["--upstream"]):
        command = [sys.executable, "-m", "airgraph_command", "run", "--simulate", *more, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(done.stdout.split()[-1])
    assert said[0].startswith("airgraph.torchair.") and not said[1].startswith("airgraph")


def test_the_second_start_loads_what_the_first_has_saved(device: str, tmp_path: Path) -> None:
    for what in ("saved to", "loaded from"):
        said = _run(device, "cache_after.py", tmp_path)
        # Prompts of two lengths, the first as long as it is wide, are one graph.
        assert said.count(what) == said.count("Cache ModelCacheMeta") == 2
    found = (tmp_path / ".torchair_cache").rglob("compiled_module*")
    assert sorted(path.parent.name for path in found) == ["decode", "prompt"]


def test_a_second_start_imports_no_dynamo(device: str, tmp_path: Path) -> None:
    if simulator("cuda"):
        pytest.skip("simcuda asks torch's meta kernels for shapes, and those in Python import it")
    _run(device, "cache_after.py", tmp_path)
    # Said by Python itself, for the program asks no such thing.
    imports = _run(device, "cache_after.py", tmp_path, "-X", "importtime").replace("  ", "")
    assert ["| torch._functorch\n" in imports, "| torch._dynamo\n" in imports] == [True, False]
