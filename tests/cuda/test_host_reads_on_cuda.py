"""Operators that read a value on the host are refused before a capture, which they would spoil."""

import inspect
from collections.abc import Callable

import pytest
import torch
from reports import counters
from torch import Tensor

from airgraph.runtime.accelerator.runtime import AcceleratorRuntime

_LENGTH = 6


def _masked_write(x: Tensor) -> Tensor:
    y = x * 1
    y[x > 2] = x[:1] * 0 - 1
    return y


def _masked_sum(x: Tensor) -> Tensor:
    return (x * 1).index_put((x > 2,), torch.ones(1, device=x.device), accumulate=True)


def _masked_at_one_place(x: Tensor) -> Tensor:
    y = torch.stack([x, x])
    y[y[:, 0] < 9, x[:2].long()] = 1.0
    return y


def _drawn(x: Tensor) -> Tensor:
    return torch.normal(x, x * 0 + 1) * 0 + x


def _filled(x: Tensor) -> Tensor:
    return (x * 1).masked_fill(x > 2, x[0] - 1)


def _filled_at_rows(x: Tensor) -> Tensor:
    return (x * 1).index_fill(0, x[:2].long(), x[0] - 1)


def _line(x: Tensor) -> Tensor:
    return torch.linspace(x[0], x[3], 5, device=x.device)


def _sorter(x: Tensor) -> Tensor:
    return torch.searchsorted(x, x, sorter=x.long())


def _histogram(x: Tensor) -> Tensor:
    return torch.histc(x, 4)


def _mode_of_many(x: Tensor) -> Tensor:
    return torch.mode(x.repeat(400)).values


def _among_many(x: Tensor) -> Tensor:
    return torch.isin(x, x.repeat(4) + 1)


def _among_many_that_are_unique(x: Tensor) -> Tensor:
    return torch.isin(x, torch.arange(24, device=x.device), assume_unique=True)


def _segments(x: Tensor) -> Tensor:
    return torch.segment_reduce(x, "sum", lengths=(x[:2] * 0 + 3).long())


def _by_channel(x: Tensor) -> Tensor:
    return torch.fake_quantize_per_channel_affine(x[None], x[:1] + 1, x[:1].int(), 0, 0, 127)


def _learnt(x: Tensor) -> Tensor:
    return torch._fake_quantize_learnable_per_tensor_affine(x, x[:1] + 1, x[:1], 0, 127)


def _matrix(x: Tensor) -> Tensor:
    return torch.eye(3, device=x.device) * (x[:3] + 1)


def _inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv(_matrix(x))


def _many_matrices(x: Tensor) -> Tensor:
    return torch.eye(20, device=x.device).expand(20, 20, 20) * (x[0] + 1)


def _inverses(x: Tensor) -> Tensor:
    return torch.linalg.inv_ex(_many_matrices(x)).inverse


def _determinants(x: Tensor) -> Tensor:
    return torch.linalg.det(_many_matrices(x))


def _pseudo_inverse(x: Tensor) -> Tensor:
    return torch.linalg.pinv(_matrix(x))


def _checked_factor(x: Tensor) -> Tensor:
    return torch.linalg.cholesky_ex(_matrix(x), check_errors=True).L


def _eigenvalues(x: Tensor) -> Tensor:
    return torch.linalg.eigvalsh(_matrix(x))


def _singular_values(x: Tensor) -> Tensor:
    return torch.linalg.svdvals(_matrix(x))


def _exponential(x: Tensor) -> Tensor:
    return torch.matrix_exp(_matrix(x) * 0.1)


def _where_true(x: Tensor) -> Tensor:
    return torch.nonzero(x > 2)


def _number(x: Tensor) -> Tensor:
    return x + torch.full((), x[1].item(), device=x.device)


_REFUSED = [
    (_masked_write, "aten::index_put", "how many elements its mask chooses is read on the host"),
    (_masked_sum, "aten::index_put", "how many elements its mask chooses is read on the host"),
    (_masked_at_one_place, "aten::index_put_", "how many elements its mask chooses is read on the host"),
    (_drawn, "aten::normal.Tensor_Tensor", "whether its deviations are negative is read on the host"),
    (_filled, "aten::masked_fill.Tensor", "the value that it fills in is read on the host"),
    (_filled_at_rows, "aten::index_fill.int_Tensor", "the value that it fills in is read on the host"),
    (_line, "aten::linspace.Tensor_Tensor", "its bounds are read on the host"),
    (_sorter, "aten::searchsorted.Tensor", "whether its sorter is in bounds is read on the host"),
    (_histogram, "aten::histc", "the range of its values is read on the host"),
    (_mode_of_many, "aten::mode", "how many values it finds is read on the host"),
    (_among_many, "aten::isin.Tensor_Tensor", "how many values it finds is read on the host"),
    (_among_many_that_are_unique, "aten::isin.Tensor_Tensor", "how many values it finds is read on the host"),
    (_segments, "aten::segment_reduce", "whether its lengths add up is read on the host"),
    (_by_channel, "aten::fake_quantize_per_channel_affine_cachemask", "whether its zero points are in range is read"),
    (_learnt, "aten::_fake_quantize_learnable_per_tensor_affine", "its scale or zero point is read on the host"),
    (_inverse, "aten::_linalg_check_errors", "whether it failed for a matrix is read on the host"),
    (_inverses, "aten::linalg_inv_ex", "whether it failed for a matrix is read on the host, or the host waits"),
    (_determinants, "aten::_linalg_det", "the host waits for the device in it"),
    (_pseudo_inverse, "aten::linalg_pinv.atol_rtol_tensor", "whether it failed for a matrix is read on the host"),
    (_checked_factor, "aten::linalg_cholesky_ex", "whether it failed for a matrix is read on the host"),
    (_eigenvalues, "aten::_linalg_eigh", "whether it failed for a matrix is read on the host"),
    (_singular_values, "aten::_linalg_svd", "whether it failed for a matrix is read on the host"),
    (_exponential, "aten::linalg_matrix_exp", "the norms of its matrices are read on the host"),
    (_where_true, "aten::nonzero", "the shape of its result depends on data"),
    (_number, "aten::_local_scalar_dense", "it reads a tensor's value on the host"),
]


@torch.no_grad()
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True)
@pytest.mark.parametrize(("program", "operator", "reason"), _REFUSED, ids=[each[0].__name__[1:] for each in _REFUSED])
def test_they_are_refused_by_name(
    program: Callable[[Tensor], Tensor], operator: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[object] = []
    monkeypatch.setattr(AcceleratorRuntime, "record", lambda *args: attempts.append(args))
    call = torch.compile(program, backend="airgraph", fullgraph=True)
    x = torch.arange(float(_LENGTH), device="cuda")
    with pytest.warns(UserWarning) as warned:
        torch.testing.assert_close(call(x), program(x))
    (said,) = [str(each.message) for each in warned if "runs eagerly" in str(each.message)]
    lines, first = inspect.getsourcelines(program)
    place = said.partition(f"{operator} at {__file__}:")[2]
    line, _, why = place.partition(": ")
    assert why.startswith(reason), said
    assert first <= int(line) < first + len(lines), said
    assert counters()["captures"] == 0 and not attempts


def _written_number(x: Tensor) -> Tensor:
    y = x * 1
    y[x > 2] = -1.0
    return torch.where(x > 4, 9.0, y)


_CAPTURED: list[Callable[[Tensor], Tensor]] = [
    _written_number,
    lambda x: (x * 1).masked_fill(x > 2, -1.0),
    lambda x: (x * 1).index_fill(0, x[:2].long(), -1.0),
    lambda x: torch.linspace(0.0, 3.0, 5, device=x.device) + x[:5],
    lambda x: torch.searchsorted(x, x * 0.5),
    lambda x: torch.histc(x, 4, 0, 9),
    lambda x: torch.mode(x.repeat(4)).values,
    lambda x: torch.isin(x, x[:3] + 1),
    lambda x: torch.segment_reduce(x, "sum", lengths=(x[:2] * 0 + 3).long(), unsafe=True),
    lambda x: torch.linalg.cholesky_ex(_matrix(x)).L,
    lambda x: torch.linalg.inv_ex(_matrix(x)).inverse,
    lambda x: torch.linalg.det(_matrix(x)),
    lambda x: torch.linalg.inv_ex(_many_matrices(x)[:16]).inverse,
    lambda x: torch.nonzero_static(x > 2, size=4),
]


@torch.no_grad()
@pytest.mark.parametrize("program", _CAPTURED)
def test_what_reads_nothing_is_captured(program: Callable[[Tensor], Tensor]) -> None:
    call = torch.compile(program, backend="airgraph", fullgraph=True)
    for start in (0.0, 1.0):
        x = torch.arange(float(_LENGTH), device="cuda") + start
        torch.testing.assert_close(call(x), program(x))
    assert counters() == {"captures": 1, "recaptures": 0, "replays": 2, "eager_calls": 0}
