"""Writes the results of README.md and docs/results.md from the newest JSON of the benchmarks of replay.

python benchmarks/result_tables.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from figures import newest_record, paragraph, table, with_unit

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
PAGE = HERE.parent / "docs" / "results.md"
BEGIN, END = "<!-- results: written by benchmarks/result_tables.py -->", "<!-- end of results -->"
THREADS = "1"
# The front door that the README shows.
OURS = "airgraph, cached"


def newest(name: str) -> Path | None:
    """The latest result of a benchmark; None if it was never run."""
    return max((HERE / "results").glob(f"{name}-*.json"), default=None)


def summary() -> str:
    """The README's block, with its markers."""
    record = _replay()[1]
    lines = [
        BEGIN,
        "",
        "| case | airgraph, µs | best peer, µs | best peer | times as fast |",
        "|---|---|---|---|---|",
    ]
    for result in record["workloads"][THREADS].values():
        medians = {name: each["median_us"] for name, each in result["contenders"].items()}
        peer = min(filter(_is_peer, medians), key=lambda name: medians[name])
        ours, theirs = medians[OURS], medians[peer]
        lines.append(_row(result["description"], ours, theirs, peer))
    tokens, where = _tokens()
    others, where_others = _others()
    where = f"Calls: measured {_where(record)}. {where}{where_others}[All results](docs/results.md)."
    return "\n".join([*lines, *tokens, *others, "", where, END])


def _row(case: str, ours: float, theirs: float, peer: str) -> str:
    return f"| {case} | {ours:.1f} | {theirs:.1f} | {peer} | {theirs / ours:.2f} |"


def _is_peer(name: str) -> bool:
    """Whether it is another's, and a front door."""
    return not name.startswith("airgraph") and "bare" not in name


def _tokens() -> tuple[list[str], str]:
    """Rows of a language model's decoding beside the best of its peers, and where they were measured."""
    path = newest("llm")
    if path is None:
        return [], ""
    record = json.loads(path.read_text(encoding="utf-8"))
    lines = []
    for threads, by_weights in record["decoding"].items():
        for weights, row in by_weights.items():
            lines += _by_threads(f"a token of SmolLM2-135M in {weights}", {threads: row})
    where = (
        f"Tokens: {record['date'][:10]} on {record['machine']['cpu']}, each contender in a process of its own, "
        "airgraph with weights where they are or in huge pages ([all of it](docs/kernels.md#what-was-measured)). "
    )
    return lines, where


def _others() -> tuple[list[str], str]:
    """Rows of another model's sizes, of prompts, of loaded cores and of a server, and where they were measured."""
    records = {section: newest_record("llm", section)[1] for section in ("qwen3", "prefill", "loaded")}
    records["embeddings"] = newest_record("embeddings")[1]
    loaded = records["loaded"]["loaded"]
    beside = {
        threads: {name: loaded[f"{name}, {threads} thread{'s' * (threads != '1')}"] for name in ("airgraph", "eager")}
        for threads in ("1", "2")
    }
    rows = [
        *_by_threads("a token of Qwen3-0.6B's sizes in bf16", records["qwen3"]["qwen3"]),
        *_by_threads("a prompt of 128 tokens, SmolLM2-135M in bf16", records["prefill"]["prefill"]),
        *_by_threads("a token of SmolLM2-135M in bf16 beside others on all cores", beside),
        *_by_threads("a request of all-MiniLM-L6-v2, 32 lengths", records["embeddings"]["embeddings"]),
    ]
    places = dict.fromkeys(
        f"{each['date'][:10]} on {each['machine']['cpu']} ({each['machine']['simd']})" for each in records.values()
    )
    return rows, f"Qwen3's sizes, prompts, loaded cores and requests: {', '.join(places)}. "


def _by_threads(case: str, by_threads: dict[str, Any]) -> list[str]:
    """Ours as it is fastest beside the best of its peers."""
    names = {"inductor": "Inductor", "onnxruntime": "ONNX Runtime"}
    rows = []
    for threads, row in by_threads.items():
        medians = {name: each["median_us"] for name, each in row.items()}
        ours = min(medians.pop(name) for name in list(medians) if name.startswith("airgraph"))
        peer = min(medians, key=lambda name: medians[name])
        plural = "s" if threads != "1" else ""
        rows.append(_row(f"{case}, {threads} thread{plural}", ours, medians[peer], names.get(peer, peer)))
    return rows


def _replay() -> tuple[Path, dict[str, Any]]:
    path = newest("replay")
    assert path is not None
    return path, json.loads(path.read_text(encoding="utf-8"))


def _where(record: dict[str, Any]) -> str:
    machine, versions = record["machine"], record["versions"]
    return (
        f"{record['date'][:10]} on {machine['cpu']} ({machine['cores']} cores, {machine['simd']}), "
        f"torch {versions['torch']}, one thread, float32; medians of interleaved runs in one process"
    )


def render() -> str:
    """The page's block, with its markers."""
    path, record = _replay()
    lines = [
        BEGIN,
        "## Replay on CPU",
        "",
        paragraph(
            f"Measured {_where(record)}. All numbers, two threads and spread: "
            f"[{path.name}](../benchmarks/results/{path.name}); `make bench` repeats them."
        ),
        "",
    ]
    workloads = record["workloads"][THREADS]
    lines += _workloads(
        workloads,
        ("median_us", "µs a call", lambda value: f"{value:.{1 if value < 100 else 0}f}"),
        ("speedup_over_eager", "times as fast as eager under `inference_mode`", lambda value: f"{value:.2f}"),
    )
    lines += ["", _first_calls(workloads)]
    if "smollm2" in record:
        lines += ["", *_decoding(record["smollm2"])]
    lines += [
        "",
        *_npu(newest("npu-overhead")),
        "",
        *_starts(newest("torchair-starts")),
        "",
        *_generate(),
        "",
        *_cuda_host(newest("simulated-cuda")),
        "",
        *_cuda(newest("cuda")),
    ]
    return "\n".join([*lines, END])


def _workloads(results: dict[str, Any], *columns: tuple[str, str, Callable[[float], str]]) -> list[str]:
    """What the workloads are, and a table of contenders for each field: its name, what it is, and how it is written."""
    lines = [f"- **{name}**: {result['description']}" for name, result in results.items()]
    # In the order in which they first come; one of a single workload is among the others' last.
    longest_first = sorted(results.values(), key=lambda result: -len(result["contenders"]))
    contenders = dict.fromkeys(each for result in longest_first for each in result["contenders"])
    for field, what, written in columns:
        rows = []
        for contender in contenders:
            found = [result["contenders"].get(contender) for result in results.values()]
            rows.append((contender, *(written(each[field]) if each else "" for each in found)))
        lines += ["", table((what, *results), rows)]
    return lines


def _first_calls(results: dict[str, Any]) -> str:
    rows = [
        (
            name,
            f"{first['inductor_s']:.1f}",
            f"{first['airgraph_s']:.2f}",
            f"{first['airgraph_capture_ms'] / 1e3:.3f}",
        )
        for name, first in ((name, result["first_call"]) for name, result in results.items())
        if first
    ]
    return table(("first call", *with_unit("s", ("Inductor", "airgraph", "of which capture"))), rows)


def _decoding(smollm2: dict[str, Any]) -> list[str]:
    rates = []
    for threads, result in smollm2["decode"].items():
        ours = result["contenders"]["airgraph"]
        rates.append(
            f"{ours['median_tokens_per_s']:.1f} tokens/s with {threads} thread{'s' if threads != '1' else ''} "
            f"({ours['speedup_over_eager']:.2f}x eager)"
        )
    memory = smollm2["memory"]
    peak, after = (
        median(memory["airgraph"][field]) / median(memory["eager"][field]) for field in ("peak_nbytes", "decode_nbytes")
    )
    return [
        paragraph(
            f"SmolLM2-135M decodes {' and '.join(rates)}, the same tokens as eager; peak memory of the process "
            f"{peak:.3f} of eager's ({after:.3f} when the loading of the weights is left out)."
        )
    ]


def _starts(path: Path | None) -> list[str]:
    if path is None:
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        (way, *(f"{row['first_s'][field]:.3f}" for field in ("median", "q1", "q3")), "yes" if row["dynamo"] else "no")
        for way, row in record["rows"].items()
    ]
    return [
        paragraph(
            "Second start of the cache script of TorchAir's documentation, from the model on its device to a first "
            f"result: {record['measured']['rounds']} starts each, npu simulated "
            f"([{path.name}](../benchmarks/results/{path.name}), `benchmarks/torchair_starts.py`)."
        ),
        "",
        table(
            ("second start", *with_unit("s", ("median", "first quartile", "third quartile")), "imports Dynamo"), rows
        ),
    ]


def _generate() -> list[str]:
    path = newest("hugging-face")
    if path is None:
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    first, second, tracing = record["first_s"], record["second_s"], record["tracing_start"]
    return [
        paragraph(
            f"`generate` of transformers with a cached `model.forward` ({record['model']}): the first answer of a "
            f"second start after {first['median']:.2f} s ({first['q1']:.2f} to {first['q3']:.2f}), the second after "
            f"{second['median']:.2f} s; at the start that traces the first takes {tracing['first_s']:.0f} s "
            f"([{path.name}](../benchmarks/results/{path.name}))."
        )
    ]


def _npu(path: Path | None) -> list[str]:
    if path is None:
        return ["The NPU path has not been measured yet: `make bench-npu`."]
    record = json.loads(path.read_text(encoding="utf-8"))
    return [
        "## Ascend, host time only",
        "",
        paragraph(
            f"Measured {record['date'][:10]} with the real torch_npu {record['versions']['torch_npu']} on a "
            "[simulated runtime](../simcann/README.md) with kernels off, which says nothing about a card's speed; "
            f"processes interleaved, medians ([{path.name}](../benchmarks/results/{path.name}), `make bench-npu`)."
        ),
        "",
        *_workloads(
            record["workloads"],
            ("median_us", "µs a call", lambda value: f"{value:.1f}"),
            ("airgraph_speedup", "times as long as airgraph", lambda value: f"{value:.2f}"),
        ),
    ]


def _cuda_host(path: Path | None) -> list[str]:
    if path is None:
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    workloads, memory, captures = record["workloads"], record["memory"], record["captures"]
    own = [
        (figure, *(f"{result['own_us'][figure]['median_us']:.1f}" for result in workloads.values()))
        for figure in next(iter(workloads.values()))["own_us"]
    ]
    lines = [
        "## Host time of a call on CUDA",
        "",
        paragraph(
            f"Measured {record['date'][:10]} with torch {record['versions']['torch']} on a "
            "[simulated runtime](../simcuda/README.md) with kernels off, which says nothing about a card's speed or "
            f"its driver's; processes interleaved, medians ([{path.name}](../benchmarks/results/{path.name}), "
            "`benchmarks/cuda_graphs.py --simulate`). Eager operators are slow there: Python gives their outputs' "
            "shapes."
        ),
        "",
        *_workloads(workloads, ("median_us", "µs a call", lambda value: f"{value:.1f}")),
        "",
        table(("differences within rounds, µs a call", *workloads), own),
        "",
        paragraph(
            "What is added to Dynamo is measured within one process. Its guards leave nothing of a replay in the "
            "caches, so that behind them a bare one, too, takes several times as long as in a loop of its own."
        ),
    ]
    ratios = [f"{order} {ratio:.2f}" for order, ratio in memory["over_largest_alone"].items() if "alone" not in order]
    reserved = (
        f"Reserved memory for seven batch sizes of a {memory['description']}, against the largest alone, by the order "
        f"in which they are captured: {', '.join(ratios)}. "
        + "; ".join(
            f"a first call of {captures['description'].split(',')[0]} beside {live} other tensors takes "
            f"{row['first_call_ms']:.0f} ms, eager {row['eager_ms']:.0f} ms"
            for live, row in captures["beside"].items()
        ).capitalize()
        + "."
    )
    return [*lines, "", paragraph(reserved)]


def _cuda(path: Path | None) -> list[str]:
    if path is None:
        return ["## CUDA\n\nNothing has been run on a CUDA device yet; nothing is claimed."]
    record = json.loads(path.read_text(encoding="utf-8"))
    cells = [
        f"{name} {result['contenders']['airgraph']['speedup_over_eager']:.2f}x"
        for name, result in record["workloads"].items()
    ]
    return [
        f"## CUDA\n\nOn {record['device']['name']}, {record['date'][:10]}, airgraph against eager: {', '.join(cells)} "
        f"([{path.name}](../benchmarks/results/{path.name}))."
    ]


if __name__ == "__main__":
    for path, block in ((README, summary()), (PAGE, render())):
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        path.write_text(before + block + after, encoding="utf-8")
