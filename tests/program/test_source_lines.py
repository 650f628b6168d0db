"""A line of the user's is named, also where torch's own code stands between it and the operator."""

from __future__ import annotations

import torch
from torch.fx import Graph

from airgraph.program import source_lines


def test_the_innermost_line_that_is_not_torchs() -> None:
    node = Graph().placeholder("x")
    assert source_lines.of_node(node) == ""
    # A default device is a function mode, which calls the operator.
    node.meta["stack_trace"] = (
        f'File "/home/me/model.py", line 7, in forward\n  File "{torch.__path__[0]}/utils/_device.py", line 122, in f'
    )
    assert source_lines.of_node(node) == "/home/me/model.py:7"
    node.meta["stack_trace"] = f'File "{torch.__path__[0]}/nn/modules/linear.py", line 134, in forward'
    assert source_lines.of_node(node).endswith("linear.py:134")
