"""The passes in their order, and which of them an option switches on."""

from __future__ import annotations

from collections.abc import Callable

from torch.fx import GraphModule

from airgraph.options import Options
from airgraph.passes.input_inplace import reinplace_mutated_inputs

__all__ = ["PASSES", "run_passes"]

# (name of the option that switches it, pass). A pass changes the graph in place and returns how often.
PASSES: tuple[tuple[str, Callable[[GraphModule], int]], ...] = (("input_inplace_pass", reinplace_mutated_inputs),)


def run_passes(gm: GraphModule, options: Options) -> dict[str, int]:
    """Run the passes that the options switch on; returns the number of changes by name."""
    changes = {name: run(gm) for name, run in PASSES if getattr(options, name)}
    if any(changes.values()):
        gm.graph.lint()
        gm.recompile()
    return changes
