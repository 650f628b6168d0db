"""Functions whose compiled graphs are kept in files: no tracing at the next start, no guards at a call."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import torch

from airgraph import arguments
from airgraph.backend import get_backend
from airgraph.cache.cached_function import CachedFunction
from airgraph.cache.format.torch_settings import without_gradients
from airgraph.cache.readable import readable
from airgraph.cache.store.folder import default_folder
from airgraph.cache.store.layout import AIRGRAPH, Layout, graph_files
from airgraph.cache.store.ranks import Ranks
from airgraph.errors import CacheError, OptionError
from airgraph.options import Options, OptionsSource

__all__ = ["cache_compile", "readable_cache"]


def cache_compile(
    func: Callable[..., Any],
    *,
    options: Options | OptionsSource | Mapping[str, Any] | None = None,
    config: Options | OptionsSource | Mapping[str, Any] | None = None,
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

    For inference: results have no gradients. Raises OptionError for bad options, for a func that is no function, and
    for arguments of another kind.
    """
    if options is not None and config is not None:
        raise OptionError("cache_compile: options and config were both given. Give one of them.")
    return in_layout(
        AIRGRAPH,
        func,
        Options.parse(options if options is not None else config),
        root=default_folder() if cache_dir is None else arguments.path("cache_dir", cache_dir),
        ranks=Ranks(global_rank, tp_rank, pp_rank),
        dynamic=dynamic,
        decompositions=custom_decompositions,
        strict=arguments.boolean("strict", strict),
    )


def in_layout(
    layout: Layout,
    func: Callable[..., Any],
    options: Options,
    *,
    dynamic: bool | None,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    **given: Any,
) -> CachedFunction:
    """`cache_compile` with folders and files named by a layout. given: to CachedFunction, as it is."""
    if not inspect.isfunction(getattr(func, "__func__", func) if inspect.ismethod(func) else func):
        hint = "Pass its forward method." if isinstance(func, torch.nn.Module) else "Pass a function or a method."
        raise OptionError(f"cache_compile: expected a function or method, got {_kind_of(func)}. {hint}")
    arguments.boolean("dynamic", dynamic, or_none=True)
    arguments.decompositions("custom_decompositions", decompositions)
    compile_uncached = functools.partial(_compile_uncached, options, dynamic, decompositions)
    return CachedFunction(
        func, options, compile_uncached, layout=layout, dynamic=dynamic, decompositions=decompositions, **given
    )


def _kind_of(func: Any) -> str:
    name = type(getattr(func, "__func__", func)).__name__
    return f"a method that is no function of Python's but a {name}" if inspect.ismethod(func) else name


def _compile_uncached(
    options: Options,
    dynamic: bool | None,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    function: Callable[..., Any],
) -> Callable[..., Any]:
    backend = get_backend(options, custom_decompositions=decompositions)
    return without_gradients()(torch.compile(function, backend=backend, dynamic=dynamic))


def readable_cache(
    path: str | os.PathLike[str], print_output: bool = True, file: TextIO | str | os.PathLike[str] | None = None
) -> str:
    """A cached graph as text: where it comes from, what it needs of a call, and its operators as Python.

    path: a file, or a folder of them. print_output: print it too, to standard output or to a stream given as `file`.
    file: a path is written, whether the text is printed or not, and what it held is lost; its folder must be there.
    Raises OptionError for arguments of another kind, CacheError where there is no cached graph or it is damaged, and
    OSError where the file cannot be written.
    """
    given = arguments.path("path", path)
    arguments.boolean("print_output", print_output)
    written, stream = None, None
    if isinstance(file, (str, os.PathLike)):
        written = arguments.path("file", file)
    elif file is None or hasattr(file, "write"):
        stream = file
    else:
        raise OptionError(f"file: expected a path or an open text file, got {arguments.shown(file)}.")
    if not given.exists():
        raise CacheError(f"cannot read {given}: there is no such file. Give the file or folder of a cached graph.")
    files = graph_files(given) if given.is_dir() else [given]
    if not files:
        raise CacheError(f"{given} holds no cached graph. Give the file or folder of one.")
    text = "\n\n".join(readable(each) for each in files)
    if written is not None:
        written.write_text(text + "\n")
    if print_output:
        print(text, file=stream or sys.stdout)
    return text
