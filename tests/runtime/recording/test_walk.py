"""How long the walk over a program holds what its nodes make, where a device gives memory to later values."""

import operator

import pytest
import torch
from torch.fx import Graph, Node

from airgraph.runtime.recording.walk import _last_uses

_RECORD_STREAM = torch.ops.airgraph.record_stream.default


def _graph(*, is_recorded: bool) -> tuple[Graph, Node]:
    """A value that is not used any more when the last node runs."""
    graph = Graph()
    x = graph.placeholder("x")
    value = graph.call_function(operator.mul, (x, 2))
    used = graph.call_function(operator.neg, (value,))
    if is_recorded:
        graph.call_function(_RECORD_STREAM, (value, "side"))
    graph.output((graph.call_function(operator.add, (used, 1)),))
    return graph, value


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_value_that_is_recorded_on_a_stream_lives_to_the_end(is_recorded: bool) -> None:
    graph, value = _graph(is_recorded=is_recorded)
    dropped = [node for nodes in _last_uses(graph, across_streams=False).values() for node in nodes]
    assert (value in dropped) is not is_recorded
    # On one stream after another, its memory is given away in the order of the program.
    assert value in [node for nodes in _last_uses(graph, across_streams=True).values() for node in nodes]
