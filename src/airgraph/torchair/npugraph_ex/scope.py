"""npugraph_ex's blocks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from airgraph.torchair import scope
from airgraph.torchair.refused import refused

__all__ = ["deterministic", "limit_core_num"]


def limit_core_num(op_aicore_num: int, op_vectorcore_num: int, stream: Any = None) -> AbstractContextManager[None]:
    """As `airgraph.torchair.scope.limit_core_num`: not heeded on any stream, and a warning says so."""
    return scope.limit_core_num(op_aicore_num, op_vectorcore_num)


deterministic = refused("scope.deterministic")
