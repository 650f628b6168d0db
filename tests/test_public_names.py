"""The public face is a list, and importing it is cheap."""

import subprocess
import sys
from pathlib import Path

import torch

import airgraph

_ROOT = Path(__file__).parents[1]


def test_public_names() -> None:
    assert sorted(airgraph.__all__) == [
        "Event", "Options", "Report", "WarmUp", "__version__", "cpu", "errors", "explain", "get_backend",
        "graph_pool_handle", "inference", "ops", "register_replacement", "reset", "scope", "warmup",
    ]  # fmt: skip
    assert all(hasattr(airgraph, name) for name in airgraph.__all__)
    assert sorted(airgraph.cpu.__all__) == [
        "CPUGraph", "Event", "PlacedWeights", "Stream", "current_stream", "graph", "graph_pool_handle", "place_weights",
        "stream", "synchronize",
    ]  # fmt: skip


def test_the_backend_is_registered_with_torch() -> None:
    assert "airgraph" in torch._dynamo.list_backends()


def test_versions_agree() -> None:
    assert f'\nversion = "{airgraph.__version__}"\n' in (_ROOT / "pyproject.toml").read_text()


def test_import_starts_nothing_expensive() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import airgraph; new = set(sys.modules) - before;"
        "heavy = ('torch._inductor', 'torch._dynamo', 'transformers', 'airgraph._engine');"
        "heavy = [m for m in new if m.startswith(heavy)];"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_error_is_an_airgraph_error() -> None:
    for name in airgraph.errors.__all__:
        assert issubclass(getattr(airgraph.errors, name), airgraph.errors.AirgraphError)
