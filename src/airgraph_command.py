"""The entry point of the `airgraph` command: beside the package, which cannot be imported where PyTorch cannot.

What is missing is then told in one line, instead of by a traceback of the package's imports.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

__all__ = ["main"]

# 128 + SIGINT, as shells report it.
_EXIT_INTERRUPTED = 130
_CHECKOUT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def main() -> None:
    """Run the command line and exit the process with its code; 1 where a package that it needs is missing."""
    with _ends_at_once_by_ctrl_c():
        run = _imported()
    run()


@contextlib.contextmanager
def _ends_at_once_by_ctrl_c() -> Iterator[None]:
    """Importing takes seconds, and there is nothing to clean up. What is imported may swallow a KeyboardInterrupt, or
    go on half imported."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_usual or threading.current_thread() is not threading.main_thread():
        # Such as in the background of a shell, where it is ignored.
        yield
        return

    def end(number: int, frame: object) -> None:
        # Of a stream that the process was started without, Python makes None.
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                os.write(sys.stderr.fileno(), b"airgraph: interrupted\n")
        os._exit(_EXIT_INTERRUPTED)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is end:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _imported() -> Callable[[], None]:
    """The command line's own entry point."""
    options = _options_of_run(sys.argv[1:])
    if "--simulate" in options and options.get("--device", "npu") == "npu":
        _simulate()
    elif options.get("--device", "npu") != "npu":
        # The stand-in takes the place of torch_npu, which importing torch would import where it is installed.
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        from airgraph.cli.main import main as run
    except ImportError as error:
        # airgraph.environment, which reads this for every other failure, cannot be imported either.
        if os.environ.get("AIRGRAPH_TRACEBACK") not in (None, "", "0"):
            raise
        sys.exit(f"airgraph: error: {_sentence(error)}")
    return run


def _options_of_run(arguments: list[str]) -> dict[str, str]:
    """Those of `airgraph run`, which stand before its script; what follows is the script's own."""
    found: dict[str, str] = {}
    if arguments[:1] == ["run"]:
        left = iter(arguments[1:])
        for each in left:
            if not each.startswith("-"):
                break
            name, is_given, value = each.partition("=")
            found[name] = next(left, "") if name == "--device" and not is_given else value
    return found


def _simulate() -> None:
    """Enable the simulated Ascend runtime, without which torch_npu, and so torch, cannot be imported: here, or in the
    environment of a source checkout, which then takes this process over."""
    try:
        import simcann
    except ImportError:
        python = os.path.join(_CHECKOUT, ".venv-npu", "bin", "python")
        if sys.executable != python and os.access(python, os.X_OK):
            os.execv(python, [python, "-m", "airgraph_command", *sys.argv[1:]])
        sys.exit(
            "airgraph: error: --simulate needs simcann and torch_npu: in a source checkout `make test-npu` makes an "
            "environment with both, .venv-npu, which this command finds"
        )
    try:
        simcann.enable()  # type: ignore[attr-defined]
    except simcann.NotAvailable as error:  # type: ignore[attr-defined]
        sys.exit(f"airgraph: error: simcann: {error}")


def _sentence(error: ImportError) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        package = error.name.partition(".")[0]
        return f"the Python package {package} is missing: install it with `pip install {package}`"
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
