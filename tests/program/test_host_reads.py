"""Which of PyTorch's operators are refused on CUDA for what they read on the host, and that no others are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from described_operators import operators
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.proxy_tensor import make_fx

from airgraph.program.host_reads import host_read

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo

# The first sample of each reads something there, or has one of these within.
_REFUSED = {
    *("_segment_reduce_lengths", "cholesky", "cholesky_inverse", "matrix_exp", "norm_nuc", "normal"),
    *("linalg_cholesky", "linalg_cond", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh", "linalg_inv"),
    *(
        "linalg_ldl_factor",
        "linalg_ldl_solve",
        "linalg_lu_factor",
        "linalg_matrix_rank",
        "linalg_matrix_rank_hermitian",
    ),
    *("linalg_solve", "linalg_svd", "linalg_svdvals", "linalg_tensorinv", "linalg_tensorsolve"),
    *(
        "linalg_lu",
        "linalg_lu_factor_ex",
        "linalg_pinv",
        "linalg_pinv_hermitian",
        "linalg_pinv_singular",
        "lu",
        "pinverse",
    ),
    *("linspace_tensor_overload", "logspace_tensor_overload", "pca_lowrank", "svd", "svd_lowrank"),
}
# Of the others, each so manieth, unless all are asked for.
_STRIDE = 8


def _operators(full: bool) -> Iterator[OpInfo]:
    for index, op in enumerate(sorted(operators(), key=lambda op: op.formatted_name)):
        if "jiterator" not in op.name and (full or op.formatted_name in _REFUSED or index % _STRIDE == 0):
            yield op


def _reads(op: OpInfo) -> set[str] | None:
    """The operators of ATen that read something for its first sample; None where it cannot be traced."""
    dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64
    sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=False)))

    def call(inputs: object, args: object, kwargs: dict[str, object]) -> object:
        return op.op(inputs, *args, **kwargs)  # type: ignore[misc]

    try:
        with torch.no_grad():
            traced = make_fx(call, tracing_mode="fake")(sample.input, sample.args, sample.kwargs)
    except (DataDependentOutputException, DynamicOutputShapeException, NotImplementedError, RuntimeError):
        return None
    calls = [node for node in traced.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    return {node.target.name() for node in calls if host_read(node.target, node.args, node.kwargs) is not None}


def test_these_and_no_others_read_on_the_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # Takes ten seconds, which only the worker that runs this spends.
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    # Each sample looks twice for a TestCase in the stack, which is deep under pytest: nine tenths of the time.
    for module in (common_utils, core):
        monkeypatch.setattr(module, "extract_test_fn", lambda: None)
    full = request.config.getoption("--full-sweep")
    found = {op.formatted_name: _reads(op) for op in _operators(full)}
    assert {name for name, reads in found.items() if reads} == _REFUSED
    # Those whose result depends on data, and a few that fake tensors do not serve.
    untraced = [name for name, reads in found.items() if reads is None]
    assert len(untraced) <= len(found) / 10, untraced


def _shaped(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


_ATEN = torch.ops.aten
_LINE = _shaped(4)
_HALF = {"mat2": _shaped(2, 8, 8, dtype=torch.float16), "offs": _shaped(2, dtype=torch.int32)}
_OBSERVED = (_LINE, *(_shaped(1) for _ in range(6)), 0.9, 0, 255, -1)


# Those that no operator's first sample above calls, by the arguments that decide.
@pytest.mark.parametrize(
    ("op", "args", "kwargs", "reads"),
    [
        pytest.param(_ATEN._grouped_mm.default, (_shaped(4, 8, dtype=torch.float16),), _HALF, True, id="grouped_mm"),
        pytest.param(
            _ATEN._grouped_mm.default,
            (_shaped(2, 4, 8, dtype=torch.float16), _HALF["mat2"]),
            {},
            False,
            id="grouped_mm_of_equal_groups",
        ),
        pytest.param(_ATEN.randint_like.Tensor, (_LINE, _shaped()), {}, True, id="randint_like_tensor"),
        pytest.param(_ATEN.randint_like.default, (_LINE, 9), {}, False, id="randint_like_number"),
        pytest.param(_ATEN._fused_moving_avg_obs_fq_helper.default, (*_OBSERVED, True), {}, True, id="observed_by_row"),
        pytest.param(_ATEN._fused_moving_avg_obs_fq_helper.default, (*_OBSERVED, False), {}, False, id="observed"),
        pytest.param(_ATEN._ctc_loss_backward.default, (), {}, True, id="ctc_loss_backward"),
        pytest.param(_ATEN.batch_norm_gather_stats.default, (), {}, True, id="batch_norm_gather_stats"),
        pytest.param(
            _ATEN.masked_scatter_backward.default, (_LINE, _LINE > 0, [4]), {}, True, id="masked_scatter_backward"
        ),
        pytest.param(_ATEN.linalg_lstsq.default, (_shaped(4, 4), _shaped(4, 1)), {}, True, id="linalg_lstsq"),
        pytest.param(_ATEN.add.Tensor, (_LINE, _LINE), {}, False, id="add"),
    ],
)
def test_what_is_read_on_the_host(
    op: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object], reads: bool
) -> None:
    assert (host_read(op, args, kwargs) is not None) is reads
