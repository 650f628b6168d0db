"""Tensors of wrapping subclasses, as torchao's quantized weights are, and the plain tensors that they are made of."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.torch_internals.dynamo import copy_of_graph
from airgraph.torch_internals.dynamo_sources import path_of_node, set_source_within
from airgraph.torch_internals.dynamo_texts import KEYS_OF_INPUTS
from airgraph.torch_internals.fake_tensors import is_traceable_wrapper_subclass

__all__ = [
    "RebuiltFromParts",
    "TakenApart",
    "form_of",
    "form_text",
    "holds_others",
    "is_container",
    "plain_parts",
    "take_apart",
]

_CONSTANTS = (bool, int, float, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


def plain_parts(tensor: torch.Tensor) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Each by the attributes that lead to it, in the order of `__tensor_flatten__`; a plain tensor by none.

    What a wrapper names among its parts that is no tensor, such as a DTensor's mesh, is left out.
    """
    if not is_traceable_wrapper_subclass(tensor):
        yield (), tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        named = getattr(tensor, name)
        if isinstance(named, torch.Tensor):
            for path, part in plain_parts(named):
                yield (name, *path), part


@dataclasses.dataclass(frozen=True, slots=True)
class _NoTensor:
    """The form of what a wrapper names among its parts, and that is none."""

    value: Any


def form_of(tensor: Any) -> Any:
    """What a tensor is besides its parts: of a wrapper the class, the names and forms of its parts, its context, sizes,
    strides and type; of a plain tensor None."""
    if not isinstance(tensor, torch.Tensor):
        return _NoTensor(tensor)
    if not is_traceable_wrapper_subclass(tensor):
        return None
    names, context = tensor.__tensor_flatten__()
    forms = tuple((name, form_of(getattr(tensor, name))) for name in names)
    kind = tensor.dtype, tensor.device, tensor.layout
    return type(tensor), forms, context, tuple(tensor.size()), tuple(tensor.stride()), kind


def form_text(form: Any) -> str:
    """A form as text that is the same in all processes. Raises TypeError for what has no such text."""
    match form:
        case tuple() | list():
            return f"{type(form).__name__}({', '.join(map(form_text, form))})"
        case dict():
            return f"dict({', '.join(f'{form_text(key)}: {form_text(each)}' for key, each in form.items())})"
        case type():
            return f"{form.__module__}.{form.__qualname__}"
        case enum.Enum():
            return f"{form_text(type(form))}.{form.name}"
    if type(form) in _CONSTANTS:
        return repr(form)
    if dataclasses.is_dataclass(form):
        held = {each.name: getattr(form, each.name) for each in dataclasses.fields(form)}
        return f"{form_text(type(form))} of {form_text(held)}"
    raise TypeError(f"it holds a {form_text(type(form))}, which cannot be written down")


def is_container(value: Any) -> bool:
    """Whether it is a list, tuple or dict, or an object of a dataclass."""
    return isinstance(value, (list, tuple, dict)) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def holds_others(value: Any) -> bool:
    """Whether a wrapper or a container holds, at any depth, an object of which nobody knows what its state is."""
    if is_traceable_wrapper_subclass(value):
        return any(map(holds_others, vars(value).values()))
    if isinstance(value, dict):
        return any(map(holds_others, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(holds_others, value))
    if is_container(value):
        return any(holds_others(getattr(value, each.name)) for each in dataclasses.fields(value))
    return not isinstance(value, (*_CONSTANTS, enum.Enum, type, torch.Tensor, types.FunctionType, types.ModuleType))


class RebuiltFromParts(torch.nn.Module):
    """Makes a tensor of a wrapping subclass of its parts, where a graph wants the tensor.

    Method: `torch.nn.utils.parametrize` as torchao and PyTorch use it to export such models.
    """

    def __init__(self, like: torch.Tensor) -> None:
        super().__init__()
        self.form = form_of(like)
        # What was made while the graph was traced.
        self._made: list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]] = []

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        made = _rebuilt(self.form, iter(parts))
        self._made.append((made, parts))
        return made

    def stays_as_it_is(self) -> bool:
        """Whether the graph changed only the values of its parts, if anything. Once, after tracing."""
        made, self._made = self._made, []
        return all(
            form_of(tensor) == self.form
            and all(now is part for (_, now), part in zip(plain_parts(tensor), parts, strict=True))
            for tensor, parts in made
        )


def _rebuilt(form: Any, parts: Iterator[torch.Tensor]) -> Any:
    if form is None:
        return next(parts)
    if isinstance(form, _NoTensor):
        return form.value
    class_, forms, context, sizes, strides, _ = form
    return class_.__tensor_unflatten__({name: _rebuilt(each, parts) for name, each in forms}, context, sizes, strides)


@dataclasses.dataclass(frozen=True, slots=True)
class TakenApart:
    """Dynamo's graph over the parts of those arguments that are wrappers, in their place and order.

    rebuilt: what makes the wrappers of them. plan: for each of its arguments the position of that of the graph as it
    was, and the attributes that lead from there to it.
    """

    gm: GraphModule
    example_inputs: Sequence[Any]
    rebuilt: Sequence[RebuiltFromParts]
    plan: Sequence[tuple[int, tuple[str, ...]]]

    def stays_as_it_is(self) -> bool:
        """Whether the graph leaves the wrappers what they are made of. Once, after tracing."""
        return all([each.stays_as_it_is() for each in self.rebuilt])

    def taken_by(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """What takes the arguments of the graph as it was, and calls `call` with those of this one."""
        plan = [(owner, attrgetter(".".join(path)) if path else None) for owner, path in self.plan]

        def call_with_parts(*args: Any) -> Any:
            return call(*[args[owner] if read is None else read(args[owner]) for owner, read in plan])

        return call_with_parts


def take_apart(gm: GraphModule, example_inputs: Sequence[Any]) -> TakenApart | None:
    """None where gradients are needed, or no argument is a wrapper, or its sizes vary. The graph stays as it is."""
    fakes = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    needs_gradient = torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in fakes)
    if needs_gradient or not any(map(_can_be_rebuilt, fakes)):
        return None
    gm = copy_of_graph(gm)
    placeholders = gm.graph.find_nodes(op="placeholder")
    # What the graph takes by itself besides, such as a scale that the program reads.
    by_source = {path_of_node(node): node for node in placeholders}
    made: list[Any] = []
    rebuilt: list[RebuiltFromParts] = []
    plan: list[tuple[int, tuple[str, ...]]] = []
    last = placeholders[-1]
    for index, (node, example, fake) in enumerate(zip(placeholders, example_inputs, fakes, strict=True)):
        if not _can_be_rebuilt(fake):
            made.append(example)
            plan.append((index, ()))
            continue
        each = RebuiltFromParts(fake)
        rebuilt.append(each)
        name = f"rebuilt_{len(rebuilt)}_from_parts"
        gm.add_submodule(name, each)
        parts = []
        for path, part in plain_parts(fake):
            known = by_source.get(".".join((str(path_of_node(node)), *path)))
            if known is not None:
                parts.append(known)
                continue
            with gm.graph.inserting_before(node):
                parts.append(_placeholder(gm, node, path, part))
            made.append(part)
            plan.append((index, path))
        with gm.graph.inserting_after(last):
            whole = gm.graph.call_module(name, tuple(parts))
        whole.meta = dict(node.meta)
        node.replace_all_uses_with(whole)
        if node is last:
            last = whole
        gm.graph.erase_node(node)
    gm.recompile()
    return TakenApart(gm, made, rebuilt, plan)


def _can_be_rebuilt(fake: Any) -> bool:
    if not isinstance(fake, torch.Tensor) or not is_traceable_wrapper_subclass(fake):
        return False
    tensors = [fake, *(part for _, part in plain_parts(fake))]
    return all(type(size) is int for each in tensors for size in (*each.size(), *each.stride()))


def _placeholder(gm: GraphModule, whole: Node, path: tuple[str, ...], part: torch.Tensor) -> Node:
    made = gm.graph.placeholder("_".join((whole.name, *path)))
    made.meta = {key: value for key, value in whole.meta.items() if key not in KEYS_OF_INPUTS}
    made.meta["example_value"] = part
    set_source_within(made, whole, path)
    return made
