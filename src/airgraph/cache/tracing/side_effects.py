"""What a traced function changes in Python objects.

Dynamo collects the changes while it traces and makes them after the graph. A cached call makes the same: attributes of
the function's arguments that get tensors of the graph's outputs, constants, or numbers that follow from sizes. While a
graph is traced for the cache, Dynamo writes stand-ins, which are read and set back at once. No other change is cached.

A value that is written but is there already, such as a flag that was set and set back, is no change as long as it is
there: this becomes a condition.
"""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.cache.format.conditions import CONSTANTS, Condition, Read, of_type
from airgraph.cache.format.source_path import SourcePath, name_of_source, resolve
from airgraph.errors import Unwritable

__all__ = ["Change", "Changes", "changes_of", "why_not_written"]


@dataclass(frozen=True, slots=True)
class Change:
    """An attribute of an object that a function writes. value: Dynamo's variable."""

    owner: SourcePath
    object: Any
    attribute: str
    value: Any


@dataclass(frozen=True, slots=True)
class Changes:
    """conditions: that what is written there is there. writes: the others."""

    conditions: tuple[Condition, ...] = ()
    writes: tuple[Change, ...] = ()


def changes_of(tx: Any, read: Read) -> Changes:
    """What a function has changed when it ends. Call inside a backend.

    tx: Dynamo's current translator. Raises Unwritable for changes that a cached call cannot make.
    """
    from torch._dynamo.variables import ConstantVariable
    from torch._dynamo.variables.base import AttributeMutationExisting, AttributeMutationNew, ValueMutationNew

    effects = tx.output.side_effects
    if effects.tensor_hooks or effects.save_for_backward:
        raise Unwritable("the function registers hooks on tensors or saves them for backward")
    conditions: list[Condition] = []
    writes: list[Change] = []
    for variable in effects._get_modified_vars():
        mutation = getattr(variable, "mutation_type", None)
        if isinstance(mutation, (AttributeMutationNew, ValueMutationNew)):
            # Of an object that the function itself has made, and that is in the result or gone.
            if effects.store_attr_mutations.get(variable) and issubclass(variable.python_type(), (tuple, torch.Tensor)):
                raise Unwritable(f"the function sets attributes of a {variable.python_type().__name__} that it makes")
            continue
        source = getattr(variable, "source", None)
        name = name_of_source(source) if source is not None else f"a {variable.python_type_name()}"
        if source is None or not isinstance(mutation, AttributeMutationExisting):
            raise Unwritable(f"the function changes {name}")
        written = effects.store_attr_mutations.get(variable, {})
        if not written or issubclass(variable.python_type(), (dict, list, set, collections.deque)):
            raise Unwritable(f"the function changes {name}")
        owner = resolve(name, read)
        held = read(owner)
        for attribute, value in written.items():
            if type(value) is ConstantVariable and type(value.value) in CONSTANTS:
                condition = _has_already(held, name, attribute, value.value, read)
                if condition is not None:
                    conditions.append(condition)
                    continue
            reason = why_not_written(owner, held, attribute, is_tensor=value.is_tensor())
            if reason is not None:
                raise Unwritable(f"the function changes {name}.{attribute}, {reason}")
            conditions.append(of_type(owner, held))
            writes.append(Change(owner, held, attribute, value))
    return Changes(tuple(conditions), tuple(writes))


def _has_already(held: Any, name: str, attribute: str, value: Any, read: Read) -> Condition | None:
    """That an object has this constant itself, where it has it now. What its class has is not its own."""
    namespace = getattr(held, "__dict__", None)
    if isinstance(namespace, dict) and attribute not in namespace:
        return None
    own = f".__dict__['{attribute}']" if isinstance(namespace, dict) else f".{attribute}"
    condition = Condition("equals", resolve(f"{name}{own}", read), value)
    return condition if condition.broken(read) is None else None


def why_not_written(path: SourcePath, owner: Any, attribute: str, *, is_tensor: bool) -> str | None:
    """Why writing an attribute may do more than that, or changes what a trace depends on, in words, or None."""
    class_ = type(owner)
    is_module = isinstance(owner, torch.nn.Module)
    if path.is_global:
        return "which is outside its arguments"
    if isinstance(owner, (type, types.ModuleType, types.FunctionType)):
        return f"of a {class_.__name__}"
    set_by: Any = class_.__setattr__
    read_by: Any = class_.__getattribute__
    plain: Any = torch.nn.Module.__setattr__ if is_module else object.__setattr__
    if set_by is not plain or read_by is not object.__getattribute__:
        return "whose class has its own way to set attributes"
    if is_module and is_tensor:
        return "of a module, which would be another one then"
    if is_module and any(attribute in vars(owner)[held] for held in ("_parameters", "_buffers", "_modules")):
        return "which is a part of the module"
    defined = next((vars(each)[attribute] for each in class_.__mro__ if attribute in vars(each)), None)
    if hasattr(type(defined), "__set__") and not isinstance(defined, types.MemberDescriptorType):
        return "which is a property"
    if attribute.startswith("__"):
        return "which Python itself uses"
    return None
