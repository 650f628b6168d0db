"""airgraph: capture PyTorch models into device graphs and replay them."""
# ruff: noqa: E402 - torch is asked for before all that imports it.

from airgraph.requirement import require_torch

require_torch()
del require_torch

from airgraph import cpu, errors, inference, ops, scope
from airgraph.backend import get_backend
from airgraph.capture.warmup import WarmUp, warmup
from airgraph.insight.report import Report, explain, reset
from airgraph.options import Options
from airgraph.passes.pattern_fusion import register_replacement
from airgraph.program.stream_marks import Event
from airgraph.runtime.registry import graph_pool_handle

__version__ = "0.1.0"

__all__ = [
    "Event",
    "Options",
    "Report",
    "WarmUp",
    "__version__",
    "cpu",
    "errors",
    "explain",
    "get_backend",
    "graph_pool_handle",
    "inference",
    "ops",
    "register_replacement",
    "reset",
    "scope",
    "warmup",
]
