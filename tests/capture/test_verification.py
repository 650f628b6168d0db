"""verify_every tells rounding from differences, and names operators that write or give several results."""

import itertools

import pytest
import torch
from torch import Tensor

from airgraph.errors import ReplayError

_calls = itertools.count(1)
_size = 0.0


@torch.library.custom_op("airgraph_verification::off_by", mutates_args=())
def off_by(x: Tensor) -> Tensor:
    """Another result at each call, by a relative size that the test sets."""
    return x * (1 + _size * (next(_calls) % 2))


off_by.register_fake(torch.empty_like)


@torch.library.custom_op("airgraph_verification::writes_drift", mutates_args=("x",))
def writes_drift(x: Tensor) -> None:
    x.add_(0.5 * next(_calls))


@torch.library.custom_op("airgraph_verification::two_results", mutates_args=())
def two_results(x: Tensor) -> tuple[Tensor, Tensor]:
    return x + 1, x + 0.5 * next(_calls)


two_results.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))


@torch.no_grad()
@pytest.mark.parametrize(
    ("dtype", "within", "outside"),
    [
        (torch.float64, 5e-8, 5e-7),
        (torch.float32, 5e-7, 5e-5),
        (torch.bfloat16, 4e-3, 1e-1),
        (torch.float16, 5e-4, 1e-2),
    ],
    ids=str,
)
def test_rounding_of_the_dtype_passes_and_more_does_not(
    dtype: torch.dtype, within: float, outside: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = torch.compile(lambda x: off_by(x), backend="airgraph", options={"verify_every": 1})
    x = torch.full((4,), 100.0, dtype=dtype)
    monkeypatch.setattr(f"{__name__}._size", within)
    for _ in range(3):
        compiled(x)
    monkeypatch.setattr(f"{__name__}._size", outside)
    with pytest.raises(ReplayError, match="differs from eager: output 0 by"):
        compiled(x)


@torch.no_grad()
def test_an_operator_that_writes_is_named() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        writes_drift(y)
        return y.exp().log() + 1

    compiled = torch.compile(program, backend="airgraph", fullgraph=True, options={"verify_every": 1})
    message = r"first to differ is node \w+, airgraph_verification::writes_drift at .*test_verification.py:\d+, by 0.5"
    with pytest.raises(ReplayError, match=message):
        compiled(torch.ones(4))


@torch.no_grad()
def test_an_operator_that_writes_an_input_is_named() -> None:
    def program(cache: Tensor, x: Tensor) -> Tensor:
        writes_drift(cache)
        return x * 2

    compiled = torch.compile(program, backend="airgraph", fullgraph=True, options={"verify_every": 1})
    with pytest.raises(ReplayError, match=r"mutated input 0 \(cache\) by .* node \w+, .*writes_drift at"):
        compiled(torch.ones(4), torch.ones(4))


@torch.no_grad()
def test_an_operator_of_several_results_is_named() -> None:
    def program(x: Tensor) -> Tensor:
        first, second = two_results(x.relu())
        return first + second.exp().log()

    compiled = torch.compile(program, backend="airgraph", fullgraph=True, options={"verify_every": 1})
    with pytest.raises(ReplayError, match=r"first to differ is node \w+, airgraph_verification::two_results at"):
        compiled(torch.ones(4))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_that_round_sums_otherwise_are_not_differences(dtype: torch.dtype) -> None:
    """Sums of large numbers that nearly cancel out."""
    weight = torch.randint(-128, 128, (64, 512), dtype=torch.int8)
    call = torch.compile(lambda x: x @ weight.t().to(x.dtype), backend="airgraph", options={"verify_every": 1})
    for _ in range(3):
        call(torch.randn(1, 512).to(dtype))
