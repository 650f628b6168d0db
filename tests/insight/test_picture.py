"""The memory page shows every pool in a real browser, without a network."""

import html
import re
import sys
from pathlib import Path

import pytest
import torch
from browser import drawn_by_a_browser, needs_a_browser
from torch import nn

import airgraph


@torch.no_grad()
def _captured_models() -> list[object]:
    mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.Softmax(-1)).eval()
    compiled = torch.compile(mlp, backend="airgraph", dynamic=True)
    other = torch.compile(lambda x: (x.exp() * x.sin()).sum(), backend="airgraph")
    for rows in (5, 9):
        compiled(torch.randn(rows, 16))
    other(torch.randn(100))
    return [compiled, other]


@needs_a_browser
def test_the_page_is_drawn_by_a_browser(tmp_path: Path) -> None:
    models = _captured_models()
    report = airgraph.explain()
    page = report.save(tmp_path / "memory.html")
    assert not re.findall(r"<script[^>]+src=|<link ", page.read_text())
    drawn = drawn_by_a_browser(page, tmp_path / "profile")
    pools = report.to_dict()["pools"]
    # Sharing, one arena a pool, roles.
    assert drawn.count('class="main-svg"') >= 2 + len(pools)
    # A bar for each buffer of the graph that is shown first.
    graphs = [record.device_graph() for record in report._records]
    assert drawn.count('class="point"') >= max(len(graph.occupancy()) for graph in graphs)
    for row in report.to_dict()["graphs"]:
        assert html.escape(f"{row['name']} {row['key']}") in drawn
    for word in ("aten::", "saved by sharing", "input buffers", "static", "user", "offset in the arena, bytes"):
        assert word in drawn, word
    assert len(models) == 2


def test_a_report_without_graphs_has_a_page(tmp_path: Path) -> None:
    assert "airgraph: memory" in airgraph.explain().save(tmp_path / "memory.html").read_text()


def test_without_plotly_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"pip install 'airgraph\[plots\]'"):
        airgraph.explain().save(tmp_path / "memory.html")
    assert not list(tmp_path.iterdir())
