"""Registered replacements are applied where they match, and can be checked, switched off and taken back."""

from collections.abc import Iterator

import pytest
import torch
from golden import SWITCHES, Case, rewritten
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

import airgraph
from airgraph.errors import OptionError
from airgraph.passes import pattern_fusion


@pytest.fixture(autouse=True)
def no_rules() -> Iterator[None]:
    yield
    pattern_fusion._rules.clear()


def _scaled_sum(a: Tensor, b: Tensor) -> Tensor:
    return (a + b) * 3


def _as_difference(a: Tensor, b: Tensor) -> Tensor:
    return a - b


def _program(x: Tensor, y: Tensor) -> Tensor:
    return ((x.exp() + y) * 3).relu() + 1


def _run(dynamic: bool = False, **options: object) -> tuple[Tensor, int | None]:
    torch._dynamo.reset()
    airgraph.reset()
    with torch.no_grad():
        out = torch.compile(_program, backend="airgraph", dynamic=dynamic, options=options)(
            torch.zeros(4), torch.full((4,), 0.25)
        )
    return out, airgraph.explain().to_dict()["passes"].get("pattern_fusion_pass")


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_match_is_replaced(dynamic: bool) -> None:
    undo = airgraph.register_replacement(_scaled_sum, _as_difference, (torch.ones(2), torch.ones(2)))
    out, replaced = _run(dynamic)
    assert replaced == 1 and out.tolist() == [1.75] * 4
    undo()
    undo()
    out, replaced = _run(dynamic)
    assert replaced == 0 and out.tolist() == [4.75] * 4


def test_the_option_switches_it() -> None:
    airgraph.register_replacement(_scaled_sum, _as_difference, (torch.ones(2), torch.ones(2)))
    out, replaced = _run(pattern_fusion_pass=False)
    assert replaced is None and out.tolist() == [4.75] * 4


def test_an_extra_check_decides() -> None:
    seen = []

    def never(match: object) -> bool:
        seen.append(match)
        return False

    airgraph.register_replacement(_scaled_sum, _as_difference, (torch.ones(2), torch.ones(2)), extra_check=never)
    out, replaced = _run()
    assert replaced == 0 and out.tolist() == [4.75] * 4 and seen


@pytest.mark.parametrize("allowed", [True, False])
def test_the_graph_is_rewritten_as_before(allowed: bool, snapshot: SnapshotAssertion) -> None:
    airgraph.register_replacement(
        _scaled_sum, _as_difference, (torch.ones(2), torch.ones(2)), extra_check=lambda match: allowed
    )
    options = {name: name == "pattern_fusion_pass" for name in SWITCHES}
    assert rewritten(Case("pattern", _program, options, dynamic=False, direct=False, version=None)) == snapshot


def test_what_cannot_be_a_rule_is_refused() -> None:
    with pytest.raises(OptionError, match="pattern: expected a function, got 3"):
        airgraph.register_replacement(3, _as_difference, ())
    with pytest.raises(OptionError, match="cannot be traced"):
        airgraph.register_replacement(_scaled_sum, _as_difference, (torch.ones(2), torch.ones(3)))
