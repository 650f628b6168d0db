"""Operators of a decoding loop under torch.compile(dynamic=True): lengths grow, results stay eager's."""

import torch
from torch import Tensor

import airgraph

_npu = torch.ops.npu


@torch.no_grad()
def test_a_cache_that_fills() -> None:
    def step(cache: Tensor, token: Tensor, query: Tensor, place: Tensor, length: int) -> Tensor:
        _npu.npu_scatter_nd_update_(cache, place, token)
        normed = _npu.npu_rms_norm(query, query.new_ones(8))[0]
        kv = cache[None, None]
        return _npu.npu_incre_flash_attention(
            normed, kv, kv, num_heads=2, num_key_value_heads=1, input_layout="BNSD", actual_seq_lengths=[length]
        )

    compiled = torch.compile(step, backend="airgraph", fullgraph=True, dynamic=True)
    ours, theirs = torch.zeros(6, 8), torch.zeros(6, 8)
    for length in range(1, 6):
        given = torch.randn(1, 8), torch.randn(1, 2, 1, 8), torch.tensor([[length - 1]]), length
        torch.testing.assert_close(compiled(ours, *given), step(theirs, *given))
        torch.testing.assert_close(ours, theirs)
    assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0
    # 0 and 1 are numbers of their own for torch.
    assert len({graph["name"] for graph in airgraph.explain().to_dict()["graphs"]}) <= 2


@torch.no_grad()
def test_prompts_of_several_lengths() -> None:
    def prompt(x: Tensor, mask: Tensor) -> Tensor:
        kv, gate = x[..., :4], x[..., :8]
        out = _npu.npu_fused_infer_attention_score(
            kv, kv, kv, num_heads=2, atten_mask=mask, sparse_mode=3, input_layout="BSH"
        )[0]
        return out + _npu.npu_swiglu(gate)

    compiled = torch.compile(prompt, backend="airgraph", fullgraph=True, dynamic=True)
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    for length in (3, 5, 8):
        x = torch.randn(2, length, 8)
        torch.testing.assert_close(compiled(x, mask), prompt(x, mask))
    counters = airgraph.explain().to_dict()["counters"]
    assert counters["eager_calls"] == 0
    assert {graph["name"] for graph in airgraph.explain().to_dict()["graphs"]} == {"prompt #1"}
