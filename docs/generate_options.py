"""Writes docs/options.md from the Options dataclass: `python docs/generate_options.py`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from airgraph import Options

PAGE = Path(__file__).with_name("options.md")

HEADER = """# Options

Give them as `torch.compile(model, backend="airgraph", options={"clone_output": True})`, as a dict to
`airgraph.get_backend`, or as `airgraph.Options(...)`. An unknown name or a bad value raises `OptionError`, which lists
close matches. An option that is not available yet is refused, never ignored.

This page is generated from the `Options` dataclass by `python docs/generate_options.py`.

| name | default | meaning | available |
|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    rows = []
    for option in dataclasses.fields(Options):
        meaning = option.metadata["doc"]
        if option.metadata["choices"]:
            meaning += ": " + ", ".join(f"`{choice!r}`" for choice in option.metadata["choices"])
        available = "yes" if option.metadata["available"] else "not yet"
        rows.append(f"| `{option.name}` | `{option.default!r}` | {meaning} | {available} |")
    return HEADER + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
