"""What keeps a recording from being replayed for a call."""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = ["InputProblem", "ProblemKind"]


class ProblemKind(enum.Enum):
    """What is not as it was recorded. The engine has the same names, see `csrc/engine/inputs.h`."""

    MOVED = "moved"  # an argument used in place lies elsewhere
    MISMATCHED = "mismatched"  # an argument has another shape, strides, dtype or device
    OVERLAPPING = "overlapping"  # an argument shares memory with one that the graph writes
    FOREIGN = "foreign"  # an argument has no memory to read: a fake tensor, a subclass, one of a transform
    LOST = "lost"  # memory of the graph's was resized or freed
    SETTINGS = "settings"  # torch's settings are others
    OUTDATED = "outdated"  # memory that the graph writes has been taken by somebody else
    CAPTURING = "capturing"  # the call would become part of a graph that somebody captures


class InputProblem(NamedTuple):
    """position: of the argument, or of the lost memory; 0 where it says nothing."""

    kind: ProblemKind
    position: int = 0
