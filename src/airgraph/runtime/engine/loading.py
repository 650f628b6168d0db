"""Finds the engine that replays tapes: the installed one, one built into a cache folder, or pure Python."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from airgraph import environment
from airgraph.runtime.engine import build_flags

__all__ = ["EngineStatus", "engine", "engine_status"]

log = logging.getLogger(__name__)

# A fork waits for replays of other threads, since the child would have them half done; not longer than this.
_MOST_WAIT_BEFORE_FORK_MS = 10_000

_CHECKOUT = Path(__file__).resolve().parents[4]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What `airgraph doctor` shows. problem and remedy are None where all is well."""

    loaded: bool
    path: str | None
    simd_level: str
    kernels: int
    problem: str | None = None
    remedy: str | None = None


def engine() -> Any:
    """The module that serves tapes: `airgraph._engine`, or `python_engine` with one warning.

    Raises OptionError for a bad value of AIRGRAPH_ENGINE.
    """
    return _load()[0]


def engine_status() -> EngineStatus:
    """How it went. Raises OptionError as `engine` does."""
    return _load()[1]


@functools.cache
def _load() -> tuple[Any, EngineStatus]:
    if environment.python_engine_wanted():
        return _python("AIRGRAPH_ENGINE=python is set", "Unset AIRGRAPH_ENGINE to use the native engine.", warn=False)
    built_for = _built_for()
    if built_for is None or built_for == _minor(torch.__version__):
        try:
            module = importlib.import_module("airgraph._engine")
        except ImportError as error:
            problem = f"airgraph._engine does not load: {error}"
            remedy = "Reinstall airgraph with this torch: pip install --no-build-isolation --force-reinstall airgraph."
        else:
            return _native(module)
    else:
        problem = f"its engine was built for torch {built_for}, and this is torch {torch.__version__}"
        remedy = (
            f'Install that torch (pip install "torch=={built_for}.*"), CPU or CUDA build alike, or a wheel of airgraph '
            "for yours."
        )
    # A checkout compiles another one, for this torch.
    if not (_CHECKOUT / "csrc").is_dir():
        return _python(problem, remedy)
    (compiler,) = environment.compilers("c++")
    if shutil.which(compiler) is None:
        return _python(f"no C++ compiler ({compiler})", "Install g++ and make, or set CXX.")
    try:
        return _native(_build())
    except (RuntimeError, OSError, ImportError, subprocess.SubprocessError) as error:
        log.debug("building the engine failed", exc_info=True)
        return _python(
            f"building the native engine failed: {str(error).splitlines()[0]}",
            "Install g++ and ninja (pip install ninja), or see the log of airgraph.runtime.engine.loading at DEBUG.",
        )


def _built_for() -> str | None:
    """The minor version of torch that the installed engine was built for, whatever torch runs it; None if unknown."""
    try:
        return str(importlib.import_module("airgraph._built_for").TORCH)
    except ImportError:
        return None


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _build() -> Any:
    from torch.utils import cpp_extension

    folder = environment.cache_folder() / f"engine-{sys.implementation.cache_tag}-torch{torch.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    log.info("compiling the native engine into %s (once, about half a minute)", folder)
    return cpp_extension.load(
        name="_engine",
        sources=[str(unit) for unit in build_flags.units(_CHECKOUT, folder / "units")],
        extra_cflags=build_flags.compile_args(),
        build_directory=str(folder),
    )


def _native(module: Any) -> tuple[Any, EngineStatus]:
    module.use_dots(environment.cpu_dots_wanted())
    os.register_at_fork(
        before=functools.partial(module.hold_replay_locks_before_fork, _MOST_WAIT_BEFORE_FORK_MS),
        after_in_parent=module.resume_replay_locks_in_parent,
        after_in_child=module.resume_replay_locks_in_child,
    )
    return module, EngineStatus(True, module.__file__, module.simd_level(), module.kernel_count())


def _python(problem: str, remedy: str, *, warn: bool = True) -> tuple[Any, EngineStatus]:
    from airgraph.runtime.engine import python_engine

    if warn:
        warnings.warn(f"airgraph replays in pure Python, which is slow: {problem}. {remedy}", stacklevel=3)
    level = torch.backends.cpu.get_cpu_capability()
    return python_engine, EngineStatus(False, None, level, 0, problem, remedy)
