"""Runs a program of the user's as Python itself would: as `__main__`, with its arguments, exit code and traceback."""

from __future__ import annotations

import builtins
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from airgraph.cli import warning_lines
from airgraph.cli.failure import EXIT_FAILED, EXIT_INTERRUPTED, UsageProblem

__all__ = ["run_script", "without_frames_of_ours"]

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_LOADERS = ("<frozen importlib", "<frozen zipimport")


def run_script(path: str, args: Sequence[str] = (), *, module: bool = False) -> int:
    """Run a program to its end and return the exit code that Python would end with.

    path: a Python file, or a folder or zip file with a `__main__.py`; with module=True the name of a module, as after
    `python -m`. args: what the program finds in sys.argv[1:].
    An exception is shown by sys.excepthook, without frames of airgraph, and gives 1; Ctrl-C gives 130.

    From here on the process is the program's: `__main__`, sys.argv and sys.path stay as it leaves them, so that its
    functions, threads and graphs live on. Raises UsageProblem where there is nothing to run.
    """
    folder = os.getcwd() if module else _folder(path)
    # The first entry is the folder of our own command, unless Python was told to leave it out.
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[:1] = [folder]
    sys.argv = ["-m" if module else path, *args]
    warning_lines.as_python_does()
    try:
        program = _module(path) if module else _file(path)
        sys.argv[0] = program.argument
        sys.modules["__main__"] = program.main
        exec(program.code, vars(program.main))
    except UsageProblem:
        raise
    except SystemExit as ended:
        return _exit_code(ended)
    except BaseException as error:
        _show(error)
        return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAILED
    return 0


def without_frames_of_ours(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame that is neither airgraph's nor the import system's; None without such."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((_PACKAGE, *_LOADERS)):
        trace = trace.tb_next
    return trace


@dataclass(frozen=True, slots=True)
class _Program:
    """What is run. argument: its sys.argv[0]. code: run in the namespace of main."""

    argument: str
    main: ModuleType
    code: Any


def _folder(path: str) -> str:
    """sys.path[0] of a script: its folder, behind links; of a folder or zip file: itself."""
    if not os.path.exists(path):
        raise UsageProblem(f"there is no script {path}: give the path of a Python file, or -m and a module's name")
    return os.path.dirname(os.path.realpath(path)) if _finder(path) is None else os.path.abspath(path)


def _finder(path: str) -> Any:
    """What finds modules in a folder or zip file; None for a file that is neither."""
    return pkgutil.get_importer(os.path.abspath(path))


def _file(path: str) -> _Program:
    finder = _finder(path)
    if finder is not None:
        spec = finder.find_spec("__main__")
        if spec is None:
            raise UsageProblem(f"there is no __main__.py in {path}: give the path of a Python file")
        return _with_code(path, spec)
    # Compiled here and not by get_code(), which would leave a __pycache__ beside the script.
    loader = SourceFileLoader("__main__", os.path.abspath(path))
    try:
        source = loader.get_data(loader.path)
    except OSError as error:
        raise UsageProblem(f"script {path} cannot be read: {error.strerror}") from error
    return _Program(path, _main(loader.path, loader, None), loader.source_to_code(source, loader.path))


def _module(name: str) -> _Program:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError) as error:
        raise UsageProblem(f"module {name} cannot be found: {error}") from error
    if spec is None:
        raise UsageProblem(f"there is no module {name}: give a name as for `python -m`")
    return _with_code(spec.origin or name, spec)


def _with_code(argument: str, spec: ModuleSpec) -> _Program:
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise UsageProblem(f"module {spec.name} has no Python code: give a name as for `python -m`")
    return _Program(argument, _main(spec.origin or argument, loader, spec), code)


def _main(file: str, loader: object, spec: ModuleSpec | None) -> ModuleType:
    """A new `__main__`, with what Python gives it."""
    main = ModuleType("__main__")
    of_module = (None, None) if spec is None else (spec.parent, spec.cached)
    names = ("__file__", "__loader__", "__spec__", "__package__", "__cached__", "__builtins__")
    vars(main).update(zip(names, (file, loader, spec, *of_module, builtins), strict=True))
    return main


def _exit_code(ended: SystemExit) -> int:
    """As Python takes it: nothing is 0, a number is itself, anything else is said and is 1."""
    if ended.code is None:
        return 0
    if isinstance(ended.code, int):
        return ended.code
    print(ended.code, file=sys.stderr)
    return EXIT_FAILED


def _show(error: BaseException) -> None:
    error.__traceback__ = without_frames_of_ours(error.__traceback__)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:
        # The program has set a hook of its own, which fails.
        traceback.print_exception(error)
