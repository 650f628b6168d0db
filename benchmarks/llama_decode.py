"""A decode step of transformers' Llama that can be called again and again: it always decodes the same position."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class LlamaDecode(nn.Module):
    """transformers' Llama over a StaticCache, random weights; by default shaped as one of 1.2 billion parameters."""

    def __init__(self, device: str, *, cache_length: int, dtype: torch.dtype = torch.bfloat16, **shape: Any) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

        of_one_billion = {
            "vocab_size": 128_256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        }
        config = LlamaConfig(max_position_embeddings=cache_length, **(of_one_billion | shape))
        with torch.device(device):
            self.model = LlamaForCausalLM(config).to(dtype).eval()
        self.cache = StaticCache(config=config, max_cache_len=cache_length)
        heads = config.num_key_value_heads
        size = config.hidden_size // config.num_attention_heads
        self.cache.early_initialization(
            batch_size=1, num_heads=heads, head_dim=size, dtype=dtype, device=torch.device(device)
        )

    def forward(self, ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        # Each layer counts what it was given by itself, and would write behind its end one day: the next call is to be
        # the same one.
        for layer in self.cache.layers:
            layer.cumulative_length.copy_(position[0])
        out = self.model(
            input_ids=ids, past_key_values=self.cache, cache_position=position, position_ids=position[None]
        )
        return out.logits
