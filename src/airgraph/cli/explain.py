"""`airgraph explain`: runs a script, then says what was captured in it, and draws it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from airgraph.cli.failure import EXIT_FAILED, CommandError, UsageProblem
from airgraph.cli.result_files import check_writable, write_to
from airgraph.cli.script import run_script
from airgraph.cli.standard_streams import complain, must_have_arrived
from airgraph.errors import AirgraphError

__all__ = ["OptionsAroundScript", "command"]

STREAMS_PAGE = "streams.html"
TRACE = "trace.json"
UNUSED = (
    'nothing is captured at the end of this script. Let it call torch.compile(model, backend="airgraph") or '
    "airgraph.inference.cache_compile(model.forward); captures by hand are in no report, and airgraph.reset() "
    "forgets all"
)


class OptionsAroundScript(TyperCommand):
    """Takes its own options before SCRIPT and directly after it; from the first other word on, all are the script's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._own_first(args))

    def _own_first(self, words: list[str]) -> list[str]:
        takes = {
            flag: 1 if getattr(option, "is_flag", False) else 2
            for option in self.params
            for flag in option.opts
            if flag.startswith("-")
        }
        own: list[str] = []
        script: list[str] = []
        position = 0
        while position < len(words) and words[position] != "--":
            word = words[position]
            flag, _, value = word.partition("=")
            # One letter may be an option of the script's.
            if flag in takes and (flag.startswith("--") or not script):
                count = 1 if value else takes[flag]
                own += words[position : position + count]
            elif script:
                break
            else:
                count = 1
                (own if word.startswith("-") else script).append(word)
            position += count
        rest = words[position:]
        return [*own, "--", *script, *(rest[1:] if rest[:1] == ["--"] else rest)]


def command(
    script: Annotated[str, typer.Argument(help="A Python file, or with -m a module's name.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own.", show_default=False)
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module's name, as after `python -m`.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Draw the memory of all pools on this page.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report as JSON; - is standard output.")
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help=f"Replay each graph once more, and write {STREAMS_PAGE} and {TRACE} beside --html."
        ),
    ] = False,
) -> int:
    """Run SCRIPT with ARGS, then report what was captured, replayed and skipped in it, and why.

    The report goes to standard error; the exit code is the script's.
    """
    _check_files(html, json_file, profile)
    from airgraph.capture.ledger import ledger

    # Those of functions that the script has left by then would be gone.
    ledger.keep_functions()
    process = os.getpid()
    exit_code = run_script(script, arguments or (), module=module)
    if os.getpid() != process:
        # A fork of the script's that ran to the end.
        return exit_code
    try:
        _report(html, json_file, profile=profile)
    except (AirgraphError, CommandError, OSError) as error:
        complain(f"airgraph: error: {' '.join(str(error).split())}")
        return exit_code or EXIT_FAILED
    return exit_code


def _check_files(html: Path | None, json_file: Path | None, profile: bool) -> None:
    """Before the script runs, which may take long."""
    if html is not None and (html.suffix != ".html" or html.name == STREAMS_PAGE):
        raise UsageProblem(f"--html: expected a name that ends in .html and is not {STREAMS_PAGE}, got {html}")
    for path in (json_file, *_pages(html, profile)):
        if path is not None and str(path) != "-":
            check_writable(path)
    if html is not None or profile:
        from airgraph.insight.page import check_plots

        check_plots()


def _report(html: Path | None, json_file: Path | None, *, profile: bool) -> None:
    """Raises what explaining and writing raise."""
    import airgraph

    report = airgraph.explain(profile=profile)
    Console(stderr=True).rule("airgraph explain")
    if report.graphs or report.cached:
        print(report, file=sys.stderr)
        must_have_arrived(sys.stderr)
    else:
        complain(f"airgraph: {UNUSED}.")
    if json_file is not None:
        text = json.dumps(report.to_dict(), indent=2) + "\n"
        if str(json_file) == "-":
            sys.stdout.write(text)
        else:
            write_to(json_file, lambda path: path.write_text(text, encoding="utf-8"))
    for path in _pages(html, profile):
        write_to(path, report.save)
        complain(f"airgraph: wrote {path}")


def _pages(html: Path | None, profile: bool) -> list[Path]:
    beside = html.parent if html is not None else Path()
    return [*([html] if html else ()), *((beside / STREAMS_PAGE, beside / TRACE) if profile else ())]
