"""What the stand-in for torch_npu serves, asked of one process that it is installed in."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from process import run_command

_PROGRAM = Path(__file__).with_name("standin_program.py")


@functools.cache
def _found(device: str) -> dict[str, str]:
    if device == "npu":
        pytest.skip("torch_npu is there itself")
    done = run_command(str(_PROGRAM), device, device=device)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "name",
    [
        "factories", "moves", "modules", "default device", "loading", "the device of a tensor", "random numbers",
        "devices", "streams", "graphs by hand", "memory figures", "compiled", "moved within a compiled function",
        "cached", "no torch function is replaced", "times between events", "states of random numbers",
        "pinned memory", "storages", "how CANN compiles", "made within a compiled function",
        "made within a cached function", "npugraph_ex", "streams within a graph by hand",
    ],
)  # fmt: skip
def test_it_serves(name: str, device: str) -> None:
    assert _found(device)[name] == "True"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torch.npu.nonsense", "NotServed: torch.npu.nonsense: the stand-in for torch_npu does not have it. It has "),
        ("torch_npu.npu_nonsense", "NotServed: torch_npu.npu_nonsense: the stand-in for torch_npu does not have it."),
        ("autocast", 'NotServed: torch.autocast("npu"): use torch.autocast("DEVICE")'),
        ("second device", "OptionError: torch.npu: device 1: the stand-in has one device, npu:0"),
        ("another config", "AttributeError: torch.npu.config.nonsense: the stand-in for torch_npu has allow_internal"),
        ("module", "NotImportable: torch_npu.contrib: the stand-in for torch_npu does not have this module"),
        ("installed twice for another", "OptionError: install: device: expected 'cpu' or 'cuda', got 'tpu'"),
    ],
)
def test_it_refuses_by_name(name: str, said: str, device: str) -> None:
    assert said.replace("DEVICE", device) in _found(device)[name]


def test_it_is_not_there_unless_it_is_installed() -> None:
    program = "import torch, airgraph, sys; print(hasattr(torch, 'npu'), 'torch_npu' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_operators_of_torch_npu_are_cached(tmp_path: Path) -> None:
    program = _PROGRAM.with_name("operators_program.py")
    for traces in (1, 0):
        done = run_command("-m", "airgraph_command", "run", "--device", "cpu", str(program), folder=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
        *given, said = done.stdout.splitlines()
        assert len(set(given)) == 1 and len(given) == 3 and said == f"traces {traces}"
