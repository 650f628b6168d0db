"""When a mutated input is written in place, and when the copy stays."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import airgraph
from airgraph.passes.reinplace_inputs import reinplace_inputs

_POSITION = torch.tensor([1])


def _index_copy(kv: Tensor, x: Tensor) -> Tensor:
    kv.index_copy_(0, _POSITION, x)
    return kv * 2


def _index_put(kv: Tensor, x: Tensor) -> Tensor:
    kv[_POSITION] = x
    return kv.sum()


def _add(kv: Tensor, x: Tensor) -> Tensor:
    kv.add_(x)
    return kv @ kv.t()


def _chain(kv: Tensor, x: Tensor) -> Tensor:
    kv.mul_(2)
    kv.add_(x)
    kv.index_copy_(0, _POSITION, x)
    return kv.sum(0)


def _read_before(kv: Tensor, x: Tensor) -> Tensor:
    old = kv * 3
    kv.add_(x)
    return old + kv


def _old_value_read_after(kv: Tensor, x: Tensor) -> Tensor:
    old = kv.clone()
    new = kv + x
    kv.copy_(new)
    return old + new.relu()


def _new_value_is_an_output(kv: Tensor, x: Tensor) -> Tensor:
    new = kv + x
    kv.copy_(new)
    return new


def _wider(kv: Tensor, x: Tensor) -> Tensor:
    kv.copy_((kv.double() + x).float())
    return x + 1


_REINPLACED = [_index_copy, _index_put, _add, _chain, _read_before]


def _run(program: Callable[[Tensor, Tensor], Tensor], options: dict | None) -> tuple[list[Tensor], Tensor]:
    kv, x = torch.arange(12.0).reshape(3, 4), torch.full((1, 4), 0.5)
    run = program if options is None else torch.compile(program, backend="airgraph", fullgraph=True, options=options)
    with torch.no_grad():
        return [run(kv, x).clone() for _ in range(3)], kv


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("program", [*_REINPLACED, _old_value_read_after, _new_value_is_an_output, _wider])
def test_results_and_mutated_input_are_eager_s(program: Callable[[Tensor, Tensor], Tensor], on: bool) -> None:
    expected, expected_kv = _run(program, None)
    outputs, kv = _run(program, {"input_inplace_pass": on})
    assert torch.equal(kv, expected_kv)
    assert all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True))
    report = airgraph.explain().to_dict()
    assert report["counters"]["eager_calls"] == 0
    if not on:
        assert "input_inplace_pass" not in report["passes"]


@pytest.mark.parametrize("program", _REINPLACED)
def test_the_copy_goes(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    _run(program, {})
    assert airgraph.explain().to_dict()["passes"]["input_inplace_pass"] == 1


def _traced(program: Callable[[Tensor, Tensor], object]) -> torch.fx.GraphModule:
    return make_fx(program, tracing_mode="fake")(torch.zeros(3, 4), torch.ones(1, 4))


def _functional_output(kv: Tensor, x: Tensor) -> Tensor:
    new = torch.ops.aten.add.Tensor(kv, x)
    torch.ops.aten.copy_.default(kv, new)
    return new


def _functional_late_read(kv: Tensor, x: Tensor) -> Tensor:
    view = torch.ops.aten.t.default(kv)
    new = torch.ops.aten.add.Tensor(kv, x)
    late = torch.ops.aten.neg.default(view)
    torch.ops.aten.copy_.default(kv, new)
    return late


def _functional_view_argument(kv: Tensor, x: Tensor) -> Tensor:
    new = torch.ops.aten.add.Tensor(kv, torch.ops.aten.slice.Tensor(kv, 0, 0, 1))
    torch.ops.aten.copy_.default(kv, new)
    return x + 1


def _functional_self_argument(kv: Tensor, x: Tensor) -> Tensor:
    new = torch.ops.aten.index_add.default(kv, 0, torch.tensor([2, 1, 0]), kv)
    torch.ops.aten.copy_.default(kv, new)
    return x + 1


def _functional_promotion(kv: Tensor, x: Tensor) -> Tensor:
    new = torch.ops.aten.add.Tensor(kv, x.double())
    torch.ops.aten.copy_.default(kv, new)
    return x + 1


@pytest.mark.parametrize(
    "program",
    [
        _functional_output,
        _functional_late_read,
        _functional_view_argument,
        _functional_self_argument,
        _functional_promotion,
    ],
)
def test_the_copy_stays(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    gm = _traced(program)
    assert reinplace_inputs(gm) == 0
    assert gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)


@torch.no_grad()
@pytest.mark.parametrize("program", [_new_value_is_an_output, _wider])
def test_what_is_computed_elsewhere_is_copied_once(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    kv, x = torch.arange(1200.0).reshape(300, 4), torch.full((1, 4), 0.5)
    torch.compile(program, backend="airgraph", fullgraph=True)(kv, x)
    (graph,) = airgraph.explain().to_dict()["graphs"]
    # Besides, a cast to another type counts by its result.
    casts = 3 * kv.nbytes if program is _wider else 0
    assert graph["copied_nbytes"] == kv.nbytes + x.nbytes + casts


def test_a_new_value_that_is_returned_has_memory_of_its_own() -> None:
    kv, x = torch.zeros(2, 2), torch.ones(2, 2)
    with torch.no_grad():
        out = torch.compile(_new_value_is_an_output, backend="airgraph")(kv, x)
    out.add_(1)
    assert torch.equal(kv, torch.ones(2, 2))
