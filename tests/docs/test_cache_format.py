"""docs/cache_format.md is what the compile cache writes and reads: each key, each kind, and the example."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from format_page import PAGE, names, tables
from torch import Tensor, nn
from torch.fx import Graph, GraphModule
from written_cache import Pair, cached, data_of

from airgraph.cache.format import graph, guards, result_spec, shape_guard, source_path
from airgraph.cache.format.signed import FORMAT
from airgraph.cache.format.torch_settings import State
from airgraph.program.inputs import InputRole
from airgraph.program.nodes import notes

# What is written


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor, cache: Tensor, factor: float, steps: int, only_looked_at: Tensor) -> Any:
        cache.add_(x.sum(0, dtype=torch.float32))
        y = self.inner(x) * factor * torch.tensor([1.0, 2.0, 3.0])
        if only_looked_at.shape[0] > 2:
            y = y + steps
        return Pair(y, [cache])


def _keys(rows: Any) -> set[str]:
    return {key for row in rows for key in row}


def test_each_key_that_is_written_is_in_a_table_and_no_other(tmp_path: Path) -> None:
    call = cached(Model().forward, tmp_path)
    call(torch.ones(4, 3), torch.zeros(3), 0.5, 2, torch.ones(5))
    data = data_of(call.files[0])
    node = Graph().placeholder("x")
    notes(node)["stream"], notes(node)["priority"] = "side", -1
    node.graph.output((node,))
    rows = [*data["graph"]["nodes"], *graph.graph_to(GraphModule(nn.Module(), node.graph))["nodes"]]
    assert {each["role"] for each in data["inputs"] if "float" in each} == {"user"}
    for table, keys in (
        (names("Manifest"), data),
        (names("Process"), data["process"]),
        (names("Settings of PyTorch"), data["state"]),
        (names("Settings of PyTorch"), [each.name for each in dataclasses.fields(State)]),
        (names("Inputs"), _keys((*data["inputs"], *data["looked_at"]))),
        (names("Graph"), data["graph"]),
        (names("Graph", 1), _keys(rows)),
        (names("Graph", 2), _keys(data["graph"]["constants"].values())),
        (names("Index"), data_of(call.files[0].parent / ".index")),
    ):
        assert sorted(table) == sorted(keys)


def test_each_part_of_the_fingerprint_is_in_the_table_and_no_other(tmp_path: Path) -> None:
    call = cached(Model().forward, tmp_path)
    call(torch.ones(4, 3), torch.zeros(3), 0.5, 2, torch.ones(5))
    parts = {re.sub("^option .*", "option ...", name) for name in data_of(call.files[0])["fingerprint"]}
    told = {name for row in tables("Fingerprint")[0] for name in re.findall(r"`([^`]+)`", row[0])}
    assert parts | {"torch_npu"} == told


def test_each_kind_is_in_a_table_and_no_other() -> None:
    read = set(re.findall(r'kind == "(\w+)"', inspect.getsource(graph.value_from))) | graph._NAMED_VALUES.keys()
    structures = re.findall(r'case "(\w+)", ', inspect.getsource(result_spec.Expressions))
    for table, kinds in (
        (names("Inputs", 1), [role.value for role in InputRole]),
        (names("Graph", 3), read),
        (names("Guards"), guards._KINDS),
        (names("Source paths", column=1), [each.__name__ for each in typing.get_args(source_path.Step)]),
        (names("Result"), structures),
    ):
        assert sorted(table) == sorted(kinds)
    functions = tables("Shape guards")[0][-1][1]
    assert re.findall(r"`(\w+)`", functions) == list(shape_guard._FUNCTIONS)
    for name in (*graph._SYMBOLIC, *graph._ALLOWED, *graph._TORCHS_OWN, *graph._REFUSED):
        assert f"`{name}`" in PAGE
    for name in source_path._HIDDEN:
        assert f"`{name}`" in PAGE


def test_the_examples_of_kinds_are_read() -> None:
    known = {"mul": Graph().placeholder("mul")}
    for example in names("Graph", 3, 2):
        value = graph.value_from(json.loads(example), known)
        assert graph.value_to(value) == json.loads(example)
    for kind, example in zip(names("Guards"), names("Guards", column=3), strict=True):
        assert guards.guard_from(json.loads(example)).kind == kind
    for example in names("Source paths", column=3)[2:]:
        source_path.parse(example)
    for kind, example in zip(names("Result"), names("Result", column=3), strict=True):
        assert list(json.loads(example)) == [kind]


def test_it_is_the_page_of_this_version() -> None:
    versions = re.findall(r"version (\d+) of the format|airgraph cache (\d+) ", PAGE)
    assert len(versions) >= 3 and {"".join(each) for each in versions} == {str(FORMAT)}


# The example


def _normal(data: Mapping[str, Any]) -> Any:
    """Without what differs from machine to machine: digests, versions, paths, and the names of symbols."""
    fingerprint = sorted(set(data["fingerprint"]) & {"format", "airgraph", "torch", "python"})
    data = {**data, "fingerprint": fingerprint, "codes": bool(data["codes"])}
    for each in data["inputs"]:
        each.get("traits", [0])[-1] = 0
    text = re.sub(r'[0-9a-f]{12}\.\.\.|(?<=")[0-9a-f]{32,64}(?=")', "digest", json.dumps(data))
    text = re.sub(r'(?<=")/[^"]*/', "", text)
    symbols = list(dict.fromkeys(re.findall(r"\bs\d+\b", text)))
    return json.loads(re.sub(r"\bs\d+\b", lambda match: f"symbol{symbols.index(match[0])}", text))


def test_the_example_is_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (module,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    head, body = re.findall(r"```\n(airgraph cache \d+ hmac-sha256) [0-9a-f]+\.\.\.\n(\{.*?)```", PAGE, re.DOTALL)[0]
    (tmp_path / "scaling.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        call = cached(importlib.import_module("scaling").scale, tmp_path / "cache")
        call(torch.ones(4, 3), 2)
    finally:
        sys.modules.pop("scaling", None)
    text = call.files[0].read_text()
    assert text.startswith(f"{head} ") and text.isascii() and text.count("\n") == 2
    written, shown = _normal(data_of(call.files[0])), _normal(json.loads(body))
    assert written == shown
    # In this order, so that the same graph gives the same text.
    assert list(written) == list(shown) == names("Manifest")
