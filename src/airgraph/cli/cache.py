"""`airgraph cache`: what the compile cache holds, one graph as text, and how to empty it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from airgraph.cli.failure import CommandError

__all__ = ["app"]

app = typer.Typer(name="cache", help="See and empty the compile cache.", no_args_is_help=True)

_Folder = Annotated[
    Path | None, typer.Option("--dir", help="The cache's folder; by default AIRGRAPH_CACHE_DIR or the user's.")
]


@app.command("list")
def list_graphs(folder: _Folder = None) -> None:
    """List the cached graphs of every function."""
    from airgraph.cache.checking.staleness import why_stale
    from airgraph.cache.store.folder import read_manifest
    from airgraph.errors import CacheError

    root = _root(folder)
    table = Table(title=f"compile cache in {escape(str(root))}", title_justify="left")
    for column in ("function", "file", "device", "inputs", "operators", "kB", "state"):
        table.add_column(
            column, justify="right" if column in ("inputs", "operators", "kB") else "left", overflow="fold"
        )
    for path in _files(root):
        kilobytes = f"{path.stat().st_size / 1e3:.1f}"
        name = escape(str(path.relative_to(root)))
        try:
            manifest = read_manifest(path)
        except CacheError as error:
            table.add_row("?", name, "", "", "", kilobytes, f"[red]{escape(str(error.__cause__ or error))}[/]")
            continue
        operators = sum(row.get("op") == "call_function" for row in manifest.graph.get("nodes", ()))
        stale = why_stale(manifest)
        state = f"[yellow]{escape(stale)}[/]" if stale else "current"
        cells = (manifest.function, name, str(manifest.device), str(len(manifest.inputs)), str(operators), kilobytes)
        table.add_row(*cells, state)
    Console().print(table)


@app.command("show")
def show(path: Annotated[Path, typer.Argument(help="A cached graph's file, or a folder of them.")]) -> None:
    """Print a cached graph: where it comes from, what it needs of a call, and its operators as Python."""
    from airgraph.inference import readable_cache

    readable_cache(path)


@app.command("clear")
def clear(
    function: Annotated[str, typer.Argument(help="Only graphs of functions whose name contains this.")] = "",
    folder: _Folder = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove cached graphs. Processes that run keep what they have read."""
    from airgraph.cache.store.folder import remove_empty

    root = _root(folder)
    files = [path for path in _files(root) if function in path.relative_to(root).parts[0]]
    if not files:
        raise CommandError(f"no cached graph of a function {function!r} in {root}: see `airgraph cache list`")
    if not yes:
        typer.confirm(f"Remove {len(files)} cached graphs from {root}?", abort=True)
    for path in files:
        path.unlink(missing_ok=True)
        remove_empty(path.parent, root)
    if {each.name for each in root.iterdir()} == {".key"}:
        (root / ".key").unlink()
    typer.echo(f"removed {len(files)} cached graphs")


def _root(folder: Path | None) -> Path:
    from airgraph.cache.store.folder import default_folder

    root = default_folder() if folder is None else folder
    if not root.is_dir():
        raise CommandError(f"there is no compile cache in {root}: give its folder with --dir")
    return root


def _files(root: Path) -> list[Path]:
    from airgraph.cache.store.layout import graph_files

    return graph_files(root)
