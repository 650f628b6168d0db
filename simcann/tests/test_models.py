# SPDX-License-Identifier: Apache-2.0
"""Small random models of transformers decode the same tokens on the simulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 128, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {
    **SIZES,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
TOKENS = 20
Model = torch.nn.Module


def llama(**options: str) -> Model:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER, **options))


def qwen3(**options: str) -> Model:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**DECODER, head_dim=16, **options))


def gpt2(**options: str) -> Model:
    config = transformers.GPT2Config(**SIZES, n_embd=64, n_layer=2, n_head=4, n_positions=64, **options)
    model = transformers.GPT2LMHeadModel(config)
    # Without this a small random GPT-2 repeats its input for ever.
    torch.nn.init.normal_(model.transformer.wpe.weight, std=1.0)
    return model


@torch.inference_mode()
def decode(model: Model, device: str) -> torch.Tensor:
    """Greedy decoding with a static cache: a prompt of four tokens for two sequences, then one token at a time."""
    model.to(device)
    cache = transformers.StaticCache(config=model.config, max_cache_len=32)
    step = torch.tensor([[5, 17, 33, 2], [9, 8, 7, 6]], device=device)
    positions = torch.arange(4, device=device)
    tokens = []
    for _ in range(TOKENS):
        out = model(
            step, past_key_values=cache, use_cache=True, cache_position=positions, position_ids=positions.unsqueeze(0)
        )
        step = out.logits[:, -1:].argmax(-1)
        positions = positions[-1:] + 1
        tokens.append(step)
    return torch.cat(tokens, 1).cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("build", [llama, qwen3, gpt2])
def test_decodes_the_same_tokens(build: Callable[..., Model], attention: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = build(attn_implementation=attention).to(dtype).eval()
    expected = decode(model, "cpu")
    assert expected.unique().numel() > 8, "the model must not repeat one token, or the test says little"
    assert torch.equal(decode(model, "npu"), expected)


@pytest.mark.parametrize("build", [llama, qwen3, gpt2])
def test_gives_the_same_gradients(build: Callable[..., Model]) -> None:
    torch.manual_seed(0)
    model = build(attn_implementation="eager").eval()
    ids = torch.tensor([[5, 17, 33, 2], [9, 8, 7, 6]])
    model(ids, labels=ids).loss.backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    model.to("npu")
    model(ids.npu(), labels=ids.npu()).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad.cpu(), expected[name], rtol=1e-4, atol=1e-5, msg=name)
