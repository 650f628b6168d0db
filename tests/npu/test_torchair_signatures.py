"""Whoever calls TorchAir's functions, or npugraph_ex's, calls airgraph's with the same arguments."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

import pytest

from airgraph.torchair.refused import FUNCTIONS, MODULES

pytest.importorskip("torch_npu")

# airgraph's module, torch_npu's.
_PAIRS = [
    ("torchair", "dynamo.torchair"),
    ("torchair.inference", "dynamo.torchair.inference"),
    ("torchair.ops", "dynamo.torchair.ops"),
    ("torchair.scope", "dynamo.torchair.scope"),
    ("torchair.npugraph_ex", "npu.npugraph_ex"),
    ("torchair.npugraph_ex.inference", "npu.npugraph_ex.inference"),
    ("torchair.npugraph_ex.scope", "npu.npugraph_ex.scope"),
]
# Defaults that torch_npu writes out and airgraph takes None for.
_WRITTEN_OUT = {("register_replacement", "trace_fn"), ("register_replacement", "extra_check")}


def _pair(ours: str, theirs: str) -> tuple[ModuleType, ModuleType]:
    return importlib.import_module(f"airgraph.{ours}"), importlib.import_module(f"torch_npu.{theirs}")


def _offered_by(module: ModuleType) -> list[str]:
    """What it says that it has, or else the functions that it defines."""
    named = getattr(module, "__all__", None)
    defined = [name for name, value in vars(module).items() if inspect.isfunction(value) and name[0] != "_"]
    return list(named) if named else defined


_NAMES = [pytest.param(*pair, name, id=f"{pair[0]}.{name}") for pair in _PAIRS for name in _offered_by(_pair(*pair)[1])]


def _parameters(of: Any) -> dict[str, inspect.Parameter]:
    return {each.name: each for each in inspect.signature(of).parameters.values()}


def _is_refused(ours: str, name: str) -> bool:
    module = ours.removeprefix("torchair").removeprefix(".npugraph_ex").removeprefix(".")
    return f"{module}.{name}".removeprefix(".") in FUNCTIONS


@pytest.mark.parametrize(("ours", "theirs", "name"), _NAMES)
def test_a_name_is_offered_with_its_arguments_or_refused_by_name(ours: str, theirs: str, name: str) -> None:
    mine, upstream = (getattr(module, name) for module in _pair(ours, theirs))
    if _is_refused(ours, name) or not inspect.isfunction(upstream):
        return
    expected, got = _parameters(upstream), _parameters(mine)
    named = {key: each for key, each in expected.items() if each.kind is not each.VAR_KEYWORD}
    for position, (key, each) in enumerate(named.items()):
        assert key in got
        assert got[key].kind is each.kind, key
        if each.kind is not each.KEYWORD_ONLY:
            assert list(got)[position] == key
        if (name, key) in _WRITTEN_OUT:
            assert got[key].default is None
        else:
            assert got[key].default == each.default, key
    assert all(got[key].default is not got[key].empty for key in got.keys() - named.keys())


def test_submodules_are_offered_or_refused_by_name() -> None:
    ours, theirs = _pair("torchair", "dynamo.torchair")
    public = {
        name
        for name, value in vars(theirs).items()
        if inspect.ismodule(value) and name[0] != "_" and value.__name__.startswith(f"{theirs.__name__}.")
    }
    assert public
    assert {name for name in public if not hasattr(ours, name)} <= set(MODULES)
