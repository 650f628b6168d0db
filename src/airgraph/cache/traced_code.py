"""Whether the Python code that was traced is still the same: files by their content, code without a file by itself."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from airgraph.cache.code_identity import digest_of_code
from airgraph.cache.graph_format import Unwritable

__all__ = ["checksums", "what_changed"]

_TORCH_FOLDER = f"{Path(torch.__file__).parent}{os.sep}"
# Code that was typed in, or made by exec, is found again by its name in the main module.
_TYPED = "__main__:"
_LARGEST_FILE = 1 << 26


def checksums(traced: Iterable[CodeType]) -> dict[str, str]:
    """SHA-256 of each file whose code was traced; torch's own stand in the fingerprint by its version.

    Raises Unwritable for code that could not be compared at another start, or that is not what its file holds now.
    """
    found: dict[str, str] = {}
    for code in traced:
        file = code.co_filename
        if file.startswith(_TORCH_FOLDER) or file in found or _is_generated(code):
            continue
        checksum = _of_file(file)
        if checksum is None:
            file = _TYPED + getattr(code, "co_qualname", code.co_name)
            checksum = digest_of_code(code)
            if _of_typed(file) != checksum:
                raise Unwritable(f"the code of {code.co_name} is in no file, so that a change would not be seen")
        elif _was_edited(file):
            raise Unwritable(f"{file} was edited after it was imported")
        found[file] = checksum
    return dict(sorted(found.items()))


def what_changed(recorded: Mapping[str, str]) -> str | None:
    """The first file or function of `checksums` that is not as it was, or None."""
    for name, checksum in recorded.items():
        if (_of_typed(name) if name.startswith(_TYPED) else _of_file(name)) != checksum:
            return name
    return None


def _of_file(file: str) -> str | None:
    """None for what is no ordinary file."""
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > _LARGEST_FILE:
            return None
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def _is_generated(code: CodeType) -> bool:
    """Whether it is of a dataclass or named tuple, which follows from its fields, or of Python itself."""
    of_tuple = code.co_names == ("_tuple_new",)
    of_dataclass = code.co_name in ("__init__", "__eq__", "__repr__", "__hash__")
    # What Python carries frozen in itself goes by its version.
    return code.co_filename.startswith("<frozen ") or (code.co_filename == "<string>" and (of_tuple or of_dataclass))


def _was_edited(file: str) -> bool:
    """Whether Python's compiled form of a file, as it was written when it was imported, is of another version of it."""
    try:
        compiled = Path(importlib.util.cache_from_source(file))
        with compiled.open("rb") as opened:
            header = opened.read(16)
        state = os.stat(file)
    except (OSError, ValueError, NotImplementedError):
        return False
    flags, modified, size = (int.from_bytes(header[start : start + 4], "little") for start in (4, 8, 12))
    return flags == 0 and (modified, size) != (int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF)


def _of_typed(name: str) -> str | None:
    """Of the function or method of this qualified name in the main module."""
    found: Any = sys.modules.get("__main__")
    for part in name.removeprefix(_TYPED).split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    code = getattr(found, "__code__", None)
    return digest_of_code(code) if isinstance(code, CodeType) else None
