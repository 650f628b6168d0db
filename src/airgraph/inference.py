"""Functions whose compiled graphs are kept in files: no tracing at the next start, no guards at a call."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import torch

from airgraph.backend import get_backend
from airgraph.cache.cached_function import CachedFunction
from airgraph.cache.format.torch_settings import without_gradients
from airgraph.cache.readable import readable
from airgraph.cache.store.folder import SUFFIX, default_folder
from airgraph.cache.store.ranks import on_this_rank
from airgraph.errors import CacheError, OptionError
from airgraph.options import Options

__all__ = ["cache_compile", "readable_cache"]


def cache_compile(
    func: Callable[..., Any],
    *,
    options: Options | Mapping[str, Any] | None = None,
    config: Options | Mapping[str, Any] | None = None,
    dynamic: bool | None = True,
    cache_dir: str | os.PathLike[str] | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    strict: bool = False,
) -> CachedFunction:
    """A function that is traced at most once a machine, and then called without Dynamo and guards.

    func: a method or function of tensors, numbers and containers of them; usually `self.decode` of a model, in its
    `__init__`. options or config: as for `get_backend`, either. dynamic: as for torch.compile. cache_dir: where graphs
    are kept, by default in AIRGRAPH_CACHE_DIR or the user's cache folder. global_rank, tp_rank, pp_rank: graphs of
    different ranks are kept apart. custom_decompositions: operators to functions, applied when lowering to ATen.
    strict: raise CacheError where a call cannot be cached, instead of compiling it at every start with a warning.

    For inference: results have no gradients. Raises OptionError for bad options and for a func that is no function.
    """
    if not inspect.ismethod(func) and not inspect.isfunction(func):
        hint = "Pass its forward method." if isinstance(func, torch.nn.Module) else "Pass a function or a method."
        raise OptionError(f"cache_compile: expected a function or method, got {type(func).__name__}. {hint}")
    if options is not None and config is not None:
        raise OptionError("cache_compile: options and config were both given. Give one of them.")
    parsed = Options.parse(options if options is not None else config)

    return CachedFunction(
        func,
        parsed,
        functools.partial(_compile_uncached, parsed, dynamic),
        root=default_folder() if cache_dir is None else Path(cache_dir),
        rank="" if global_rank is tp_rank is pp_rank is None else on_this_rank(global_rank, tp_rank, pp_rank),
        dynamic=dynamic,
        decompositions=custom_decompositions,
        strict=strict,
    )


def _compile_uncached(options: Options, dynamic: bool | None, function: Callable[..., Any]) -> Callable[..., Any]:
    return without_gradients()(torch.compile(function, backend=get_backend(options), dynamic=dynamic))


def readable_cache(path: str | os.PathLike[str], print_output: bool = True, file: TextIO | None = None) -> str:
    """A cached graph as text: where it comes from, what it needs of a call, and its operators as Python.

    path: a file, or a folder of them. print_output: print it too, to `file` or standard output.
    Raises CacheError where there is no cached graph or it is damaged.
    """
    given = Path(path)
    files = sorted(given.rglob(f"*{SUFFIX}")) if given.is_dir() else [given]
    if not files:
        raise CacheError(f"{given} holds no cached graph (*{SUFFIX}). Give the file or folder of one.")
    text = "\n\n".join(readable(each) for each in files)
    if print_output:
        print(text, file=file or sys.stdout)
    return text
