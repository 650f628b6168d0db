"""A view given by strides, as reshapes, slices and windows of the dense blocks that its tensor consists of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from airgraph.torch_internals.symbolic_shapes import statically_known_true

__all__ = ["Step", "through_blocks"]

_aten = torch.ops.aten
Step = tuple[torch._ops.OpOverload, tuple[Any, ...]]


@dataclass(eq=False, slots=True)
class _Dimension:
    """One of the view: its position, its length, and how many elements of a block it steps."""

    position: int
    length: Any
    step: Any


@dataclass(eq=False, slots=True)
class _Block:
    """Dimensions of a tensor that are one when flattened: `extent` elements, `stride` apart in memory.

    begin: the first element that the view takes. taken: its dimensions in this block.
    """

    extent: Any
    stride: Any
    begin: Any = 0
    taken: list[_Dimension] = field(default_factory=list)

    @property
    def length(self) -> Any:
        """Elements from the view's first to its last."""
        return 1 + sum((each.length - 1) * each.step for each in self.taken)


def through_blocks(base: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> list[Step] | None:
    """The operators, with their arguments after the first, that give a view of a tensor by strides.

    offset: in elements from the tensor's first. Sizes may be symbols where the tensor is dense. None where no operators
    are found; what is found is to be checked.
    """
    found = _blocks(base)
    if found is None:
        return None
    order, blocks = found
    if not _place(blocks, size, stride, offset):
        return None
    steps: list[Step] = []
    if order != list(range(base.dim())):
        steps.append((_aten.permute.default, (order,)))
    if len(blocks) != base.dim():
        steps.append((_aten.view.default, ([block.extent for block in blocks],)))
    seen: list[_Seen] = [(block, block.extent) for block in blocks]
    for block in blocks:
        steps += _parts(block, seen)
    now = [what for what, _ in seen]
    if now != list(range(len(size))):
        steps.append((_aten.permute.default, ([now.index(position) for position in range(len(size))],)))
    return steps


# A dimension of what is seen so far, with its size: one of the view, by its position, or a block to be taken apart.
_Seen = tuple["int | _Block", Any]


def _blocks(base: torch.Tensor) -> tuple[list[int], list[_Block]] | None:
    """A tensor's dimensions from the widest to the narrowest, and the blocks that these make."""
    order = list(range(base.dim()))
    shape, strides = base.shape, base.stride()
    if all(isinstance(number, int) for number in (*shape, *strides)):
        if 0 in shape or any(strides[dim] == 0 and shape[dim] != 1 for dim in order):
            return None
        # A dimension of one element fits in wherever it is.
        order.sort(key=lambda dim: -strides[dim] if shape[dim] != 1 else -math.inf)
    else:
        nested = _nested([_Dimension(dim, shape[dim], strides[dim]) for dim in order])
        if nested is None:
            return None
        order = [each.position for each in nested]
    blocks: list[_Block] = []
    for dim in order:
        last = blocks[-1] if blocks else None
        if last is not None and (_equal(last.extent, 1) or _equal(last.stride, shape[dim] * strides[dim])):
            last.extent, last.stride = last.extent * shape[dim], strides[dim]
        else:
            blocks.append(_Block(shape[dim], strides[dim]))
    return order, blocks


def _place(blocks: list[_Block], size: Sequence[Any], stride: Sequence[Any], offset: Any) -> bool:
    """Give each dimension of the view to the block in which it steps."""
    known = all(isinstance(number, int) for number in (offset, *size, *stride, *(block.extent for block in blocks)))
    if not known and len(blocks) != 1:
        return False
    if known and 0 in size:
        return False
    for block in blocks:
        block.begin = min(offset // block.stride, block.extent - 1) if known else offset
        offset -= block.begin * block.stride
    if not _equal(offset, 0):
        return False
    for position, (length, step) in enumerate(zip(size, stride, strict=True)):
        for block in blocks:
            every = step // block.stride if known else step
            if known and (step % block.stride or block.begin + block.length + (length - 1) * every > block.extent):
                continue
            block.taken.append(_Dimension(position, length, every))
            break
        else:
            return False
    return True


def _parts(block: _Block, seen: list[_Seen]) -> Iterator[Step]:
    """Take a block apart into the dimensions of the view that lie in it."""
    place = next(place for place, (what, _) in enumerate(seen) if what is block)
    if not block.taken:
        del seen[place]
        yield _aten.select.int, (place, block.begin)
        return
    nested = _nested(block.taken)
    if nested is not None:
        # One regular run of elements.
        every, count = nested[-1].step, math.prod(each.length for each in nested)
        if not (_equal(count, block.extent) and _equal(every, 1)):
            yield _aten.slice.Tensor, (place, block.begin, block.begin + (count - 1) * every + 1, every)
        seen[place : place + 1] = [(each.position, each.length) for each in nested]
        if len(nested) > 1:
            yield _aten.view.default, ([size for _, size in seen],)
        return
    # Windows: each dimension steps over what those after it need, which becomes the last one.
    window = block.length
    if not _equal(window, block.extent):
        yield _aten.slice.Tensor, (place, block.begin, block.begin + window)
    for each in sorted(block.taken, key=lambda each: -each.step):
        window -= (each.length - 1) * each.step
        yield _aten.unfold.default, (place, window, each.step)
        seen[place] = (each.position, each.length)
        seen.append((block, window))
        place = len(seen) - 1
    del seen[place]
    yield _aten.select.int, (place, 0)


def _nested(dimensions: Sequence[_Dimension]) -> list[_Dimension] | None:
    """From the widest to the narrowest, where each steps over all of the next; None if they do not."""
    rest = list(dimensions)
    steps = [each.step for each in rest]
    reached: Any = min(steps) if all(isinstance(step, int) for step in steps) else 1
    found: list[_Dimension] = []
    while rest:
        fits = [each for each in rest if _equal(each.step, reached)]
        if not fits:
            return None
        found.append(next((each for each in fits if _equal(each.length, 1)), fits[0]))
        rest.remove(found[-1])
        reached = reached * found[-1].length
    return found[::-1]


def _equal(ours: Any, theirs: Any) -> bool:
    return statically_known_true(ours == theirs)
