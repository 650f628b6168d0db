"""The environment variables that the package reads, and the only place that reads them.

`airgraph_command` asks for one of them by itself, to tell why the package cannot be imported.

Each is read when it is needed, not when the package is imported. docs/environment.md is generated from `VARIABLES`.
Variables that a cached graph depends on are those of the user's program, and are read by `cache/`.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from airgraph.errors import OptionError

__all__ = [
    "CACHE_DIR",
    "CPU_DOTS",
    "CXX",
    "ENGINE",
    "TORCH_COMPILE_DEBUG",
    "TORCHAIR_CACHE_HOME",
    "TRACEBACK",
    "VARIABLES",
    "XDG_CACHE_HOME",
    "Variable",
    "cache_folder",
    "compilers",
    "cpu_dots_wanted",
    "python_engine_wanted",
    "torch_dumps_wanted",
    "torchair_cache_folder",
    "traceback_wanted",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """An environment variable: what it decides, which values it takes, and what holds where it is not set.

    meaning, accepted and default are Markdown for docs/environment.md.
    """

    name: str
    meaning: str
    accepted: str
    default: str

    def read(self) -> str | None:
        """Its value now; None where it is not set."""
        return os.environ.get(self.name)


ENGINE = Variable(
    name="AIRGRAPH_ENGINE",
    meaning="what replays graphs on CPU: the native engine, or the same in Python, which is slow and shows whether a "
    "fault is the native engine's; graphs of other devices run eagerly without the native one; read once a process, at "
    "the first capture",
    accepted="`native`, `python`; another value raises `OptionError`",
    default="`native`",
)
CACHE_DIR = Variable(
    name="AIRGRAPH_CACHE_DIR",
    meaning="the folder of the compile cache (`graphs` in it), of an engine that is built at first use "
    "(`engine-...` in it) and of what was measured to choose kernels (`products.json` in it); "
    "`cache_dir=` of `cache_compile` goes before it",
    accepted="a path; it is made when something is written",
    default="`airgraph` in the user's cache folder",
)
CPU_DOTS = Variable(
    name="AIRGRAPH_CPU_DOTS",
    meaning="whether the native engine's kernels use AVX-512's VNNI and BF16 instructions, where the processor has "
    "them and `ATEN_CPU_CAPABILITY` does not forbid AVX-512; read once a process, at the first capture",
    accepted="`0`: no; anything else: yes",
    default="yes",
)
XDG_CACHE_HOME = Variable(
    name="XDG_CACHE_HOME",
    meaning="the user's cache folder, where `AIRGRAPH_CACHE_DIR` is not set",
    accepted="a path",
    default="`~/.cache`",
)
CXX = Variable(
    name="CXX",
    meaning="the C++ compiler that builds the engine at first use, in a checkout that was not installed; the compiler "
    "that `airgraph doctor` looks for",
    accepted="a program, by name or path; flags or a wrapper may go with it, as in `ccache g++`",
    default="`c++`; `airgraph doctor` also looks for `g++` and `clang++`",
)
TORCH_COMPILE_DEBUG = Variable(
    name="TORCH_COMPILE_DEBUG",
    meaning="PyTorch's own switch: `1` writes what each FX graph is before, between and after the passes into "
    "PyTorch's debug folder, unless the option `dump_dir` names another",
    accepted="`1`; anything else is off",
    default="off",
)
TORCHAIR_CACHE_HOME = Variable(
    name="TORCHAIR_CACHE_HOME",
    meaning="TorchAir's own: the folder of the compile cache of `airgraph.torchair`; `cache_dir=` of its "
    "`inference.cache_compile` goes before it",
    accepted="a path; it is made when something is written",
    default="`.torchair_cache` in the working directory",
)
TRACEBACK = Variable(
    name="AIRGRAPH_TRACEBACK",
    meaning="whether a command that fails prints the traceback before its line of error",
    accepted="empty or `0`: no; anything else: yes",
    default="no",
)

VARIABLES = (ENGINE, CPU_DOTS, CACHE_DIR, XDG_CACHE_HOME, CXX, TORCH_COMPILE_DEBUG, TORCHAIR_CACHE_HOME, TRACEBACK)


def python_engine_wanted() -> bool:
    """Whether replays run in Python although the native engine may be there. Raises OptionError for a bad value."""
    value = ENGINE.read() or "native"
    if value not in ("native", "python"):
        raise OptionError(f"environment variable {ENGINE.name}: expected 'native' or 'python', got {value!r}.")
    return value == "python"


def cpu_dots_wanted() -> bool:
    """Whether kernels on CPU may use instructions beyond those of ATen's levels."""
    return CPU_DOTS.read() != "0"


def cache_folder() -> Path:
    """The folder of all that is kept between processes; it may not exist yet."""
    given = CACHE_DIR.read()
    if given:
        return Path(given)
    return Path(XDG_CACHE_HOME.read() or Path.home() / ".cache") / "airgraph"


def torchair_cache_folder() -> Path:
    """Where graphs that are cached under TorchAir's names are kept; it may not exist yet."""
    return Path(TORCHAIR_CACHE_HOME.read() or ".torchair_cache")


def compilers(*defaults: str) -> tuple[str, ...]:
    """The program that the user chose to compile C++ with, or else the defaults, in order.

    CXX may carry a wrapper or flags, as in "ccache g++": the program is the first word.
    """
    chosen = shlex.split(CXX.read() or "")
    return tuple(chosen[:1]) or defaults


def torch_dumps_wanted() -> bool:
    """Whether PyTorch was told to write what it compiles into its debug folder."""
    return TORCH_COMPILE_DEBUG.read() == "1"


def traceback_wanted() -> bool:
    """Whether a failing command prints its traceback."""
    return TRACEBACK.read() not in (None, "", "0")
