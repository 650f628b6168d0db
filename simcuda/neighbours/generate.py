# SPDX-License-Identifier: Apache-2.0
"""Write the sources of the libraries beside libcudart that PyTorch's CUDA build names: generate.py TORCH_LIB FOLDER.

For each library FOLDER gets NAME.c, with a function for each symbol that torch wants of it, and NAME.map, its versions;
`libraries.txt` lists NAME and file name. A function that makes, ends or sets something succeeds and does nothing, any
other answers that it is not supported: no result is ever made up. The functions are weak, so that a hand-written file
of the same name (cublas.cpp, ...) says more of some.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HARMLESS = re.compile(
    r"Create|Destroy|Init|Free|Set|Get|Begin|End|Finalize|Register|Unregister|Open|Close|Plan|Enable|Flush"
)


@dataclass(frozen=True)
class Library:
    """A library beside libcudart: its file's name, the version of its symbols, and what "not supported" is in it."""

    file: str
    prefix: str
    version: str | None
    not_supported: int


LIBRARIES = {
    "cublas": Library("libcublas.so.13", "cublas", "libcublas.so.13", 15),
    "cublasLt": Library("libcublasLt.so.13", "cublasLt", "libcublasLt.so.13", 15),
    "cudnn": Library("libcudnn.so.9", "cudnn", "libcudnn.so.9", 3000),
    "cufft": Library("libcufft.so.12", "cufft", "libcufft.so.12", 16),
    "cufile": Library("libcufile.so.0", "cuFile", None, 5001),
    "cupti": Library("libcupti.so.13", "cupti", "libcupti.so.13", 27),
    "curand": Library("libcurand.so.10", "curand", None, 999),
    "cusolver": Library("libcusolver.so.12", "cusolver", "libcusolver.so.12", 9),
    "cusparse": Library("libcusparse.so.12", "cusparse", "libcusparse.so.12", 10),
    "cusparseLt": Library("libcusparseLt.so.0", "cusparseLt", None, 10),
    "nccl": Library("libnccl.so.2", "nccl", None, 3),
    "nvrtc": Library("libnvrtc.so.13", "nvrtc", "libnvrtc.so.13", 11),
    "nvshmem": Library("libnvshmem_host.so.3", "nvshmem", "NVSHMEM", 1),
    "cuda": Library("libcuda.so.1", "cu", None, 801),
}


@dataclass
class Wanted:
    """The symbols that torch wants of each library."""

    names: dict[str, set[str]] = field(default_factory=dict)

    def add(self, name: str, version: str | None) -> None:
        library = library_of(name, version)
        if library is not None:
            self.names.setdefault(library, set()).add(name)


def library_of(name: str, version: str | None) -> str | None:
    """The library that a symbol comes from: by its version, else by the longest prefix; None for any other library."""
    if version is not None:
        return next((key for key, library in LIBRARIES.items() if library.version == version), None)
    fitting = [key for key, library in LIBRARIES.items() if re.match(rf"(pnccl|{library.prefix})[A-Z_]", name)]
    return max(fitting, key=lambda key: len(LIBRARIES[key].prefix), default=None)


def wanted_of(folder: Path) -> Wanted:
    """Read the undefined symbols of all of torch's libraries."""
    wanted = Wanted()
    for path in sorted(folder.glob("lib*.so")):
        table = subprocess.run(["nm", "-D", "--undefined-only", str(path)], check=True, capture_output=True, text=True)
        for line in table.stdout.splitlines():
            name, _, version = line.split()[-1].partition("@")
            wanted.add(name, version.lstrip("@") or None)
    return wanted


def source(library: Library, names: set[str]) -> str:
    """The C file of a library. Arguments are not declared: none is looked at."""
    lines = ["// Written by generate.py.", '#define WEAK __attribute__((weak, visibility("default")))']
    for name in sorted(names):
        answer = 0 if HARMLESS.search(name) else library.not_supported
        lines.append(f"WEAK int {name}() {{ return {answer}; }}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write all files, the libraries that torch does not want anything of included: they have to exist."""
    torch_lib, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    wanted = wanted_of(torch_lib)
    lines = []
    for key, library in LIBRARIES.items():
        names = wanted.names.get(key, set())
        (folder / f"{key}.c").write_text(source(library, names))
        version = f"{library.version} {{ global: *; }};\n" if library.version else "{ global: *; };\n"
        (folder / f"{key}.map").write_text(version)
        lines.append(f"{key} {library.file}")
    (folder / "libraries.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
