"""Dynamo's variables, which stand for values while a function is traced, and what it has noted of their changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import Node

from airgraph.torch_internals.dynamo_sources import path_of_node

__all__ = [
    "NO_CONSTANT",
    "constant_of",
    "effects_of",
    "is_made_within",
    "is_tensor",
    "kind_of",
    "modified_variables",
    "path_of_what_is_written",
    "sets_attributes",
    "sets_hooks",
    "stack_of",
    "type_of",
    "visit_variables",
    "written_attributes",
    "written_items",
]

NO_CONSTANT = object()
# `operator.iadd` and so on, which give what they are given.
_IN_PLACE = {f"i{name}" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")}


def stack_of(translator: Any) -> Sequence[Any]:
    """The variables that a translator is about to return, among others."""
    stack: Sequence[Any] = translator.stack
    return stack


def effects_of(translator: Any) -> Any:
    """What a trace has noted of changes."""
    return translator.output.side_effects


def sets_hooks(effects: Any) -> bool:
    """Whether a function registers hooks on tensors, or saves tensors for a backward of its own."""
    return bool(effects.tensor_hooks or effects.save_for_backward)


def type_of(variable: Any) -> type:
    """Of the value that a variable stands for."""
    found: type = variable.python_type()
    return found


def written_attributes(effects: Any, variable: Any) -> Mapping[str, Any]:
    """By name, as variables, what a function has set of an object. effects: Dynamo's, of a trace."""
    written: Mapping[str, Any] = effects.store_attr_mutations.get(variable, {})
    return written


def modified_variables(effects: Any) -> Sequence[Any]:
    """What a function has changed, or made and changed."""
    return list(effects._get_modified_vars())


def is_made_within(variable: Any) -> bool:
    """Whether the function itself makes the object."""
    from torch._dynamo.variables.base import AttributeMutationNew, ValueMutationNew

    return isinstance(getattr(variable, "mutation_type", None), (AttributeMutationNew, ValueMutationNew))


def sets_attributes(variable: Any) -> bool:
    """Whether it is an object of before, of which only attributes are set."""
    from torch._dynamo.variables.base import AttributeMutationExisting

    return isinstance(getattr(variable, "mutation_type", None), AttributeMutationExisting)


def written_items(variable: Any) -> Mapping[Any, Any] | None:
    """Of a dict of before the items that are set in it, as variables; None where it is none, or more is changed."""
    from torch._dynamo.variables import ConstDictVariable
    from torch._dynamo.variables.base import ValueMutationExisting

    if type(variable) is not ConstDictVariable or not isinstance(variable.mutation_type, ValueMutationExisting):
        return None
    if variable.should_reconstruct_all or not all(key.vt.is_python_constant() for key in variable.items):
        return None
    before = variable.original_items
    return {
        key.vt.as_python_constant(): value.realize()
        for key, value in variable.items.items()
        if variable.is_new_item(before.get(key.vt), value)
    }


def path_of_what_is_written(variable: Any) -> str | None:
    """Where a tensor came from that has only been written in place since, as by `self.buffer += 1`; None for others."""
    if not variable.is_tensor():
        return None
    node = variable.as_proxy().node
    while node.op != "placeholder":
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        by_method = node.op == "call_method" and name.endswith("_") and not name.endswith("__")
        if not by_method and not (node.op == "call_function" and name in _IN_PLACE):
            return None
        node = node.args[0]
        if not isinstance(node, Node):
            return None
    return path_of_node(node)


def constant_of(variable: Any) -> Any:
    """The constant that a variable stands for, or `NO_CONSTANT`."""
    from torch._dynamo.variables import ConstantVariable

    return variable.value if type(variable) is ConstantVariable else NO_CONSTANT


def is_tensor(variable: Any) -> bool:
    return bool(variable.is_tensor())


def kind_of(variable: Any) -> str:
    """What a variable stands for, in a word."""
    return str(variable.python_type_name())


def visit_variables(visit: Callable[[Any], None], variables: Sequence[Any], effects: Any) -> None:
    """Calls `visit` with each of them and each that lies within."""
    from torch._dynamo.variables.base import VariableTracker

    if "side_effects" in inspect.signature(VariableTracker.visit).parameters:
        VariableTracker.visit(visit, list(variables), side_effects=effects)
        return
    # Before torch 2.12 what is set on an object while it is traced is left out.
    seen: dict[int, Any] = {}

    def visit_what_is_set_too(variable: Any) -> None:
        visit(variable)
        VariableTracker.visit(visit_what_is_set_too, dict(written_attributes(effects, variable)), seen)

    VariableTracker.visit(visit_what_is_set_too, list(variables), seen)
