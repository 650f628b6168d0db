"""Streams within the layers of a language model of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from doors import both_doors, through
from reports import report
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
from transformers.models.llama.modeling_llama import LlamaMLP

import airgraph
from airgraph import scope


class MlpOnTwoStreams(LlamaMLP):
    """The gate is computed beside the rest; all layers have events of the same tags."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.given, self.gated = airgraph.Event("given"), airgraph.Event("gated")

    def forward(self, x: Tensor) -> Tensor:
        self.given.record()
        with scope.stream("gate"):
            self.given.wait()
            gate = self.act_fn(self.gate_proj(x))
            self.gated.record()
        up = self.up_proj(x)
        self.gated.wait()
        return self.down_proj(gate * up)


@torch.no_grad()
@both_doors
def test_a_decode_loop_with_two_streams_a_layer(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr("transformers.models.llama.modeling_llama.LlamaMLP", MlpOnTwoStreams)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    step = through(door, model.forward, tmp_path)

    def tokens(forward: object) -> list[int]:
        cache = StaticCache(config, max_cache_len=16)
        found = [7]
        for position in range(10):
            given = {"input_ids": torch.tensor([found[-1:]]), "cache_position": torch.tensor([position])}
            logits = forward(**given, past_key_values=cache, use_cache=True).logits  # type: ignore[operator]
            found.append(int(logits[0, -1].argmax()))
        return found

    assert tokens(step) == tokens(model.forward)
    rows = [row for row in report()["graphs"] if row["state"] == "captured"]
    assert rows and {row["streams"] for row in rows} == {2}
    assert not [each for each in recwarn if "orders the two" in str(each.message)]
