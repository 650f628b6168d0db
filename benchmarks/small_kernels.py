"""What lies between the products of a model, by kernels of our own and by eager's: microseconds each in a graph.

    small_kernels.py [--rounds 40]

Each is called 50 times in one compiled function. The next one takes a view of the result of the one before, so that
they are not fused with one another; the time is that of a call divided by 50. The contenders are `kernels="fast"` and
`kernels="exact"`, compiled by airgraph, and eager. On one thread. Prints a table and writes
benchmarks/results/small_kernels-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

RESULTS = Path(__file__).resolve().parent / "results"
TIMES = 50
Step = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """step: takes what it gave before, and the other arguments. in_turn: of which each call takes the next."""

    description: str
    step: Step
    args: tuple[Tensor, ...]
    in_turn: bool = False

    def repeated(self, x: Tensor, *others: Tensor) -> Tensor:
        for turn in range(TIMES):
            x = self.step(x, *(each[turn] if self.in_turn else each for each in others))
            x = x.transpose(0, -2) if x.dim() > 1 else x
        return x


def norm(x: Tensor, weight: Tensor) -> Tensor:
    h = x.float()
    return weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def gated(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def taken(ids: Tensor, table: Tensor) -> Tensor:
    return table.index_select(0, ids)[:, 0]


def attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Heads of queries share keys, as transformers computes it."""
    shared = query.shape[1] // keys.shape[1]
    keys, values = (
        each[:, :, None].expand(-1, -1, shared, -1, -1).reshape(1, query.shape[1], each.shape[2], -1)
        for each in (keys, values)
    )
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)


def cases() -> dict[str, Case]:
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    def decoded(dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Queries, and caches of 128 places of which 96 are not hidden, each for one step."""
        mask = torch.zeros(TIMES, 1, 1, 1, 128, dtype=dtype)
        mask[..., 96:] = float("-inf")
        return numbers(1, 9, 1, 64, dtype=dtype), *(numbers(TIMES, 1, 3, 128, 64, dtype=dtype) for _ in range(2)), mask

    table = torch.randint(0, 1000, (1000, 256), generator=generator)
    bf16 = torch.bfloat16
    floats = {"fp32": torch.float32, "bf16": bf16, "fp16": torch.float16}
    what = "attention of 9 heads over 3, 96 of 128 places"
    return {
        "norm": Case("RMSNorm of 576 numbers", norm, (numbers(1, 1, 576), numbers(576))),
        "norm bf16": Case("the same in bfloat16", norm, (numbers(1, 1, 576, dtype=bf16), numbers(576, dtype=bf16))),
        "rope": Case(
            "rotary embedding of 9 heads of 64", rotated, (numbers(1, 9, 1, 64), *(numbers(1, 1, 1, 64),) * 2)
        ),
        "gated": Case("SwiGLU of 1,536 numbers", gated, (numbers(1, 1, 1536), numbers(1, 1, 1536))),
        "gelu": Case("gelu of 768 numbers", lambda x: F.gelu(x), (numbers(1, 1, 768),)),
        "gelu tanh": Case(
            "gelu of 768 numbers, its tanh form", lambda x: F.gelu(x, approximate="tanh"), (numbers(1, 1, 768),)
        ),
        "layer norm": Case(
            "LayerNorm of 768 numbers",
            lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias),
            (numbers(1, 1, 768), numbers(768), numbers(768)),
        ),
        "layer norms bf16": Case(
            "LayerNorm of 8 rows of 384 numbers in bfloat16",
            lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias),
            (numbers(1, 8, 384, dtype=bf16), numbers(384, dtype=bf16), numbers(384, dtype=bf16)),
        ),
        "softmax": Case("softmax of 9 rows of 128 numbers", lambda x: x.softmax(-1), (numbers(1, 9, 128),)),
        "taken": Case("one of 1,000 rows of 256 by its number", taken, (torch.tensor([3]), table)),
        "argmax": Case(
            "argmax of 49,152 numbers",
            lambda found, logits: logits.argmax(-1) + found,
            (torch.zeros(1, dtype=torch.int64), numbers(TIMES, 1, 49_152)),
            in_turn=True,
        ),
        **{
            f"attention {name}": Case(f"{what}, {name}", attention, decoded(dtype), in_turn=True)
            for name, dtype in floats.items()
        },
    }


def timed(case: Case, rounds: int) -> dict[str, Any]:
    torch._dynamo.reset()
    ways: dict[str, Callable[..., Any]] = {"eager": case.repeated}
    for kernels in ("fast", "exact"):
        options = {"kernels": kernels}
        ways[kernels] = torch.compile(case.repeated, backend="airgraph", fullgraph=True, dynamic=False, options=options)
    expected = case.repeated(*case.args)
    for name, way in ways.items():
        torch.testing.assert_close(way(*case.args), expected, rtol=2e-2, atol=2e-2, msg=f"{name}: {case.description}")
    found = measure.interleave([measure.Contender(name, way, case.args) for name, way in ways.items()], rounds=rounds)
    us = {name: [round(part / TIMES, 4) for part in (t.median_us, t.q1_us, t.q3_us)] for name, t in found.items()}
    return {"description": case.description, "median_q1_q3_us": us}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="blocks of calls of each contender (default: 40)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    circumstances = measure.circumstances(options.rounds)
    rows = {name: timed(case, options.rounds) for name, case in cases().items()}
    table = Table(title="µs each", title_justify="left")
    for column in ("what", "fast", "exact", "eager"):
        table.add_column(column)
    for row in rows.values():
        times = row["median_q1_q3_us"]
        table.add_row(row["description"], *(f"{times[name][0]:.3f}" for name in ("fast", "exact", "eager")))
    Console().print(table)
    path = measure.write_json(RESULTS, "small_kernels", [1], {"measured": circumstances, "small_kernels": rows})
    Console().print(f"wrote {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
