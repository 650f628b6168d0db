"""Decode steps of transformers' architectures are cached, or refused with a reason, and are right either way.

Without `--full-sweep` each kind of cache is that of one Gemma.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cached_functions import cached
from torch import Tensor, nn
from transformers import (
    Cache,
    DynamicCache,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    StaticCache,
)

PROMPT = torch.tensor([[3, 4, 5, 6, 7, 8]])
# The first two are equal: they differ in their results by the KV cache alone.
TOKENS = [torch.tensor([[token]]) for token in (11, 11, 12, 13)]


class Decoding(nn.Module):
    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)

    def step(self, ids: Tensor, cache: Cache) -> Tensor:
        return self.model(ids, past_key_values=cache, use_cache=True).logits

    def filled(self, kind: type[Cache]) -> Cache:
        config = self.model.config
        cache = StaticCache(config=config, max_cache_len=32) if kind is StaticCache else DynamicCache(config=config)
        self.model(PROMPT, past_key_values=cache, use_cache=True)
        return cache


def gemma2() -> Decoding:
    config = Gemma2Config(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=32,
        initializer_range=0.2,
    )
    return Decoding(Gemma2ForCausalLM(config))


def gemma3() -> Decoding:
    config = Gemma3TextConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention"],
        initializer_range=0.2,
    )
    return Decoding(Gemma3ForCausalLM(config))


def opt() -> Decoding:
    config = OPTConfig(
        vocab_size=128,
        hidden_size=64,
        ffn_dim=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        word_embed_proj_dim=64,
        max_position_embeddings=64,
        init_std=0.2,
    )
    return Decoding(OPTForCausalLM(config))


def assert_same(got: Cache, expected: Cache) -> None:
    assert got.get_seq_length() == expected.get_seq_length()
    for ours, theirs in zip(got.layers, expected.layers, strict=True):
        torch.testing.assert_close((ours.keys, ours.values), (theirs.keys, theirs.values))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (gemma2, StaticCache),
        (gemma3, DynamicCache),
        (opt, DynamicCache),
        pytest.param(gemma2, DynamicCache, marks=pytest.mark.sweep),
        pytest.param(gemma3, StaticCache, marks=pytest.mark.sweep),
    ],
)
def test_a_decode_step_is_one_graph_at_every_start(
    tmp_path: Path, make: Callable[[], Decoding], kind: type[Cache]
) -> None:
    decoding = make()
    expected, kept = decoding.filled(kind), decoding.filled(kind)
    for tokens in (TOKENS[:3], TOKENS[3:]):
        call = cached(decoding.step, tmp_path)
        for ids in tokens:
            torch.testing.assert_close(call(ids, kept), decoding.step(ids, expected))
        assert len(call.files) == 1
    assert_same(kept, expected)
    assert len(list(tmp_path.rglob("*.airgraph"))) == 1


def test_a_decode_step_of_opt_with_a_static_cache_is_refused_and_right(tmp_path: Path) -> None:
    """OPT cuts its positions at the length that the cache has, which a StaticCache keeps in a tensor."""
    decoding = opt()
    expected, kept = decoding.filled(StaticCache), decoding.filled(StaticCache)
    call = cached(decoding.step, tmp_path, strict=False)
    with pytest.warns(UserWarning, match=r"step is not cached .*: tracing failed: UserError: .* data-dependent"):
        got = [call(ids, kept) for ids in TOKENS[:2]]
    for ids, logits in zip(TOKENS[:2], got, strict=True):
        torch.testing.assert_close(logits, decoding.step(ids, expected))
    assert_same(kept, expected)
    assert not list(tmp_path.rglob("*.airgraph"))
