"""See which architectures of transformers the compile cache serves, and whether their results are those of eager.

    architectures.py [--only llama,opt]

A tiny model of each architecture, with random weights, decodes one token after another: with a StaticCache and with a
DynamicCache, both filled with six tokens by eager execution, and without a KV cache. Four calls go through one cached
function, and a fifth through another one on the same files, as after a new start. Results and KV caches are compared
with those of eager calls. mistral-sliding and its like have a window of attention that is full after two calls; in
the others none is ever full. Prints a table and writes benchmarks/results/architectures-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import logging
import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import measure
import torch
import transformers
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, Cache, DynamicCache, StaticCache

import airgraph

RESULTS = Path(__file__).resolve().parent / "results"
NAMES = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "gpt2",
    "gpt_neox",
    "gptj",
    "opt",
    "bloom",
    "falcon",
    "mixtral",
    "olmo2",
    "starcoder2",
    "stablelm",
    "cohere",
    "granite",
    "smollm3",
    "qwen3_moe",
    "codegen",
]
SLIDING = "-sliding"
NAMES += [f"{name}{SLIDING}" for name in ("mistral", "gemma2", "gemma3_text")]
STATIC, DYNAMIC, NONE = KINDS = ("StaticCache", "DynamicCache", "no cache")
CACHE_LENGTH, FULL_WINDOW = 32, 8
# Each architecture takes those that its configuration knows.
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rotary_dim": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": CACHE_LENGTH,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Large, so that a wrong position or a wrong row of the KV cache shows in the result.
    "initializer_range": 0.2,
    "init_std": 0.2,
    # Under names of their own.
    "n_embd": 64,
    "n_inner": 128,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "ffn_dim": 128,
    "word_embed_proj_dim": 64,
}
PROMPT = (3, 4, 5, 6, 7, 8)
# The first two are equal: they differ in their results by the KV cache alone.
TOKENS = (11, 11, 12, 13, 14)
CALLS = 4
# Of the largest result: eager and captured operators may differ in their last bits.
TOLERANCE = 1e-5
REASON_CHARACTERS = 160
REFUSED = re.compile(r"airgraph: a call of \S+ is not cached (?:but compiled at every start|and runs as it is): (.*)")
CLOSING = ". Its results are the same."


class Decoding(nn.Module):
    """A model and its decode step: (ids [1, 1], KV cache or None) -> logits [1, 1, vocabulary]."""

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = {**SIZES, "sliding_window": FULL_WINDOW} if name.endswith(SLIDING) else SIZES
        name = name.removesuffix(SLIDING)
        known = AutoConfig.for_model(name).to_dict()
        config = AutoConfig.for_model(name, **{key: value for key, value in sizes.items() if key in known})
        self.model = AutoModelForCausalLM.from_config(config).eval()

    def step(self, ids: Tensor, cache: Cache | None) -> Tensor:
        return self.model(ids, past_key_values=cache, use_cache=cache is not None).logits

    def filled(self, kind: str) -> Cache | None:
        """A KV cache that holds the prompt."""
        if kind == NONE:
            return None
        config = self.model.config
        cache = (
            StaticCache(config=config, max_cache_len=CACHE_LENGTH) if kind == STATIC else DynamicCache(config=config)
        )
        self.model(torch.tensor([PROMPT]), past_key_values=cache, use_cache=True)
        return cache


@torch.no_grad()
def surveyed(name: str, kind: str) -> dict[str, Any]:
    """What came of one architecture with one kind of KV cache, as plain data."""
    torch._dynamo.reset()
    airgraph.reset()
    decoding = Decoding(name)
    tokens = [torch.tensor([[token]]) for token in TOKENS]
    kept, ours = decoding.filled(kind), decoding.filled(kind)
    expected = [decoding.step(ids, kept) for ids in tokens]
    if kept is not None and difference(expected[0], expected[1]) < 100 * TOLERANCE:
        raise SystemExit(f"{name}, {kind}: the KV cache hardly changes the result, so that comparing it says little")
    start = perf_counter()
    results: list[Tensor] = []
    starts: list[tuple[dict[Path, int], list[str]]] = []
    raised = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            for part in (tokens[:CALLS], tokens[CALLS:]):
                call = airgraph.inference.cache_compile(decoding.step, cache_dir=folder)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    results += [call(ids, ours) for ids in part]
                files = {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*.airgraph")}
                starts.append((files, reasons([str(each.message) for each in caught])))
        except Exception as error:  # Whatever it is, it is this architecture's result, and the others are surveyed.
            raised = shortened(f"{type(error).__name__}: {error}")
    errors = [difference(got, want) for got, want in zip(results, expected, strict=False)]
    alike = raised is None and max(errors) <= TOLERANCE
    written, refused = starts[0] if starts else ({}, [])
    return {
        "right": alike and max(map(difference, contents(ours), contents(kept)), default=0.0) <= TOLERANCE,
        "largest_error": max(errors, default=None),
        "cached": len(written),
        # Whether the call of the second start was served by a file of the first.
        "read_again": len(starts) == 2 and bool(written) and starts[1] == (written, []),
        "refused": refused[0] if refused else None,
        "raised": raised,
        "elapsed_s": round(perf_counter() - start, 1),
    }


def reasons(messages: Sequence[str]) -> list[str]:
    """Why calls were not cached, in the order in which warnings said it."""
    found = (REFUSED.match(message) for message in messages)
    return [shortened(each[1].removesuffix(CLOSING)) for each in found if each]


def contents(cache: Cache | None) -> list[Tensor]:
    """The tensors of a KV cache and, last, how many tokens it says that it holds."""
    if cache is None:
        return []
    held = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    return [*held, torch.as_tensor(cache.get_seq_length())]


def difference(got: Tensor, want: Tensor) -> float:
    """The largest difference of two tensors, as a part of the largest value; infinite if their shapes differ."""
    if got.shape != want.shape or got.isnan().any():
        return float("inf")
    scale = want.abs().max().item() or 1.0
    return round((got - want).abs().max().item() / scale, 9)


def shortened(reason: str) -> str:
    """Its first line, without where packages are installed."""
    return re.sub(r"/\S*/site-packages/", "", reason.partition("\n")[0])[:REASON_CHARACTERS]


def show(architectures: dict[str, dict[str, Any]]) -> None:
    table = Table(title="graphs of a decode step, or why none is cached", title_justify="left")
    for column in ("architecture", *KINDS):
        table.add_column(column)
    for name, kinds in architectures.items():
        table.add_row(name, *(escape(shown(row)) for row in kinds.values()))
    Console().print(table)


def shown(row: dict[str, Any]) -> str:
    right = "" if row["right"] else "WRONG "
    return right + (
        row["raised"] or row["refused"] or f"{row['cached']}{'' if row['read_again'] else ', not read again'}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(NAMES), help="architectures, separated by commas")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    # What is compiled without a cache breaks its graphs, about which Dynamo would say a lot.
    torch._logging.set_logs(dynamo=logging.ERROR)
    transformers.logging.set_verbosity_error()
    at = measure.circumstances(1)
    architectures: dict[str, dict[str, Any]] = {}
    for name in options.only.split(","):
        architectures[name] = {}
        for kind in KINDS:
            row = architectures[name][kind] = surveyed(name, kind)
            Console().print(
                f"{name}, {kind}: {shown(row)} ({row['elapsed_s']} s)", highlight=False, markup=False, soft_wrap=True
            )
    show(architectures)
    body = {
        "measured": at,
        "description": f"hidden {SIZES['hidden_size']}, {SIZES['num_hidden_layers']} layers, random weights, batch 1, "
        f"{len(PROMPT)} tokens filled in, {CALLS} calls",
        "tolerance": TOLERANCE,
        "architectures": architectures,
    }
    Console().print(f"wrote {measure.write_json(RESULTS, 'architectures', [1], body)}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
