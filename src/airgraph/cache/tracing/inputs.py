"""What a traced graph takes from a call, and what else its tracing has looked at there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from airgraph.cache.format.guard import Read
from airgraph.cache.format.manifest import CachedInput, Traits, lazy_of
from airgraph.cache.format.source_path import Item, resolve
from airgraph.cache.tracing.collector import Collector
from airgraph.errors import Unwritable
from airgraph.program import lowering
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.torch_internals.dynamo_texts import without_conversion
from airgraph.torch_internals.fake_tensors import is_traceable_wrapper_subclass
from airgraph.torch_internals.symbolic_shapes import expression_of, guards_of, settled_expression_of

__all__ = ["cached_inputs", "looked_at", "read_input"]


def cached_inputs(
    program: CaptureProgram, sources: Sequence[lowering.InputSource], read: Read
) -> tuple[CachedInput, ...]:
    nodes = program.gm.graph.find_nodes(op="placeholder")
    return tuple(
        _cached_input(plan, source.path, node.meta["val"], read)
        for plan, node, source in zip(program.inputs, nodes, sources, strict=True)
    )


def _cached_input(plan: InputPlan, text: str, value: Any, read: Read) -> CachedInput:
    path = resolve(without_conversion(text), read)
    if path.is_global and plan.role is InputRole.MUTATED:
        raise Unwritable(f"it writes {plan.source}, a tensor outside the function's arguments")
    if path.is_global and not (isinstance(read(path), torch.Tensor) or path.is_size):
        raise Unwritable(f"{plan.source} is a number outside the function's arguments")
    for length, step in enumerate(path.steps):
        owner = read(replace(path, steps=path.steps[:length]))
        if isinstance(step, Item) and isinstance(owner, dict) and type(owner).__getitem__ is not dict.__getitem__:
            raise Unwritable(f"{plan.source} is in a {type(owner).__name__}, which looks up its items in its own way")
    if type(read(path)) is float:
        if isinstance(value, torch.SymFloat):
            raise Unwritable(f"{path.text} decides more than what tensors are computed with")
        return CachedInput.of_float(replace(plan, source=path.text), path)
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        shape, stride = tuple(map(_size, value.shape)), tuple(map(_size, value.stride()))
        offset = _size(value.storage_offset())
        return CachedInput(
            plan, path, value.dtype, value.device, shape, stride, offset, lazy_of(value), traits=Traits.of(read(path))
        )
    if isinstance(value, (int, torch.SymInt)):
        return CachedInput(plan, path, symbol=_size(value))
    raise Unwritable(f"{plan.source} is a {type(value).__name__}")


def _size(size: Any) -> int | str:
    return size if isinstance(size, int) else str(settled_expression_of(size))


def read_input(each: CachedInput, read: Read) -> Any:
    try:
        value = read(each.path)
    except (LookupError, AttributeError, TypeError) as error:
        raise Unwritable(f"{each.path.text} cannot be read again: {error}") from error
    return torch.tensor(value, dtype=each.dtype) if each.is_float else value


def looked_at(collected: Collector, inputs: set[str], read: Read) -> tuple[CachedInput, ...]:
    """Tensors and numbers that Dynamo wrapped, but that are no inputs of the graph: their sizes may have decided."""
    made: dict[str, CachedInput] = {}
    in_guards = {str(symbol) for guard in guards_of(collected.shape_env) for symbol in guard.free_symbols}
    for text, fake in collected.tracked:
        if isinstance(fake, torch.Tensor) and is_traceable_wrapper_subclass(fake):
            # Its form, sizes included, is guarded as a whole.
            if not all(type(size) is int for size in (*fake.size(), *fake.stride())):
                raise Unwritable(f"{text} is a {type(fake).__name__} whose sizes vary")
        elif text.endswith(".item()"):
            if isinstance(_size(fake), int) or str(expression_of(fake)) in in_guards:
                raise Unwritable(f"it depends on the value {text}")
        # The tensor that an argument is a view of decides nothing.
        elif without_conversion(text) not in inputs and text not in made and not re.search(r"\._base\b", text):
            role = InputRole.USER if isinstance(fake, torch.Tensor) else InputRole.SCALAR
            made[text] = _cached_input(InputPlan(len(made), role, text), text, fake, read)
    return tuple(made.values())
