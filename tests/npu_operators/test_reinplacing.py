"""Operators that write several arguments do so in place once captured, inputs and intermediates, without a copy."""

from collections.abc import Callable

import pytest
import torch
from latent_attention import kv_arguments, prolog_arguments
from torch import Tensor

import airgraph
from airgraph.capture.ledger import ledger

_npu = torch.ops.npu
_NAMES = ["npu_add_rms_norm_v2", "npu_kv_rmsnorm_rope_cache_v2", "npu_mla_prolog_v3"]
_Case = tuple[Callable[..., object], tuple[Tensor, ...], slice]


def _twice(operator: Callable[..., object], written: slice) -> Callable[..., list[object]]:
    """The operator on the inputs that it writes, then on values made of them."""

    def program(*arguments: Tensor) -> list[object]:
        first = operator(*arguments)
        made = [each * 2 for each in arguments[written]]
        second = operator(*arguments[: written.start], *made, *arguments[written.stop :])
        return [first, second, *made]

    return program


def _prolog(*arguments: Tensor) -> object:
    return _npu.npu_mla_prolog_v3(*arguments[:-1], cache_index=arguments[-1])


def _cases() -> dict[str, _Case]:
    x = torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.randn(8)
    return {
        "npu_add_rms_norm_v2": (_npu.npu_add_rms_norm_v2, x, slice(0, 2)),
        "npu_kv_rmsnorm_rope_cache_v2": (_npu.npu_kv_rmsnorm_rope_cache_v2, kv_arguments("Norm"), slice(5, 7)),
        "npu_mla_prolog_v3": (_prolog, prolog_arguments((2, 3)), slice(9, 11)),
    }


@torch.no_grad()
@pytest.mark.parametrize("name", _NAMES)
def test_written_in_place(name: str) -> None:
    operator, arguments, written = _cases()[name]
    program = _twice(operator, written)
    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    ours, theirs = ([each.clone() for each in arguments] for _ in range(2))
    addresses = [each.data_ptr() for each in ours]
    for _ in range(2):
        torch.testing.assert_close(compiled(*ours), program(*theirs), rtol=0, atol=0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert [each.data_ptr() for each in ours] == addresses
    report = airgraph.explain().to_dict()
    assert report["counters"] == {"captures": 1, "recaptures": 0, "replays": 2, "eager_calls": 0}
    # Of the four copies that functional form asks for, two of inputs and two of intermediates.
    assert (report["passes"]["auto_functionalized"], report["passes"]["input_inplace_pass"]) == (2, 2)
    assert report["passes"]["inplace_pass"] >= 2
    (graphed,) = [each for each in ledger.callables if each.captures]
    targets = [str(node.target) for node in graphed._program.gm.graph.nodes]
    assert targets.count(f"npu.{name}.default") == 2
    assert not {"aten.clone.default", "aten.copy_.default"} & set(targets)


@torch.no_grad()
@pytest.mark.parametrize("name", _NAMES)
def test_an_old_value_that_is_needed_is_kept(name: str) -> None:
    operator, arguments, written = _cases()[name]

    def program(*arguments: Tensor) -> list[object]:
        before = [each + 0 for each in arguments[written]]
        kept = [each * 1.5 for each in before]
        operator(*arguments[: written.start], *kept, *arguments[written.stop :])
        operator(*arguments)
        return [*before, *kept]

    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    ours, theirs = ([each.clone() for each in arguments] for _ in range(2))
    for _ in range(2):
        torch.testing.assert_close(compiled(*ours), program(*theirs), rtol=0, atol=0)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("name", _NAMES)
def test_what_pytorch_asks_of_an_operator_holds(name: str) -> None:
    _, arguments, _ = _cases()[name]
    given = arguments if name != "npu_mla_prolog_v3" else arguments[:-1]
    settings = {} if name != "npu_mla_prolog_v3" else {"cache_index": arguments[-1]}
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(getattr(_npu, name).default, given, settings, test_utils=tests)
