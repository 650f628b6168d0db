"""Self-contained pages: figures of plotly that need no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airgraph.errors import PlotsMissing

__all__ = ["check_plots", "heading", "save_page", "shown"]


def save_page(path: str | Path, title: str, parts: Sequence[str]) -> Path:
    """Write a page of HTML parts. Raises PlotsMissing without plotly, OSError if it cannot be written."""
    check_plots()
    from plotly.offline import get_plotlyjs

    path = Path(path)
    page = _PAGE.format(plotly=get_plotlyjs(), title=html.escape(title), body="\n".join(parts))
    path.write_text(page, encoding="utf-8")
    return path


def check_plots() -> None:
    """Raises PlotsMissing, which says what to install."""
    try:
        import plotly.offline  # noqa: F401
    except ImportError as error:
        raise PlotsMissing("the page is drawn by plotly: pip install 'airgraph[plots]'.") from error


def heading(text: str) -> str:
    return f"<h2>{html.escape(text)}</h2>"


def shown(figure: Any) -> str:
    """A figure as a part of a page."""
    figure.update_layout(template="plotly_white", margin={"t": 60, "l": 20, "r": 20, "b": 40})
    figure.update_yaxes(automargin=True)
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False}))


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>airgraph: {title}</title>
<style>
body {{ font-family: system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
h2 {{ margin-top: 2.5rem; font-weight: 600; }}
table {{ border-collapse: collapse; }}
td, th {{ text-align: left; padding: 0.15rem 0.8rem 0.15rem 0; border-bottom: 1px solid #ddd; }}
</style>
<script>{plotly}</script>
</head>
<body>
<h1>airgraph: {title}</h1>
{body}
</body>
</html>
"""
