"""The backend that a function is traced with: keeps what Dynamo and AOTAutograd hand over, and executes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.cache.checking.scope import Reader
from airgraph.cache.format.source_path import Attribute, resolve
from airgraph.cache.tracing.handed_through import AnyLeaf, without_handed_through
from airgraph.cache.tracing.open_floats import is_float, is_safe_with_any_float
from airgraph.cache.tracing.returned import returned_objects
from airgraph.cache.tracing.side_effects import Changes, changes_of
from airgraph.capture.preparation import prepare
from airgraph.errors import AirgraphError, UnsupportedGraph, Unwritable
from airgraph.options import Options
from airgraph.program import lowering
from airgraph.program.program import CaptureProgram
from airgraph.program.run_as_traced import why_it_runs_as_it_is
from airgraph.program.support import check_capturable
from airgraph.program.tensor_parts import take_apart
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals import aot, dynamo
from airgraph.torch_internals.dynamo_sources import name_of_source
from airgraph.torch_internals.symbolic_shapes import wrapped_by_dynamo

__all__ = ["Collector"]


class Collector:
    """A backend that answers the one call that Dynamo makes with objects of its own (`Leaf`)."""

    def __init__(
        self,
        options: Options,
        decompositions: Mapping[Any, Callable[..., Any]] | None,
        read: Reader,
        keywords: str | None = None,
    ) -> None:
        """keywords: the parameter that takes a call's further keywords."""
        self._options = options
        self._decompositions = decompositions
        self._read: Reader | None = read
        self._keywords = keywords
        # Whether Dynamo traced at all.
        self.was_asked = False
        self.guards: list[Any] = []
        self.program: CaptureProgram | None = None
        self.sources: list[lowering.InputSource] = []
        self.shape_env: Any = None
        self.tracked: list[tuple[str, Any]] = []
        self.changes = Changes()
        # What was written of them.
        self.written: list[Any] = []
        self.set_back = engine().SetBack()
        self.leaves: list[AnyLeaf] = []
        self.returned: dict[str, Any] = {}
        self.failure: AirgraphError | None = None

    def forget(self) -> None:
        """Let go of all that was collected."""
        self.guards.clear()
        self.sources, self.tracked, self.returned = [], [], {}
        self.changes, self.written = Changes(), []
        self.program = self.shape_env = self._read = None

    def take_guards(self, guards: Sequence[Any]) -> list[bool]:
        self.was_asked = True
        self.guards += guards
        if self.program is None and self.failure is None:
            # Nothing asked for a graph, and Dynamo would go on and change objects.
            self.failure = Unwritable("it computes nothing with tensors, so there is no graph")
            raise self.failure
        return [False] * len(guards)

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        self.was_asked = True
        try:
            as_it_is = why_it_runs_as_it_is(gm.graph)
            if as_it_is is not None:
                raise Unwritable(f"it cannot be captured: {as_it_is}")
            apart = take_apart(gm, example_inputs)
            gm, example_inputs = (gm, example_inputs) if apart is None else (apart.gm, apart.example_inputs)
            self.sources = lowering.input_sources(gm)
            tx, read = dynamo.current_translator(), self._read
            assert read is not None
            self.changes = changes_of(tx, read, self._keywords)
            self.returned = found = returned_objects(tx, [each.value for each in self.changes.writes], read)
            if self.changes.of_call in found:
                raise Unwritable(f"the function changes {self.changes.of_call} and returns it")
            _keep_in_domain(gm)
            lowering.lower(
                gm,
                example_inputs,
                compile_inference=lambda lowered, inputs: self._take(gm, lowered, inputs),
                compile_training=self._refuse_training,
                decompositions=self._decompositions,
            )
            if apart is not None and not apart.stays_as_it_is():
                raise Unwritable("it changes what a tensor of a wrapping subclass is made of")
        except AirgraphError as error:
            self.failure = error
        for change in self.changes.writes:
            if isinstance(change.step, Attribute):
                self.set_back.keep(change.object, change.step.name)
            else:
                self.set_back.keep_items(change.object)
        for touched, attribute in self.changes.touched:
            if attribute is None:
                self.set_back.keep_items(touched)
            else:
                self.set_back.keep(touched, attribute)
        return self._answer

    def _answer(self, *args: Any) -> list[AnyLeaf]:
        """In place of the graph."""
        if self.failure is not None:
            raise self.failure
        return self.leaves

    def take_written(self) -> None:
        """Read what Dynamo has written, before it is set back."""
        self.written = [each.step.read(each.object) for each in self.changes.writes]

    def _take(self, gm: GraphModule, lowered: GraphModule, inputs: Sequence[Any]) -> Any:
        self.shape_env = aot.shape_env_of_trace()
        self.tracked = [(name_of_source(source), fake) for source, fake in wrapped_by_dynamo(self.shape_env)]
        if not lowering.hands_through(gm, lowered, marks_outputs=False, makes_views=False):
            raise Unwritable(
                "AOTAutograd does something around its graph at every call: an output is a view of another, "
                "arguments share memory, or an argument is a tensor subclass"
            )
        read = self._read
        assert read is not None
        nodes = zip(lowered.graph.find_nodes(op="placeholder"), self.sources, strict=True)
        floats = {node for node, source in nodes if is_float(source.path, read)}
        if not is_safe_with_any_float(lowered, floats):
            raise Unwritable("it computes with a float before a tensor takes part")
        sources = self.sources
        reduced = without_handed_through(lowered, lambda position: _path_of_argument(sources[position].path, read))
        self.leaves = reduced.leaves
        inputs = [inputs[position] for position in reduced.positions]
        name = f"{dynamo.traced_function() or 'graph'} traced"
        self.program = prepare(lowered, self.sources, self._options, inputs, reduced.positions, name=name)
        self.sources = [self.sources[position] for position in reduced.positions]
        try:
            check_capturable(lowered, self.program.device)
        except UnsupportedGraph as error:
            raise Unwritable(f"it cannot be captured: {error}") from error
        return aot.boxed(lowered.forward)

    def _refuse_training(self, lowered: GraphModule, inputs: Sequence[Any]) -> Any:
        raise Unwritable("gradients are needed")


def _path_of_argument(text: str, read: Reader) -> str:
    """Of a tensor that is returned, or a view of it."""
    path = resolve(text, read)
    if path.is_global:
        raise Unwritable(f"the result holds {path.text}, which is outside the function's arguments")
    return path.text


def _keep_in_domain(gm: GraphModule) -> None:
    """Guard that numbers have the functions that the graph takes of them, which raise for others in eager."""
    for node in gm.graph.nodes:
        function = getattr(node.target, "__name__", "").removeprefix("_").removeprefix("sym_")
        inside = _DOMAINS.get(function)
        if node.op == "call_function" and inside is not None and isinstance(node.args[0], Node):
            value = node.args[0].meta.get("example_value")
            if isinstance(value, (torch.SymInt, torch.SymFloat)) and not inside(value):
                raise Unwritable(f"it takes {function} of a number that has none")


# Asked of a symbolic number, they are guards of every call.
_DOMAINS: dict[str, Callable[[Any], bool]] = {
    "sqrt": lambda number: bool(number >= 0),
    "log2": lambda number: bool(number > 0),
    "asin": lambda number: bool(number >= -1) and bool(number <= 1),
    "acos": lambda number: bool(number >= -1) and bool(number <= 1),
}
