"""Custom operators that write their arguments are captured, and write in place where the old values are dead."""

import pytest
import torch
from custom_operators import add_and_double, add_into, add_to_all, two_results
from torch import Tensor

import airgraph


def _inputs_and_intermediate(kv: Tensor, other: Tensor, x: Tensor) -> Tensor:
    made = x * 2
    result = add_and_double(kv, made, x)
    return result + made


def _two_inputs(kv: Tensor, other: Tensor, x: Tensor) -> Tensor:
    return add_and_double(kv, other, x) * 2


def _parts(kv: Tensor, other: Tensor, x: Tensor) -> Tensor:
    add_into(kv[1:3], x[:2])
    add_into(kv.t()[0], x[0, :1].expand(4))
    add_into(other[:, ::2], x[:, :3])
    return kv.sum() + other.sum()


def _inputs_in_larger_storages(kv: Tensor, other: Tensor, x: Tensor) -> Tensor:
    add_into(kv[1], x[0])
    add_into(kv[:, 2], x[:, 0])
    add_into(other.diagonal(), x[0, :4])
    return kv.sum() + other


def _old_value_needed(kv: Tensor, other: Tensor, x: Tensor) -> Tensor:
    before = kv.clone()
    add_into(kv, x)
    made = x * 2
    kept = made + 0
    add_into(made, x)
    return before + kept + made


def _results_and_writes(kv: Tensor, other: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    first, second = two_results(kv)
    made = x.exp()
    two_results(made)
    return first, second, made


def _lists(kv: Tensor, other: Tensor, x: Tensor) -> Tensor:
    add_to_all([kv, other], x)
    made = [x + 1, x + 2]
    add_to_all(made, x)
    return made[0] * made[1]


def _written_twice(kv: Tensor, other: Tensor, x: Tensor) -> Tensor:
    add_into(kv, x)
    middle = kv * 2
    add_into(kv, x)
    return middle + kv


_PROGRAMS = [
    *(_inputs_and_intermediate, _two_inputs, _parts, _inputs_in_larger_storages, _old_value_needed),
    *(_results_and_writes, _lists, _written_twice),
]


def _inputs(where: str) -> list[Tensor]:
    whole = [torch.randn(8, 12, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    if where == "alone":
        return [tensor[:4, :6].clone() for tensor in whole]
    return [tensor.view(16, 6)[4:8] if where == "after others" else tensor[2:6, 3:9] for tensor in whole]


@torch.no_grad()
@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("where", ["alone", "after others", "between others"])
@pytest.mark.parametrize("program", _PROGRAMS)
@pytest.mark.sampled
def test_results_and_written_arguments_are_eagers(program: object, where: str, on: bool) -> None:
    options = {"inplace_pass": on, "input_inplace_pass": on}
    compiled = torch.compile(program, backend="airgraph", fullgraph=True, options=options)
    ours, theirs = _inputs(where), _inputs(where)
    for seed in range(3):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 + seed))
        torch.testing.assert_close(compiled(*ours, x), program(*theirs, x))
        torch.testing.assert_close(ours, theirs)
    if program is _inputs_in_larger_storages and where == "between others":
        # Of an input that is not dense a diagonal is known by its strides only.
        assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 3
        return
    assert airgraph.explain().to_dict()["counters"] == {
        "captures": 1, "recaptures": 0, "replays": 3, "eager_calls": 0,
    }  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize(("program", "copies"), [(_two_inputs, 0), (_inputs_and_intermediate, 0), (_lists, 0)])
def test_nothing_is_copied_where_old_values_are_dead(program: object, copies: int) -> None:
    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    compiled(torch.ones(4, 6), torch.ones(4, 6), torch.ones(4, 6))
    (graphed,) = [c for c in airgraph.capture.ledger.ledger.callables if c.captures]
    targets = [str(node.target) for node in graphed._program.gm.graph.nodes]
    assert sum(name in ("aten.clone.default", "aten.copy_.default") for name in targets) == copies, targets
    assert airgraph.explain().to_dict()["passes"]["auto_functionalized"] >= 1
