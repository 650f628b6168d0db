"""`airgraph cache` shows what is cached, prints it, and empties it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command import airgraph, error_line
from torch import Tensor

import airgraph as package


def double(x: Tensor) -> Tensor:
    return x * 2


def triple(x: Tensor) -> Tensor:
    return x * 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for function in (double, triple):
        package.inference.cache_compile(function, cache_dir=tmp_path, strict=True)(torch.ones(3))
    return tmp_path


def test_list_names_functions_and_what_is_wrong(folder: Path) -> None:
    result = airgraph("cache", "list", "--dir", str(folder), COLUMNS="300")
    assert result.returncode == 0, result.stderr
    assert "test_cache.double" in result.stdout and result.stdout.count("current") == 2
    first, second = sorted(folder.rglob("*.airgraph"))
    first.write_text(first.read_text()[:-9])
    second.write_text(second.read_text().replace("sha256", "sha255", 1))
    result = airgraph("cache", "list", AIRGRAPH_CACHE_DIR=str(folder.parent), COLUMNS="300")
    assert "there is no compile cache in" in error_line(result)
    result = airgraph("cache", "list", "--dir", str(folder), COLUMNS="300")
    assert "the checksum is wrong" in result.stdout


def test_a_graph_of_changed_code_is_shown_as_such(tmp_path: Path) -> None:
    source = tmp_path / "traced_here.py"
    source.write_text("def half(x):\n    return x / 2\n")
    names: dict[str, object] = {}
    exec(compile(source.read_text(), str(source), "exec"), names)
    package.inference.cache_compile(names["half"], cache_dir=tmp_path / "cache", strict=True)(torch.ones(3))
    source.write_text("def half(x):\n    return x / 4\n")
    result = airgraph("cache", "list", "--dir", str(tmp_path / "cache"), COLUMNS="400")
    assert f"{source} has changed" in result.stdout


def test_show_prints_one_graph(folder: Path) -> None:
    (file,) = (folder / "test_cache.triple").rglob("*.airgraph")
    result = airgraph("cache", "show", str(file))
    assert result.returncode == 0, result.stderr
    assert "torch.ops.aten.mul.Tensor" in result.stdout and "test_cache.triple on cpu" in result.stdout
    for nothing in (folder / "nothing", folder / "no folder" / "nothing"):
        assert f"cannot read {nothing}" in error_line(airgraph("cache", "show", str(nothing)))


def test_clear_removes_what_it_says(folder: Path) -> None:
    result = airgraph("cache", "clear", "double", "--dir", str(folder), "--yes")
    assert result.returncode == 0 and "removed 1 cached graph" in result.stdout
    assert [path.name for path in folder.glob("[!.]*")] == ["test_cache.triple"]
    assert "no cached graph of a function 'double'" in error_line(
        airgraph("cache", "clear", "double", "--dir", str(folder), "--yes")
    )
    refused = airgraph("cache", "clear", "--dir", str(folder))
    assert refused.returncode == 130 and list(folder.rglob("*.airgraph"))
    assert airgraph("cache", "clear", "--dir", str(folder), "--yes").returncode == 0
    assert not list(folder.iterdir())
