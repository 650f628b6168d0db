"""What only the native engine has."""

from __future__ import annotations

import pytest

from airgraph.runtime.engine.loading import engine

__all__ = ["native"]

native = pytest.mark.skipif(not hasattr(engine(), "simd_level"), reason="the engine in Python has no threads")
