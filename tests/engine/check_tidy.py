"""Runs clang-tidy on the engine, a folder as one file: PyTorch's headers are read once for each, which takes seconds.

    python tests/engine/check_tidy.py

What is checked is in .clang-tidy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT / "src" / "airgraph" / "runtime" / "engine"))
import build_flags  # noqa: E402


def _check(unit: Path) -> subprocess.CompletedProcess[str]:
    named = ["-std=c++20", "-DTORCH_EXTENSION_NAME=_engine", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    flags = [*build_flags.compile_args(), *named, "-isystem", sysconfig.get_path("include"), "-w"]
    command = ["clang-tidy", "--quiet", f"--config-file={_ROOT / '.clang-tidy'}", str(unit), "--", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    units = build_flags.units(_ROOT, _ROOT / "build" / "tidy")
    failed = 0
    with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))) as pool:
        for unit, run in zip(units, pool.map(_check, units), strict=True):
            if run.returncode != 0:
                failed += 1
                print(f"{unit.stem}:\n{run.stdout}{run.stderr}", flush=True)
    print(f"clang-tidy: {len(units) - failed} of {len(units)} are clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
