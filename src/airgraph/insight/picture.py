"""The memory of all pools as one self-contained page."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgraph.insight.page import check_plots, heading, save_page, shown
from airgraph.memory.occupancy import Slot

__all__ = ["GraphMemory", "save_memory_page"]


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """What the page shows of one capture. inputs: of each argument its name, role and bytes."""

    name: str
    key: str
    pool: int
    slots: tuple[Slot, ...]
    inputs: tuple[tuple[str, str, int], ...]

    @property
    def label(self) -> str:
        return f"{self.name} {self.key}"


def save_memory_page(path: str | Path, pools: Sequence[dict[str, Any]], graphs: Sequence[GraphMemory]) -> Path:
    """Write the page, which needs no network. Raises PlotsMissing without plotly, OSError if it cannot be written."""
    check_plots()
    parts = [heading("Pools and their sharing"), shown(_sharing(pools))]
    for pool in pools:
        members = sorted((g for g in graphs if g.pool == pool["id"] and g.slots), key=_top, reverse=True)
        parts.append(heading(f"Arena of pool {pool['id']} on {pool['device']}"))
        if members:
            parts.append(shown(_occupancy(members)))
        else:
            parts.append("<p>No graph of this pool has intermediates, or the device's allocator places them.</p>")
    parts += [heading("Inputs by role"), shown(_roles(graphs)), _inputs_table(graphs)]
    return save_page(path, "memory", parts)


def _sharing(pools: Sequence[dict[str, Any]]) -> Any:
    """Bytes of each pool by what holds them, beside the bytes that sharing saves."""
    import plotly.graph_objects as go

    names = [f"pool {pool['id']} ({pool['device']}, graphs: {pool['graphs']})" for pool in pools]
    figure = go.Figure()
    for field, title in (
        ("arena_nbytes", "arena"),
        ("inputs_nbytes", "input buffers"),
        ("outputs_nbytes", "outputs"),
        ("saved_nbytes", "saved by sharing"),
    ):
        pattern = {"marker_pattern_shape": "/"} if field == "saved_nbytes" else {}
        figure.add_bar(x=[pool[field] for pool in pools], y=names, orientation="h", name=title, **pattern)
    figure.update_layout(barmode="stack", xaxis_title="bytes", height=200 + 40 * len(names))
    return figure


def _occupancy(graphs: Sequence[GraphMemory]) -> Any:
    """Offset against step: the outline of every graph, and the buffers of the one that is chosen, by operator."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for graph in graphs:
        steps, tops = _outline(graph)
        figure.add_scatter(x=steps, y=tops, mode="lines", line_shape="hvh", name=graph.label, legendgroup="graphs")
    owners: list[int | None] = [None] * len(graphs)
    for position, graph in enumerate(graphs):
        by_operator: dict[str, list[Slot]] = defaultdict(list)
        for slot in graph.slots:
            by_operator[slot.operator].append(slot)
        for operator, slots in sorted(by_operator.items()):
            owners.append(position)
            figure.add_bar(
                x=[(slot.first + slot.last) / 2 for slot in slots],
                width=[slot.last - slot.first + 1 for slot in slots],
                y=[slot.nbytes for slot in slots],
                base=[slot.offset_bytes for slot in slots],
                customdata=[(slot.first, slot.last, slot.offset_bytes, slot.nbytes) for slot in slots],
                hovertemplate=(
                    f"{html.escape(operator)}<br>steps %{{customdata[0]}} to %{{customdata[1]}}"
                    "<br>offset %{customdata[2]}, %{customdata[3]} bytes<extra></extra>"
                ),
                name=operator,
                marker_line_width=1,
                visible=position == 0,
            )
    buttons = [
        {
            "label": graph.label,
            "method": "update",
            "args": [{"visible": [owner is None or owner == position for owner in owners]}],
        }
        for position, graph in enumerate(graphs)
    ]
    figure.update_layout(
        barmode="overlay",
        xaxis_title="step (call of an operator)",
        yaxis_title="offset in the arena, bytes",
        height=560,
        updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.12, "yanchor": "bottom"}],
    )
    return figure


def _roles(graphs: Sequence[GraphMemory]) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    for role in ("static", "mutated", "user", "scalar"):
        totals = [sum(nbytes for _, its, nbytes in graph.inputs if its == role) for graph in graphs]
        figure.add_bar(x=totals, y=[graph.label for graph in graphs], orientation="h", name=role)
    figure.update_layout(barmode="stack", xaxis_title="bytes", height=140 + 24 * max(1, len(graphs)))
    return figure


def _inputs_table(graphs: Sequence[GraphMemory]) -> str:
    """The inputs of the first capture of each FX graph; the other captures have the same."""
    rows = []
    seen = set()
    for graph in graphs:
        if graph.name in seen:
            continue
        seen.add(graph.name)
        rows += [
            f"<tr><td>{html.escape(graph.label)}</td><td>{html.escape(source)}</td><td>{role}</td><td>{nbytes}</td></tr>"
            for source, role, nbytes in graph.inputs
        ]
    head = "<tr><th>graph</th><th>input</th><th>role</th><th>bytes</th></tr>"
    return f"<details><summary>All inputs</summary><table>{head}{''.join(rows)}</table></details>"


def _outline(graph: GraphMemory) -> tuple[list[int], list[int]]:
    """For each step the end of the highest buffer that is live."""
    last = max(slot.last for slot in graph.slots)
    tops = [0] * (last + 2)
    for slot in graph.slots:
        for step in range(max(0, slot.first), slot.last + 1):
            tops[step] = max(tops[step], slot.offset_bytes + slot.nbytes)
    return list(range(last + 2)), tops


def _top(graph: GraphMemory) -> int:
    return max(slot.offset_bytes + slot.nbytes for slot in graph.slots)
