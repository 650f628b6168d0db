"""An unmodified program finds airgraph under TorchAir's names once they are mounted, beside torch_npu too."""

import subprocess
import sys
from pathlib import Path

import pytest

from airgraph.torchair import npugraph_ex

_PROGRAM = Path(__file__).with_name("mounted_program.py")
_START = """
import importlib.util, runpy, sys
if importlib.util.find_spec("simcann") and importlib.util.find_spec("torch_npu"):
    import simcann
    simcann.enable()
import torch, warnings
from airgraph.torchair.mount import mount
before = "torch._dynamo" in sys.modules
mount()
mount()
assert ("torch._dynamo" in sys.modules) is before
program = sys.argv.pop(1)
runpy.run_path(program, run_name="__main__")
import airgraph
print(airgraph.explain().to_dict()["counters"])
"""


def test_an_unmodified_program_runs_on_airgraph(device: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _START, str(_PROGRAM), device, str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # torch_npu may say something before.
    *_, said, counters = done.stdout.splitlines()
    assert said == "airgraph.torchair airgraph.torchair.npugraph_ex True"
    assert counters == str({"captures": 4, "recaptures": 0, "replays": 4, "eager_calls": 0})


def test_torch_npus_own_backend_keeps_its_name_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs:
        module = "torch_npu.dynamo"

        def load(self) -> object:
            return lambda gm, inputs, **kwargs: ("theirs", kwargs)

    class Ours:
        module = "airgraph.torchair.npugraph_ex"

    found: list[object] = [Ours(), Theirs()]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **asked: found)
    assert npugraph_ex.registered(None, (), options={}) == ("theirs", {"options": {}})  # type: ignore[arg-type]
    found.pop()
    monkeypatch.setattr(npugraph_ex, "backend", lambda gm, inputs: "ours")
    assert npugraph_ex.registered(None, ()) == "ours"  # type: ignore[arg-type]


def test_the_entry_point_is_declared() -> None:
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'\nnpugraph_ex = "{npugraph_ex.__name__}:{npugraph_ex.registered.__name__}"\n' in declared


_REFUSED = """
import importlib, importlib.util
if importlib.util.find_spec("simcann") and importlib.util.find_spec("torch_npu"):
    import simcann
    simcann.enable()
from airgraph.torchair.mount import mount
mount()
for name in ("torchair.ge", "torchair.experimental.inference", "torchair.nonsense"):
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(type(error).__name__, error.name, error)
"""


def test_a_refused_module_says_why_it_is_not_there() -> None:
    done = subprocess.run([sys.executable, "-c", _REFUSED], capture_output=True, text=True, check=True)
    # torch_npu may say something before.
    graph_engine, experimental, nonsense = done.stdout.splitlines()[-3:]
    assert graph_engine.startswith("NotImportable torchair.ge torchair.ge is not offered: it belongs to CANN's")
    assert experimental.startswith("NotImportable torchair.experimental torchair.experimental is not offered")
    assert nonsense.startswith("ModuleNotFoundError torchair.nonsense No module named")
