"""Random programs give eager's results whichever passes run: each of them alone, and all together."""

import copy
from dataclasses import dataclass

import pytest
import torch
from random_programs import Program, make_inputs, make_program
from torch import Tensor
from torch.func import functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from airgraph.capture.callable import GraphedCallable
from airgraph.options import Options
from airgraph.passes.analysis.aliases import is_view
from airgraph.passes.pipeline import PASSES, run_passes
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.registry import runtime_for
from airgraph.torch_internals.graphs import set_graph

# Each chunk is a test of its own, so that they run in several processes.
_CHUNKS, _PROGRAMS, _FULL_PROGRAMS = 8, 10, 8000
_SWITCHES = [each.name for each in PASSES if not each.always and not each.fast]
# Here is no registered replacement and no custom operator, no cast weight and no attention; all sizes are numbers.
_IDLE = {
    *("pattern_fusion_pass", "auto_functionalized", "host_values", "shape_arithmetic"),
    *("grouped_products", "int_products", "mixed_products", "decode_attention"),
}
_ALONE = [each for each in PASSES if each.name not in _IDLE]


def _options(on: list[str]) -> Options:
    return Options(kernels="exact", **{name: name in on for name in _SWITCHES})


def _lowered(program: Program) -> GraphModule | None:
    """As AOTAutograd hands it over: functional, mutations of inputs as copies at the end; None if it cannot."""
    try:
        return make_fx(functionalize(program, remove="mutations"), tracing_mode="fake")(*make_inputs(0))
    except (RuntimeError, ValueError):
        # Torch's own limits, such as: a value written through another view has other strides afterwards.
        return None


def _captured(gm: GraphModule, options: Options) -> GraphedCallable:
    placeholders = gm.graph.find_nodes(op="placeholder")
    copied = {n.args[0] for n in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)}
    written = {p for p in placeholders if p in copied or _is_written(p)}
    plans = tuple(
        InputPlan(i, InputRole.MUTATED if p in written else InputRole.USER, p.name) for i, p in enumerate(placeholders)
    )
    program = CaptureProgram.build("random", gm, plans, torch.device("cpu"))
    return GraphedCallable(program, runtime_for("cpu"), options)


def _is_written(placeholder: torch.fx.Node) -> bool:
    return any(
        isinstance(user.target, torch._ops.OpOverload) and user.target._schema.is_mutable for user in placeholder.users
    ) or any(_is_written(user) for user in placeholder.users if user.op == "call_function" and is_view(user))


@dataclass(frozen=True)
class _Result:
    """Outputs and inputs after a call. sharing: which of them, by position, lie in one storage."""

    values: list[Tensor]
    sharing: set[tuple[int, int]]


def _check(ours: _Result, theirs: _Result, what: str) -> None:
    for a, b in zip(ours.values, theirs.values, strict=True):
        torch.testing.assert_close(a, b, msg=lambda text: f"{what}\n{text}")
    assert ours.sharing <= theirs.sharing, f"{what}\nshare memory: {ours.sharing - theirs.sharing}"


@torch.no_grad()
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_a_pass_alone_and_all_together_keep_the_results(chunk: int, request: pytest.FixtureRequest) -> None:
    programs = _FULL_PROGRAMS if request.config.getoption("--full-sweep") else _PROGRAMS
    changes, skipped = dict.fromkeys((each.name for each in _ALONE), 0), 0
    for seed in range(chunk * programs, (chunk + 1) * programs):
        program = make_program(seed, 20 + seed % 41)
        lowered = _lowered(program)
        if lowered is None:
            skipped += 1
            continue
        expected = _call(program, seed)
        _check(_call(lowered, seed), expected, f"seed {seed}, without passes: {program}")
        gm = GraphModule(lowered, lowered.graph)
        for position, each in enumerate(_ALONE):
            # Without generating code that is not called where the pass changes nothing.
            set_graph(gm, copy.deepcopy(lowered.graph))
            if changed := each.run(gm):
                changes[each.name] += changed
                gm.recompile()
                what = f"seed {seed}, {each.name} alone: {program}\n{gm.graph}"
                _check(_call(gm, seed), expected, what)
                if seed % len(_ALONE) == position:
                    _check_captured(gm, seed, expected, what)
        gm = GraphModule(lowered, copy.deepcopy(lowered.graph))
        run_passes(gm, _options(_SWITCHES))
        what = f"seed {seed}, all passes: {program}\n{gm.graph}"
        _check(_call(gm, seed), expected, what)
        _check_captured(gm, seed, expected, what)
    # These programs have one stream and no collective.
    assert [name for name, count in changes.items() if not count] == ["late_waits", "input_copies"], changes
    assert skipped <= 1 + programs / 50


def _check_captured(gm: GraphModule, seed: int, expected: _Result, what: str) -> None:
    graphed = _captured(gm, _options([]))
    _check(_call(graphed.call, seed), expected, f"captured, {what}")
    assert graphed.captures, f"not captured, {what}"
    if seed % 4 == 0:
        # Once more, on what the first call left in the memory of the graph.
        _check(_call(graphed.call, seed), expected, f"replayed, {what}")


def _call(run: object, seed: int) -> _Result:
    inputs = make_inputs(seed)
    tensors = [*run(*inputs), *inputs]
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    sharing = {(i, j) for j, place in enumerate(places) for i in range(j) if places[i] == place}
    return _Result([tensor.clone() for tensor in tensors], sharing)
