"""Which calls of a capture by hand read a tensor's values without an operator that a recorder sees.

Memory that was there before the capture can be read in one: what was read then would be in the graph for good.
"""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
from typing import Any

import torch

__all__ = ["read_of"]

_READS = {
    torch.Tensor.tolist: "tolist()",
    torch.Tensor.numpy: "numpy()",
    torch.Tensor.__array__: "numpy.asarray()",
    torch.Tensor.__dlpack__: "__dlpack__()",
    torch.Tensor.__repr__: "printing",
    torch.Tensor.item: "item()",
    torch.Tensor.__bool__: "bool()",
    torch.Tensor.__int__: "int()",
    torch.Tensor.__float__: "float()",
    torch.Tensor.__index__: "use as an index",
}
# PyTorch makes a tensor of the numbers that a sequence holds, and reads those that are tensors, below its dispatcher.
_MADE_OF_SEQUENCES = {
    torch.tensor: "torch.tensor()",
    torch.as_tensor: "torch.as_tensor()",
    torch.asarray: "torch.asarray()",
    torch.Tensor.new: "new()",
    torch.Tensor.new_tensor: "new_tensor()",
}
_SPLIT = (torch.tensor_split, torch.Tensor.tensor_split)
_INDEXED = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
_NO_TENSORS = (str, bytes, bytearray, memoryview, array.array, Mapping)


def read_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """What reads a value in a call of one of PyTorch's Python functions, in words, or None."""
    read = _READS.get(func)
    if read is not None:
        return read
    if func is torch.Tensor.__format__:
        return "printing" if args[0].dim() == 0 else None
    made = _MADE_OF_SEQUENCES.get(func)
    if made is not None and any(_holds_a_tensor(each) for each in (*args, *kwargs.values())):
        return f"{made} of a sequence with a tensor in it (torch.stack does not)"
    if func in _SPLIT and isinstance(_at(1, "tensor_indices_or_sections", args, kwargs), torch.Tensor):
        return "tensor_split() at places that a tensor holds (with numbers it does not)"
    if func in _INDEXED:
        index = args[1]
        parts = index if isinstance(index, tuple | list) else (index,)
        if any(_holds_a_tensor(part) for part in parts):
            return "an index that is a sequence with a tensor in it (torch.stack does not)"
    return None


def _at(position: int, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    return args[position] if position < len(args) else kwargs.get(name)


def _holds_a_tensor(value: object, within: tuple[object, ...] = ()) -> bool:
    """As PyTorch tells a sequence: by its length and its elements, whatever its class. Tensors are none."""
    if isinstance(value, (torch.Tensor, *_NO_TENSORS)):
        return False
    # An array of NumPy's, which need not be installed, of anything but objects.
    if getattr(getattr(value, "dtype", None), "kind", "O") != "O":
        return False
    if not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        return False
    if any(value is outer for outer in within):
        # Within itself: PyTorch refuses it.
        return False
    held = (*within, value)
    return any(isinstance(each, torch.Tensor) or _holds_a_tensor(each, held) for each in value)  # type: ignore[attr-defined]
