"""Attention of each layout, mask and mode is a loop over queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from agreement import assert_agrees, assert_captured
from plain_attention import attention, causal, sequences
from torch import Tensor

from airgraph.errors import UnsupportedArgument

_npu = torch.ops.npu
_TYPES = [torch.float32, torch.float16, torch.bfloat16]
_HEADS, _SIZE, _SCALE = 4, 8, 0.4
_TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def _qkv(queries: int = 5, keys: int = 7, key_heads: int = _HEADS, batch: int = 2) -> list[Tensor]:
    """As [batch, heads, length, size]."""
    shapes = [(batch, _HEADS, queries, _SIZE), *[(batch, key_heads, keys, _SIZE)] * 2]
    return [torch.randn(shape) for shape in shapes]


def _laid_out(x: Tensor, layout: str) -> Tensor:
    order = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3)}[layout]
    return (x.permute(order).flatten(2) if layout.endswith("H") else x.permute(order)).contiguous()


def _as_heads(x: Tensor, layout: str, heads: int) -> Tensor:
    if layout.endswith("H"):
        x = x.unflatten(2, (heads, -1))
    return {"BNSD": x, "BSND": x.transpose(1, 2), "BSH": x.transpose(1, 2), "SBH": x.permute(1, 2, 0, 3)}[layout]


def _reference(layout: str, *qkv: Tensor, key_heads: int = _HEADS, visible: Any = lambda b, i, j: True) -> Any:
    """The attention in this layout, and the softmax's two numbers of each query."""
    heads = [_as_heads(x, layout, n) for x, n in zip(qkv, (_HEADS, key_heads, key_heads), strict=True)]
    out, largest, total = attention(*heads, _SCALE, visible)
    return _laid_out(out, layout), largest, total


def _fusion(layout: str, *qkv: Tensor, **settings: Any) -> tuple[Any, ...]:
    return _npu.npu_fusion_attention(*qkv, _HEADS, layout, scale=_SCALE, **settings)


def _fusion_reference(layout: str, *qkv: Tensor, **settings: Any) -> tuple[Any, ...]:
    out, largest, total = _reference(layout, *qkv, **settings)
    eight = [each.expand(*each.shape[:-1], 8) for each in (largest, total)]
    return out, *eight, out.new_empty(0), 0, 0, 0


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("key_heads", [_HEADS, 2])
@pytest.mark.parametrize("layout", ["BSH", "SBH", "BSND", "BNSD"])
def test_fusion_attention_in_each_layout(layout: str, key_heads: int, dtype: torch.dtype) -> None:
    qkv = [_laid_out(x, layout).to(dtype) for x in _qkv(key_heads=key_heads)]
    reference = partial(_fusion_reference, layout, key_heads=key_heads)
    assert_agrees(partial(_fusion, layout), reference, *qkv, slack=3)


def _masks() -> dict[str, tuple[dict[str, Any], Callable[[int, int, int], bool]]]:
    random = torch.rand(2, _HEADS, 5, 7, generator=torch.Generator().manual_seed(3)) < 0.3
    # A query that nothing is left for.
    random[:, :, 2] = True
    one = random[0, 0]
    return {
        "one mask": ({"atten_mask": one}, lambda b, i, j: not one[i, j]),
        "by batch": ({"atten_mask": random[:, :1].byte()}, lambda b, i, j: not random[b, 0, i, j]),
        "mask and band": (
            {"atten_mask": one, "pre_tockens": 2, "next_tockens": 1},
            lambda b, i, j: not one[i, j] and -2 <= j - i <= 1,
        ),
        "mask without band": (
            {"atten_mask": one, "sparse_mode": 1, "pre_tockens": 2, "next_tockens": 1},
            lambda b, i, j: not one[i, j],
        ),
        "no mask, so no mode": ({"sparse_mode": 2, "pre_tockens": 1}, lambda b, i, j: True),
        "causal from the first": ({"atten_mask": _TRIANGLE, "sparse_mode": 2}, causal),
        "causal from the last": ({"atten_mask": _TRIANGLE, "sparse_mode": 3}, lambda b, i, j: j - i <= 2),
        "band from the last": (
            {"atten_mask": _TRIANGLE, "sparse_mode": 4, "pre_tockens": 3, "next_tockens": 1},
            lambda b, i, j: -3 <= j - i - 2 <= 1,
        ),
    }


@pytest.mark.parametrize("name", _masks())
def test_fusion_attention_hides_what_masks_and_modes_say(name: str) -> None:
    settings, visible = _masks()[name]
    assert_agrees(partial(_fusion, "BNSD", **settings), partial(_fusion_reference, "BNSD", visible=visible), *_qkv())


def _joined(parts: list[Tensor], tokens: Tensor) -> Tensor:
    """One behind the other, with zeros for tokens of no sequence."""
    out = torch.cat([part[0].transpose(0, 1) for part in parts])
    return torch.cat((out, out.new_zeros(tokens.shape[0] - out.shape[0], *out.shape[1:])))


def _tokens(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(tokens, heads, _SIZE).to(dtype) for tokens, heads in ((9, 4), (11, 2), (11, 2))]


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("mode", [0, 3])
def test_sequences_one_behind_the_other(mode: int, dtype: torch.dtype) -> None:
    ends, key_ends = [3, 3, 8], [4, 4, 10]
    visible = (lambda b, i, j: True) if mode == 0 else None
    shown: list[Any] = [visible or (lambda b, i, j, extra=extra: j - i <= extra) for extra in (1, 0, 1)]

    def parts(q: Tensor, k: Tensor, v: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        split = zip(sequences(q, ends), sequences(k, key_ends), sequences(v, key_ends), shown, strict=True)
        done = [attention(*three, _SCALE, one) for *three, one in split]
        return [out for out, _, _ in done], [largest + total.log() for _, largest, total in done]

    settings = {} if mode == 0 else {"atten_mask": _TRIANGLE, "sparse_mode": 3}
    training = lambda q, k, v: _npu.npu_fusion_attention(
        q, k, v, 4, "TND", scale=_SCALE, actual_seq_qlen=[*ends, 0], actual_seq_kvlen=[*key_ends, 0], **settings
    )[0]
    assert_agrees(training, lambda q, k, v: _joined(parts(q, k, v)[0], q), *_tokens(dtype), slack=3)
    lengths = {"actual_seq_lengths": ends, "actual_seq_lengths_kv": key_ends, "input_layout": "TND", "num_heads": 4}
    prompt = lambda q, k, v: _npu.npu_prompt_flash_attention(q, k, v, scale_value=_SCALE, **lengths, **settings)
    assert_agrees(prompt, lambda q, k, v: _joined(parts(q, k, v)[0], q), *_tokens(dtype), slack=3)
    fused = lambda q, k, v: _npu.npu_fused_infer_attention_score(
        q, k, v, scale=_SCALE, softmax_lse_flag=True, **lengths, **settings
    )
    both = lambda q, k, v: tuple(_joined(each, q) for each in parts(q, k, v))
    assert_agrees(fused, both, *_tokens(dtype), slack=3)


_LENGTHS: list[tuple[dict[str, Any], Callable[[int, int, int], bool]]] = [
    ({}, lambda b, i, j: True),
    ({"actual_seq_lengths_kv": [4]}, lambda b, i, j: j < 4),
    ({"actual_seq_lengths": [5, 3], "actual_seq_lengths_kv": [7, 4]}, lambda b, i, j: i < (5, 3)[b] and j < (7, 4)[b]),
    (
        {"actual_seq_lengths": [5, 3], "actual_seq_lengths_kv": [7, 4], "sparse_mode": 3, "atten_mask": _TRIANGLE},
        lambda b, i, j: i < (5, 3)[b] and j < (7, 4)[b] and j - i <= (2, 1)[b],
    ),
]


@pytest.mark.parametrize("case", range(len(_LENGTHS)))
@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD"])
def test_prompts_with_padding(layout: str, case: int) -> None:
    settings, visible = _LENGTHS[case]
    qkv = [_laid_out(x, layout) for x in _qkv(key_heads=2)]
    given = {"num_heads": _HEADS, "num_key_value_heads": 2, "input_layout": layout, **settings}
    reference = lambda *qkv: _reference(layout, *qkv, key_heads=2, visible=visible)
    prompt = lambda *qkv: _npu.npu_prompt_flash_attention(*qkv, scale_value=_SCALE, **given)
    assert_agrees(prompt, lambda *qkv: reference(*qkv)[0], *qkv)
    fused = lambda *qkv: _npu.npu_fused_infer_attention_score(*qkv, scale=_SCALE, **given)
    assert_agrees(fused, lambda *qkv: (reference(*qkv)[0], torch.zeros(1)), *qkv)
    with_sums = lambda *qkv: _npu.npu_fused_infer_attention_score(*qkv, scale=_SCALE, softmax_lse_flag=True, **given)
    logarithm = lambda out, largest, total: (out, largest + total.log())
    assert_agrees(with_sums, lambda *qkv: logarithm(*reference(*qkv)), *qkv)


def test_a_mask_of_prompts_stands_for_what_came_before_only() -> None:
    mask = torch.zeros(5, 7, dtype=torch.bool)
    prompt = partial(_npu.npu_prompt_flash_attention, num_heads=_HEADS, input_layout="BNSD", scale_value=_SCALE)
    reference = lambda *qkv: _reference("BNSD", *qkv, visible=causal)[0]
    assert_agrees(lambda *qkv: prompt(*qkv, atten_mask=mask), reference, *_qkv())
    everything = lambda *qkv: prompt(*qkv, atten_mask=mask, next_tokens=7)
    assert_agrees(everything, lambda *qkv: _reference("BNSD", *qkv)[0], *_qkv())


def test_results_may_lie_otherwise_than_queries() -> None:
    given = {"num_heads": _HEADS, "input_layout": "BNSD_BSND"}
    reference = lambda *qkv: _reference("BNSD", *qkv)[0].transpose(1, 2).contiguous()
    assert_agrees(lambda *x: _npu.npu_prompt_flash_attention(*x, scale_value=_SCALE, **given), reference, *_qkv())
    fused = lambda *x: _npu.npu_fused_infer_attention_score(*x, scale=_SCALE, **given)[0]
    assert_agrees(fused, reference, *_qkv())


_INCREMENTS: list[tuple[dict[str, Any], Callable[[int, int, int], bool]]] = [
    ({}, lambda b, i, j: True),
    ({"actual_seq_lengths": [7, 3]}, lambda b, i, j: j < (7, 3)[b]),
    ({"actual_seq_lengths": [4]}, lambda b, i, j: j < 4),
    ({"atten_mask": (torch.arange(14) % 3 == 0).view(2, 1, 1, 7)}, lambda b, i, j: (7 * b + j) % 3 != 0),
    ({"atten_mask": (torch.arange(14) % 3 == 0).view(2, 7)}, lambda b, i, j: (7 * b + j) % 3 != 0),
]


@pytest.mark.parametrize("case", range(len(_INCREMENTS)))
@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD"])
def test_one_query_over_a_cache(layout: str, case: int) -> None:
    settings, visible = _INCREMENTS[case]
    qkv = [_laid_out(x, layout) for x in _qkv(queries=1, key_heads=2)]
    given = {"num_heads": _HEADS, "num_key_value_heads": 2, "input_layout": layout}
    increment = lambda *qkv: _npu.npu_incre_flash_attention(*qkv, scale_value=_SCALE, **given, **settings)
    reference = lambda *qkv: _reference(layout, *qkv, key_heads=2, visible=visible)[0]
    assert_agrees(increment, reference, *qkv)
    renamed = {name.replace("lengths", "lengths_kv"): value for name, value in settings.items()}
    fused = lambda *qkv: _npu.npu_fused_infer_attention_score(*qkv, scale=_SCALE, next_tokens=0, **given, **renamed)[0]
    assert_agrees(fused, reference, *qkv)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("form", ["BSH", "BNSD"])
def test_a_cache_in_blocks(form: str, dtype: torch.dtype) -> None:
    key_heads, size, lengths = 2, 4, [7, 3]
    table = torch.tensor([[3, 1], [4, 99]], dtype=torch.int32)
    shape = (5, size, key_heads * _SIZE) if form == "BSH" else (5, key_heads, size, _SIZE)
    query, key, value = torch.randn(2, _HEADS, 1, _SIZE), torch.randn(shape), torch.randn(shape)
    query, key, value = (x.to(dtype) for x in (_laid_out(query, form), key, value))

    def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # Only the first block of the second sequence is used.
        blocks = [[3, 1], [4, 0]]
        if form == "BSH":
            k, v = (_as_heads(torch.stack([c[row].flatten(0, 1) for row in blocks]), "BSH", key_heads) for c in (k, v))
        else:
            k, v = (torch.stack([torch.cat(list(c[row]), 1) for row in blocks]) for c in (k, v))
        out, _, _ = attention(_as_heads(q, form, _HEADS), k, v, _SCALE, lambda b, i, j: j < lengths[b])
        return _laid_out(out, form)

    given = {"num_heads": _HEADS, "num_key_value_heads": key_heads, "input_layout": form, "block_size": size}
    increment = lambda *qkv: _npu.npu_incre_flash_attention(
        *qkv, scale_value=_SCALE, block_table=table, actual_seq_lengths=lengths, **given
    )
    assert increment(query, key, value).shape == query.shape
    values = lambda call: call(query, key, value).double()
    exact = reference(*(x.double() for x in (query, key, value)))
    torch.testing.assert_close(values(increment), exact, rtol=3e-2, atol=3e-2)
    fused = lambda *qkv: _npu.npu_fused_infer_attention_score(
        *qkv, scale=_SCALE, block_table=table, actual_seq_lengths_kv=lengths, **given
    )[0]
    torch.testing.assert_close(values(fused), exact, rtol=3e-2, atol=3e-2)


def test_positions_of_queries_and_keys_apart() -> None:
    q, k, v = _qkv(queries=1, key_heads=1)
    q_rope, k_rope = torch.randn(2, _HEADS, 1, 4), torch.randn(2, 1, 7, 4)

    def call(q: Tensor, k: Tensor, v: Tensor, q_rope: Tensor, k_rope: Tensor) -> Tensor:
        return _npu.npu_fused_infer_attention_score(
            *(q, k, v), query_rope=q_rope, key_rope=k_rope, num_heads=_HEADS, num_key_value_heads=1, scale=_SCALE,
            input_layout="BNSD",
        )[0]  # fmt: skip

    def reference(q: Tensor, k: Tensor, v: Tensor, q_rope: Tensor, k_rope: Tensor) -> Tensor:
        return attention(torch.cat((q, q_rope), -1), torch.cat((k, k_rope), -1), v, _SCALE)[0]

    assert_agrees(call, reference, q, k, v, q_rope, k_rope)


def test_captured() -> None:
    def each(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> list[Any]:
        given = {"num_heads": _HEADS, "input_layout": "BNSD"}
        one = _npu.npu_incre_flash_attention(q[:, :, :1], k, v, actual_seq_lengths=[7, 3], **given)
        prompt = _npu.npu_prompt_flash_attention(q, k, v, atten_mask=mask, sparse_mode=3, **given)
        fused = _npu.npu_fused_infer_attention_score(q, k, v, softmax_lse_flag=True, **given)
        return [one, prompt, fused, _fusion("BNSD", q, k, v, atten_mask=mask, sparse_mode=2)]

    assert_captured(each, *_qkv(), _TRIANGLE)


def test_gradients_of_training() -> None:
    qkv = [x.requires_grad_() for x in _qkv()]
    _fusion("BNSD", *qkv, atten_mask=_TRIANGLE, sparse_mode=2)[0].square().sum().backward()
    ours = [x.grad for x in qkv]
    for x in qkv:
        x.grad = None
    weights = (qkv[0] @ qkv[1].transpose(-1, -2) * _SCALE).masked_fill(_TRIANGLE[:5, :7], -torch.inf).softmax(-1)
    (weights @ qkv[2]).square().sum().backward()
    torch.testing.assert_close(ours, [x.grad for x in qkv])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_prob": 0.9}, "keep_prob must be 1.0, all that is done here, got 0.9"),
        ({"pse": torch.ones(1)}, r"pse must be None, all that is done here, got a tensor of shape \(1,\)"),
        ({"sparse_mode": 6}, "sparse_mode must be 0 to 4, got 6"),
        ({"atten_mask": torch.ones(5, 7)}, "atten_mask must be bool, int8 or uint8, got torch.float32"),
        ({"atten_mask": torch.ones(4, 7).bool()}, "atten_mask must be at least 5 by 7"),
        ({"atten_mask": torch.ones(5, 7).bool(), "sparse_mode": 2}, r"atten_mask must be the triangle .*2048, 2048\)"),
        ({"actual_seq_qlen": [5]}, "actual_seq_qlen must be None with input_layout='BNSD'"),
    ],
)
def test_what_training_does_not_do_is_named(settings: dict, message: str) -> None:
    with pytest.raises(UnsupportedArgument, match=f"npu_fusion_attention: {message}"):
        _fusion("BNSD", *_qkv(), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input_layout": "NTD"}, "input_layout must be one of .* or TND, got 'NTD'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must be a divisor of num_heads, 4, or 0, got 3"),
        ({"num_heads": 2}, "query must be of 2 heads with input_layout='BNSD'"),
        ({"quant_scale2": torch.ones(1)}, "quant_scale2 must be None, all that is done here"),
        ({"sparse_mode": 3}, "atten_mask must be the triangle .* got None"),
        ({"sparse_mode": 1}, "atten_mask must be a tensor with sparse_mode=1, got None"),
        ({"actual_seq_lengths": [1, 2, 9]}, None),
        ({"actual_seq_lengths": [9]}, r"actual_seq_lengths must be between 0 and 5, got \[9\]"),
        ({"query_rope": torch.ones(1)}, "key_rope must be given where query_rope is"),
        ({"block_size": 16}, "block_size must be 0 without a block_table, got 16"),
        ({"block_table": torch.ones(2)}, "block_table must be of 2 dimensions"),
    ],
)
def test_what_inference_does_not_do_is_named(settings: dict, message: str | None) -> None:
    call = partial(_npu.npu_fused_infer_attention_score, *_qkv())
    given = {"num_heads": _HEADS, "input_layout": "BNSD", **settings}
    if message is None:
        # Lengths past the batch are left out.
        call(**given)
        return
    with pytest.raises(UnsupportedArgument, match=f"npu_fused_infer_attention_score: {message}"):
        call(**given)
