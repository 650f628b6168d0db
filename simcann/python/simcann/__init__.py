# SPDX-License-Identifier: Apache-2.0
"""Run the real torch_npu without a card: its libraries' names, provided by a simulated Ascend runtime.

`enable()` does it inside a process, `python -m simcann SCRIPT` for a whole program. See the README for what a pass
proves and what it does not.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from functools import partial
from pathlib import Path

from simdevice.failures import Failures
from simdevice.settings import read_settings as _read_settings

from simdevice import NotAvailable, torch_folder

__all__ = ["NotAvailable", "enable", "fail_nothing", "fail_once", "read_settings"]

# In this order: libopapi needs libascendcl and libnnopbase. Once loaded, all are found by name.
LIBRARIES = (
    "libascendcl.so",
    "libhccl.so",
    "libgraph.so",
    "libge_runner.so",
    "libacl_op_compiler.so",
    "libacl_tdt_channel.so",
    "libfmk_parser.so",
    "libascend_protobuf.so",
    "libnnopbase.so",
    "libopapi.so",
)

# torch's own, which libopapi needs; the first is what `import torch` itself loads first.
TORCH_LIBRARIES = ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so")

BUILD_COMMAND = "cmake -S simcann -B simcann/build && cmake --build simcann/build -j2"

_loaded: list[ctypes.CDLL] = []

_failures = Failures("libascendcl.so", "simcann")
fail_once, fail_nothing = _failures.fail_once, _failures.fail_nothing
read_settings = partial(_read_settings, "libascendcl.so", "simcann")


def enable() -> None:
    """Load the simulated runtime, so that torch_npu uses it. Call it before the first `import torch`.

    Environment variables named SIMCANN_... are read now or at the first use of the device; the README lists them.
    A second call does nothing. Raises NotAvailable if torch_npu was imported before, is not installed, or if the
    libraries have not been built.
    """
    if _loaded:
        return
    if "torch_npu" in sys.modules:
        raise NotAvailable("torch_npu has been imported already; call simcann.enable() before importing torch.")
    if importlib.util.find_spec("torch_npu") is None:
        raise NotAvailable(
            f"torch_npu is not installed in {sys.prefix}. Make an environment that has it: simcann/make_env.sh"
        )
    paths = [_library_folder() / name for name in LIBRARIES]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        raise NotAvailable(f"{', '.join(missing)} not found in {_library_folder()}. Build simcann: {BUILD_COMMAND}")

    # With torch_npu's default, a queue of its own between operators and the runtime, an operator that fails is
    # reported later, and from then on nothing works in the process. Without it every failure belongs to its operator.
    os.environ.setdefault("TASK_QUEUE_ENABLE", "0")
    for path in [*(torch_folder() / "lib" / name for name in TORCH_LIBRARIES), *paths]:
        _loaded.append(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL))


def _library_folder() -> Path:
    return Path(__file__).resolve().parents[2] / "build" / "lib"
