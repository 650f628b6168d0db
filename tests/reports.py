"""What airgraph says has happened since the test began."""

from __future__ import annotations

from typing import Any

import airgraph

__all__ = ["counters", "report"]


def report() -> dict[str, Any]:
    return airgraph.explain().to_dict()


def counters() -> dict[str, int]:
    return report()["counters"]
