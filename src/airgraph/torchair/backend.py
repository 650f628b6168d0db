"""What TorchAir hands to torch.compile, and to backends of one's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from airgraph import arguments, backend
from airgraph.errors import OptionError
from airgraph.options import Options, OptionsSource
from airgraph.torchair.configs.compiler_config import CompilerConfig
from airgraph.torchair.configs.npugraph_ex_config import NpuGraphExConfig

__all__ = ["get_compiler", "get_npu_backend"]

_NONE: Mapping[Any, Callable[..., Any]] = {}


def get_npu_backend(
    *,
    compiler_config: OptionsSource | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] = _NONE,
) -> functools.partial[Any]:
    """A backend for `torch.compile(model, backend=...)` with these settings.

    compiler_config: a CompilerConfig; what is set on it later counts for graphs that are compiled later.
    custom_decompositions: operators to functions, applied when lowering to ATen. What `torch.compile(options=...)` has
    under npugraph_ex's names goes before the settings. Raises OptionError for settings that do not go together, and for
    decompositions of another kind.
    """
    config = CompilerConfig() if compiler_config is None else compiler_config
    Options.parse(config)
    arguments.decompositions("custom_decompositions", custom_decompositions)
    # A partial, as TorchAir's: its arguments are read back by `inference.cache_compile(backend=...)`.
    return functools.partial(_compile, compiler_config=config, custom_decompositions=custom_decompositions)


def _compile(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    compiler_config: OptionsSource,
    custom_decompositions: Mapping[Any, Callable[..., Any]],
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Any:
    try:
        if mode is not None:
            raise OptionError(f"mode={mode!r} of torch.compile: the mode is a setting. Set CompilerConfig().mode.")
        chosen = NpuGraphExConfig(options).replacing(Options.parse(compiler_config), options or ())
    except OptionError as error:
        return backend.raising(error)
    return backend.get_backend(chosen, custom_decompositions=custom_decompositions)(gm, example_inputs)


def get_compiler(compiler_config: OptionsSource | None = None) -> Callable[[GraphModule, Sequence[Any]], Any]:
    """What captures the graphs of a backend of your own: `aot_module_simplified(gm, inputs, fw_compiler=...)`.

    See `airgraph.backend.get_compiler`. Raises OptionError for settings that do not go together.
    """
    return backend.get_compiler(CompilerConfig() if compiler_config is None else compiler_config)
