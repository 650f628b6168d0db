"""Programs as TorchAir's documentation writes them run unchanged: on CPU, and with the real torch_npu."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_DOCUMENTS = Path(__file__).parent / "documents"
_SERVED_BY = {"cpu": ["--device", "cpu"], "npu": ["--simulate"], "cuda": ["--device", "cuda"]}


def _run(device: str, name: str, folder: Path, *python: str) -> str:
    """What a program says; python: options of the interpreter, with which all that it says counts."""
    done = subprocess.run(
        [sys.executable, *python, "-m", "airgraph_command", "run", *_SERVED_BY[device], str(_DOCUMENTS / name)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr if python else done.stdout


@pytest.mark.parametrize("name", ["memory_reuse", "fx_passes", "multi_stream", "cache_before"])
def test_a_program_of_the_documentation_runs(device: str, name: str, tmp_path: Path) -> None:
    said = _run(device, f"{name}.py", tmp_path)
    assert "done on" in said or "before: " in said or "looks at graphs, on" in said


def test_the_second_start_loads_what_the_first_has_saved(device: str, tmp_path: Path) -> None:
    for what in ("saved to", "loaded from"):
        said = _run(device, "cache_after.py", tmp_path)
        # Prompts of two lengths, the first as long as it is wide, are one graph.
        assert said.count(what) == said.count("Cache ModelCacheMeta") == 2
    found = (tmp_path / ".torchair_cache").rglob("compiled_module*")
    assert sorted(path.parent.name for path in found) == ["decode", "prompt"]


def test_a_second_start_imports_no_dynamo(device: str, tmp_path: Path) -> None:
    # Said by Python itself, for the program asks no such thing.
    imports = [_run(device, "cache_after.py", tmp_path, "-X", "importtime") for _ in range(2)]
    assert ["| torch._dynamo\n" in each.replace("  ", "") for each in imports] == [True, False]
