"""A model of Hugging Face, made fast in one line; the second start of this script traces nothing.

    python examples/hugging_face.py [FOLDER_OR_NAME]

Without an argument it takes a small Llama with random weights, whose answers mean nothing.
"""

import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import airgraph


def load(name: str | None) -> tuple[torch.nn.Module, torch.Tensor]:
    """A model, and the tokens of a question."""
    if name is not None:
        tokenizer = AutoTokenizer.from_pretrained(name)
        ids = tokenizer("What is the capital of France?", return_tensors="pt").input_ids
        return AutoModelForCausalLM.from_pretrained(name), ids
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, **sizes)), torch.arange(3, 10)[None]


model, ids = load(sys.argv[1] if len(sys.argv) > 1 else None)
model.eval()
expected = model.generate(ids, cache_implementation="static", max_new_tokens=16, do_sample=False)

model.forward = airgraph.inference.cache_compile(model.forward)  # the one line

for answer in ("first", "second"):
    start = time.perf_counter()
    tokens = model.generate(ids, cache_implementation="static", max_new_tokens=16, do_sample=False)
    print(f"{answer} answer after {time.perf_counter() - start:.2f} s, as in eager: {torch.equal(tokens, expected)}")
print(model.forward.counts())
