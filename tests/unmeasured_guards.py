"""Traces without Dynamo's measurement of their guards, in tests and in the programs that they start."""

from __future__ import annotations

import torch._dynamo.guards

__all__ = ["measure_no_guards"]


def measure_no_guards() -> None:
    """Dynamo measures how long the guards of each trace take, after it has emptied the processor's caches: a fifth of
    the time of a small trace.

    What stands for it is PyTorch's by its names: a trace for the compile cache notes what code runs.
    """
    torch._dynamo.guards.profile_guard_manager = eval("lambda *_: 0.0", vars(torch._dynamo.guards))
