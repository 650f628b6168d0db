"""What the passes make of a graph runs on every device, and copies less."""

from typing import Any

import pytest
import torch
from reports import counters, report
from torch import Tensor
from torch.fx import GraphModule

_CACHE = (1, 2, 32, 8)


def _decode_step(x: Tensor, position: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    keys.index_copy_(2, position, x)
    values[:, :, :1] = x
    return (keys * values).sum(2)


def _cats(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    part = x * 2
    rows = torch.cat([part, y + 1])
    columns = torch.cat([x.neg(), x @ y, y], 1)
    return rows, torch.cat([columns, torch.cat([y * 3, y + x, x], 1)]), part + 1


@torch.no_grad()
@pytest.mark.parametrize("on", [True, False])
def test_a_cache_is_copied_only_where_the_pass_is_off(device: str, on: bool) -> None:
    x, position = torch.randn(1, 2, 1, 8, device=device), torch.tensor([3], device=device)
    ours, theirs = ([torch.zeros(_CACHE, device=device) for _ in range(2)] for _ in range(2))
    compiled = torch.compile(_decode_step, backend="airgraph", options={"input_inplace_pass": on})
    for _ in range(2):
        torch.testing.assert_close(compiled(x, position, *ours), _decode_step(x, position, *theirs))
        torch.testing.assert_close(ours, theirs)
    (graph,) = report()["graphs"]
    inside = graph["copied_nbytes"] - x.nbytes - position.nbytes
    assert inside < ours[0].nbytes if on else inside >= 4 * ours[0].nbytes
    assert counters()["eager_calls"] == 0


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_of_cats_are_made_in_them(device: str, dynamic: bool) -> None:
    compiled = torch.compile(_cats, backend="airgraph", dynamic=dynamic)
    for size in (4, 6):
        x, y = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
        for ours, theirs in zip(compiled(x, y), _cats(x, y), strict=True):
            torch.testing.assert_close(ours, theirs)
    found = report()
    assert found["passes"]["remove_cat_ops"] >= 4
    assert found["counters"]["eager_calls"] == 0
    assert all(graph["state"] == "captured" for graph in found["graphs"])


def _spreads(gm: GraphModule, example_inputs: Any, options: Any) -> None:
    # In place, or not yet.
    found = [node for node in gm.graph.nodes if "aten.relu" in str(node.target)]
    for number, node in enumerate(found):
        node.meta["stream"] = f"side {number % 3}"


@torch.no_grad()
@pytest.mark.parametrize("where", ["post_grad_custom_pre_pass", "post_grad_custom_post_pass"])
def test_what_a_pass_of_the_user_s_puts_on_streams_is_in_order(device: str, where: str) -> None:
    """Also after the built-in passes, which have written in place by then."""

    def program(x: Tensor, state: Tensor) -> Tensor:
        for _ in range(6):
            x = (x @ x).mul(0.1).relu()
            state.add_(x)
        return x + state

    options = {where: _spreads, "kernels": "exact"}
    compiled = torch.compile(program, backend="airgraph", fullgraph=True, options=options)
    ours, theirs = torch.zeros(64, 64, device=device), torch.zeros(64, 64, device=device)
    for call in range(10):
        x = torch.rand(64, 64, device=device)
        if call:
            out = compiled(x, ours)
        else:
            with pytest.warns(UserWarning, match="nothing orders the two.* The second now waits for the first"):
                out = compiled(x, ours)
        torch.testing.assert_close(out, program(x, theirs))
        torch.testing.assert_close(ours, theirs)
    assert report()["graphs"][0]["streams"] == 4 and report()["passes"]["stream_check"] > 0
