"""Which of PyTorch's operators are refused on CUDA for what they read on the host, and that no others are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
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
    from torch.testing._internal.common_methods_invocations import op_db

    ordered = sorted(op_db, key=lambda op: op.formatted_name)
    for index, op in enumerate(ordered):
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
