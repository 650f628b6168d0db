"""Which runtime serves a device type, and pools by device."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.metadata import entry_points

import torch

from airgraph.arguments import as_integer, shown
from airgraph.errors import InternalError, OptionError, UnsupportedGraph
from airgraph.memory.locks import renew_after_fork
from airgraph.memory.pool import MemoryPool
from airgraph.runtime.protocol import DeviceRuntime

__all__ = ["ENTRY_POINT_GROUP", "device_types", "graph_pool_handle", "runtime_for"]

# A third party serves a device of its own by an entry point: name = the device type, value = a callable without
# arguments that returns a DeviceRuntime, or raises UnsupportedGraph where the device is missing.
ENTRY_POINT_GROUP = "airgraph.devices"


def _cpu() -> DeviceRuntime:
    from airgraph.runtime.cpu.runtime import CpuRuntime

    return CpuRuntime()


def _cuda() -> DeviceRuntime:
    from airgraph.runtime.cuda import CudaRuntime

    return CudaRuntime()


def _npu() -> DeviceRuntime:
    from airgraph.runtime.npu import NpuRuntime

    return NpuRuntime()


_BUILT_IN: dict[str, Callable[[], DeviceRuntime]] = {"cpu": _cpu, "cuda": _cuda, "npu": _npu}
_opened: dict[str, DeviceRuntime] = {}
_lock = threading.RLock()
renew_after_fork(sys.modules[__name__], "_lock")


def device_types() -> tuple[str, ...]:
    """Every device type that a runtime is known for, whether or not such a device is here."""
    others = sorted({found.name for found in entry_points(group=ENTRY_POINT_GROUP)} - set(_BUILT_IN))
    return (*_BUILT_IN, *others)


def runtime_for(device_type: str) -> DeviceRuntime:
    """The runtime of a device type, opened at its first use.

    Raises UnsupportedGraph if there is none or its device is missing.
    """
    with _lock:
        if device_type not in _opened:
            _opened[device_type] = _open(device_type)
        return _opened[device_type]


def _open(device_type: str) -> DeviceRuntime:
    if device_type in _BUILT_IN:
        return _BUILT_IN[device_type]()
    for found in entry_points(group=ENTRY_POINT_GROUP, name=device_type):
        try:
            runtime = found.load()()
        except UnsupportedGraph:
            raise
        except Exception as error:
            raise UnsupportedGraph(f"the runtime {found.value} for device {device_type!r} failed: {error}") from error
        if runtime.device_type != device_type:
            raise InternalError(f"{found.value} serves {runtime.device_type!r}, not {device_type!r}")
        return runtime
    raise UnsupportedGraph(f"no runtime for device {device_type!r}; known: {', '.join(device_types())}")


def graph_pool_handle(device: str | int | torch.device | None = None) -> MemoryPool:
    """A new pool on a device, by default the CPU.

    Raises OptionError for what names no device, and for one that is not there or has no runtime.
    """
    # True would be the device of number 1 to some, and to PyTorch nothing.
    index = as_integer(device)
    if index is None and not isinstance(device, (str, torch.device, type(None))):
        raise OptionError(f"device: expected a device such as 'cpu' or torch.device('cuda', 0), got {shown(device)}.")
    try:
        wanted = torch.device("cpu" if device is None else device if index is None else index)
        return runtime_for(wanted.type).open_pool(wanted)
    except (RuntimeError, UnsupportedGraph) as error:
        raise OptionError(f"device {device!r}: {error}") from error
