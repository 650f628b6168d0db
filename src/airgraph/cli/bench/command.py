"""`airgraph bench`: how fast is a model of yours in eager, through torch.compile, and through airgraph?"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from airgraph.cli.devices import DEVICES, check_device
from airgraph.cli.failure import CommandError, UsageProblem
from airgraph.cli.progress import progress
from airgraph.cli.result_files import check_writable, write_to
from airgraph.cli.standard_streams import complain

__all__ = ["command"]

DTYPES = ("float64", "float32", "bfloat16", "float16")


def command(
    target: Annotated[
        str,
        typer.Argument(
            help="model.py[:name] or package.module[:name], where name() returns (module or function, arguments[, "
            "keyword arguments]); tiny or smollm2; a Hugging Face model's folder, or owner/name.",
            show_default=False,
        ),
    ],
    seconds: Annotated[float, typer.Option(metavar="S", help="Time each way for about S seconds.")] = 2.0,
    calls: Annotated[
        int | None, typer.Option(metavar="N", help="Time N calls of each way instead.", show_default=False)
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Threads of PyTorch's kernels on CPU.", show_default=False)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help=f"Move the model and its inputs: {', '.join(DEVICES)}.", show_default=False)
    ] = None,
    dtype: Annotated[str | None, typer.Option(help=f"Convert them to {', '.join(DTYPES)}.", show_default=False)] = None,
    dynamic: Annotated[bool, typer.Option(help="Compile for any size, not for these sizes only.")] = False,
    inductor: Annotated[bool, typer.Option(help="Time torch.compile's own backend too.")] = True,
    tokens: Annotated[int, typer.Option(metavar="N", help="Of a language model: length of the prompt.")] = 32,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers as JSON; - is standard output.")
    ] = None,
) -> int:
    """Time TARGET in eager, torch.compile, airgraph and airgraph with its compile cache, side by side.

    Each way is compared with eager first. 1: results differ, or a way fails.
    """
    _check_numbers(seconds, calls, threads, tokens)
    if json_file is not None and str(json_file) != "-":
        check_writable(json_file)
    if dtype is not None and dtype not in DTYPES:
        raise UsageProblem(f"unknown dtype {dtype!r}: give one of {', '.join(DTYPES)}")
    if device is not None:
        check_device(device)
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        result = _measure(
            target,
            seconds=seconds,
            calls=calls,
            device=device,
            dtype=getattr(torch, dtype) if dtype else None,
            dynamic=dynamic,
            inductor=inductor,
            tokens=tokens,
        )
    finally:
        torch.set_num_threads(before)
    _write(result, json_file)
    if result["failed"]:
        raise CommandError("; ".join(f"{name}: {reason}" for name, reason in result["failed"].items()))
    return 0


def _check_numbers(seconds: float, calls: int | None, threads: int | None, tokens: int) -> None:
    if not 0 < seconds < float("inf"):
        raise UsageProblem(f"--seconds must be more than 0 and finite, got {seconds}")
    for option, number in (("--calls", calls), ("--threads", threads), ("--tokens", tokens)):
        if number is not None and number < 1:
            raise UsageProblem(f"{option} must be at least 1, got {number}")


def _measure(
    target: str,
    *,
    seconds: float,
    calls: int | None,
    device: str | None,
    dtype: Any,
    dynamic: bool,
    inductor: bool,
    tokens: int,
) -> dict[str, Any]:
    """Everything that is known in the end, as plain data."""
    from airgraph.cli.bench import timing, ways
    from airgraph.cli.bench.circumstances import circumstances
    from airgraph.cli.bench.target import find

    begun = circumstances()
    # What the user's code prints is no part of the numbers.
    with redirect_stdout(sys.stderr), progress() as announce, tempfile.TemporaryDirectory() as folder:
        workload = find(target, device=device, dtype=dtype, tokens=tokens, announce=announce)
        if getattr(workload.function, "training", False):
            complain(f"airgraph: warning: {workload.name} is in training mode: call its eval() first")
        maker = ways.Maker(workload, dynamic=dynamic, folder=Path(folder))
        checked: dict[str, ways.Checked] = {}
        left_out: dict[str, ways.LeftOut] = {}
        for name in ways.NAMES:
            if name == ways.INDUCTOR and not inductor:
                left_out[name] = ways.LeftOut("--no-inductor", failed=False)
                continue
            announce(f"first calls: {name}")
            made = maker.make(name)
            if isinstance(made, ways.Checked):
                checked[name] = made
            else:
                left_out[name] = made
        announce("timing")
        timings = timing.interleave([each.timed for each in checked.values()], calls=calls, seconds=seconds)
    eager_us = timings[ways.EAGER].median_us
    contenders = {
        name: {
            **timings[name].to_dict(),
            "speedup_over_eager": round(eager_us / timings[name].median_us, 3),
            "max_abs_difference": each.max_abs_difference,
            "first_call_s": round(each.first_call_s, 4),
            **({} if each.from_files_s is None else {"first_call_from_files_s": round(each.from_files_s, 4)}),
            **({"notes": list(each.notes)} if each.notes else {}),
        }
        for name, each in checked.items()
    }
    return {
        **begun,
        "device": device,
        "dtype": str(dtype).removeprefix("torch.") if dtype else None,
        "dynamic": dynamic,
        "workloads": {str(begun["threads"][0]): {target: {"description": workload.name, "contenders": contenders}}},
        "left_out": {name: each.reason for name, each in left_out.items() if not each.failed},
        "failed": {name: each.reason for name, each in left_out.items() if each.failed},
    }


def _write(result: dict[str, Any], json_file: Path | None) -> None:
    to_stdout = json_file is not None and str(json_file) == "-"
    Console(stderr=to_stdout).print(_table(result))
    ((_, of_target),) = next(iter(result["workloads"].values())).items()
    for name, row in of_target["contenders"].items():
        for note in row.get("notes", ()):
            complain(f"airgraph: warning: {name}: {' '.join(note.split())}")
    for name, reason in result["left_out"].items():
        complain(f"airgraph: {name} is left out: {' '.join(reason.split())}")
    if json_file is None:
        return
    text = json.dumps(result, indent=2) + "\n"
    if to_stdout:
        sys.stdout.write(text)
        return
    write_to(json_file, lambda path: path.write_text(text, encoding="utf-8"))


def _table(result: dict[str, Any]) -> Table:
    ((threads, of_threads),) = result["workloads"].items()
    ((_, of_target),) = of_threads.items()
    contenders = of_target["contenders"]
    unit, scale = ("ms", 1e3) if max(row["median_us"] for row in contenders.values()) >= 1e3 else ("µs", 1.0)
    title = f"{of_target['description']}, {threads} thread{'' if threads == '1' else 's'}, times in {unit}"
    # Without lines between columns, so that a narrow terminal has room for all.
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in ("median", "p10–p90", "× eager", "first\ncall, s", "next\nstart, s", "calls"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in contenders.items():
        spread = f"{_number(row['p10_us'] / scale)}–{_number(row['p90_us'] / scale)}"
        later = row.get("first_call_from_files_s")
        table.add_row(
            name,
            _number(row["median_us"] / scale),
            spread,
            f"{row['speedup_over_eager']:.2f}",
            f"{row['first_call_s']:.2f}",
            "" if later is None else f"{later:.2f}",
            str(row["calls"]),
        )
    for name in result["failed"]:
        table.add_row(name, "[red]failed[/]", "", "", "", "", "")
    return table


def _number(value: float) -> str:
    """With three digits."""
    return f"{value:.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f}"
