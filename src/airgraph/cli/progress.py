"""Says on standard error which long step a command is at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["progress"]


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show a bar on stderr; the function it gives names the step that begins and ends the one before."""
    columns = (SpinnerColumn(), TextColumn("{task.description:<22}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        running: list[Any] = []

        def announce(name: str) -> None:
            finish()
            running.append(bars.add_task(name, total=None))

        def finish() -> None:
            if running:
                bars.update(running.pop(), total=1, completed=1)

        yield announce
        finish()
