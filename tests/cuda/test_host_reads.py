"""Operators that read a value on the host are refused before a capture, which they would spoil."""

from collections.abc import Callable

import pytest
import torch
from reports import counters
from torch import Tensor

_LENGTH = 6


def _masked_write(x: Tensor) -> Tensor:
    y = x * 1
    y[x > 2] = x[:1] * 0 - 1
    return y


def _masked_sum(x: Tensor) -> Tensor:
    return (x * 1).index_put((x > 2,), torch.ones(1, device=x.device), accumulate=True)


def _drawn(x: Tensor) -> Tensor:
    return torch.normal(x, x * 0 + 1) * 0 + x


@torch.no_grad()
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (_masked_write, "how many elements its mask chooses is read on the host"),
        (_masked_sum, "how many elements its mask chooses is read on the host"),
        (_drawn, "whether its deviations are negative is read on the host"),
    ],
)
def test_they_are_refused_by_name(program: Callable[[Tensor], Tensor], reason: str) -> None:
    call = torch.compile(program, backend="airgraph")
    x = torch.arange(float(_LENGTH), device="cuda")
    with pytest.warns(UserWarning, match=reason):
        torch.testing.assert_close(call(x), program(x))
    assert counters()["captures"] == 0


@torch.no_grad()
def test_what_is_written_is_captured_where_it_is_one_number() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        y[x > 2] = -1.0
        return torch.where(x > 4, 9.0, y)

    call = torch.compile(program, backend="airgraph", fullgraph=True)
    for start in (0.0, 1.0):
        x = torch.arange(float(_LENGTH), device="cuda") + start
        torch.testing.assert_close(call(x), program(x))
    assert counters() == {"captures": 1, "recaptures": 0, "replays": 2, "eager_calls": 0}
