"""The names of npugraph_ex, as `npugraph_ex` and `torch.npu.npugraph_ex` have them, over airgraph."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from airgraph.errors import OptionError
from airgraph.torchair.backend import get_compiler, get_npu_backend
from airgraph.torchair.core.utils import logger
from airgraph.torchair.npugraph_ex import configs, inference, scope
from airgraph.torchair.npugraph_ex.configs.compiler_config import CompilerConfig
from airgraph.torchair.pattern import register_replacement

__all__ = [
    "CompilerConfig",
    "backend",
    "compile_fx",
    "configs",
    "get_compiler",
    "get_npu_backend",
    "inference",
    "logger",
    "register_replacement",
    "registered",
    "scope",
]


def backend(gm: GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
    """`torch.compile(model, backend="npugraph_ex", options={...})`, with the names of airgraph.Options."""
    return get_npu_backend(compiler_config=CompilerConfig())(gm, example_inputs, **kwargs)


def registered(gm: GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
    """`backend`, under the name that torch_npu's own has: where torch_npu is installed, its own."""
    found = importlib.metadata.entry_points(group="torch_dynamo_backends", name="npugraph_ex")
    others = [each for each in found if each.module != __name__]
    chosen = others[0].load() if others else backend
    return chosen(gm, example_inputs, **kwargs)


def compile_fx(
    gm: GraphModule, example_inputs: Sequence[Any] | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """Capture a graph that a backend of your own has lowered, see `airgraph.torchair.get_compiler`.

    options: with npugraph_ex's names. Raises OptionError for unknown names, bad values, and without the inputs,
    whose default is npugraph_ex's.
    """
    if example_inputs is None:
        raise OptionError(
            "compile_fx: example_inputs: expected those that AOTAutograd hands to the compiler, got None."
        )
    return get_compiler(CompilerConfig(options))(gm, example_inputs)
