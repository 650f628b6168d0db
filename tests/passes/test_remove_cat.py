"""What makes a part of a cat writes it into the result; the rewritten graphs are golden."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import airgraph
from airgraph.passes.remove_cat import keeps_to_strides
from airgraph.program.operators import out_form

_SHAPE = (4, 6)


def _pointwise() -> Iterator[torch._ops.OpOverload]:
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if not isinstance(packet, torch._ops.OpOverloadPacket):
            continue
        for overload in packet.overloads():
            op = getattr(packet, overload)
            if keeps_to_strides(op) and len(op._schema.returns) == 1:
                yield op


def _arguments(op: torch._ops.OpOverload, dtype: torch.dtype) -> list[object] | None:
    """Arguments of the right types for the required parameters; None where that is not known."""
    made = {"number": 2, "int": 1, "float": 0.5, "bool": False}
    found: list[object] = []
    for parameter in op._schema.arguments:
        if parameter.has_default_value():
            continue
        kind = str(parameter.type)
        if kind == "Tensor":
            found.append(torch.rand(_SHAPE).mul(3).add(0.1).to(dtype))
        elif kind in made:
            found.append(made[kind])
        else:
            return None
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool], ids=str)
def test_operators_that_are_said_to_keep_to_strides_do(dtype: torch.dtype) -> None:
    checked = 0
    for op in _pointwise():
        arguments = _arguments(op, dtype)
        form = out_form(op, "cpu", generated=True)
        if form is None or arguments is None:
            continue
        try:
            expected = op(*arguments)
        except (RuntimeError, IndexError, TypeError):
            # Not for this dtype.
            continue
        if expected.dim() != 2:
            continue
        for begin in (0, expected.shape[1]):
            whole = torch.zeros(expected.shape[0], 2 * expected.shape[1], dtype=expected.dtype)
            piece = whole.narrow(1, begin, expected.shape[1])
            (out,) = (parameter.name for parameter in form._schema.arguments if parameter.is_out)
            form(*arguments, **{out: piece})
            # Not bit by bit: loops over strides may round differently from those over vectors.
            torch.testing.assert_close(piece, expected, equal_nan=True, msg=lambda text, op=op: f"{op}: {text}")
            rest = whole.narrow(1, expected.shape[1] - begin, expected.shape[1])
            assert not rest.any(), f"{op} writes {dtype} beyond its out"
        checked += 1
    assert checked > 40


@torch.no_grad()
@pytest.mark.parametrize("on", [True, False])
def test_rotary_embeddings_are_eager_s(on: bool) -> None:
    def rotate(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([-b, a], -1)

    class Rotary(nn.Module):
        def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
            return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin

    inputs = torch.randn(1, 9, 5, 64), torch.randn(1, 3, 5, 64), torch.randn(5, 64), torch.randn(5, 64)
    compiled = torch.compile(Rotary(), backend="airgraph", options={"remove_cat_ops": on, "kernels": "exact"})
    for _ in range(2):
        for ours, theirs in zip(compiled(*inputs), Rotary()(*inputs), strict=True):
            assert torch.equal(ours, theirs)
    report = airgraph.explain().to_dict()
    assert report["passes"].get("remove_cat_ops", 0) == (2 if on else 0)
    copied = report["graphs"][0]["copied_nbytes"] - sum(tensor.nbytes for tensor in inputs)
    whole = inputs[0].nbytes + inputs[1].nbytes
    assert copied == (whole // 2 if on else whole)


@torch.no_grad()
def test_one_graph_serves_all_sizes() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([torch.cat([x.exp(), y.neg()], 1), torch.cat([y + 1, x * 2], 1)])

    compiled = torch.compile(program, backend="airgraph", dynamic=True, fullgraph=True)
    for rows, columns in ((4, 6), (5, 6), (7, 3)):
        inputs = torch.randn(rows, columns), torch.randn(rows, columns + 1)
        assert torch.equal(compiled(*inputs), program(*inputs))
    report = airgraph.explain().to_dict()
    assert report["passes"]["remove_cat_ops"] == 3
    # The other one is of the first call, whose sizes Dynamo may take for constants.
    assert len({row["name"] for row in report["graphs"]}) <= 2
    assert len(report["graphs"]) == 3
