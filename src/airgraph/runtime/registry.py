"""Which runtime serves a device type."""

from __future__ import annotations

from airgraph.errors import UnsupportedGraph
from airgraph.runtime.base import DeviceRuntime

__all__ = ["device_types", "runtime_for"]


def _cpu() -> DeviceRuntime:
    from airgraph.runtime.cpu.runtime import CpuRuntime

    return CpuRuntime()


_FACTORIES = {"cpu": _cpu}
_OPENED: dict[str, DeviceRuntime] = {}


def device_types() -> tuple[str, ...]:
    return tuple(_FACTORIES)


def runtime_for(device_type: str) -> DeviceRuntime:
    """The runtime of a device type, opened at its first use. Raises UnsupportedGraph if there is none."""
    if device_type not in _FACTORIES:
        raise UnsupportedGraph(f"no runtime for device {device_type!r}; known: {', '.join(_FACTORIES)}")
    if device_type not in _OPENED:
        _OPENED[device_type] = _FACTORIES[device_type]()
    return _OPENED[device_type]
