"""npugraph_ex's compile cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from airgraph.cache.cached_function import CachedFunction
from airgraph.errors import OptionError
from airgraph.options import OptionsSource
from airgraph.torchair import inference
from airgraph.torchair.configs.npugraph_ex_config import NpuGraphExConfig
from airgraph.torchair.inference import readable_cache

__all__ = ["cache_compile", "readable_cache"]


def cache_compile(
    func: Callable[..., Any],
    *,
    config: OptionsSource | None = None,
    dynamic: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    options: Mapping[str, Any] | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> CachedFunction:
    """A function that is traced at most once a machine, see `airgraph.torchair.inference.cache_compile`.

    options: with npugraph_ex's names; or config, a CompilerConfig of npugraph_ex's. Raises OptionError for both.
    """
    if config is not None and options is not None:
        raise OptionError("cache_compile: options and config were both given. Give one of them.")
    return inference.cache_compile(
        func,
        config=NpuGraphExConfig(options) if config is None else config,
        dynamic=dynamic,
        cache_dir=cache_dir,
        global_rank=global_rank,
        tp_rank=tp_rank,
        pp_rank=pp_rank,
        custom_decompositions=custom_decompositions,
    )
