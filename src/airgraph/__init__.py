"""airgraph: capture PyTorch models into device graphs and replay them."""
# ruff: noqa: E402 - torch is asked for before all that imports it.

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from airgraph import npu_operators as npu_operators
    from airgraph import standin as standin
    from airgraph import torchair as torchair

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

# For programs of Ascend, which most are not: imported when they are first asked for.
_LATER = ("npu_operators", "standin", "torchair")

# Type checkers see the imports above, and names that are not there as errors.
if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return importlib.import_module(f"{__name__}.{name}")

    def __dir__():
        return sorted({*globals(), *_LATER})
