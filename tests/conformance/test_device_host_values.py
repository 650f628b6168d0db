"""What a program takes from the host and is the same at each call is on the device when it is captured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors, through
from reports import counters
from torch import Tensor

from airgraph import scope


def _writes_a_number(x: Tensor) -> Tensor:
    y = x * 2
    y[0] = 1.0
    y[1:3] = 7
    return y


def _copies_a_number(x: Tensor) -> Tensor:
    return x + torch.tensor(5.0).to(x.device)


def _copies_a_table(x: Tensor) -> Tensor:
    return x * torch.tensor([1.0, 2, 3, 4, 5, 6]).to(x.device)


def _copies_what_follows_from_a_table(x: Tensor) -> Tensor:
    return x * (torch.arange(6) * 2 + 1).sin().to(x.device, torch.float32)


def _chooses_a_number(x: Tensor) -> Tensor:
    return torch.where(x > 2, x, torch.tensor(5.0))


def _at_rows_of_the_host(x: Tensor) -> Tensor:
    return x[torch.tensor([4, 0])] + x[torch.tensor(3)]


def _written_at_rows(x: Tensor) -> Tensor:
    y = x * 2
    y[torch.tensor([1, 3], device=x.device)] = 5.0
    y[torch.tensor([2, 4])] = x[:2]
    return y


def _filled_by_a_mask(x: Tensor) -> Tensor:
    y = x * 2
    y[x > 2] = -1.0
    return y


def _a_constant_is_handed_out(x: Tensor) -> tuple[Tensor, Tensor]:
    table = torch.tensor([1.0, 2, 3]).to(x.device)
    return table.view(3, 1), x + 1


def _a_constant_is_written(x: Tensor) -> tuple[Tensor, Tensor]:
    table = torch.tensor([1.0, 2, 3, 4, 5, 6]).to(x.device)
    table.add_(x)
    return table, table.sum() + x


def _a_constant_is_seen_whole(x: Tensor) -> Tensor:
    table = torch.tensor([1.0, 2, 3, 4, 5, 6])
    on_device = table.to(x.device)
    on_device[0] = 9.0
    return on_device + table.to(x.device) + x


def _a_turned_table(x: Tensor) -> tuple[Tensor, Tensor]:
    table = torch.tensor([[1.0, 2, 3], [4, 5, 6]]).t().to(x.device)
    return table.as_strided((6,), (1,)) + x, table


def _follows_in_many_steps(x: Tensor) -> Tensor:
    table = torch.tensor([1.0, 2, 3, 4, 5, 6])
    for step in range(400):
        table = table + step
    return x + table.to(x.device)


def _on_a_side_stream(x: Tensor) -> Tensor:
    with scope.stream("side"):
        y = x * torch.tensor([1.0, 2, 3, 4, 5, 6]).to(x.device)
        y[0] = 3.0
    return y


_PROGRAMS: list[Callable[[Tensor], Any]] = [
    _writes_a_number,
    _copies_a_number,
    _copies_a_table,
    _copies_what_follows_from_a_table,
    _chooses_a_number,
    _at_rows_of_the_host,
    _written_at_rows,
    _filled_by_a_mask,
    _a_constant_is_handed_out,
    _a_constant_is_written,
    _a_constant_is_seen_whole,
    _a_turned_table,
    _follows_in_many_steps,
    _on_a_side_stream,
]


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("program", _PROGRAMS, ids=[each.__name__[1:] for each in _PROGRAMS])
@pytest.mark.sampled
def test_programs_with_constants_of_the_host_are_captured(
    device: str, door: str, program: Callable[[Tensor], Any], tmp_path: Path
) -> None:
    if device == "npu" and program is _filled_by_a_mask:
        pytest.skip("torch_npu counts what a mask chooses, and the host waits for that")
    call = through(door, program, tmp_path, dynamic=False)
    for start in (0.0, 1.0, 2.0):
        x = torch.arange(6.0, device=device) + start
        made = call(x)
        torch.testing.assert_close(made, program(x), check_stride=True)
        # Nobody else's values: the next call's are right all the same.
        for each in made if isinstance(made, tuple) else (made,):
            each.fill_(-7)
    assert (counters()["captures"], counters()["eager_calls"]) == (1, 0)


@torch.no_grad()
@both_doors
def test_sizes_in_what_is_made_on_the_host(device: str, door: str, tmp_path: Path) -> None:
    def program(x: Tensor) -> Tensor:
        places = torch.arange(x.shape[0]).to(x.device)
        return x / x.shape[0] ** 0.5 + places + torch.ones(x.shape[0]).to(x.device) * 3

    call = through(door, program, tmp_path, dynamic=True)
    for size in (6, 9, 6, 4, 9):
        x = torch.arange(float(size), device=device)
        torch.testing.assert_close(call(x), program(x))
    assert (counters()["captures"], counters()["eager_calls"]) == (3, 0)


@torch.no_grad()
def test_what_is_random_or_comes_with_a_call_stays(device: str) -> None:
    if device == "cpu":
        pytest.skip("nothing is elsewhere than on the host")

    def random(x: Tensor) -> Tensor:
        return x * 0 + torch.rand(6).to(x.device)

    def given(x: Tensor, host: Tensor) -> Tensor:
        return x + host.to(x.device)

    x = torch.arange(6.0, device=device)
    call = torch.compile(random, backend="airgraph")
    with pytest.warns(UserWarning, match="a tensor lies on cpu, the graph on"):
        first = call(x)
    assert not torch.equal(first, call(x))
    call = torch.compile(given, backend="airgraph")
    for host in (torch.ones(6), torch.zeros(6)):
        torch.testing.assert_close(call(x, host), x + host.to(x.device))


@torch.no_grad()
@both_doors
@pytest.mark.filterwarnings("ignore:airgraph. .*(runs eagerly|not cached)")
@pytest.mark.parametrize("policy", ["off", "fix"])
def test_what_a_stream_makes_on_the_host_needs_no_wait(device: str, door: str, policy: str, tmp_path: Path) -> None:
    def program(x: Tensor) -> Tensor:
        with scope.stream("side"):
            places = torch.arange(x.shape[0])
        return x + places.to(x.device)

    call = through(door, program, tmp_path, dynamic=True, stream_check=policy)
    for size in (6, 9, 6):
        x = torch.arange(float(size), device=device)
        torch.testing.assert_close(call(x), program(x))


@torch.library.custom_op("airgraph_tests::rows_of_host", mutates_args=())
def _rows_of_host(x: Tensor, rows: Tensor) -> Tensor:
    # As an operator in C++ that reads sizes from a tensor.
    assert rows.device.type == "cpu", rows.device
    return x[rows.tolist()].clone()


@_rows_of_host.register_fake
def _(x: Tensor, rows: Tensor) -> Tensor:
    return x.new_empty(rows.shape)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:airgraph. .* runs eagerly")
def test_operators_of_others_are_given_what_they_take(device: str) -> None:
    def program(x: Tensor) -> Tensor:
        return _rows_of_host(x, torch.tensor([2, 4])) + 1

    call = torch.compile(program, backend="airgraph")
    for start in (0.0, 1.0):
        x = torch.arange(6.0, device=device) + start
        torch.testing.assert_close(call(x), program(x))


_TABLE = torch.ones(6)


@torch._dynamo.nonstrict_trace
def _times_table(x: Tensor) -> Tensor:
    return x * _TABLE.to(x.device)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:airgraph. .* runs eagerly")
def test_a_tensor_of_the_users_is_no_constant(device: str) -> None:
    call = torch.compile(lambda x: _times_table(x) + 1, backend="airgraph")
    x = torch.arange(6.0, device=device)
    for _ in range(3):
        torch.testing.assert_close(call(x), x * _TABLE.to(device) + 1)
        _TABLE.add_(1)


@torch.no_grad()
def test_pinned_memory_is_the_hosts(device: str) -> None:
    if device != "cuda":
        pytest.skip("pins memory for a CUDA device")

    def program(x: Tensor) -> Tensor:
        zeros = torch.zeros(x.shape[0], pin_memory=True).to(x.device, non_blocking=True)
        return x + zeros + torch.full((6,), 2.0, pin_memory=True).to(x.device).sum()

    call = torch.compile(program, backend="airgraph", dynamic=True)
    for size in (6, 9):
        x = torch.arange(float(size), device=device)
        torch.testing.assert_close(call(x), program(x))
    assert counters()["eager_calls"] == 0
