"""The greedy decode loop over a StaticCache, for any causal language model of transformers.

Prefill and decode are the same step at two shapes: [1, prompt length], then [1, 1]. The caller passes the step as it
is (eager) or compiled (captured), so both are measured in the same loop over the same cache.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import StaticCache

__all__ = ["Step", "Token", "decode_greedily", "make_cache", "make_step"]

Step = Callable[["torch.Tensor", "StaticCache"], "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class Token:
    """One decoded token; elapsed_ms is the time of its step, the read of its id included."""

    id: int
    elapsed_ms: float


def make_step(model: Any) -> Step:
    """Return step(ids, cache) -> the most likely next token, int64 of shape [1, 1].

    ids: int64 of shape [1, length]. The step appends their keys and values to the cache.
    """

    # transformers 5.24 warns of the older name.
    taken_as = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    def step(ids: torch.Tensor, cache: StaticCache) -> torch.Tensor:
        outputs = model(input_ids=ids, **{taken_as: cache}, use_cache=True, logits_to_keep=1)
        return outputs.logits[:, -1].argmax(dim=-1, keepdim=True)

    return step


def make_cache(model: Any, *, cache_len: int) -> StaticCache:
    """Allocate a StaticCache of cache_len positions for one sequence, on the model's device.

    It is allocated here, not in the first step, so that a captured prefill finds its addresses fixed. Its sizes are
    no symbols where a step is traced for all sizes.
    """
    import torch
    from transformers import StaticCache

    from airgraph.torch_internals.dynamo import keep_sizes

    config = model.config.get_text_config(decoder=True)
    num_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache = StaticCache(config=model.config, max_cache_len=cache_len)
    cache.early_initialization(
        batch_size=1, num_heads=num_heads, head_dim=head_dim, dtype=model.dtype, device=model.device
    )
    for layer in cache.layers:
        for tensor in vars(layer).values():
            if isinstance(tensor, torch.Tensor):
                keep_sizes(tensor)
    return cache


def decode_greedily(
    step: Step, prompt_ids: Sequence[int], cache: StaticCache, *, max_new_tokens: int, eos_ids: frozenset[int]
) -> Iterator[Token]:
    """Yield up to max_new_tokens tokens; a token of eos_ids is yielded and ends the sequence.

    The cache is emptied first and keeps its addresses. The first token's time is the prefill's. Time that the
    consumer spends between two tokens is not counted.
    """
    import torch

    cache.reset()
    first_layer: Any = cache.layers[0]
    ids = torch.tensor([list(prompt_ids)], dtype=torch.int64, device=first_layer.keys.device)
    for _ in range(max_new_tokens):
        start = time.perf_counter()
        # Entered a step at a time: a generator must not leave its mode switched on for its consumer.
        with torch.inference_mode():
            ids = step(ids, cache)
            token_id = int(ids.item())
        yield Token(token_id, (time.perf_counter() - start) * 1e3)
        if token_id in eos_ids:
            return
