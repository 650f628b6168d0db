# SPDX-License-Identifier: Apache-2.0
"""Operators that only torch_npu offers, against the same computation in plain torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch_npu


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def close(result: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(result.cpu(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rms_norm(dtype: torch.dtype) -> None:
    x, gamma = randn(2, 3, 8, dtype=dtype), randn(8, dtype=dtype)
    y, rstd = torch_npu.npu_rms_norm(x.npu(), gamma.npu(), 1e-6)
    close(y, F.rms_norm(x.float(), (8,), gamma.float(), 1e-6).to(dtype), 2e-3)
    close(rstd, torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6), 1e-4)


def test_add_rms_norm() -> None:
    x1, x2, gamma = randn(2, 8), randn(2, 8) * 2, randn(8)
    y, _, total = torch_npu.npu_add_rms_norm(x1.npu(), x2.npu(), gamma.npu(), 1e-6)
    close(total, x1 + x2)
    close(y, F.rms_norm(x1 + x2, (8,), gamma, 1e-6), 1e-4)


def test_swiglu() -> None:
    x = randn(2, 3, 8)
    first, second = x.chunk(2, -1)
    close(torch_npu.npu_swiglu(x.npu(), dim=-1), F.silu(first) * second)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_npu_gelu(approximate: str) -> None:
    x = randn(3, 4)
    close(torch_npu.npu_gelu(x.npu(), approximate=approximate), F.gelu(x, approximate=approximate))


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_rotary_mul(mode: str) -> None:
    x, cos, sin = randn(2, 3, 4, 8), randn(1, 3, 1, 8), randn(1, 3, 1, 8) * 2
    if mode == "half":
        first, second = x.chunk(2, -1)
        rotated = torch.cat((-second, first), -1)
    else:
        rotated = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    close(torch_npu.npu_rotary_mul(x.npu(), cos.npu(), sin.npu(), mode), x * cos + rotated * sin)


def in_layout(x: torch.Tensor, layout: str) -> torch.Tensor:
    """From (batch, heads, sequence, head size)."""
    return {
        "BNSD": x,
        "BSND": x.transpose(1, 2),
        "BSH": x.transpose(1, 2).flatten(2),
        "SBH": x.permute(2, 0, 1, 3).flatten(2),
    }[layout].contiguous()


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_fusion_attention_in_every_layout(layout: str) -> None:
    q, kv = randn(2, 4, 5, 8), randn(2, 2, 7, 8)
    hidden = torch.ones(5, 7, dtype=torch.bool).triu(3)
    result = torch_npu.npu_fusion_attention(
        in_layout(q, layout).npu(),
        in_layout(kv, layout).npu(),
        in_layout(kv, layout).npu(),
        4,
        layout,
        atten_mask=hidden.npu(),
        scale=0.3,
    )[0]
    expected = F.scaled_dot_product_attention(q, kv, kv, attn_mask=~hidden, scale=0.3, enable_gqa=True)
    close(result, in_layout(expected, layout))


@pytest.mark.parametrize("sparse_mode", [2, 3])
def test_fusion_attention_is_causal_from_either_corner(sparse_mode: int) -> None:
    q, kv = randn(1, 2, 3, 8), randn(1, 2, 5, 8)
    compressed = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    result = torch_npu.npu_fusion_attention(
        q.npu(), kv.npu(), kv.npu(), 2, "BNSD", atten_mask=compressed.npu(), scale=0.3, sparse_mode=sparse_mode
    )[0]
    seen = torch.ones(3, 5, dtype=torch.bool).tril(0 if sparse_mode == 2 else 2)
    close(result, F.scaled_dot_product_attention(q, kv, kv, attn_mask=seen, scale=0.3))


def test_fusion_attention_drops_weights() -> None:
    q, kv = randn(1, 2, 4, 8), torch.ones(1, 2, 64, 8)
    torch.npu.manual_seed(3)
    first = torch_npu.npu_fusion_attention(q.npu(), kv.npu(), kv.npu(), 2, "BNSD", keep_prob=0.5)[0].cpu()
    torch.npu.manual_seed(3)
    second = torch_npu.npu_fusion_attention(q.npu(), kv.npu(), kv.npu(), 2, "BNSD", keep_prob=0.5)[0].cpu()
    assert torch.equal(first, second)
    assert first.std() > 0  # Without dropout every output is 1.
    assert 0.7 < first.mean() < 1.3


HALF = torch.float16


def lengths_mask(lengths: list[int], keys: int) -> torch.Tensor:
    return (torch.arange(keys) < torch.tensor(lengths)[:, None])[:, None, None]


def test_prompt_flash_attention() -> None:
    q, kv = randn(2, 4, 5, 16, dtype=HALF), randn(2, 2, 7, 16, dtype=HALF)
    result = torch_npu.npu_prompt_flash_attention(
        q.npu(), kv.npu(), kv.npu(), num_heads=4, num_key_value_heads=2, scale_value=0.25, input_layout="BNSD"
    )
    close(result, F.scaled_dot_product_attention(q, kv, kv, scale=0.25, enable_gqa=True), 2e-3)


def test_incre_flash_attention_sees_only_the_filled_part() -> None:
    q, kv = randn(2, 4, 1, 16, dtype=HALF), randn(2, 2, 7, 16, dtype=HALF)
    result = torch_npu.npu_incre_flash_attention(
        q.npu(),
        kv.npu(),
        kv.npu(),
        num_heads=4,
        num_key_value_heads=2,
        scale_value=0.25,
        input_layout="BNSD",
        actual_seq_lengths=[3, 6],
    )
    seen = lengths_mask([3, 6], 7)
    close(result, F.scaled_dot_product_attention(q, kv, kv, attn_mask=seen, scale=0.25, enable_gqa=True), 2e-3)


def test_fused_infer_attention_score() -> None:
    q, kv = randn(2, 4, 1, 16, dtype=HALF), randn(2, 2, 7, 16, dtype=HALF)
    result, lse = torch_npu.npu_fused_infer_attention_score(
        q.npu(),
        kv.npu(),
        kv.npu(),
        num_heads=4,
        num_key_value_heads=2,
        scale=0.25,
        input_layout="BNSD",
        actual_seq_lengths_kv=[3, 6],
        softmax_lse_flag=True,
    )
    seen = lengths_mask([3, 6], 7)
    close(result, F.scaled_dot_product_attention(q, kv, kv, attn_mask=seen, scale=0.25, enable_gqa=True), 2e-3)
    scores = (q.float() @ kv.float().repeat_interleave(2, 1).transpose(-1, -2) * 0.25).masked_fill(~seen, -torch.inf)
    close(lse, scores.logsumexp(-1, keepdim=True), 2e-3)


def test_fused_infer_attention_score_is_updated_in_a_captured_graph() -> None:
    """How a server runs a captured decode step: the lengths of the cache are host numbers and change every step."""
    q, kv = randn(2, 4, 1, 16, dtype=HALF), randn(2, 2, 7, 16, dtype=HALF)
    operands = (q.npu(), kv.npu(), kv.npu())
    options = {"num_heads": 4, "num_key_value_heads": 2, "scale": 0.25, "input_layout": "BNSD"}
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(*operands, **options)
    outputs = [torch.empty_like(operands[0]), torch.empty(1, dtype=HALF, device="npu")]

    def attend(lengths: list[int]) -> None:
        torch_npu.npu_fused_infer_attention_score.out(
            *operands, actual_seq_lengths_kv=lengths, workspace=workspace, out=outputs, **options
        )

    graph, updated = torch.npu.NPUGraph(), torch.npu.ExternalEvent()
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        updated.wait(stream)
        updated.reset(stream)
        torch.npu.graph_task_group_begin(stream)
        attend([7, 7])
        group = torch.npu.graph_task_group_end(stream)
    other = torch.npu.Stream()
    for lengths in ([3, 6], [1, 7]):
        with torch.npu.stream(other):
            torch.npu.graph_task_update_begin(other, group)
            attend(lengths)
            torch.npu.graph_task_update_end(other)
            updated.record(other)
        graph.replay()
        seen = lengths_mask(lengths, 7)
        expected = F.scaled_dot_product_attention(q, kv, kv, attn_mask=seen, scale=0.25, enable_gqa=True)
        close(outputs[0], expected, 2e-3)
