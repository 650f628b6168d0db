"""A weight of int8 as quantization libraries make it: a wrapping subclass of Tensor, of a matrix and its scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Int8Weight", "quantize"]


class Int8Weight(torch.Tensor):
    """data [n, k] of int8, scale [n, 1]. block: what a scale belongs to. inner may be an Int8Weight itself."""

    def __new__(cls, data: Tensor, scale: Tensor, block: list[int]) -> Int8Weight:
        made: Int8Weight = torch.Tensor._make_wrapper_subclass(
            cls, data.shape, dtype=scale.dtype, device=data.device, requires_grad=False
        )
        return made

    def __init__(self, data: Tensor, scale: Tensor, block: list[int]) -> None:
        self.data_of, self.scale, self.block = data, scale, block

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Int8Weight({tuple(self.shape)})"

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        return ["data_of", "scale"], {"block": self.block}

    @classmethod
    def __tensor_unflatten__(
        cls, parts: Mapping[str, Tensor], context: Mapping[str, Any], size: Sequence[int], stride: Sequence[int]
    ) -> Int8Weight:
        return cls(parts["data_of"], parts["scale"], context["block"])

    def dequantized(self) -> Tensor:
        return self.data_of.to(self.scale.dtype) * self.scale

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function is F.linear and isinstance(args[1], Int8Weight):
            x, weight, bias = (*args, None)[:3]
            product = torch.mm(x, weight.data_of.t().to(x.dtype)) * weight.scale.t().to(x.dtype)
            return product if bias is None else product + bias
        if function is torch.Tensor.add_:
            # Another scale, made anew.
            args[0].scale = args[0].scale + args[1]
            return args[0]
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if op is torch.ops.aten.detach.default:
            weight = args[0]
            return cls(weight.data_of, weight.scale, weight.block)
        plain = [each.dequantized() if isinstance(each, Int8Weight) else each for each in args]
        return op(*plain, **(kwargs or {}))


def quantize(model: nn.Module) -> nn.Module:
    """Let the Linears of a model have such weights."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            scale = module.weight.detach().abs().amax(1, keepdim=True) / 127
            data = (module.weight.detach() / scale).round().to(torch.int8)
            weight = Int8Weight(data, scale, [1, data.shape[1]])
            module.weight = nn.Parameter(weight, requires_grad=False)
    return model
