"""airgraph: capture PyTorch models into device graphs and replay them."""

from airgraph import cpu, errors, inference
from airgraph.backend import get_backend
from airgraph.capture.warmup import WarmUp, warmup
from airgraph.insight.report import Report, explain, reset
from airgraph.options import Options
from airgraph.passes.pattern_fusion import register_replacement
from airgraph.runtime.registry import graph_pool_handle

__version__ = "0.1.0"

__all__ = [
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
    "register_replacement",
    "reset",
    "warmup",
]
