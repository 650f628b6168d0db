"""`airgraph generate`: answer a prompt through captured graphs, and compare with eager.

All ways run the same loop over the same StaticCache. Each is warmed up first; the measured pass that follows
makes no capture. The first call of each, the capture included, is reported as its own row. On an accelerator the CPU's
tokens are compared too. Graphs are kept in the compile cache, so that the next start traces nothing.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from airgraph.cli.demo import models
from airgraph.cli.demo.decode import Step, Token, decode_greedily, make_cache, make_step
from airgraph.cli.demo.streaming import TextStream, printable
from airgraph.cli.devices import DEVICES, check_device
from airgraph.cli.failure import CommandError, UsageProblem
from airgraph.cli.progress import progress

if TYPE_CHECKING:
    from airgraph.cache.cached_function import CachedFunction
    from airgraph.capture.ledger import CachedRecord

__all__ = ["CaptureCount", "Pass", "Way", "command", "count_captures", "first_difference", "where_from"]

# Prefill, the first decode step (which captures) and one more to see the graph replayed.
WARMUP_TOKENS = 3
# In positions.
SHORTEST_CACHE = 256
CAPTURED = "captured"
EAGER = "eager"
EAGER_ON_CPU = "eager on cpu"


@dataclass(frozen=True, slots=True)
class Way:
    """A step and the cache that it appends to. cached: the step, where its graphs are kept in files."""

    step: Step
    cache: Any
    cached: CachedFunction | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One way of running the model: its first call, and a warm pass over the whole answer."""

    first_call_ms: float
    tokens: tuple[Token, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The token ids of the warm pass."""
        return tuple(token.id for token in self.tokens)

    @property
    def prefill_ms(self) -> float:
        """The warm prefill, which is the time of the first token."""
        return self.tokens[0].elapsed_ms

    @property
    def tokens_per_s(self) -> float | None:
        """Decode speed of the warm pass; None when it had no decode step."""
        steps = self.tokens[1:]
        elapsed_ms = sum(token.elapsed_ms for token in steps)
        return len(steps) * 1e3 / elapsed_ms if elapsed_ms > 0 else None


@dataclass(frozen=True, slots=True)
class CaptureCount:
    """What airgraph.explain() says about this run; uncaptured holds "name: reason" of every graph that ran eagerly."""

    captures: int
    pool_nbytes: int
    uncaptured: tuple[str, ...]


def command(
    prompt: Annotated[str, typer.Argument(help="What to ask the model.", show_default=False)],
    max_new_tokens: Annotated[int, typer.Option(metavar="N", help="Stop after N tokens.")] = 64,
    device: Annotated[str, typer.Option(help=f"Where to run: {', '.join(DEVICES)}.")] = "cpu",
    model: Annotated[str, typer.Option(help=f"Which model: {', '.join(models.MODELS)}.")] = "smollm2",
    compare: Annotated[bool, typer.Option(help="Run eager too and compare the tokens.")] = True,
    cache: Annotated[bool, typer.Option(help="Keep graphs in files, so that the next start traces nothing.")] = True,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Of these files; by default AIRGRAPH_CACHE_DIR or the user's.")
    ] = None,
) -> int:
    """Answer PROMPT through captured graphs, then show their speed against eager."""
    _check_arguments(prompt, max_new_tokens, device, model)
    if not cache and folder is not None:
        raise UsageProblem("--dir and --no-cache were both given: leave out one of them")
    if cache and folder is None:
        from airgraph.cache.store.folder import default_folder

        folder = default_folder()
    return run(prompt, max_new_tokens=max_new_tokens, device=device, model_name=model, compare=compare, folder=folder)


def run(
    prompt: str,
    *,
    max_new_tokens: int,
    device: str,
    model_name: str,
    compare: bool,
    folder: Path | None = None,
) -> int:
    """Generate, stream the text and print the table to stdout; progress goes to stderr.

    folder: of the compile cache that the captured step comes from; None: it is compiled by torch.compile.
    Returns the exit code: 0, or 1 when captured and eager tokens differ.
    """
    with progress() as announce:
        language_model = models.load(model_name, device=device, on_step=announce)
        prompt_ids = language_model.tokenizer.encode(prompt)
        _check_length(language_model, len(prompt_ids), max_new_tokens)
        ways = _ways(
            language_model.model,
            folder,
            compare=compare,
            cache_len=cache_length(len(prompt_ids) + max(max_new_tokens, WARMUP_TOKENS)),
        )
        first_call_ms: dict[str, float] = {}
        for name, way in ways.items():
            announce("capturing prefill" if name == CAPTURED else f"warming {name} prefill")
            for index, token in enumerate(
                decode_greedily(way.step, prompt_ids, way.cache, max_new_tokens=WARMUP_TOKENS, eos_ids=frozenset())
            ):
                if index == 0:
                    first_call_ms[name] = token.elapsed_ms
                    announce("capturing decode" if name == CAPTURED else f"warming {name} decode")
    cached = ways[CAPTURED].cached
    if cached is not None:
        _say(where_from(cached.counts(), folder))

    def decode(name: str) -> Iterator[Token]:
        way = ways[name]
        return decode_greedily(
            way.step, prompt_ids, way.cache, max_new_tokens=max_new_tokens, eos_ids=language_model.eos_ids
        )

    passes = {CAPTURED: Pass(first_call_ms[CAPTURED], _stream(decode(CAPTURED), language_model.tokenizer.decode))}
    for name in ways:
        if name != CAPTURED:
            passes[name] = Pass(first_call_ms[name], tuple(decode(name)))

    import airgraph

    count = count_captures(airgraph.explain().to_dict())
    Console().print(_table(language_model.name, len(prompt_ids), passes, count))
    for line in count.uncaptured:
        _note(f"ran eagerly, not captured: {line}")
    if not compare:
        return 0
    difference = first_difference(passes[CAPTURED].ids, passes[EAGER].ids)
    if difference is None:
        return 0
    raise CommandError(
        f"captured and eager tokens differ: {difference}. This is a fault of airgraph: please report it with the prompt"
    )


def count_captures(report: dict[str, Any]) -> CaptureCount:
    """Read the numbers of the table off explain().to_dict()."""
    graphs = report["graphs"]
    return CaptureCount(
        captures=report["counters"]["captures"],
        pool_nbytes=sum(pool["nbytes"] for pool in report["pools"]),
        uncaptured=tuple(f"{g['name']}: {g['reason']}" for g in graphs if g["state"] != "captured"),
    )


def first_difference(captured: Sequence[int], eager: Sequence[int]) -> str | None:
    """Say where two token sequences part, or None when they are equal."""
    for position, (left, right) in enumerate(zip(captured, eager, strict=False)):
        if left != right:
            return f"token {position} is {left} captured and {right} eager"
    if len(captured) != len(eager):
        return f"{len(captured)} tokens captured, {len(eager)} eager"
    return None


def _check_arguments(prompt: str, max_new_tokens: int, device: str, model: str) -> None:
    if not prompt.strip():
        raise UsageProblem('the prompt is empty: give a question, such as airgraph generate "What is a graph?"')
    if max_new_tokens < 1:
        raise UsageProblem(f"--max-new-tokens must be at least 1, got {max_new_tokens}")
    check_device(device)
    models.check_available(model)


def _check_length(language_model: models.LanguageModel, prompt_len: int, max_new_tokens: int) -> None:
    needed = prompt_len + max_new_tokens
    if needed > language_model.context_len:
        raise UsageProblem(
            f"the prompt ({prompt_len} tokens) and --max-new-tokens {max_new_tokens} make {needed}, and "
            f"{language_model.name} holds {language_model.context_len}: shorten one of them"
        )


def cache_length(positions: int) -> int:
    """Of a cache for so many positions. Few lengths are in use, so that a start with another question finds the graphs
    of an earlier one: they are traced for one length each, in half the time that they would take for all.
    """
    return max(SHORTEST_CACHE, 1 << (positions - 1).bit_length())


def _ways(model: Any, folder: Path | None, *, compare: bool, cache_len: int) -> dict[str, Way]:
    """The ways to decode, in the order in which they are warmed up."""
    cache = make_cache(model, cache_len=cache_len)
    ways = {CAPTURED: _captured(model, cache, folder)}
    if compare:
        # A function of its own: nothing that was compiled can stand in its way.
        ways[EAGER] = Way(make_step(model), cache)
        if model.device.type != "cpu":
            on_cpu = copy.deepcopy(model).to("cpu")
            ways[EAGER_ON_CPU] = Way(make_step(on_cpu), make_cache(on_cpu, cache_len=cache_len))
    return ways


def _captured(model: Any, cache: Any, folder: Path | None) -> Way:
    if folder is None:
        import torch

        return Way(torch.compile(make_step(model), backend="airgraph", fullgraph=True, dynamic=False), cache)
    import airgraph

    # For all lengths of prompts.
    cached = airgraph.inference.cache_compile(make_step(model), dynamic=True, cache_dir=folder)
    return Way(cached, cache, cached)


def where_from(counts: CachedRecord, folder: Path | None) -> str:
    """Whether the next start, or this one, is spared the tracing."""
    if counts.refusals:
        return f"the step is traced at every start: {'; '.join(counts.refusals)}"
    if counts.unwritten:
        # Each file says of itself where it was to be written.
        return f"the step is traced at the next start too: {'; '.join(counts.unwritten)}"
    if counts.traces:
        return f"{counts.traces} graphs traced and kept in {folder} for the next start"
    return f"{counts.files_read} graphs read from {folder}, nothing traced"


def _stream(tokens: Iterator[Token], decode: Callable[[Sequence[int]], str]) -> tuple[Token, ...]:
    """Write the text of the tokens to stdout as they come, and return the tokens."""
    text = TextStream(decode)
    taken: list[Token] = []
    try:
        for token in tokens:
            taken.append(token)
            _write(text.feed(token.id))
        _write(text.finish())
    finally:
        _write("\n")
    return tuple(taken)


def _write(text: str) -> None:
    if text:
        sys.stdout.write(printable(text))
        sys.stdout.flush()


def _table(model_name: str, prompt_len: int, passes: dict[str, Pass], count: CaptureCount) -> Table:
    generated = len(passes[CAPTURED].tokens)
    table = Table(title=f"{model_name}: {prompt_len} prompt tokens, {generated} generated", title_justify="left")
    table.add_column("")
    ways = [way for way in (EAGER_ON_CPU, EAGER, CAPTURED) if way in passes]
    for way in ways:
        table.add_column(way, justify="right")
    rows: list[tuple[str, Callable[[Pass], str]]] = [
        ("decode, tokens/s", lambda p: "-" if p.tokens_per_s is None else f"{p.tokens_per_s:.1f}"),
        ("first token, first call with capture, ms", lambda p: f"{p.first_call_ms:.1f}"),
        ("first token, warm, ms", lambda p: f"{p.prefill_ms:.1f}"),
    ]
    for label, value in rows:
        table.add_row(label, *(value(passes[way]) for way in ways))
    table.add_section()
    blank = [""] * (len(ways) - 1)
    table.add_row("graphs captured", *blank, str(count.captures))
    table.add_row("pool bytes", *blank, f"{count.pool_nbytes:,}")
    for label, other in (("tokens equal", EAGER), ("tokens equal to the cpu's", EAGER_ON_CPU)):
        if other in passes:
            equal = passes[CAPTURED].ids == passes[other].ids
            table.add_row(label, *blank, "[green]yes[/]" if equal else "[red]no[/]")
    return table


def _note(line: str) -> None:
    _say(f"warning: {line}")


def _say(line: str) -> None:
    print(f"airgraph: {' '.join(line.split())}", file=sys.stderr)
