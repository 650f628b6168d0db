"""The `airgraph` command: subcommands, exit codes, and one clear line for every failure.

Exit codes: 0 done, 1 failed, 2 wrong arguments, 70 unexpected error, 130 interrupted.
"""

from __future__ import annotations

import sys
import textwrap
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from airgraph import environment
from airgraph.cli import cache, doctor, explain, run, warning_lines
from airgraph.cli.bench import command as bench
from airgraph.cli.demo import generate
from airgraph.cli.failure import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNEXPECTED, EXIT_USAGE, CommandError
from airgraph.cli.standard_streams import complain, lost_output, open_streams
from airgraph.errors import AirgraphError

__all__ = ["app", "main"]

UNEXPECTED_WIDTH = 300
# typer exports BadParameter but not its base, which also covers unknown options and commands.
_USAGE_ERROR = cast(type[Exception], typer.BadParameter.__mro__[1])

app = typer.Typer(
    name="airgraph",
    help="Capture PyTorch models into device graphs and replay them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("generate")(generate.command)
app.command("bench")(bench.command)
# Options after the script, such as --device, are its own.
app.command("run", context_settings={"allow_interspersed_args": False})(run.command)
app.command("explain", cls=explain.OptionsAroundScript)(explain.command)
app.command("doctor")(doctor.command)
app.add_typer(cache.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        import airgraph

        typer.echo(f"airgraph {airgraph.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Capture PyTorch models into device graphs and replay them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process with its code.

    arguments: words after the program's name; sys.argv's when None.
    A failure prints one line to stderr; AIRGRAPH_TRACEBACK=1 adds the traceback.
    """
    open_streams()
    warning_lines.as_lines()
    sys.exit(_exit_code(arguments))


def _exit_code(arguments: Sequence[str] | None) -> int:
    """Of every command and every failure: what was said must have arrived as well."""
    failed: Exception | None = None
    try:
        exit_code = _run(arguments)
    except OSError as error:
        failed, exit_code = error, EXIT_FAILED
    lost = lost_output()
    if lost is None:
        return exit_code if failed is None else _unexpected(failed)
    if lost:
        complain(f"airgraph: error: {lost}")
    return exit_code or EXIT_FAILED


def _run(arguments: Sequence[str] | None) -> int:
    """Raises OSError, which may be that of an output stream."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = app(words, prog_name="airgraph", standalone_mode=False)
    except KeyboardInterrupt:
        result = EXIT_INTERRUPTED
    except SystemExit as ended:
        # So typer and rich end where nobody reads what they write.
        result = ended.code
    except CommandError as error:
        return _fail(str(error), error.exit_code, error)
    except AirgraphError as error:
        return _fail(str(error), EXIT_FAILED, error)
    except _USAGE_ERROR as error:
        return _fail(_usage_message(error), EXIT_USAGE, error)
    except typer.Abort:
        result = EXIT_INTERRUPTED
    except OSError:
        raise
    except Exception as error:
        return _unexpected(error)
    if result == EXIT_INTERRUPTED:
        complain("airgraph: interrupted")
    return result if isinstance(result, int) else 0


def _unexpected(error: Exception) -> int:
    """The boundary of the process: whatever arrives here, the user gets a line and not a traceback."""
    cause = _airgraph_cause(error)
    if cause is not None:
        return _fail(str(cause), EXIT_FAILED, error)
    # Foreign errors may print whole tensors.
    what = textwrap.shorten(str(error), UNEXPECTED_WIDTH, placeholder=" ...")
    message = f"{type(error).__name__}: {what} (set {environment.TRACEBACK.name}=1 for the traceback)"
    return _fail(message, EXIT_UNEXPECTED, error)


def _fail(message: str, exit_code: int, error: BaseException) -> int:
    if environment.traceback_wanted():
        complain("".join(traceback.format_exception(error)).rstrip())
    complain(f"airgraph: error: {_one_line(message)}")
    return exit_code


def _usage_message(error: Any) -> str:
    """typer's own words, with the command to ask for help."""
    command = error.ctx.command_path if getattr(error, "ctx", None) is not None else "airgraph"
    # `airgraph` alone prints the help and raises an error without words.
    message = error.format_message() or "no command given"
    return f"{message.rstrip('.')} (see `{command} --help`)"


def _airgraph_cause(error: BaseException) -> AirgraphError | None:
    """The AirgraphError that torch.compile wrapped in its own exception, if there is one."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, AirgraphError):
            return current
        seen.add(id(current))
        current = getattr(current, "inner_exception", None) or current.__cause__ or current.__context__
    return None


def _one_line(message: str) -> str:
    return " ".join(message.split())


if __name__ == "__main__":
    main()
