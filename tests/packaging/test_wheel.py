"""What `make wheel` built, as somebody has it who installs it: in a fresh environment, with the README's example."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

_ROOT = Path(__file__).resolve().parents[2]
_ENDS_NATIVE = """
from airgraph.runtime.engine.loading import engine_status
status = engine_status()
assert status.loaded and "site-packages" in status.path, status
"""


@pytest.fixture(scope="module")
def wheel(request: pytest.FixtureRequest) -> Path:
    if not request.config.getoption("--wheel"):
        pytest.skip("with --wheel; `make test-wheel` builds one")
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    found = sorted(
        (_ROOT / "dist").glob(f"airgraph-*-{tag}-{tag}-manylinux*.whl"), key=lambda path: path.stat().st_mtime
    )
    assert found, "no wheel of this Python in dist/: run make wheel"
    return found[-1]


def _example() -> str:
    """The first Python block of the README."""
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]


def _run(command: list[str | Path], cwd: Path, **environment: str) -> str:
    # Nothing of this checkout.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env={**inherited, **environment}, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of a fresh environment with nothing but the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("fresh")
    _run([sys.executable, "-m", "venv", folder], _ROOT)
    python = folder / "bin" / "python"
    # The same torch, which pip might else take another build of.
    _run([python, "-m", "pip", "install", "--quiet", f"torch=={torch.__version__.partition('+')[0]}", wheel], folder)
    return python


@pytest.mark.timeout(1200)
def test_the_example_runs_in_a_fresh_environment_on_the_native_engine(python: Path, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    # Which builds of torch the wheel is shown to serve: this one here, that of CUDA below.
    version = f"assert __import__('torch').__version__ == {torch.__version__!r}\n"
    script.write_text(_example() + _ENDS_NATIVE + version)
    printed = _run([python, "-W", "error::UserWarning:airgraph", script], tmp_path)
    assert "captured" in printed
    assert "airgraph" in _run([python.parent / "airgraph", "--version"], tmp_path)


@pytest.mark.timeout(1200)
def test_another_torch_than_it_was_built_for_is_named(python: Path, tmp_path: Path) -> None:
    (built_for,) = python.parent.parent.glob("lib/python*/site-packages/airgraph/_built_for.py")
    built = built_for.read_text()
    built_for.write_text('TORCH = "2.1"\n')
    try:
        script = tmp_path / "example.py"
        script.write_text(_example())
        printed = _run([python, script], tmp_path)
    finally:
        built_for.write_text(built)
    version = torch.__version__.partition("+")[0]
    assert f"its engine was built for torch 2.1, and this is torch {version}" in printed
    assert 'pip install "torch==2.1.*"' in printed


@pytest.mark.timeout(1200)
def test_the_same_wheel_serves_the_cuda_build(wheel: Path, tmp_path: Path) -> None:
    python = _ROOT / ".venv-cuda" / "bin" / "python"
    simulated = _ROOT / "simcuda" / "build" / "lib"
    for missing in (python, simulated / "libcudart.so.13"):
        if not missing.exists():
            pytest.skip(f"there is no {missing.relative_to(_ROOT)}: make test-cuda makes the CUDA build's environment")
    folder = tmp_path / "installed"
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, wheel], tmp_path)
    script = tmp_path / "example.py"
    on_cuda = _example().replace("torch.nn.Linear(64, 64))\n", "torch.nn.Linear(64, 64)).cuda()\n")
    on_cuda = on_cuda.replace("torch.randn(1, 64)", 'torch.randn(1, 64, device="cuda")')
    assert on_cuda.count("cuda()") == 1 and on_cuda.count('device="cuda"') == 2
    ends_native = _ENDS_NATIVE.replace("site-packages", "installed")
    script.write_text(f"{on_cuda}{ends_native}assert '+cu' in __import__('torch').__version__\n")
    beside = (_ROOT / "simdevice" / "python", _ROOT / "simcuda" / "python")
    path = os.pathsep.join(map(str, (folder, *beside)))
    assert "captured" in _run([python, "-m", "simcuda", script], tmp_path, PYTHONPATH=path)
