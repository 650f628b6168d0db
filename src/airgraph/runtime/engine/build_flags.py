"""How the native engine is compiled: one place for the build at install and the build at first use.

`setup.py` loads this file by its path, so it imports nothing of the package.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["compile_args", "sources", "units"]


def sources(root: Path) -> list[str]:
    """The engine's C++ files, relative to the folder that holds `csrc`."""
    return sorted(str(path.relative_to(root)) for path in (root / "csrc").rglob("*.cpp"))


# Folders that are compiled with another, since they need the same of torch's headers.
_WITH = dict.fromkeys(("bindings", "cache", "internals"), "python")


def units(root: Path, build: Path) -> list[Path]:
    """What the compiler is given: a file for a folder of sources or some, which includes those.

    It reads torch's headers once for each, which takes longer than our own files. The files are written to the folder
    `build` where they are not there already. The largest come first, so that none is alone at the end of a build.
    """
    folders: dict[str, list[Path]] = {}
    for path in sources(root):
        folder = (root / path).parent.name
        folders.setdefault(_WITH.get(folder, folder), []).append(root / path)
    found = []
    for name, held in folders.items():
        unit = build / f"{name}.cpp"
        _write_once(unit, "".join(f'#include "{os.path.relpath(path, build)}"\n' for path in held))
        found.append((sum(path.stat().st_size for path in held), unit))
    return [path for _, path in sorted(found, reverse=True)]


def _write_once(path: Path, text: str) -> None:
    """As a build leaves it: a file that is written again would be compiled again."""
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def compile_args(*, strict: bool = False) -> list[str]:
    """The compiler's arguments. No -march: kernels that differ by SIMD level are torch's own, which choose at run time.

    strict: warnings are errors, in our code only, since torch's headers are system headers. For CI: a compiler or a
    Python that is newer than ours may warn of more, and must not keep anyone from installing.
    """
    from torch.utils.cpp_extension import include_paths

    # Of torch's own, 2.11 asks for C++17.
    args = ["-std=c++20", "-O2", "-g0", "-Wall", "-Wextra", *(["-Werror"] if strict else []), "-fvisibility=hidden"]
    # A header of torch's for each operator instead of one for all, which takes ten seconds.
    args.append("-DAT_PER_OPERATOR_HEADERS")
    if platform.machine() in ("x86_64", "AMD64"):
        # The layout of torch's dispatch stubs depends on these; torch itself is built with both.
        args += ["-DHAVE_AVX512_CPU_DEFINITION", "-DHAVE_AVX2_CPU_DEFINITION"]
    for path in include_paths():
        args += ["-isystem", path]
    return args
