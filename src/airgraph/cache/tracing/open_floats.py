"""Which Python floats become inputs of a traced graph, instead of constants of it.

Dynamo takes either all floats as inputs or none, a module's epsilons too. Here it depends on where one comes from.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.cache.format.guard import Read
from airgraph.cache.format.source_path import resolve
from airgraph.errors import UnsupportedPath
from airgraph.torch_internals import dynamo
from airgraph.torch_internals.dynamo_sources import name_of_source, source_of_variable
from airgraph.torch_internals.dynamo_texts import without_conversion

__all__ = ["FloatInputs", "floats_as_inputs", "is_float", "is_safe_with_any_float"]

_LOCAL = threading.local()
# Python's own arithmetic on floats that never raises, so that tensors may do it.
_NEVER_RAISE = {"aten::add", "aten::sub", "aten::mul", "aten::neg", "aten::_to_copy", "prims::convert_element_type"}


class FloatInputs:
    """Which floats are inputs of a graph: those that come with the call, and those that were seen to change."""

    def __init__(self, read: Read, varied: Collection[str], parameters: Collection[str]) -> None:
        self._read = read
        self._varied = varied
        self._parameters = parameters
        self.found = False

    def is_input(self, text: str) -> bool:
        is_so = (text in self._varied or self._comes_with_the_call(text)) and not self._is_nan(text)
        self.found |= is_so
        return is_so

    def _is_nan(self, text: str) -> bool:
        """Dynamo takes a float to equal itself."""
        try:
            value = self._read(resolve(text, self._read))
        except (UnsupportedPath, LookupError, AttributeError, TypeError):
            return False
        return type(value) is float and math.isnan(value)

    def _comes_with_the_call(self, text: str) -> bool:
        try:
            path = resolve(text, self._read)
            owners = [self._read(replace(path, steps=path.steps[:length])) for length in range(len(path.steps))]
        except (UnsupportedPath, LookupError, AttributeError, TypeError):
            return False
        # A module's are as good as constants.
        in_module = any(isinstance(owner, torch.nn.Module) for owner in owners)
        return not path.is_global and path.root in self._parameters and not in_module


@contextmanager
def floats_as_inputs(is_input: Callable[[str], bool]) -> Iterator[None]:
    """Within, Dynamo on this thread asks `is_input` with the path of each float that a function uses."""
    _install()
    # What an earlier trace, of something else, found out before it failed.
    dynamo.clear_failed_floats()
    _LOCAL.is_input = is_input
    try:
        with dynamo.settings(specialize_float=False):
            yield
    finally:
        _LOCAL.is_input = None


@cache
def _install() -> None:
    def chosen(wrap: Callable[[Any, float], Any]) -> Callable[[Any, float], Any]:
        def wrap_symfloat(self: Any, value: float) -> Any:
            is_input = getattr(_LOCAL, "is_input", None)
            if is_input is None:
                return wrap(self, value)
            is_constant = not math.isfinite(value) or not is_input(name_of_source(source_of_variable(self)))
            with dynamo.settings(specialize_float=is_constant, assume_static_by_default=False):
                return wrap(self, value)

        return wrap_symfloat

    dynamo.replace_float_wrapping(chosen)


def is_float(text: str, read: Read) -> bool:
    """Whether a Python float lies at a path."""
    try:
        return type(read(resolve(without_conversion(text), read))) is float
    except (UnsupportedPath, LookupError, AttributeError, TypeError):
        return False


def is_safe_with_any_float(gm: GraphModule, floats: set[Node]) -> bool:
    """Whether a lowered graph does with its float inputs what Python does with any float.

    Once a tensor takes part, it is so; before, Python raises where tensors give inf or nan.
    """
    derived, constants = set(floats), set[Node]()
    for node in gm.graph.nodes if floats else ():
        if node.op != "call_function":
            continue
        sources = {each for each in node.all_input_nodes if isinstance(each.meta.get("val"), torch.Tensor)}
        if sources <= constants:
            constants.add(node)
        elif sources <= constants | derived:
            if getattr(getattr(node.target, "_schema", None), "name", "") not in _NEVER_RAISE:
                return False
            derived.add(node)
    return derived.isdisjoint(gm.graph.output_node().all_input_nodes)
