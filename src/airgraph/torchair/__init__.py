"""TorchAir's own names over airgraph, for programs that were written for it: `import airgraph.torchair as torchair`.

What each setting comes to, what differs and what is refused is in docs/from_torchair.md. `airgraph.torchair.mount`
lets `import torchair` in a program that is not changed find this package.
"""

import importlib
from typing import Any

from airgraph.torchair import configs, core, inference, ops, scope
from airgraph.torchair.backend import get_compiler, get_npu_backend
from airgraph.torchair.configs.compiler_config import CompilerConfig
from airgraph.torchair.core.utils import logger
from airgraph.torchair.pattern import register_replacement
from airgraph.torchair.refused import MODULES, refused

__all__ = [
    "CompilerConfig",
    "configs",
    "core",
    "dynamo_export",
    "get_compiler",
    "get_npu_backend",
    "inference",
    "logger",
    "npu_format_cast_via_cpu",
    "ops",
    "patch_for_hcom",
    "register_fx_node_ge_converter",
    "register_replacement",
    "scope",
    "use_internal_format_weight",
]

# Imported when they are first asked for.
_ON_DEMAND = ("mount", "npugraph_ex")

dynamo_export = refused("dynamo_export")
register_fx_node_ge_converter = refused("register_fx_node_ge_converter")
patch_for_hcom = refused("patch_for_hcom")
use_internal_format_weight = refused("use_internal_format_weight")
npu_format_cast_via_cpu = refused("npu_format_cast_via_cpu")


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return importlib.import_module(f"{__name__}.{name}")
    why = f"is not offered: {MODULES[name]}" if name in MODULES else "is not there"
    raise AttributeError(f"torchair.{name} {why}. See from_torchair.md in the documentation of airgraph")
