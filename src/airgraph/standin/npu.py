"""What becomes `torch.npu`: on CPU airgraph's own graphs, streams and events, on CUDA those of torch.cuda."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from airgraph.errors import NotServed, OptionError
from airgraph.standin import on_cpu, on_cuda
from airgraph.standin.device import NAME
from airgraph.standin.tuning import Config, unheeded

__all__ = ["NpuModule"]


class NpuModule(ModuleType):
    """`torch.npu` for one target. Names that are not served raise NotServed, which is an AttributeError."""

    def __init__(self, target: torch.device) -> None:
        super().__init__("torch.npu", __doc__)
        # For `from torch.npu import ...` of names that are no submodules, and of those that are.
        self.__path__: list[str] = []
        self._target = target
        vars(self).update(_everywhere(target))
        self._on_cuda = on_cuda.Names(lambda value: _as_target(value, target)) if target.type == "cuda" else None
        if target.type == "cpu":
            vars(self).update(on_cpu.names())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._on_cuda is not None:
            with contextlib.suppress(AttributeError):
                # Found at once from then on, and the same object each time.
                vars(self)[name] = self._on_cuda.get(name)
                return vars(self)[name]
        served = ", ".join(sorted(each for each in vars(self) if not each.startswith("_")))
        raise NotServed(
            f"torch.npu.{name}: the stand-in for torch_npu does not have it. It has {served}; install torch_npu for "
            "the rest, or run it with `airgraph run --simulate`"
        )


def _everywhere(target: torch.device) -> dict[str, Any]:
    """What does not depend on the target's kind."""

    @contextlib.contextmanager
    def device(which: Any) -> Iterator[None]:
        """All is on the one device that there is."""
        _check(which)
        yield

    def generator(which: Any = None) -> torch.Generator:
        _check(which)
        return torch.Generator(device=target)

    def seed(number: int) -> None:
        # torch.manual_seed calls this for the devices of others.
        torch.default_generator.manual_seed(number) if target.type == "cpu" else torch.cuda.manual_seed_all(number)

    def amp_dtypes() -> Any:
        raise NotServed(f'torch.autocast("npu"): use torch.autocast("{target.type}"), or that of x.device.type')

    return {
        "Generator": generator,
        "config": Config(),
        "current_device": lambda: 0,
        "device": device,
        "device_count": lambda: 1,
        "get_amp_supported_dtype": amp_dtypes,
        "get_device_name": lambda which=None: f"stand-in for npu on {target}",
        "is_bf16_supported": lambda including_emulation=False: True,
        "init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "manual_seed": seed,
        "manual_seed_all": seed,
        "set_compile_mode": unheeded("set_compile_mode"),
        "set_device": _check,
        "set_option": unheeded("set_option"),
        "_is_in_bad_fork": lambda: False,
    }


def _as_target(value: Any, target: torch.device) -> Any:
    """The target, where the value is the device npu; raises OptionError for one that is not there."""
    is_npu = value.partition(":")[0] == NAME if isinstance(value, str) else getattr(value, "type", None) == NAME
    if not is_npu:
        return value
    _check(value)
    return target


def _check(which: Any) -> None:
    """Raises OptionError for a device that is not there."""
    index = torch.device(which).index if isinstance(which, str) else getattr(which, "index", which)
    if index not in (None, 0, -1):
        raise OptionError(f"torch.npu: device {which!r}: the stand-in has one device, npu:0")
