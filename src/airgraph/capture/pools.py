"""Which pool the captures of a program go into."""

from __future__ import annotations

from airgraph.errors import OptionError
from airgraph.memory.pool import MemoryPool
from airgraph.options import Options
from airgraph.program.program import CaptureProgram
from airgraph.runtime.protocol import DeviceRuntime

__all__ = ["pool_for"]


def pool_for(program: CaptureProgram, runtime: DeviceRuntime, options: Options) -> MemoryPool | None:
    """The pool for all captures of a program, or None if each is to have its own.

    Raises OptionError if the pool given cannot serve: a wrong type, closed, or of another device.
    """
    given = options.use_graph_pool
    if given is None:
        return runtime.open_pool(program.device) if options.reuse_graph_pool_in_same_fx else None
    pool = given if isinstance(given, MemoryPool) else runtime.adopt_pool(given, program.device)
    if pool is None:
        raise OptionError(
            f"option 'use_graph_pool': expected a pool from airgraph.graph_pool_handle({str(program.device)!r}), got "
            f"{given!r} of type {type(given).__name__}."
        )
    if pool.closed:
        raise OptionError(f"option 'use_graph_pool': {pool!r} is closed. Open another by airgraph.graph_pool_handle().")
    if not _same_device(pool, program):
        raise OptionError(
            f"option 'use_graph_pool': {program.name} runs on {program.device}, got a pool of {pool.device}. Open one "
            f"by airgraph.graph_pool_handle({str(program.device)!r})."
        )
    return pool


def _same_device(pool: MemoryPool, program: CaptureProgram) -> bool:
    """A device without an index is the current one, index 0 where it has but one."""
    ours, theirs = pool.device, program.device
    return ours.type == theirs.type and (ours.index or 0) == (theirs.index or 0)
