"""Builds the native engine, `airgraph._engine`. Everything else about the package is in pyproject.toml."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from setuptools import setup

try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension, get_cxx_compiler
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise SystemExit(
        "airgraph: torch is needed to build the native engine. "
        "Run `pip install torch` first, then install airgraph with `pip install --no-build-isolation`."
    ) from None

ROOT = Path(__file__).resolve().parent
BUILD_FLAGS = Path("src/airgraph/runtime/engine/build_flags.py")


def load_build_flags() -> ModuleType:
    """The one place for sources and flags, shared with the build at run time.

    Loaded by path: the package itself cannot be imported before its engine exists.
    """
    spec = importlib.util.spec_from_file_location("airgraph_build_flags", ROOT / BUILD_FLAGS)
    if spec is None or spec.loader is None:
        raise SystemExit(f"airgraph: cannot load {BUILD_FLAGS}; the source tree is incomplete.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def relative(path: str | Path) -> str:
    """A path as setuptools wants it: relative to this file's folder, with forward slashes."""
    return (ROOT / path).relative_to(ROOT).as_posix()


def check_tools() -> None:
    """What compiling takes, asked first: the errors of what runs without it end in a traceback and name no remedy."""
    compiler = get_cxx_compiler()
    if shutil.which((shlex.split(compiler) or [compiler])[0]) is None:
        raise SystemExit(
            f"airgraph: there is no C++ compiler `{compiler}` to build the native engine with. Install one, such as "
            "with `apt-get install g++`, or set CXX to one that is here, then install airgraph again."
        )
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise SystemExit(
            f"airgraph: Python's headers are needed to build the native engine, and there is no {headers}/Python.h. "
            "Install them, such as with `apt-get install python3-dev`, then install airgraph again."
        )


class BuildEngine(BuildExtension):
    """Keeps the object files between builds, so that only what changed is compiled again."""

    def finalize_options(self) -> None:
        # An editable install would set a temporary folder here. One folder a torch version: its headers are
        # system headers to the compiler, so a change in them is not noticed.
        self.build_temp = f"build/engine-{sys.implementation.cache_tag}-torch-{torch.__version__}"
        super().finalize_options()

    def build_extensions(self) -> None:
        """Compiles a few files which include the sources; those stay what a source distribution lists."""
        check_tools()
        for extension in self.extensions:
            extension.depends += extension.sources
            extension.sources = [relative(unit) for unit in flags.units(ROOT, ROOT / self.build_temp / "units")]
        super().build_extensions()
        # Read before the engine is loaded, which with another torch may not even find its symbols.
        beside = Path(self.get_ext_fullpath("airgraph._engine")).parent / "_built_for.py"
        minor = ".".join(torch.__version__.split(".")[:2])
        beside.write_text(f'"""Written when the engine was built."""\n\nTORCH = "{minor}"\n', encoding="utf-8")


flags = load_build_flags()

setup(
    ext_modules=[
        CppExtension(
            "airgraph._engine",
            sources=sorted(relative(source) for source in flags.sources(ROOT)),
            # A change in any of these rebuilds the engine.
            depends=[
                *sorted(relative(header) for header in (ROOT / "csrc").rglob("*.h")),
                BUILD_FLAGS.as_posix(),
                "setup.py",
            ],
            # Set in CI. What is built at first use never asks.
            extra_compile_args={"cxx": flags.compile_args(strict=os.environ.get("AIRGRAPH_WERROR") == "1")},
        )
    ],
    cmdclass={"build_ext": BuildEngine},
)
