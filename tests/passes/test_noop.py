"""What changes nothing goes; a copy that somebody needs stays."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from airgraph.passes.common_subexpressions import share_common_subexpressions
from airgraph.passes.dead_code import remove_dead_code
from airgraph.passes.noop import remove_noops

_aten = torch.ops.aten


def _traced(program: Callable[..., object]) -> torch.fx.GraphModule:
    return make_fx(program, tracing_mode="fake")(torch.randn(4, 6), torch.randn(4, 6))


@pytest.mark.parametrize(
    "noop",
    [
        lambda a: _aten.slice.Tensor(a, 0, 0, 9223372036854775807),
        lambda a: _aten.slice.Tensor(a, 1, 0, 6),
        lambda a: _aten._to_copy.default(a, dtype=torch.float32),
        lambda a: _aten.repeat.default(a, [1, 1]),
        lambda a: _aten.pow.Tensor_Scalar(a, 1),
        lambda a: _aten.mul.Tensor(a, 1),
        lambda a: _aten.div.Tensor(a, 1.0),
        lambda a: _aten.cat.default([a]),
        lambda a: _aten.clone.default(a),
        lambda a: _aten.constant_pad_nd.default(a, [0, 0, 0, 0]),
        lambda a: _aten.expand.default(a, [4, 6]),
        lambda a: _aten.view.default(a, [4, 6]),
        lambda a: _aten.permute.default(a, [0, 1]),
    ],
)
def test_a_noop_goes(noop: Callable[[Tensor], Tensor]) -> None:
    gm = _traced(lambda a, b: torch.relu(noop(a)) + b)
    assert remove_noops(gm) == 1
    assert [str(n.target) for n in gm.graph.nodes if n.op == "call_function"] == [
        "aten.relu.default", "aten.add.Tensor",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "program",
    [
        # An output, which would share memory with the input or with another output.
        lambda a, b: _aten.clone.default(a),
        lambda a, b: _aten.mul.Tensor(a, 1),
        lambda a, b: (made := a + b, _aten.clone.default(made)),
        lambda a, b: _aten.t.default(_aten.clone.default(a)),
        # One of the two is written.
        lambda a, b: (_aten.clone.default(a).add_(b) * 2, a * 3),
        lambda a, b: (old := _aten.clone.default(a), a.add_(b), old * 2)[2],
        # Not the same form.
        lambda a, b: _aten.clone.default(a.t(), memory_format=torch.contiguous_format) + 1,
        lambda a, b: _aten._to_copy.default(a, dtype=torch.float64) + 1,
        lambda a, b: _aten.slice.Tensor(a, 0, 1, 4) + 1,
        lambda a, b: _aten.slice.Tensor(a, 0, 0, 4, 2) + 1,
        lambda a, b: _aten.repeat.default(a, [1, 1, 1]) + 1,
    ],
)
def test_what_somebody_needs_stays(program: Callable[..., object]) -> None:
    assert remove_noops(_traced(program)) == 0


def test_the_same_is_computed_once() -> None:
    gm = _traced(lambda a, b: (a + b) * torch.relu(a + b) + torch.add(a, b, alpha=2))
    assert share_common_subexpressions(gm) == 1
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    torch.testing.assert_close(gm(a, b), (a + b) * torch.relu(a + b) + a + 2 * b)


def test_several_results_are_computed_once_where_none_is_handed_out() -> None:
    gm = _traced(lambda a, b: a.sort(1)[0] * a.sort(1)[1] + a.sort(1)[0])
    # Two operators, and both results of each.
    assert share_common_subexpressions(gm) == 6
    assert len(gm.graph.find_nodes(op="call_function", target=_aten.sort.default)) == 1
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    values, places = a.sort(1)
    torch.testing.assert_close(gm(a, b), values * places + values)


@pytest.mark.parametrize(
    "program",
    [
        lambda a, b: (a + b, a + b),
        lambda a, b: (a.sort(1)[0], a.sort(1)[0]),
        lambda a, b: (a.sort(1)[0].add_(1), a.sort(1)[0] * 2),
        lambda a, b: (a + 1) * (a + 1.0) * (a + True),
        lambda a, b: torch.rand_like(a) + torch.rand_like(a),
        lambda a, b: (before := a * 2, a.add_(b), before + a * 2)[2],
        lambda a, b: (a * 2).add_(b) + a * 2,
    ],
)
def test_what_is_not_the_same_is_computed_twice(program: Callable[..., object]) -> None:
    assert share_common_subexpressions(_traced(program)) == 0


def test_dead_code_goes_and_effects_stay() -> None:
    def program(a: Tensor, b: Tensor) -> Tensor:
        (a * 2).exp()
        b.add_(1)
        return a.neg()

    gm = _traced(program)
    assert remove_dead_code(gm) == 2
    a, b = torch.zeros(4, 6), torch.zeros(4, 6)
    gm(a, b)
    assert b.eq(1).all()
