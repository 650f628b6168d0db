"""TorchAir's compile cache."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from airgraph import arguments, environment
from airgraph.cache.cached_function import CachedFunction
from airgraph.cache.store.layout import TORCHAIR
from airgraph.cache.store.ranks import Ranks
from airgraph.errors import OptionError
from airgraph.inference import in_layout
from airgraph.inference import readable_cache as _readable_cache
from airgraph.options import Options, OptionsSource
from airgraph.torchair.configs.compiler_config import CompilerConfig
from airgraph.torchair.refused import refused

__all__ = ["cache_compile", "readable_cache", "set_dim_gears"]


def cache_compile(
    func: Callable[..., Any],
    *,
    config: OptionsSource | None = None,
    backend: functools.partial[Any] | None = None,
    dynamic: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    ge_cache: bool = False,
) -> CachedFunction:
    """A function that is traced at most once a machine, see `airgraph.inference.cache_compile`.

    config: a CompilerConfig. backend: of `get_npu_backend`, whose settings and decompositions are taken; beside them
    `config` and `custom_decompositions` may only say the same. cache_dir: by default TORCHAIR_CACHE_HOME, or
    `.torchair_cache` in the working directory. Raises OptionError, which is a ValueError, where the two differ, for a
    backend or other arguments of another kind, and for `ge_cache`, which only TorchAir's mode 'max-autotune' has.
    """
    if ge_cache:
        raise OptionError(
            "cache_compile: ge_cache=True: it caches what CANN's graph engine compiles, in 'max-autotune'."
        )
    if backend is not None:
        config, custom_decompositions = _of_backend(backend, config, custom_decompositions)
    return in_layout(
        TORCHAIR,
        func,
        Options.parse(CompilerConfig() if config is None else config),
        root=environment.torchair_cache_folder() if cache_dir is None else arguments.path("cache_dir", cache_dir),
        ranks=Ranks(global_rank, tp_rank, pp_rank),
        dynamic=dynamic,
        decompositions=custom_decompositions,
    )


def _of_backend(
    backend: functools.partial[Any],
    config: OptionsSource | None,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
) -> tuple[OptionsSource, Mapping[Any, Callable[..., Any]]]:
    keywords = getattr(backend, "keywords", {})
    if "compiler_config" not in keywords:
        raise OptionError(f"cache_compile: backend: expected one of get_npu_backend, got {backend!r}.")
    if config is not None and Options.parse(config) != Options.parse(keywords["compiler_config"]):
        raise OptionError("cache_compile: config and the settings of backend differ. Give one of them, or equal ones.")
    arguments.decompositions("custom_decompositions", decompositions)
    if decompositions and dict(decompositions) != dict(keywords["custom_decompositions"]):
        raise OptionError("cache_compile: custom_decompositions and those of backend differ. Give them once.")
    return keywords["compiler_config"], keywords["custom_decompositions"]


def readable_cache(
    cache_bin: str | os.PathLike[str], print_output: bool = True, file: str | os.PathLike[str] | None = None
) -> str:
    """A cached graph as text, see `airgraph.inference.readable_cache`; `file` is written, printed or not.

    Its folder is made.
    """
    if isinstance(file, (str, os.PathLike)):
        # Only for what is there to be written.
        _readable_cache(cache_bin, print_output=False)
        arguments.path("file", file).parent.mkdir(parents=True, exist_ok=True)
    return _readable_cache(cache_bin, print_output=print_output, file=file)


set_dim_gears = refused("inference.set_dim_gears")
