"""The engine is found, built or replaced by pure Python, and all replay the same tape."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

_PROGRAM = """
import pathlib, tempfile, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch, airgraph
    from airgraph.runtime.engine.loading import engine_status
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8))
    model.register_buffer("count", torch.zeros(1))
    def step(x):
        model.count.add_(1)
        return model(x), model(x)[0], x.t(), torch.rand(2)
    compiled = torch.compile(step, backend=airgraph.get_backend({"kernels": "exact"}), fullgraph=True)
    with torch.no_grad():
        held = []
        for call in range(3):
            x = torch.randn(4, 8)
            torch.manual_seed(call)
            ours = compiled(x)
            assert model.count.item() == 2 * call + 1
            torch.manual_seed(call)
            theirs = step(x)
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs)), (ours, theirs)
            held.append((ours[0], theirs[0]))
        assert all(torch.equal(a, b) for a, b in held)
        g, x = airgraph.cpu.CPUGraph(), torch.ones(3, dtype=torch.complex64)
        with airgraph.cpu.graph(g):
            y = (x + 1j).conj() * 2
        g.replay()
        assert torch.equal(y, (x + 1j).conj() * 2)
        g, a = airgraph.cpu.CPUGraph(kernels="exact"), torch.randn(8, 8)
        with torch.inference_mode(), airgraph.cpu.graph(g):
            b = a @ a
        with torch.autocast("cpu", torch.bfloat16):
            g.replay()
        assert torch.equal(b, a @ a)
        try:
            with airgraph.cpu.graph(airgraph.cpu.CPUGraph()):
                x.abs().sum().item()
        except airgraph.errors.CaptureError:
            pass
        else:
            raise AssertionError("a read during capture must raise")
    assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0
    class Scale:
        by = 1.0
    @torch.compiler.allow_in_graph
    def below(x):
        return x * FACTOR
    FACTOR = 3
    def scaled(x, scale):
        return below(x) + scale.by
    scale, x, folder = Scale(), torch.ones(3), tempfile.mkdtemp()
    with torch.no_grad():
        for start in range(2):
            cached = airgraph.inference.cache_compile(scaled, cache_dir=folder, strict=True)
            for scale.by in (1.0, 2.0, 1.0):
                assert torch.equal(cached(x, scale), x * 3 + scale.by)
            assert len(cached.files) == len(list(pathlib.Path(folder).rglob("*.airgraph"))) > 0
status = engine_status()
print("loaded", status.loaded, "path", status.path, "simd", status.simd_level)
print("warnings", [str(w.message) for w in caught if "pure Python" in str(w.message)])
"""


# Takes what the install has compiled of a file that is the same since; optimizes nothing, which takes longest.
_COMPILER = """#!/bin/sh
for argument; do
    case "$argument" in *.o) made="$argument" ;; *.cpp) source=$(basename "$argument") ;; esac
done
folder=$(ls -dt "{root}"/build/engine-{tag}-* 2>/dev/null | head -1)
object=$(find "$folder" -name "${{source%.cpp}}.o" 2>/dev/null | xargs -r ls -t | head -1)
if [ -n "$source" ] && [ -n "$made" ] && [ -n "$object" ]; then
    newer=$(find "{root}/csrc" -type f -newer "$object")
    if [ -z "$newer" ]; then exec cp "$object" "$made"; fi
fi
exec c++ "$@" -O0
"""


def _run(**env: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def _checkout(folder: Path) -> Path:
    """A source checkout without the built engine."""
    for name in ("src", "csrc"):
        (folder / name).mkdir(parents=True)
        for path in (_ROOT / name).rglob("*"):
            if path.is_file() and path.suffix in (".py", ".cpp", ".h"):
                target = folder / name / path.relative_to(_ROOT / name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    return folder / "src"


def test_the_installed_engine_is_native() -> None:
    out = _run()
    assert "loaded True" in out and "warnings []" in out


def test_pure_python_replays_the_same_tape() -> None:
    assert "loaded False" in _run(AIRGRAPH_ENGINE="python")


def test_an_unknown_engine_is_refused_at_the_first_capture() -> None:
    command = [sys.executable, "-c", "import torch, airgraph; airgraph.cpu.CPUGraph().capture_begin()"]
    result = subprocess.run(command, env=os.environ | {"AIRGRAPH_ENGINE": "fast"}, capture_output=True, text=True)
    assert "OptionError: environment variable AIRGRAPH_ENGINE: expected 'native' or 'python'" in result.stderr


def test_without_a_compiler_a_checkout_falls_back_to_python_and_says_so_once(tmp_path: Path) -> None:
    source = _checkout(tmp_path / "checkout")
    out = _run(PYTHONPATH=str(source), CXX="no-such-compiler", AIRGRAPH_CACHE_DIR=str(tmp_path / "cache"))
    assert "loaded False" in out
    assert out.count("airgraph replays in pure Python") == 1
    assert "Install g++" in out


@pytest.mark.slow
def test_a_checkout_compiles_the_engine_once_into_the_cache_folder(tmp_path: Path) -> None:
    source = _checkout(tmp_path / "checkout")
    compiler = tmp_path / "c++"
    compiler.write_text(_COMPILER.format(root=_ROOT, tag=sys.implementation.cache_tag))
    compiler.chmod(0o755)
    env = {"PYTHONPATH": str(source), "AIRGRAPH_CACHE_DIR": str(tmp_path / "cache"), "CXX": str(compiler)}
    assert f"loaded True path {tmp_path / 'cache'}" in _run(**env)
    built = next((tmp_path / "cache").rglob("*.so"))
    # Pythons that share the folder must not build over each other.
    assert sys.implementation.cache_tag in built.parent.name
    before = built.stat().st_mtime_ns
    assert "loaded True" in _run(**env)
    assert built.stat().st_mtime_ns == before
