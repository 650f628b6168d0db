"""Global settings of PyTorch that a trace depends on: default dtype and device, autocast, function modes, ..."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch

from airgraph.errors import Unwritable
from airgraph.program.held_values import digest_of_value
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals import modes, settings

__all__ = ["State", "settled", "without_gradients"]

_INCOMPARABLE = "no digest: "


@dataclass(frozen=True, slots=True)
class State:
    """autocast: of each device whether it is on, and its dtype. precision: whether products on CUDA may be computed in
    TF32, and sums of fp16 and bf16 in themselves. attention: the kinds of attention that may be chosen while tracing.
    device: what else chooses kernels, such as CUDA's compute capability. distributed: rank and number of processes.

    modes: full names of function and dispatch modes and of transforms. hooks: a digest of those of all modules.
    """

    default_dtype: str
    default_device: str | None
    autocast: tuple[str, ...]
    deterministic: str
    precision: str
    attention: str
    device: str
    distributed: str
    modes: tuple[str, ...]
    hooks: str

    @classmethod
    def now(cls, on: torch.device) -> State:
        """on: where the graph runs."""
        device = settings.default_device()
        return cls(
            str(torch.get_default_dtype()),
            None if device is None else str(device),
            (
                *(_autocast(each) for each in dict.fromkeys(("cpu", "cuda", on.type))),
                f"cache {torch.is_autocast_cache_enabled()}",
            ),
            f"{torch.are_deterministic_algorithms_enabled()} {torch.is_deterministic_algorithms_warn_only_enabled()}",
            _precision(),
            _attention(),
            _device(on),
            _rank(),
            tuple(_name(mode) for mode in modes.active_modes()),
            _hooks(),
        )

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> State:
        """From `dataclasses.asdict` as JSON has it."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        return cls(**values)

    def why_other(self, now: State) -> str | None:
        """What is set otherwise now, in words, or None."""
        names = [each.name for each in fields(self) if getattr(self, each.name) != getattr(now, each.name)]
        changes = [f"{name} {getattr(self, name)!r}, now {getattr(now, name)!r}" for name in names]
        return f"it was traced under {'; '.join(changes)}" if changes else None

    @property
    def why_unwritable(self) -> str | None:
        """Why what is traced under these settings cannot be told from what is traced under others, or None."""
        if self.foreign_modes:
            return f"it was called under {', '.join(self.foreign_modes)}"
        if self.hooks.startswith(_INCOMPARABLE):
            return f"there is a hook of all modules: {self.hooks.removeprefix(_INCOMPARABLE)}"
        return None

    @property
    def foreign_modes(self) -> list[str]:
        """Modes that may do anything, unlike that of a default device."""
        return [mode for mode in self.modes if mode != settings.DEVICE_CONTEXT]


def settled() -> Any:
    """Says by `unchanged`, at little cost, whether the settings that a state is made of are as they are now."""
    made = engine().Settled(settings.device_settings())
    made.settle()
    return made


@contextmanager
def without_gradients() -> Iterator[None]:
    """As `torch.no_grad`, but not for a transform of torch.func, which may have been asked for them."""
    if modes.is_transformed():
        yield
    else:
        with torch.no_grad():
            yield


def _autocast(device: str) -> str:
    return f"{device} {torch.is_autocast_enabled(device)} {torch.get_autocast_dtype(device)}"


def _precision() -> str:
    # Dynamo guards these, and functions read them as constants.
    matmul = torch.backends.cuda.matmul
    return " ".join(
        str(_asked(matmul, name))
        for name in ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    )


def _attention() -> str:
    kinds = torch.backends.cuda
    return " ".join(
        str(is_on())
        for is_on in (
            kinds.flash_sdp_enabled,
            kinds.mem_efficient_sdp_enabled,
            kinds.math_sdp_enabled,
            kinds.cudnn_sdp_enabled,
        )
    )


def _device(on: torch.device) -> str:
    if on.type != "cuda":
        return ""
    if on.index is not None and on.index >= torch.cuda.device_count():
        return "no such device"
    major, minor = torch.cuda.get_device_capability(on)
    return f"compute capability {major}.{minor}"


def _asked(settings: Any, name: str) -> Any:
    try:
        return getattr(settings, name)
    except RuntimeError:
        # It refuses to answer once the precision was set in the new way.
        return settings.fp32_precision


def _rank() -> str:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return ""
    return f"{torch.distributed.get_rank()} of {torch.distributed.get_world_size()}"


def _hooks() -> str:
    held = settings.hooks_of_all_modules()
    try:
        return digest_of_value(held).text if held else ""
    except Unwritable as error:
        return f"{_INCOMPARABLE}{error}"


def _name(mode: Any) -> str:
    return f"{type(mode).__module__}.{type(mode).__qualname__}"
