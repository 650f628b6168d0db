"""Passes of the user run around ours; one that fails is named and leaves nothing half-done."""

import copy
import logging
from typing import Any

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import airgraph
from airgraph.errors import OptionError, PassError
from airgraph.options import Options
from airgraph.passes import pipeline
from airgraph.passes.pipeline import Pass, run_passes


def _gm() -> GraphModule:
    return make_fx(lambda a, b: torch.relu(a + b) * 1, tracing_mode="fake")(torch.randn(3), torch.randn(3))


def _relu_to_neg(gm: GraphModule, example_inputs: Any, options: Any) -> None:
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
        node.target = torch.ops.aten.neg.default


@torch.no_grad()
@pytest.mark.parametrize("where", ["post_grad_custom_pre_pass", "post_grad_custom_post_pass"])
def test_a_pass_of_the_user_changes_the_graph(where: str) -> None:
    seen: list[tuple[Any, ...]] = []

    def rewrite(gm: GraphModule, example_inputs: Any, options: Any) -> None:
        seen.append((len(example_inputs), options.inplace_pass))
        _relu_to_neg(gm, example_inputs, options)

    options = {where: rewrite, "inplace_pass": False, "kernels": "exact"}
    compiled = torch.compile(lambda x: torch.relu(x) + 1, backend="airgraph", options=options)
    assert compiled(torch.full((3,), 2.0)).tolist() == [-1.0] * 3
    assert seen == [(1, False)]
    assert airgraph.explain().to_dict()["passes"][where] == 1


@torch.no_grad()
def test_a_pass_that_breaks_the_graph_is_named_with_the_node() -> None:
    def breaks(gm: GraphModule, example_inputs: Any, options: Any) -> None:
        first, second = [n for n in gm.graph.nodes if n.op == "call_function"][:2]
        first.args = (second, *first.args[1:])

    compiled = torch.compile(
        lambda x: (x + 1).relu(), backend="airgraph", options={"post_grad_custom_pre_pass": breaks}
    )
    with pytest.raises(PassError, match=r"'post_grad_custom_pre_pass' failed.*(add|relu)"):
        compiled(torch.ones(3))
    torch._dynamo.reset()
    assert torch.compile(lambda x: (x + 1).relu(), backend="airgraph")(torch.ones(3)).tolist() == [2.0] * 3


def _drops_an_output(gm: GraphModule) -> None:
    gm.graph.output_node().args = ((),)


def _erases_a_placeholder(gm: GraphModule) -> None:
    first = gm.graph.find_nodes(op="placeholder")[0]
    first.replace_all_uses_with(gm.graph.find_nodes(op="placeholder")[1])
    gm.graph.erase_node(first)


def _adds_a_placeholder(gm: GraphModule) -> None:
    with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
        gm.graph.placeholder("more")


def _erases_the_output(gm: GraphModule) -> None:
    gm.graph.erase_node(gm.graph.output_node())


def _empties_the_graph(gm: GraphModule) -> None:
    gm.graph = torch.fx.Graph()


def _last_call(gm: GraphModule) -> torch.fx.Node:
    return [node for node in gm.graph.nodes if node.op == "call_function"][-1]


def _gives_too_many_arguments(gm: GraphModule) -> None:
    node = _last_call(gm)
    node.args = (node.args[0], 1, 2)


def _multiplies_what_does_not_fit(gm: GraphModule) -> None:
    node = _last_call(gm)
    with gm.graph.inserting_after(node):
        new = gm.graph.call_function(torch.ops.aten.mm.default, (node.args[0], node.args[0]))
    node.replace_all_uses_with(new)


@torch.no_grad()
@pytest.mark.parametrize("where", ["post_grad_custom_pre_pass", "post_grad_custom_post_pass"])
@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (_drops_an_output, "had 1 outputs and has 0"),
        (_erases_a_placeholder, "inputs were arg0_1, arg1_1 and are arg1_1"),
        (_adds_a_placeholder, "inputs were arg0_1, arg1_1 and are more, arg0_1, arg1_1"),
        (_erases_the_output, "has 0 output nodes"),
        (_empties_the_graph, "has 0 output nodes"),
        (_gives_too_many_arguments, " at relu: .*expected at most 1 argument"),
        (_multiplies_what_does_not_fit, " at mm.*: .*(must be a matrix|2D)"),
    ],
)
def test_what_a_pass_broke_is_named(breaks: Any, message: str, where: str) -> None:
    options = {where: lambda gm, example_inputs, options: breaks(gm), "kernels": "exact"}
    compiled = torch.compile(lambda x, y: (x + y).relu(), backend="airgraph", options=options)
    with pytest.raises(PassError, match=f"'{where}' failed.*{message}"):
        compiled(torch.ones(3), torch.ones(3))


@torch.no_grad()
def test_what_a_pass_notes_on_nodes_stays(caplog: pytest.LogCaptureFixture) -> None:
    def puts_on_two_streams(gm: GraphModule, example_inputs: Any, options: Any) -> None:
        for position, node in enumerate(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default)):
            node.meta["stream"] = str(position)

    compiled = torch.compile(
        lambda x: x.exp().exp(), backend="airgraph", options={"post_grad_custom_pre_pass": puts_on_two_streams}
    )
    with caplog.at_level(logging.INFO, logger="airgraph.passes.pipeline"):
        compiled(torch.ones(3))
    assert "inplace_pass is skipped: on 2 streams" in caplog.text
    changes = airgraph.explain().to_dict()["passes"]
    assert "inplace_pass" not in changes and changes["post_grad_custom_pre_pass"] == 0


@torch.no_grad()
def test_values_of_new_nodes_are_worked_out_for_later_passes() -> None:
    def sin_to_cos_of_double(gm: GraphModule, example_inputs: Any, options: Any) -> None:
        (node,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
        with gm.graph.inserting_before(node):
            wide = gm.graph.call_function(torch.ops.aten._to_copy.default, node.args, {"dtype": torch.float64})
            new = gm.graph.call_function(torch.ops.aten.cos.default, (wide,))
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)

    compiled = torch.compile(
        lambda x, y: torch.cat([x.sin(), y.exp()]) * 1,
        backend="airgraph",
        options={"post_grad_custom_pre_pass": sin_to_cos_of_double},
    )
    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(compiled(x, y), torch.cat([x.double().cos(), y.exp().double()]), rtol=1e-6, atol=1e-6)
    assert airgraph.explain().to_dict()["passes"]["remove_cat_ops"] == 1


def test_a_pass_that_fails_leaves_the_graph_as_it_was() -> None:
    def fails(gm: GraphModule, example_inputs: Any, options: Any) -> None:
        _relu_to_neg(gm, example_inputs, options)
        raise KeyError("no such thing")

    gm = _gm()
    before = str(gm.graph)
    with pytest.raises(PassError, match="no such thing"):
        run_passes(gm, Options(post_grad_custom_pre_pass=fails))
    assert str(gm.graph) == before


def test_a_built_in_pass_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(gm: GraphModule) -> int:
        gm.graph.output_node().args = ()
        raise ValueError("our fault")

    noop = next(each for each in pipeline.PASSES if each.name == "remove_noop_ops")
    monkeypatch.setattr(pipeline, "PASSES", (Pass("inplace_pass", fails), noop))
    gm = _gm()
    with pytest.warns(UserWarning, match=r"pass 'inplace_pass' failed: our fault.*left out"):
        changes = run_passes(gm, Options())
    assert "inplace_pass" not in changes and changes["remove_noop_ops"] == 0
    assert gm(torch.ones(3), torch.ones(3)).tolist() == [2.0] * 3


def test_passes_that_write_in_place_are_skipped_on_several_streams(caplog: pytest.LogCaptureFixture) -> None:
    gm = _gm()
    several = copy.deepcopy(gm)
    next(n for n in several.graph.nodes if n.op == "call_function").meta["stream"] = "1"
    exact = Options(kernels="exact")
    assert run_passes(gm, exact)["inplace_pass"] > 0
    with caplog.at_level(logging.INFO, logger="airgraph.passes.pipeline"):
        changes = run_passes(several, exact)
    assert "inplace_pass" not in changes and "remove_cat_ops" not in changes
    assert "inplace_pass is skipped: on 2 streams" in caplog.text


@torch.no_grad()
def test_intermediates_of_a_graph_with_a_stream_are_not_reinplaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def program(kv: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        kv.add_(x)
        y = x.exp()
        with torch.fx.traceback.annotate({"stream": 1}):
            z = torch.cat([y.sin(), y.cos()])
        return z + 1

    kv, x = torch.zeros(3), torch.ones(3)
    with caplog.at_level(logging.INFO, logger="airgraph.passes.pipeline"):
        out = torch.compile(program, backend="airgraph", fullgraph=True)(kv, x)
    torch.testing.assert_close(out, program(torch.zeros(3), x))
    assert torch.equal(kv, x)
    assert airgraph.explain().to_dict()["passes"]["input_inplace_pass"] == 1
    for name in ("remove_cat_ops", "inplace_pass"):
        assert f"{name} is skipped: on 2 streams" in caplog.text
        assert name not in airgraph.explain().to_dict()["passes"]


def test_a_pass_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(OptionError, match="post_grad_custom_pre_pass.*expected a callable"):
        airgraph.get_backend({"post_grad_custom_pre_pass": "mine"})
