"""What a traced function changes in Python objects: nothing may remain, for a cached graph changes nothing but tensors.

Dynamo collects the changes while it traces and would make them after the graph; while a graph is traced for the cache
it makes none. A value that is written but is there already, such as a flag that was set and set back, is no change as
long as it is there: this becomes a condition.
"""

from __future__ import annotations

import collections
from typing import Any

from airgraph.cache.conditions import CONSTANTS, Condition, Read
from airgraph.cache.graph_format import Unwritable
from airgraph.cache.source_path import name_of_source, resolve

__all__ = ["conditions_of_effects"]


def conditions_of_effects(tx: Any, read: Read) -> list[Condition]:
    """For each attribute that is written the condition that it holds what is written. Call inside a backend.

    tx: Dynamo's current translator. Raises Unwritable for any other change.
    """
    from torch._dynamo.variables import ConstantVariable
    from torch._dynamo.variables.base import AttributeMutationExisting, AttributeMutationNew, ValueMutationNew

    effects = tx.output.side_effects
    if effects.tensor_hooks or effects.save_for_backward:
        raise Unwritable("the function registers hooks on tensors or saves them for backward")
    made = []
    for variable in effects._get_modified_vars():
        mutation = getattr(variable, "mutation_type", None)
        if isinstance(mutation, (AttributeMutationNew, ValueMutationNew)):
            # Of an object that the function itself has made, and that is in the result or gone.
            if effects.store_attr_mutations.get(variable) and issubclass(variable.python_type(), tuple):
                raise Unwritable(f"the function gives a {variable.python_type().__name__} more than its fields")
            continue
        source = getattr(variable, "source", None)
        name = name_of_source(source) if source is not None else f"a {variable.python_type_name()}"
        if source is None or not isinstance(mutation, AttributeMutationExisting):
            raise Unwritable(f"the function changes {name}")
        written = effects.store_attr_mutations.get(variable, {})
        if not written or issubclass(variable.python_type(), (dict, list, set, collections.deque)):
            raise Unwritable(f"the function changes {name}")
        for attribute, value in written.items():
            if type(value) is not ConstantVariable or type(value.value) not in CONSTANTS:
                raise Unwritable(f"the function changes {name}.{attribute}")
            condition = Condition("equals", resolve(f"{name}.{attribute}", read), value.value)
            if condition.broken(read) is not None:
                raise Unwritable(f"the function changes {name}.{attribute}")
            made.append(condition)
    return made
