"""How the native engine is compiled: one place for the build at install and the build at first use.

`setup.py` loads this file by its path, so it imports nothing of the package.
"""

from __future__ import annotations

import platform
from pathlib import Path

__all__ = ["compile_args", "sources"]


def sources(root: Path) -> list[str]:
    """The engine's C++ files, relative to the folder that holds `csrc`."""
    return sorted(str(path.relative_to(root)) for path in (root / "csrc").rglob("*.cpp"))


def compile_args(*, strict: bool = False) -> list[str]:
    """The compiler's arguments. No -march: kernels that differ by SIMD level are torch's own, which choose at run time.

    strict: warnings are errors, in our code only, since torch's headers are system headers. For CI: a compiler or a
    Python that is newer than ours may warn of more, and must not keep anyone from installing.
    """
    from torch.utils.cpp_extension import include_paths

    args = ["-O2", "-g0", "-Wall", "-Wextra", *(["-Werror"] if strict else []), "-fvisibility=hidden"]
    if platform.machine() in ("x86_64", "AMD64"):
        # The layout of torch's dispatch stubs depends on these; torch itself is built with both.
        args += ["-DHAVE_AVX512_CPU_DEFINITION", "-DHAVE_AVX2_CPU_DEFINITION"]
    for path in include_paths():
        args += ["-isystem", path]
    return args
