"""Compiles what talks to Python against the headers of the Pythons that airgraph is for, and links nothing.

    python tests/engine/check_headers.py [--download] [--every | VERSION ...]

By default those between which the engine's own code differs, and the newest; what compiles on both sides of another
compiles on it, but for what Python had in between only.

torch's headers are those of the running Python: they are the same for all. A version whose headers are not here is
left out, with a line that says so; with --download they are looked for in Debian's packages too.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from python_headers import downloaded_headers, installed_headers

_ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT / "src" / "airgraph" / "runtime" / "engine"))
import build_flags  # noqa: E402

# The tests run on 3.11. The newest is one that torch has no wheel for yet.
EVERY = ("3.10", "3.12", "3.13", "3.14", "3.15")
SOME = ("3.10", "3.12", "3.15")
_OURS = re.compile(r'#include "([^"]+)"')
# forward_grad.h alone is of the library that knows no Python.
_PYTHONS = re.compile(r"#include <(Python\.h|pybind11/|torch/extension\.h|torch/csrc/(?!autograd/forward_grad\.h))")


def python_facing(root: Path, build: Path) -> list[Path]:
    """The folders of the engine that see Python's headers, each as one file."""
    return [unit for unit in build_flags.units(root, build) if _sees_python(unit)]


def _together(units: list[Path], build: Path) -> Path:
    """One file for all of them: most of the time goes to torch's headers."""
    path = build / "python_facing.cpp"
    path.write_text("".join(f'#include "{unit}"\n' for unit in units))
    return path


def _sees_python(path: Path) -> bool:
    text = path.read_text()
    if _PYTHONS.search(text):
        return True
    return any((path.parent / name).is_file() and _sees_python(path.parent / name) for name in _OURS.findall(text))


def _command(source: Path, include: list[Path]) -> list[str]:
    # The standard and the names are those of torch's own extension builder.
    named = ["-std=c++20", "-DTORCH_EXTENSION_NAME=_engine", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    folders = [part for folder in include for part in ("-isystem", str(folder))]
    compiler = os.environ.get("CXX", "c++")
    return [compiler, "-fsyntax-only", *named, *build_flags.compile_args(strict=True), *folders, str(source)]


def _headers(versions: list[str], *, download: bool) -> dict[str, list[Path]]:
    """What to include for each version that is to be had; names the others."""
    found = {}
    for version in versions:
        include = installed_headers(version)
        if include is None and download:
            include = downloaded_headers(version, _ROOT / "build" / "python-headers")
        if include is not None:
            found[version] = include
    missing = [version for version in versions if version not in found]
    if missing:
        print(f"no headers of Python {', '.join(missing)} here: not compiled against them", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--download", action="store_true", help="look for headers in Debian's packages too")
    parser.add_argument("--every", action="store_true", help=f"against {' '.join(EVERY)}")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"default: {' '.join(SOME)}")
    asked = parser.parse_args()
    headers = _headers(asked.versions or list(EVERY if asked.every else SOME), download=asked.download)
    build = _ROOT / "build" / "headers"
    unit = _together(python_facing(_ROOT, build), build)
    commands = [_command(unit, include) for include in headers.values()]
    failed = 0
    with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))) as pool:
        for version, run in zip(headers, pool.map(_run, commands), strict=True):
            if run.returncode != 0:
                failed += 1
                print(f"the engine does not compile on Python {version}:\n{run.stderr}", flush=True)
    print(f"the engine compiled on {len(headers) - failed} of {len(headers)}: Python {', '.join(headers) or '(none)'}")
    return 1 if failed else 0


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
