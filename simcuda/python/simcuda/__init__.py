# SPDX-License-Identifier: Apache-2.0
"""Run the real CUDA build of PyTorch without a card: its libraries' names, provided by a simulated CUDA runtime.

`enable()` does it inside a process, `python -m simcuda SCRIPT` for a whole program. See the README for what a pass
proves and what it does not.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import partial
from pathlib import Path

from simdevice.failures import Failures
from simdevice.settings import read_settings as _read_settings

from simdevice import NotAvailable, torch_folder

__all__ = ["NotAvailable", "enable", "fail_nothing", "fail_once", "read_settings"]

BUILD_COMMAND = "cmake -S simcuda -B simcuda/build && cmake --build simcuda/build -j2"
RUNTIME = "libcudart.so.13"
KERNELS = "libsimcuda_kernels.so"

_loaded: list[ctypes.CDLL] = []

_failures = Failures(RUNTIME, "simcuda")
fail_once, fail_nothing = _failures.fail_once, _failures.fail_nothing
read_settings = partial(_read_settings, RUNTIME, "simcuda")


def enable() -> None:
    """Load the simulated runtime, import torch on it, and serve ATen's CUDA operators by its CPU kernels.

    Call it before the first `import torch`. Environment variables named SIMCUDA_... are read now; the README lists
    them. A second call does nothing. Raises NotAvailable if torch was imported before, has no CUDA build here, or if
    the libraries have not been built.
    """
    if _loaded:
        return
    if "torch" in sys.modules:
        raise NotAvailable("torch has been imported already; call simcuda.enable() before importing it.")
    torch_at = torch_folder()
    if not (torch_at / "lib" / "libtorch_cuda.so").exists():
        raise NotAvailable(
            f"torch in {torch_at.parent} is not a CUDA build. Make an environment that has one: simcuda/make_env.sh"
        )
    folder = _library_folder()
    if not (folder / KERNELS).exists():
        raise NotAvailable(f"{KERNELS} not found in {folder}. Build simcuda: {BUILD_COMMAND}")

    # Compiled kernels are not run: nothing is to be loaded for them, and what torch compiles itself is not asked for.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    others = sorted(path for path in folder.glob("lib*.so.*") if path.name != RUNTIME)
    for path in [folder / RUNTIME, *others]:
        _loaded.append(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL))
    import torch

    kernels = ctypes.CDLL(str(folder / KERNELS), mode=ctypes.RTLD_GLOBAL)
    kernels.simcuda_serve_operators()
    # With the first use of the device, until which a process can be forked.
    torch.cuda._lazy_call(kernels.simcuda_poison_what_is_freed)
    _loaded.append(kernels)


def _library_folder() -> Path:
    return Path(__file__).resolve().parents[2] / "build" / "lib"
