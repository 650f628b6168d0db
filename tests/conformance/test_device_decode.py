"""Fifty decode steps of small language models give the tokens that the CPU gives."""

import pytest
import torch

import airgraph

STEPS = 50
PROMPT = [[3, 14, 15, 9, 26, 5]]


def _model(name: str) -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if name == "llama":
        config = LlamaConfig(
            vocab_size=128,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
        )
        return LlamaForCausalLM(config).eval()
    config = GPT2Config(vocab_size=128, n_embd=64, n_layer=2, n_head=4, n_positions=128)
    return GPT2LMHeadModel(config).eval()


@torch.no_grad()
def _decode(name: str, device: str, *, captured: bool) -> list[int]:
    from airgraph.cli.demo.decode import make_cache, make_step

    model = _model(name).to(device)
    step = make_step(model)
    if captured:
        step = torch.compile(step, backend="airgraph", fullgraph=True, dynamic=False)
    cache = make_cache(model, cache_len=len(PROMPT[0]) + STEPS)
    ids = torch.tensor(PROMPT, device=device)
    tokens = []
    for position in range(STEPS):
        ids = step(ids, cache)
        tokens.append(int(ids.item()))
        # A small random model would repeat itself otherwise.
        ids = (ids + position) % 128
    return tokens


@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.sweep)])
def test_tokens_equal_the_cpus(device: str, name: str) -> None:
    expected = _decode(name, "cpu", captured=False)
    assert len(set(expected)) > 5
    assert _decode(name, device, captured=True) == expected
    counters = airgraph.explain().to_dict()["counters"]
    assert counters == {"captures": 2, "recaptures": 0, "replays": STEPS, "eager_calls": 0}
