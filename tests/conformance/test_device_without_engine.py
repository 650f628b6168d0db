"""Without the native engine: a compiler was missing, or another torch is here than the one that it was built for."""

from pathlib import Path

import pytest
from process import run_command

_PROGRAM = """
import sys
import torch
import airgraph

torch.set_grad_enabled(False)
device, door = sys.argv[1:]


def program(x):
    return (x * 2).relu() + x


call = torch.compile(program, backend="airgraph") if door == "compiled" else airgraph.inference.cache_compile(program)
for number in range(3):
    x = torch.full((4,), float(number), device=device)
    torch.testing.assert_close(call(x), program(x))
counts = airgraph.explain().to_dict()["counters"]
print("replays", counts["replays"], "eager", counts["eager_calls"])
"""


def _said(device: str, door: str, folder: Path, *, on: str = "", **environment: str) -> tuple[str, str]:
    """on: where the program's tensors lie, if not on the device."""
    script = folder / "program.py"
    script.write_text(_PROGRAM)
    cache = {"AIRGRAPH_CACHE_DIR": str(folder / "cache")}
    ran = run_command(str(script), on or device, door, device=device, with_engine=False, **cache, **environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1], ran.stderr


@pytest.mark.parametrize("door", ["compiled", "cached"])
def test_graphs_of_a_device_run_eagerly_and_say_why(device: str, door: str, tmp_path: Path) -> None:
    said, warned = _said(device, door, tmp_path, AIRGRAPH_ENGINE="python")
    if device == "cpu":
        # In Python.
        assert said == "replays 3 eager 0"
        return
    assert said.startswith("replays 0 ")
    assert f"graphs on {device} need the native engine, and AIRGRAPH_ENGINE=python is set" in warned
    assert "Unset AIRGRAPH_ENGINE" in warned
    assert "malformed" not in warned
    assert not list(tmp_path.rglob("*.airgraph"))


def test_files_of_a_start_with_the_engine_are_left_alone(device: str, tmp_path: Path) -> None:
    _said(device, "cached", tmp_path)
    (written,) = tmp_path.rglob("*.airgraph")
    before = written.stat().st_mtime_ns
    said, warned = _said(device, "cached", tmp_path, AIRGRAPH_ENGINE="python")
    assert said.startswith("replays 3 " if device == "cpu" else "replays 0 ")
    assert "is not used and made anew" not in warned
    assert [(path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.airgraph")] == [(written, before)]


def test_calls_on_the_cpu_do_not_mind_files_of_a_device(device: str, tmp_path: Path) -> None:
    _said(device, "cached", tmp_path)
    (written,) = tmp_path.rglob("*.airgraph")
    for _ in range(2):
        said, warned = _said(device, "cached", tmp_path, on="cpu", AIRGRAPH_ENGINE="python")
        assert said == "replays 3 eager 0"
        assert "not cached" not in warned and "not used" not in warned
    # The second start has read what the first has written.
    assert len(list(tmp_path.rglob("*.airgraph"))) == (1 if device == "cpu" else 2)
    assert written.exists()
