"""When an intermediate is written in place, and when not."""

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import airgraph
from airgraph.passes.reinplace_intermediates import reinplace_intermediates

_INDEX = torch.tensor([0, 2])


def _traced(program: Callable[..., object]) -> torch.fx.GraphModule:
    return make_fx(program, tracing_mode="real")(torch.randn(4, 6), torch.randn(4, 6))


@pytest.mark.parametrize(
    ("program", "in_place"),
    [
        (lambda a, b: torch.relu(a + b), ["relu_"]),
        (lambda a, b: ((a * 2).exp() + b).sigmoid(), ["exp_", "add_", "sigmoid_"]),
        (lambda a, b: (a + b).index_put((_INDEX,), b[:2]), ["index_put_"]),
        (lambda a, b: (a + b).index_copy(0, _INDEX, b[:2]), ["index_copy_"]),
        (lambda a, b: (a + b).masked_fill(b > 0, 0.5), ["masked_fill_"]),
        (lambda a, b: (a + b).cumsum(1), ["cumsum_"]),
        (lambda a, b: (a + b).t().neg(), ["neg_"]),
        # The value itself as another argument of an operator that works element by element.
        (lambda a, b: (made := a + b) * made, ["mul_"]),
    ],
)
def test_a_dead_intermediate_is_written(program: Callable[..., object], in_place: list[str]) -> None:
    gm = _traced(program)
    expected = gm(torch.ones(4, 6), torch.full((4, 6), 0.25))
    assert reinplace_intermediates(gm) == len(in_place)
    gm.recompile()
    names = [n.target._schema.name.removeprefix("aten::") for n in gm.graph.nodes if n.op == "call_function"]
    assert [name for name in names if name.endswith("_")] == in_place
    torch.testing.assert_close(gm(torch.ones(4, 6), torch.full((4, 6), 0.25)), expected)


@pytest.mark.parametrize(
    "program",
    [
        lambda a, b: torch.relu(a),  # an input
        lambda a, b: torch.relu(a.t()),  # a view of one
        lambda a, b: (made := a + b, torch.relu(made)),  # an output
        lambda a, b: (view := (made := a + b)[1:], torch.relu(made))[1] + view.sum(),  # a view is read afterwards
        lambda a, b: (made := a + b, made.neg() + made)[1] * 0 + made,  # read afterwards
        lambda a, b: (a + b)[:, :1].expand(-1, 6).neg(),  # elements share memory
        lambda a, b: (a.sum(0, keepdim=True) * 2.0).sum(0) + 0 * (a > b).sum(),  # other forms
        lambda a, b: (made := a[:4, :4] + 1).index_copy(0, _INDEX, made.t()[:2]),  # another argument shares memory
    ],
)
def test_what_is_needed_is_not_written(program: Callable[..., object]) -> None:
    gm = _traced(program)
    inputs = torch.randn(4, 6), torch.randn(4, 6)
    expected = gm(*[x.clone() for x in inputs])
    reinplace_intermediates(gm)
    gm.recompile()
    given = [x.clone() for x in inputs]
    torch.testing.assert_close(gm(*given), expected)
    torch.testing.assert_close(given, list(inputs))


@torch.no_grad()
def test_the_option_switches_it() -> None:
    x = torch.randn(4, 6)
    for on in (True, False):
        torch._dynamo.reset()
        airgraph.reset()
        torch.compile(lambda x: (x * 2).exp(), backend="airgraph", options={"inplace_pass": on})(x)
        assert airgraph.explain().to_dict()["passes"].get("inplace_pass") == (1 if on else None)
