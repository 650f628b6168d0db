"""Which objects that exist already a traced function returns, and by which path Dynamo found them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airgraph.cache.format.guard import Read
from airgraph.cache.format.guards import CONSTANTS
from airgraph.cache.format.source_path import resolve
from airgraph.errors import Unwritable
from airgraph.program.code_identity import CODE
from airgraph.torch_internals import dynamo_variables as variables
from airgraph.torch_internals.dynamo_sources import name_of_source, source_of_variable

__all__ = ["returned_objects"]


def returned_objects(tx: Any, others: Sequence[Any], read: Read) -> dict[str, Any]:
    """Path to value, for the constants, containers and other objects in the result. Call inside a backend.

    tx: Dynamo's current translator, whose stack holds the result. others: variables that are handed out too. Raises
    Unwritable for an object without a path.
    """
    found: dict[str, Any] = {}

    def visit(variable: Any) -> None:
        source = source_of_variable(variable)
        if (
            source is None
            or variables.is_made_within(variable)
            or (not variables.is_tensor(variable) and issubclass(variables.type_of(variable), CODE))
        ):
            return
        path = resolve(name_of_source(source), read)
        value = read(path)
        if path.is_global and type(value) not in CONSTANTS:
            raise Unwritable(f"the result holds {path.text}, which is outside the function's arguments")
        found[path.text] = value

    variables.visit_variables(visit, [*variables.stack_of(tx), *others], variables.effects_of(tx))
    return found
