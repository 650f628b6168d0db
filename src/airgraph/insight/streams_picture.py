"""Profiled replays as pictures: a track a stream, a bar a call, an arrow a wait."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgraph.insight.page import check_plots, heading, save_page, shown
from airgraph.runtime.timeline import Span

__all__ = ["GraphTimeline", "save_streams_page", "save_trace"]


@dataclass(frozen=True, slots=True)
class GraphTimeline:
    """One profiled replay of a graph."""

    name: str
    key: str
    spans: tuple[Span, ...]

    @property
    def label(self) -> str:
        return f"{self.name} {self.key}"

    @property
    def streams(self) -> tuple[str, ...]:
        """Their tags, in the order in which they first have work."""
        return tuple(dict.fromkeys(span.stream for span in self.spans))


def save_trace(path: str | Path, timelines: Sequence[GraphTimeline]) -> Path:
    """Write a trace in Chrome's format, which Perfetto shows: a process a graph, a thread a stream, times in µs."""
    events = [event for number, timeline in enumerate(timelines) for event in _events(number, timeline)]
    path = Path(path)
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")
    return path


def save_streams_page(path: str | Path, timelines: Sequence[GraphTimeline]) -> Path:
    """Draw the same as one self-contained page. Raises PlotsMissing without plotly, OSError if it cannot be written."""
    check_plots()
    parts = []
    for timeline in timelines:
        parts += [heading(timeline.label), shown(_figure(timeline))]
    return save_page(path, "streams", parts or ["<p>No graph has been profiled.</p>"])


def _events(process: int, timeline: GraphTimeline) -> list[dict[str, Any]]:
    tracks = {stream: number for number, stream in enumerate(timeline.streams)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": process, "name": "process_name", "args": {"name": timeline.label}},
        *(
            {"ph": "M", "pid": process, "tid": number, "name": "thread_name", "args": {"name": f"stream {stream}"}}
            for stream, number in tracks.items()
        ),
    ]
    for place, span in enumerate(timeline.spans):
        here = {"pid": process, "tid": tracks[span.stream]}
        events.append(
            {
                "ph": "X",
                **here,
                "name": span.operator,
                "ts": span.begin_ns / 1000,
                "dur": (span.end_ns - span.begin_ns) / 1000,
                "args": {"line": span.source, "bytes": span.nbytes, "thread": span.thread},
            }
        )
        for other in span.waits:
            awaited = timeline.spans[other]
            arrow = {"name": "wait", "cat": "wait", "id": f"{process}.{other}.{place}"}
            # Within the slices: an arrow is bound to the slice that encloses its end.
            left = {"pid": process, "tid": tracks[awaited.stream], "ts": (awaited.begin_ns + awaited.end_ns) / 2000}
            events.append({"ph": "s", **arrow, **left})
            events.append({"ph": "f", "bp": "e", **arrow, **here, "ts": (span.begin_ns + span.end_ns) / 2000})
    return events


def _figure(timeline: GraphTimeline) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    for stream in timeline.streams:
        spans = [span for span in timeline.spans if span.stream == stream]
        figure.add_bar(
            x=[(span.end_ns - span.begin_ns) / 1000 for span in spans],
            base=[span.begin_ns / 1000 for span in spans],
            y=[stream] * len(spans),
            orientation="h",
            name=stream,
            marker_line_width=1,
            customdata=[(html.escape(s.operator), html.escape(s.source), s.nbytes, s.thread) for s in spans],
            hovertemplate=(
                "%{customdata[0]}<br>%{customdata[1]}<br>from %{base:.2f} µs for %{x:.2f} µs"
                "<br>%{customdata[2]} bytes, thread %{customdata[3]}<extra></extra>"
            ),
        )
    for span in timeline.spans:
        for other in span.waits:
            awaited = timeline.spans[other]
            figure.add_annotation(
                {"x": span.begin_ns / 1000, "y": span.stream, "ax": awaited.end_ns / 1000, "ay": awaited.stream},
                **dict.fromkeys(("xref", "axref"), "x"),
                **dict.fromkeys(("yref", "ayref"), "y"),
                text="",
                showarrow=True,
                arrowhead=2,
                arrowwidth=1,
            )
    figure.update_layout(
        barmode="overlay",
        xaxis_title="µs since the replay began",
        yaxis={"title": "stream", "type": "category", "autorange": "reversed"},
        height=180 + 60 * max(1, len(timeline.streams)),
        showlegend=False,
    )
    return figure
