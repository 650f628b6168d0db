"""PyTorch's dispatcher: which operators it has kernels for, the keys of tensors, and calls around its layers."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

__all__ = [
    "MODULES_OF_OPERATORS",
    "alias_one_storage",
    "dispatch_key_of",
    "dispatch_keys",
    "has_kernel",
    "has_kernel_for",
    "has_key",
    "has_python_kernel",
    "has_tangent",
    "is_lazy_zero",
    "is_wrapped_by_functorch",
    "negated_view",
    "overlaps_itself",
    "overloads_of",
    "replaced_kernels",
    "settings_readers",
    "without_autocast",
    "without_dispatch_modes",
]

# What registers operators, and calls the functions that it is given where they run.
MODULES_OF_OPERATORS = ("torch._ops", "torch.library", "torch._library", "torch._C._distributed")

# Context managers, one made for each block.
without_autocast = torch._C._DisableAutocast
without_dispatch_modes = torch._C._DisableTorchDispatch

# For which PyTorch itself gives some, in modules that it may import or not.
_REPLACED_BY_TORCH = {"Meta", "CUDA", "MPS"}
_OF_TRACING = {"_get_tracing_state", "_get_graph_executor_optimize"}


def dispatch_keys(tensor: torch.Tensor) -> Any:
    """Its set of keys, with `has` and `raw_repr`."""
    return torch._C._dispatch_keys(tensor)


def has_key(tensor: torch.Tensor, *names: str) -> bool:
    """Whether it has one of these keys."""
    keys = torch._C._dispatch_keys(tensor)
    return any(keys.has(getattr(torch._C.DispatchKey, name)) for name in names)


def dispatch_key_of(device_type: str) -> str:
    """The name of the key of a device's kernels."""
    return torch._C._dispatch_key_for_device(device_type)


def has_kernel(qualified: str) -> bool:
    """Whether the dispatcher knows an operator, such as `aten::add.Tensor`."""
    return torch._C._dispatch_has_kernel(qualified)


def has_kernel_for(qualified: str, key: str) -> bool:
    """Whether it has a kernel for a key."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(qualified, key)


def overloads_of(qualified: str) -> list[str]:
    """The names of an operator's overloads, "default" for the one without a name; none if it is unknown."""
    return [schema.overload_name or "default" for schema in torch._C._jit_get_schemas_for_operator(qualified)]


def replaced_kernels() -> list[str]:
    """Of PyTorch's own operators those that Python has given a kernel, and for which key."""
    found = (name.split("/") for name in sorted(torch.library._impls))
    return [f"{name} {key}" for namespace, name, key in found if namespace == "aten" and key not in _REPLACED_BY_TORCH]


def has_python_kernel(qualified: str) -> bool:
    """Whether Python has given an operator a kernel that calls on the CPU may come to."""
    namespace, _, name = qualified.partition("::")
    keys = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return any(f"{namespace}/{name}/{key}" in torch.library._impls for key in keys)


def is_wrapped_by_functorch(tensor: torch.Tensor) -> bool:
    """Whether a transform of torch.func has wrapped it."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def has_tangent(tensor: torch.Tensor) -> bool:
    """Whether it carries one of forward-mode derivatives."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def is_lazy_zero(tensor: torch.Tensor) -> bool:
    return tensor._is_zerotensor()


def negated_view(tensor: torch.Tensor) -> torch.Tensor:
    """The lazy negative of a tensor, on the same memory."""
    return torch._neg_view(tensor)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether several of its elements may lie at one address."""
    return torch._debug_has_internal_overlap(tensor) != 0


def alias_one_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch._C._is_alias_of(a, b)  # type: ignore[attr-defined]


def settings_readers() -> list[Any]:
    """Functions in C that look settings of the process up."""
    return [
        held
        for name, held in vars(torch._C).items()
        if name.startswith(("get_num_", "_get_")) and name not in _OF_TRACING
    ]
