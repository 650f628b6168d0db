"""The passes in their order, and which of them an option switches on."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, GraphModule

from airgraph.errors import PassError, StreamError
from airgraph.options import Options
from airgraph.passes.auto_functionalized import call_mutating_operators, note_shared_arguments
from airgraph.passes.common_subexpressions import share_common_subexpressions
from airgraph.passes.custom import Before
from airgraph.passes.dead_code import remove_dead_code
from airgraph.passes.decode_attention import attend_as_stored
from airgraph.passes.fused_rows import fuse_rows
from airgraph.passes.grouped_products import multiply_by_groups
from airgraph.passes.host_values import put_host_values_on_device
from airgraph.passes.input_copies import copy_where_made
from airgraph.passes.int_products import multiply_signed
from airgraph.passes.late_waits import wait_later_on_one_stream, wait_where_used
from airgraph.passes.mixed_products import multiply_as_stored
from airgraph.passes.noop import remove_noops
from airgraph.passes.overwritten import skip_overwritten_values
from airgraph.passes.pattern_fusion import apply_replacements
from airgraph.passes.reinplace_inputs import reinplace_inputs
from airgraph.passes.reinplace_intermediates import reinplace_intermediates
from airgraph.passes.remove_cat import remove_cats
from airgraph.passes.shape_arithmetic import fold_shape_arithmetic
from airgraph.program.streams import streams_of
from airgraph.torch_internals.graphs import set_graph
from airgraph.user_warning import warn_user

__all__ = ["PASSES", "Pass", "run_passes"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pass:
    """A rewrite of the graph. run: changes it in place and returns how often. name: of the option that switches it.

    always: it has no option. annotates: what it writes on nodes stays.
    reinplaces: it lets operators write memory that others read, and looks at the order of one stream only.
    custom: it is the user's. as_written: it says what the program says, by operators in their places; the streams of
    the program are checked after these and before all that others do. fast: it brings kernels of our own, which
    `kernels` switches.
    """

    name: str
    run: Callable[[GraphModule], int]
    reinplaces: bool = False
    custom: bool = False
    always: bool = False
    annotates: bool = False
    as_written: bool = False
    fast: bool = False


PASSES: tuple[Pass, ...] = (
    Pass("auto_functionalized", call_mutating_operators, always=True, as_written=True),
    Pass("host_values", put_host_values_on_device, always=True, as_written=True),
    Pass("late_waits", wait_where_used, always=True, as_written=True),
    Pass("input_copies", copy_where_made, always=True, as_written=True),
    Pass("pattern_fusion_pass", apply_replacements),
    Pass("remove_noop_ops", remove_noops),
    Pass("overwritten_values", skip_overwritten_values, always=True),
    Pass("shape_arithmetic", fold_shape_arithmetic, always=True),
    Pass("common_subexpressions", share_common_subexpressions, always=True),
    Pass("dead_code", remove_dead_code, always=True),
    Pass("grouped_products", multiply_by_groups, fast=True),
    Pass("int_products", multiply_signed, fast=True),
    Pass("mixed_products", multiply_as_stored, fast=True),
    Pass("decode_attention", attend_as_stored, fast=True),
    Pass("fused_rows", fuse_rows, fast=True),
    Pass("late_waits", wait_later_on_one_stream, always=True),
    Pass("input_inplace_pass", reinplace_inputs, annotates=True),
    Pass("remove_cat_ops", remove_cats, reinplaces=True),
    Pass("inplace_pass", reinplace_intermediates, reinplaces=True),
)


def run_passes(
    gm: GraphModule,
    options: Options,
    *,
    example_inputs: Sequence[Any] = (),
    check: Callable[[GraphModule], int] = lambda gm: 0,
    on_change: Callable[[str, GraphModule], None] = lambda name, gm: None,
) -> dict[str, int]:
    """Run the passes that the options switch on; returns the number of changes by name, of those that ran.

    check: of the streams of the program, as `stream_check` says; what it changes counts under this name.
    A pass works on a copy of the graph, which takes the graph's place only if it is sound afterwards. on_change: called
    with the name of each pass that changed the graph, and the graph. A built-in pass that fails is left out, with one
    warning. Raises PassError for a pass of the user's that fails or leaves an unsound graph; the graph is then as it
    was before that pass. Sound: its inputs and the number of its outputs are as before, and every new or changed node
    can be computed. Raises StreamError where the check does.
    """
    changes: dict[str, int] = {}
    spare: Graph | None = None
    note_shared_arguments(gm)
    for each in _chosen(options, example_inputs, check):
        if each.reinplaces and (streams := len(streams_of(gm.graph))) > 1:
            log.info("%s is skipped: on %d streams reads and writes have no common order", each.name, streams)
            continue
        if each.custom:
            # It may call the module.
            gm.recompile()
        start = time.perf_counter()
        try:
            changed, spare = _run(each, gm, spare)
        except PassError as error:
            spare = None
            if each.custom:
                gm.recompile()
                raise
            warn_user(f"{error} It is left out; please report it.")
            continue
        elapsed_ms = (time.perf_counter() - start) * 1e3
        changes[each.name] = changes.get(each.name, 0) + changed
        log.debug("%s: %d changes, %.1f ms", each.name, changed, elapsed_ms)
        if changed:
            on_change(each.name, gm)
    gm.recompile()
    return changes


def _chosen(options: Options, example_inputs: Sequence[Any], check: Callable[[GraphModule], int]) -> Iterator[Pass]:
    pre, post = options.post_grad_custom_pre_pass, options.post_grad_custom_post_pass
    if pre is not None:
        yield _of_user("post_grad_custom_pre_pass", pre, options, example_inputs)
    yield from (each for each in PASSES if each.as_written)
    yield Pass("stream_check", check)
    yield from (each for each in PASSES if not each.as_written and _is_on(each, options))
    if post is not None:
        yield _of_user("post_grad_custom_post_pass", post, options, example_inputs)


def _is_on(each: Pass, options: Options) -> bool:
    if each.fast:
        return options.kernels == "fast"
    return each.always or bool(getattr(options, each.name))


def _of_user(name: str, run: Callable[..., None], options: Options, example_inputs: Sequence[Any]) -> Pass:
    def changes(gm: GraphModule) -> int:
        before = Before.of(gm.graph)
        run(gm, example_inputs, options)
        return before.check(gm)

    return Pass(name, changes, custom=True, annotates=True)


def _run(each: Pass, gm: GraphModule, spare: Graph | None) -> tuple[int, Graph | None]:
    """How often a pass changed the graph, and a copy of the graph if one is left over.

    spare: such a copy, on which the pass works.
    """
    before = gm.graph
    set_graph(gm, copy.deepcopy(before) if spare is None else spare)
    try:
        changed = each.run(gm)
        if changed or each.custom:
            gm.graph.lint()
    except StreamError:
        set_graph(gm, before)
        raise
    except Exception as error:
        # Whatever a pass raises, the graph of before is whole.
        set_graph(gm, before)
        who = getattr(error, "node", "")
        raise PassError(f"pass {each.name!r} failed{f' at {who}' if who else ''}: {error}.") from error
    if changed or each.annotates:
        return changed, None
    unchanged = gm.graph
    set_graph(gm, before)
    return 0, unchanged
