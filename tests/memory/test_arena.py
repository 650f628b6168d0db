"""Arenas of real graphs: no overlap, and close to the best that any plan could reach."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from airgraph.capture.ledger import ledger
from airgraph.memory.plan import ALIGNMENT, lower_bound
from airgraph.memory.verify import violations


def _workloads() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "workloads.py"
    spec = importlib.util.spec_from_file_location("benchmark_workloads", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@torch.no_grad()
@pytest.mark.parametrize("name", "abcd")
def test_the_arena_of_a_benchmark_model_is_right_and_small(name: str) -> None:
    workload = _workloads().make(name)
    compiled = torch.compile(workload.model, backend="airgraph", fullgraph=True)
    torch.testing.assert_close(compiled(*workload.args), workload.model(*workload.args))
    (graphed,) = [graphed for graphed in ledger.callables if graphed.captures]
    graph = graphed.captures[-1].device_graph
    arena = graph.arena
    assert violations(arena.lifetimes, arena.order, arena.plan, alignment=ALIGNMENT) == []
    assert arena.plan.peak <= 1.05 * lower_bound(arena.lifetimes, arena.order)
    assert graph.tiers.get("functional", 0) == 0
