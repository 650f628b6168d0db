"""`airgraph doctor`: is this installation usable, and what to do where it is not?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import locale
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from airgraph import environment
from airgraph.cli.demo import models
from airgraph.cli.failure import EXIT_FAILED, CommandError
from airgraph.errors import OptionError
from airgraph.requirement import MINIMUM_TORCH
from airgraph.torch_internals.probes import INTERNALS, Internal, is_there

__all__ = ["Check", "Verdict", "command", "run_checks"]

MINIMUM_PYTHON = (3, 10)
COMPILERS = ("c++", "g++", "clang++")
REINSTALL = "reinstall with `pip install --no-build-isolation airgraph`"


class Verdict(Enum):
    """How a check ended, worst last. A warning leaves airgraph usable."""

    OK = "[green]ok[/]"
    ABSENT = "[dim]-[/]"
    WARNING = "[yellow]warning[/]"
    PROBLEM = "[red]problem[/]"


@dataclass(frozen=True, slots=True)
class Check:
    """One row: what was looked at, what was found, and what to do when it is not right."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def command(
    internals: Annotated[
        bool, typer.Option("--internals", help="Also show each name of PyTorch's own that airgraph depends on.")
    ] = False,
) -> int:
    """Show versions, devices and the native engine, each with what to do if it is not right."""
    checks = list(run_checks())
    if internals and _reads_utf8():
        checks += _each_internal()
    table = Table(title="airgraph doctor", title_justify="left")
    # Folded, so that a narrow terminal cuts no name and no path short.
    table.add_column("", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("what to do", overflow="fold")
    for check in checks:
        table.add_row(check.name, check.verdict.value, escape(check.found), escape(check.remedy))
    Console().print(table)
    problems = [check for check in checks if check.verdict is Verdict.PROBLEM]
    for check in problems:
        print(f"airgraph: error: {check.name}: {check.found}. {check.remedy}", file=sys.stderr)
    return EXIT_FAILED if problems else 0


def run_checks() -> Iterator[Check]:
    """Look at everything, cheapest first; later checks are left out where torch is too old."""
    yield _python()
    yield _airgraph()
    torch_check = _torch()
    yield torch_check
    if torch_check.verdict is Verdict.PROBLEM:
        return
    yield _encoding()
    yield _cpu()
    yield _cuda()
    yield _npu()
    yield from _engine()
    yield _backend_name()
    if _reads_utf8():
        # Else parts of PyTorch cannot be imported.
        yield _internals()
    yield _demo_weights()


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info >= MINIMUM_PYTHON:
        return Check("python", Verdict.OK, f"{version} ({sys.executable})")
    wanted = ".".join(map(str, MINIMUM_PYTHON))
    return Check("python", Verdict.PROBLEM, version, f"use Python {wanted} or later")


def _airgraph() -> Check:
    import airgraph

    return Check("airgraph", Verdict.OK, f"{airgraph.__version__} ({os.path.dirname(airgraph.__file__)})")


def _torch() -> Check:
    wanted = ".".join(map(str, MINIMUM_TORCH))
    remedy = f"install it with `pip install 'torch>={wanted}'`"
    import torch

    version = str(torch.__version__)
    if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < MINIMUM_TORCH:
        return Check("torch", Verdict.PROBLEM, version, remedy)
    return Check("torch", Verdict.OK, version)


def _encoding() -> Check:
    encoding = locale.getpreferredencoding(False)
    if _reads_utf8():
        return Check("text encoding", Verdict.OK, encoding)
    found = f"{encoding}: PyTorch reads files of its own, such as Inductor's, in the encoding of the locale, and fails"
    return Check("text encoding", Verdict.PROBLEM, found, "set PYTHONUTF8=1, or a locale with UTF-8 (LC_ALL=C.UTF-8)")


def _reads_utf8() -> bool:
    """Whether a file that is opened as text may hold UTF-8."""
    try:
        "\N{HORIZONTAL ELLIPSIS}".encode().decode(locale.getpreferredencoding(False))
    except UnicodeDecodeError:
        return False
    return True


def _cpu() -> Check:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return Check("device cpu", Verdict.OK, f"{torch.get_num_threads()} threads, torch kernels {capability}")


def _cuda() -> Check:
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        return Check("device cuda", Verdict.OK, names)
    if torch.version.cuda is None:
        return Check("device cuda", Verdict.ABSENT, "this torch is built without it", "nothing, unless wanted")
    return Check("device cuda", Verdict.ABSENT, "no GPU or no driver", "nothing, unless wanted: check `nvidia-smi`")


def _npu() -> Check:
    if importlib.util.find_spec("torch_npu") is None:
        return Check("device npu", Verdict.ABSENT, "torch_npu is not installed", "nothing, unless wanted")
    try:
        version = importlib.metadata.version("torch_npu")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown version"
    # Importing it would initialise the card; torch does so itself where it can be loaded.
    return Check("device npu", Verdict.OK, f"torch_npu {version}")


def _engine() -> Iterator[Check]:
    """The native engine, and the compiler, which matters only when the engine is missing."""
    compiler = _find_compiler()
    try:
        from airgraph.runtime.engine.loading import engine_status
    except ImportError as error:
        yield Check("native engine", Verdict.PROBLEM, f"airgraph.runtime.engine cannot be imported: {error}", REINSTALL)
        return
    try:
        status = engine_status()
    except OptionError as error:
        yield Check("native engine", Verdict.PROBLEM, str(error).rstrip("."), f"unset {environment.ENGINE.name}")
        return
    if status.loaded:
        yield Check("native engine", Verdict.OK, f"{status.path}, {status.kernels} kernels of its own")
        yield Check("SIMD level", Verdict.OK, status.simd_level)
    else:
        found = f"not loaded, pure-Python replay instead: {status.problem or 'no reason given'}"
        remedy = status.remedy or REINSTALL
        yield Check("native engine", Verdict.WARNING, found, remedy)
        yield Check("SIMD level", Verdict.WARNING, "none without the native engine", "see native engine")
    if compiler is not None:
        yield Check("C++ compiler", Verdict.OK, compiler)
    elif status.loaded:
        yield Check("C++ compiler", Verdict.ABSENT, "none, and none needed: the engine is built")
    else:
        yield Check(
            "C++ compiler",
            Verdict.WARNING,
            "none found",
            "install one, such as `apt-get install g++`, or set CXX",
        )


def _find_compiler() -> str | None:
    return next((path for path in map(shutil.which, environment.compilers(*COMPILERS)) if path is not None), None)


def _backend_name() -> Check:
    from airgraph.torch_internals import dynamo

    name = 'backend="airgraph"'
    if "airgraph" in dynamo.backend_names():
        return Check(name, Verdict.OK, "known to torch.compile")
    return Check(name, Verdict.WARNING, "unknown to torch.compile", f"{REINSTALL}, or pass airgraph.get_backend()")


def _internals() -> Check:
    name = "PyTorch's internals"
    asked = [(each, is_there(each)) for each in INTERNALS]
    gone = [each for each, there in asked if there is False]
    if gone:
        found = "; ".join(f"{_names(each)} gone: {each.used_for}" for each in gone)
        return Check(
            name,
            Verdict.WARNING,
            found,
            "use a torch that airgraph is tested with, see installation.md in its documentation",
        )
    return Check(name, Verdict.OK, f"all {sum(len(each.names) for each, there in asked if there)} names are there")


def _each_internal() -> Iterator[Check]:
    verdicts = {True: Verdict.OK, False: Verdict.WARNING, None: Verdict.ABSENT}
    for each in INTERNALS:
        found = f"for {each.used_for}; seen in torch {each.seen_in}"
        yield Check(_names(each), verdicts[is_there(each)], found, f"goes with: {each.until}")


def _names(each: Internal) -> str:
    return f"{each.place}: {', '.join(each.names)}"


def _demo_weights() -> Check:
    try:
        models.check_available("smollm2")
    except CommandError as error:
        return Check("demo weights", Verdict.WARNING, str(error).split(": ")[0], str(error).split(": ")[-1])
    return Check("demo weights", Verdict.OK, str(models.find_smollm2()))
