"""From a graph that AOTAutograd lowered to the program that is captured: input roles, passes, dump."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from airgraph.capture.ledger import ledger
from airgraph.errors import Unwritable
from airgraph.options import Options
from airgraph.passes.fingerprint import fingerprint
from airgraph.passes.pipeline import run_passes
from airgraph.passes.stream_check import check_streams
from airgraph.passes.stream_forms import as_tagged_events
from airgraph.passes.unplaced import place_with_users
from airgraph.program import lowering
from airgraph.program.dump import dump_for
from airgraph.program.program import CaptureProgram
from airgraph.program.streams import check_events
from airgraph.program.unheeded import warn_of_unheeded

__all__ = ["prepare"]


def prepare(
    lowered: GraphModule,
    sources: Sequence[lowering.InputSource],
    options: Options,
    example_inputs: Sequence[Any],
    positions: Sequence[int] | None = None,
    *,
    name: str,
) -> CaptureProgram:
    """Run the passes on a lowered graph, in place. Call inside the inference compiler.

    sources: of the inputs of Dynamo's graph, see `lowering.input_sources`. positions: see `lowering.input_plans`.
    name: of the program, see `Ledger.next_name`.
    Raises PassError, and StreamError for events without an order and for races where the option asks for that.
    """
    warn_of_unheeded(lowered.graph)
    as_tagged_events(lowered)
    place_with_users(lowered)
    check_events(lowered.graph)
    plans = lowering.input_plans(lowered, sources, positions)
    dump = dump_for(name, options.dump_dir)
    if dump is not None:
        dump.graph("before", lowered)
    on_change = (lambda pass_name, changed: None) if dump is None else dump.graph
    policy = options.stream_check

    def check(gm: GraphModule) -> int:
        return check_streams(gm, policy, name)

    changes = run_passes(lowered, options, example_inputs=example_inputs, check=check, on_change=on_change)
    if policy != "warn" or options.post_grad_custom_post_pass is not None:
        # Of what a pass of the user's has put on streams; a warning is given once.
        late = check(lowered)
        changes["stream_check"] = changes.get("stream_check", 0) + late
        if late:
            on_change("stream_check", lowered)
    ledger.count_changes(changes)
    if dump is not None:
        dump.final(lowered, plans, header=f"{name}, passes {_passes_of(options)}")
    return CaptureProgram.build(name, lowered, plans, _device(lowered), dump)


def _passes_of(options: Options) -> str:
    try:
        return fingerprint(options)
    except Unwritable:
        return "with one that no other process can compare"


def _device(gm: GraphModule) -> torch.device:
    """The first device that a tensor of the graph lies on; a graph on several is refused later, by name.

    The host comes last: what lies there is a number, or is put on the device where that can be.
    """
    tensors = [v for v in (node.meta.get("val") for node in gm.graph.nodes) if isinstance(v, torch.Tensor)]
    tensors.sort(key=lambda value: value.device.type in ("cpu", "meta"))
    return tensors[0].device if tensors else torch.device("cpu")
