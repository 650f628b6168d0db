"""Writes the figures of language models in docs/kernels.md from the newest JSON of llm.py.

python benchmarks/llm_figures.py
"""

from __future__ import annotations

from typing import Any

from figures import DOCS, block, newest_record, with_unit, write

PAGE = DOCS / "kernels.md"
NAMES = {
    "eager": "eager",
    "inductor": "Inductor with max-autotune and freezing",
    "llama.cpp": "llama.cpp",
    "airgraph exact": '`kernels="exact"`',
    "airgraph": "airgraph",
    "airgraph placed": "airgraph with `place_weights`",
}
WEIGHTS = {
    "fp32": "float32 (F32)",
    "bf16": "bfloat16 (BF16)",
    "int8": "int8 (Q8_0)",
}
PEER = "llama.cpp"


def render() -> str:
    """The block of figures, with its markers."""
    _, record = newest_record("llm")
    rows = []
    for threads, by_weights in record["decoding"].items():
        for weights, row in by_weights.items():
            rows.append((WEIGHTS[weights], threads, *_cells(row)))
    header = ("weights", "threads", *with_unit("tokens/s", NAMES.values()), "best of airgraph / llama.cpp")
    return block("llm", rows, header=header, threads="SmolLM2-135M, a token at a time")


def render_qwen3() -> str:
    """The same of another model."""
    _, record = newest_record("llm", "qwen3")
    names = [name for name in NAMES if name not in ("inductor", PEER)]
    rows = [
        (threads, *(f"{row[name]['tokens_per_s']:.1f}" for name in names)) for threads, row in record["qwen3"].items()
    ]
    header = ("threads", *with_unit("tokens/s", (NAMES[name] for name in names)))
    where = "a model of Qwen3-0.6B's sizes in bfloat16, random weights, a token at a time"
    return block("llm", rows, header=header, threads=where, part="qwen3", section="qwen3")


def render_prefill() -> str:
    """The same of prompts that are read at once."""
    _, record = newest_record("llm", "prefill")
    names = [name for name in NAMES if name not in ("inductor", PEER, "airgraph placed")]
    rows = [
        (threads, *(f"{row[name]['prompts_per_s']:.2f}" for name in names), _times(row, "airgraph", "eager"))
        for threads, row in record["prefill"].items()
    ]
    header = ("threads", *with_unit("prompts/s", (NAMES[name] for name in names)), "airgraph / eager")
    where = "SmolLM2-135M in bfloat16, 128 tokens at once"
    return block("llm", rows, header=header, threads=where, part="prefill", section="prefill")


def render_loaded() -> str:
    """The same where other processes keep every core busy."""
    _, record = newest_record("llm", "loaded")
    row = record["loaded"]
    rows = []
    for name in ("airgraph", "eager"):
        one, two = row[f"{name}, 1 thread"], row[f"{name}, 2 threads"]
        rates = (f"{each['tokens_per_s']:.2f}" for each in (one, two))
        rows.append((name, *rates, f"{two['median_us'] / one['median_us']:.2f}"))
    header = ("contender", *with_unit("tokens/s", ("1 thread", "2 threads")), "time of 2 threads / of 1")
    where = "SmolLM2-135M in bfloat16, each core with another process to run"
    return block("llm", rows, header=header, threads=where, part="loaded cores", section="loaded")


def _times(row: dict[str, Any], ours: str, theirs: str) -> str:
    return f"{row[ours]['prompts_per_s'] / row[theirs]['prompts_per_s']:.2f}"


def _cells(row: dict[str, Any]) -> list[str]:
    rate = {name: each["tokens_per_s"] for name, each in row.items()}
    best = max(rate.get("airgraph", 0.0), rate.get("airgraph placed", 0.0))
    ratio = f"{best / rate[PEER]:.2f}" if PEER in rate else ""
    return [*(f"{rate[name]:.1f}" if name in rate else "" for name in NAMES), ratio]


if __name__ == "__main__":
    write(PAGE, "llm", render())
    write(PAGE, "llm", render_qwen3(), "qwen3")
    write(PAGE, "llm", render_prefill(), "prefill")
    write(PAGE, "llm", render_loaded(), "loaded cores")
