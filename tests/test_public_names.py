"""The public face is a list, and importing it is cheap."""

import inspect
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

import airgraph
from airgraph.cache.cached_function import CachedFunction
from airgraph.memory.pool import MemoryPool

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


def _public_classes() -> list[type]:
    modules = (airgraph, airgraph.cpu, airgraph.errors, airgraph.inference, airgraph.npu_operators, airgraph.torchair)
    named = {getattr(module, name) for module in modules for name in module.__all__ if name != "__version__"}
    # These are handed out by functions.
    made = {CachedFunction, MemoryPool}
    found = (each for each in named | made if isinstance(each, type))
    return sorted(found, key=lambda each: (each.__qualname__, each.__module__))


@pytest.mark.parametrize("kind", _public_classes(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_public_method_says_what_it_does(kind: type) -> None:
    assert inspect.getdoc(kind)
    own = (each for each in kind.__mro__ if each.__module__.startswith("airgraph"))
    members = {name: value for each in own for name, value in vars(each).items()}
    kinds = (types.FunctionType, classmethod, staticmethod, property)
    public = [name for name, value in members.items() if isinstance(value, kinds) and not name.startswith("_")]
    assert not [name for name in public if not inspect.getdoc(getattr(kind, name))]


def test_versions_agree() -> None:
    assert f'\nversion = "{airgraph.__version__}"\n' in (_ROOT / "pyproject.toml").read_text()


def test_import_starts_nothing_expensive() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import airgraph; new = set(sys.modules) - before;"
        "heavy = ('torch._inductor', 'torch._dynamo', 'transformers', 'airgraph._engine');"
        "heavy = [m for m in new if m.startswith(heavy)];"
        "assert not heavy, heavy;"
        "later = ('torchair', 'standin', 'npu_operators');"
        "exec('from airgraph import *');"
        "assert set(later) <= set(dir(airgraph)) and not hasattr(airgraph, 'no_such_name');"
        "assert not [name for name in later if f'airgraph.{name}' in sys.modules];"
        "airgraph.torchair.CompilerConfig(), airgraph.standin.install, airgraph.npu_operators.register;"
        "assert set(later) <= set(vars(airgraph))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_error_is_an_airgraph_error() -> None:
    for name in airgraph.errors.__all__:
        assert issubclass(getattr(airgraph.errors, name), airgraph.errors.AirgraphError)


def test_modules_of_torchairs_names_come_when_they_are_asked_for() -> None:
    assert callable(airgraph.torchair.mount.mount)
    assert airgraph.torchair.npugraph_ex.__name__ == "airgraph.torchair.npugraph_ex"
    with pytest.raises(AttributeError, match="torchair.nothing is not there"):
        airgraph.torchair.nothing
