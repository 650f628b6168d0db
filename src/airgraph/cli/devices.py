"""May a command run on this device?"""

from __future__ import annotations

from airgraph.cli.failure import UsageProblem

__all__ = ["DEVICES", "check_device"]

DEVICES = ("cpu", "cuda", "npu")


def check_device(device: str) -> None:
    """Raise UsageProblem unless this is the type of a device that is here."""
    if device not in DEVICES:
        raise UsageProblem(f"unknown device {device!r}: give one of {', '.join(DEVICES)}")
    from airgraph.errors import UnsupportedGraph
    from airgraph.runtime.registry import runtime_for

    try:
        runtime_for(device)
    except UnsupportedGraph as error:
        raise UsageProblem(f"cannot use device {device!r}: {error}. `airgraph doctor` shows what is here") from error
