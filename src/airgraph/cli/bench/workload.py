"""What is timed: a function with its arguments, and what a call of it may change."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from airgraph.cli.failure import UsageProblem
from airgraph.torch_internals.graphs import tree_leaves

__all__ = ["State", "Workload"]


def _none(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Tensor]:
    return ()


@dataclass(frozen=True, slots=True)
class Workload:
    """A call: function(*args, **kwargs), where function is a module or anything that can be called.

    held_by: tensors that a call may change and that lie within objects of these arguments, such as a cache's.
    calls_at_most: that may follow one another before what they have changed must be put back; None: any number.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    held_by: Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[Tensor]] = _none
    calls_at_most: int | None = None

    def with_own_arguments(self) -> Workload:
        """The same with copies of the arguments; what they share with the model stays shared.

        Raises UsageProblem where an argument cannot be copied.
        """
        kept: dict[int, Any] = {id(tensor): tensor for tensor in self._of_model()}
        if isinstance(self.function, nn.Module):
            kept[id(self.function)] = self.function
        # deepcopy() refuses what was computed with gradients, which nobody asks for here.
        kept.update((id(leaf), leaf.detach().clone()) for leaf in self._given() if not leaf.is_leaf)
        try:
            args, kwargs = copy.deepcopy((self.args, dict(self.kwargs)), kept)
        except Exception as error:
            raise UsageProblem(
                f"an argument of {self.name} cannot be copied, so that each way gets its own: {error}"
            ) from error
        return replace(self, args=args, kwargs=kwargs)

    def placed(self, device: str | None, dtype: torch.dtype | None) -> Workload:
        """The same on a device, with its floating-point numbers of a type; a module is moved itself."""
        if device is None and dtype is None:
            return self

        def moved(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(device, dtype if value.is_floating_point() else None)
            if isinstance(value, (list, tuple)):
                items = [moved(each) for each in value]
                return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
            if isinstance(value, dict):
                return {key: moved(each) for key, each in value.items()}
            return value

        if isinstance(self.function, nn.Module):
            self.function.to(device=device, dtype=dtype)
        return replace(self, args=moved(self.args), kwargs=moved(dict(self.kwargs)))

    def state(self) -> State:
        """What a call may change, as it is now."""
        buffers = self.function.buffers() if isinstance(self.function, nn.Module) else ()
        tensors = [*self._given(), *self.held_by(self.args, self.kwargs), *buffers]
        # Sparse and other tensors without strides cannot be compared, nor written.
        return State(tensor for tensor in tensors if tensor.layout is torch.strided)

    def _given(self) -> list[Tensor]:
        return [leaf for leaf in tree_leaves((self.args, dict(self.kwargs))) if isinstance(leaf, Tensor)]

    def _of_model(self) -> Iterable[Tensor]:
        if isinstance(self.function, nn.Module):
            yield from self.function.parameters()
            yield from self.function.buffers()


class State:
    """Tensors, and what they held when this was made, or what is said that they held."""

    def __init__(self, tensors: Iterable[Tensor], before: Iterable[Tensor] | None = None) -> None:
        self.tensors = list(tensors)
        self._before = [tensor.detach().clone() for tensor in self.tensors] if before is None else list(before)

    def changed(self) -> State:
        """Of those that have changed since; their values are still those of before."""
        pairs = zip(self.tensors, self._before, strict=True)
        found = [(tensor, before) for tensor, before in pairs if not _same(tensor.detach(), before)]
        return State((tensor for tensor, _ in found), (before for _, before in found))

    def restore(self) -> None:
        """Give the tensors the values of before, where they lie."""
        for tensor, before in zip(self.tensors, self._before, strict=True):
            # Inference tensors are written in their mode only; others count their writes outside of it.
            with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
                tensor.copy_(before)


def _same(left: Tensor, right: Tensor) -> bool:
    if left.is_floating_point() or left.is_complex():
        return bool(((left == right) | (left.isnan() & right.isnan())).all())
    return torch.equal(left, right)
