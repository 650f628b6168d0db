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

    options = {where: rewrite, "inplace_pass": False}
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
    assert run_passes(gm, Options())["inplace_pass"] > 0
    with caplog.at_level(logging.INFO, logger="airgraph.passes.pipeline"):
        changes = run_passes(several, Options())
    assert "inplace_pass" not in changes and "input_inplace_pass" not in changes
    assert "inplace_pass is skipped: on 2 streams" in caplog.text


def test_a_pass_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(OptionError, match="post_grad_custom_pre_pass.*expected a callable"):
        airgraph.get_backend({"post_grad_custom_pre_pass": "mine"})
