"""`airgraph run`: what it takes before the script is its own, what follows is the script's."""

import subprocess
import sys
from pathlib import Path

import pytest
from process import run_command

_SAYS = "import sys, torch; import torch_npu, torchair; print(sys.argv[1:], torch_npu.__version__, torchair.__name__)\n"


def _run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return run_command("-m", "airgraph_command", "run", *arguments, folder=cwd, CUDA_VISIBLE_DEVICES="")


@pytest.mark.parametrize("device", [["--device", "cpu"], ["--device=cpu"]])
def test_a_script_has_its_own_arguments(device: list[str], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_SAYS)
    command = [sys.executable, "-m", "airgraph_command", "run", *device, "script.py", "--simulate", "--device", "npu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "['--simulate', '--device', 'npu']" in done.stdout and "+standin" in done.stdout


def test_a_module(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_SAYS)
    done = _run("--device", "cpu", "-m", "script", "--upstream", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "['--upstream']" in done.stdout


def test_the_exit_code_is_the_scripts(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit(7)")
    assert _run("--device", "cpu", "script.py", cwd=tmp_path).returncode == 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--device", "tpu"], "--device tpu: expected one of cpu, cuda, npu"),
        (["--device", "cpu", "--upstream"], "--upstream: TorchAir comes with torch_npu, and runs on npu only"),
        (["--device", "cuda"], "cannot use device 'cuda': torch finds no CUDA device. `airgraph doctor` shows"),
        (["--simulate", "--device", "cpu"], "--simulate is for the device npu, and --device cpu is another"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(options: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    done = _run(*options, "script.py", cwd=tmp_path)
    assert done.returncode == 2 and "ran" not in done.stdout
    # Nothing of a simulator, which is not started for what is refused.
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"airgraph: error: {said}")


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    done = _run("--device", "cpu", "missing.py", cwd=tmp_path)
    assert done.returncode == 2 and "there is no script missing.py" in done.stderr
