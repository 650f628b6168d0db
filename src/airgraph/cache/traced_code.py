"""Whether the Python code that was traced is still the same: files by their content, code without a file by itself."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch

from airgraph.cache.graph_format import Unwritable
from airgraph.program.code_identity import digest_of_code

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
    for code in {digest_of_code(code): code for code in traced}.values():
        file = code.co_filename
        if file.startswith(_TORCH_FOLDER) or _is_generated(code):
            continue
        checksum = _of_file(file)
        if checksum is None:
            file = _TYPED + _qualified_name(code)
            checksum = digest_of_code(code)
            if _of_typed(file) != checksum:
                raise Unwritable(f"the code of {code.co_name} is in no file, so that a change would not be seen")
        elif not _is_in_file(code, file):
            raise Unwritable(
                f"{file} was edited after it was imported, or does not hold the code of {code.co_name} as it runs"
            )
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


def _is_in_file(code: CodeType, file: str) -> bool:
    """Whether a file holds this code now: what was imported may be an earlier version of it."""
    try:
        whole = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return False
    return (code.co_name, digest_of_code(code)) in set(_named(whole))


def _named(code: CodeType) -> Iterator[tuple[str, str]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_name, digest_of_code(constant)
            yield from _named(constant)


def _qualified_name(code: CodeType) -> str:
    """Python 3.10 knows only its last part; there the main module and its classes are searched for the code."""
    known: str | None = getattr(code, "co_qualname", None)
    if known is not None:
        return known
    namespace = getattr(sys.modules.get("__main__"), "__dict__", {})
    return next(_places_of(digest_of_code(code), namespace, set()), code.co_name)


def _places_of(digest: str, namespace: Mapping[str, Any], entered: set[type]) -> Iterator[str]:
    for name, value in list(namespace.items()):
        if isinstance(value, FunctionType) and digest_of_code(value.__code__) == digest:
            yield name
        elif isinstance(value, type) and value.__module__ == "__main__" and value not in entered:
            entered.add(value)
            yield from (f"{name}.{place}" for place in _places_of(digest, vars(value), entered))


def _of_typed(name: str) -> str | None:
    """Of the function or method of this qualified name in the main module."""
    found: Any = sys.modules.get("__main__")
    for part in name.removeprefix(_TYPED).split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    code = getattr(found, "__code__", None)
    return digest_of_code(code) if isinstance(code, CodeType) else None
