"""Settings that torch_npu adds to torch's: what was captured under others is captured anew."""

from __future__ import annotations

import pytest
import torch

import airgraph

torch_npu = pytest.importorskip("torch_npu")


@torch.no_grad()
@pytest.mark.parametrize("name", ["matmul", "conv"])
def test_hf32_set_after_a_capture(name: str) -> None:
    owner = getattr(torch.npu, name)
    before = owner.allow_hf32
    call = torch.compile(lambda x: (x @ x).relu(), backend="airgraph", dynamic=False)
    x = torch.eye(3, device="npu")
    call(x)
    try:
        owner.allow_hf32 = not before
        torch.testing.assert_close(call(x), x)
        rows = airgraph.explain().to_dict()["graphs"]
        assert [row["reason"] for row in rows][1:] == ["settings of torch that kernels depend on have changed"]
    finally:
        owner.allow_hf32 = before
    torch.testing.assert_close(call(x), x)
    assert len(airgraph.explain().to_dict()["graphs"]) == 2
