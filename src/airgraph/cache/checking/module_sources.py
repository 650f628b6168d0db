"""Whether the Python modules that a trace has used are still the same: files by their content, code without a file by
itself. A module is found by its name, as the process that asks has loaded it, or would."""

from __future__ import annotations

import builtins
import functools
import hashlib
import os
import stat
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from airgraph.cache.format.source import Source
from airgraph.errors import Unwritable
from airgraph.program.code_identity import digest_of_code, goes_by_version, is_code, is_under_torch
from airgraph.program.held_values import digest_of_value
from airgraph.program.names_read import (
    MISSING,
    UsedCode,
    goes_through_values,
    held_by,
    is_at_hand,
    named_function,
    names_in,
    nested,
    qualified_name,
    reads_by_text,
    reads_of,
)

__all__ = [
    "UsedCode",
    "absent_among",
    "builtins_among",
    "depends_on_hashes",
    "namespace_of",
    "sources_of",
    "what_changed",
]

_LARGEST_FILE = 1 << 26
# Marks a source that is the value of a global.
_VALUE = "="
# Digest of a global that a module did not have.
_ABSENT = ""


def sources_of(
    used: Iterable[UsedCode], modules: Iterable[str], function_globals: Mapping[str, Any]
) -> tuple[Source, ...]:
    """Of all modules whose code was used, and of those named. function_globals: of the function that is cached.

    Raises Unwritable for code that could not be compared at another start, or that is not what its file holds now.
    """
    found: dict[str, Source] = {}
    namespaces: dict[str, Mapping[str, Any]] = {}
    codes: dict[str, list[CodeType]] = {}
    own = [each for each in used if not each.is_foreign]
    modules = {*modules, *(name for each in own for name in _modules_named(each))}
    for each in own:
        found.update((source.name, source) for source in _builtins_of(each))
        if not each.inlined:
            # Dynamo guards what code that it inlines reads, and of this one nothing.
            is_found_again = is_at_hand(each, function_globals)
            if not is_found_again:
                _check_not_at_hand(each)
            found.update((source.name, source) for source in _values_of(each, is_found_again=is_found_again))
        namespaces.setdefault(each.module, each.namespace)
        if not each.code.co_filename.startswith("<"):
            codes.setdefault(each.module, []).append(each.code)
        elif each.inlined and not _follows_from_fields(each.code):
            source = _of_typed(each)
            found[source.name] = source
    for name in modules:
        if not goes_by_version(name):
            namespaces.setdefault(name, getattr(sys.modules.get(name), "__dict__", {}))
    for name, namespace in namespaces.items():
        file = _file_of(namespace)
        checksum = None if file is None else _checksum(file)
        if file is None or checksum is None:
            # Of a module without a file what was inlined is compared by itself, and so are its classes.
            for code in codes.get(name, ()):
                source = _of_code(UsedCode(code, namespace, inlined=True))
                found[source.name] = source
            continue
        _check_loaded(codes.get(name, ()), file)
        found[name] = Source(name, "", file, checksum)
    return tuple(found[name] for name in sorted(found))


def depends_on_hashes(used: Iterable[UsedCode], function_globals: Mapping[str, Any]) -> bool:
    """Whether code below Dynamo reads sets that have another order in each process."""
    own = (each for each in used if not each.is_foreign and not each.inlined and is_at_hand(each, function_globals))
    return any(
        digest_of_value(value).depends_on_hashes
        for each in own
        for _, _, value in reads_of(each)
        if not isinstance(value, types.ModuleType)
    )


def builtins_among(recorded: Iterable[Source]) -> list[str]:
    """The names of Python's own functions that were used."""
    return [each.function.removeprefix(_VALUE) for each in recorded if each.module == builtins.__name__]


def absent_among(recorded: Iterable[Source]) -> list[tuple[str, str]]:
    """Modules, and the names of Python's own functions that their code used, and no global of theirs came before."""
    return [
        (each.module, each.function.removeprefix(_VALUE))
        for each in recorded
        if each.function.startswith(_VALUE) and each.digest == _ABSENT
    ]


def what_changed(recorded: Iterable[Source], namespace: Mapping[str, Any] | None = None) -> str | None:
    """The first file or function that is not as it was, or None. namespace: the globals of the cached function, whose
    module may be found in no other way; None where no function is at hand: then files are looked at where they were,
    and what modules hold is not."""
    for source in recorded:
        if namespace is None:
            now = source.digest if source.function else _checksum(source.file)
        elif source.function.startswith(_VALUE):
            name, held = source.function.removeprefix(_VALUE), namespace_of(source.module, namespace)
            if not held and os.path.isfile(source.file):
                # Of a module that is not loaded yet; its file is compared.
                continue
            value = held_by(held, name)
            now = _ABSENT if value is MISSING else digest_of_value(value).text
        elif source.function:
            function = named_function(namespace_of(source.module, namespace), source.function)
            now = None if function is None else digest_of_code(function.__code__)
        else:
            file = _file_of(namespace_of(source.module, namespace)) or _would_load(source.module) or source.file
            now = _checksum(file)
        if now != source.digest:
            return source.name
    return None


def _check_not_at_hand(each: UsedCode) -> None:
    """Raises Unwritable for code that ran while tracing, in a module that another start could not find again."""
    if not each.code.co_filename.startswith("<") and not _lies_in_its_module(each):
        raise Unwritable(
            f"{each.code.co_name} ran while tracing, and its module {each.module} is not among sys.modules"
        )


def _lies_in_its_module(each: UsedCode) -> bool:
    """Whether it is of a package that has put something else in its place: its file at least is compared."""
    held = getattr(sys.modules.get(each.module), "__dict__", {})
    return held.get("__file__") is not None and held["__file__"] == each.namespace.get("__file__")


def _goes_by_itself(value: Any, *, lies_in_its_module: bool) -> bool:
    """Whether it is code of Python's or PyTorch's, or of a file that is compared, and holds nothing."""
    if not is_code(value):
        return False
    if isinstance(value, FunctionType) and lies_in_its_module:
        return not (value.__defaults__ or value.__kwdefaults__ or value.__closure__)
    module = getattr(value, "__module__", None) or type(value).__module__
    return isinstance(value, types.ModuleType) or goes_by_version(module)


def _builtins_of(each: UsedCode) -> Iterator[Source]:
    """Those that it names: somebody may have replaced them for all modules, or may put a global of that name before
    them, neither of which Dynamo guards."""
    file = _file_of(each.namespace) or ""
    for name in sorted(names_in(each.code) & vars(builtins).keys() - each.namespace.keys()):
        yield Source(builtins.__name__, f"{_VALUE}{name}", "", digest_of_value(vars(builtins)[name]).text)
        yield Source(each.module, f"{_VALUE}{name}", file, _ABSENT)


def _modules_named(each: UsedCode) -> Iterator[str]:
    """The modules that it looks into, and those of the functions and classes that it calls."""
    for _, _, value in reads_of(each):
        if isinstance(value, types.ModuleType):
            name = value.__name__
        elif isinstance(value, (FunctionType, type)):
            name = str(value.__module__)
        else:
            name = str(type(value).__module__)
        if name in sys.modules and not goes_by_version(name) and not is_under_torch(name):
            yield name


def _values_of(each: UsedCode, *, is_found_again: bool) -> Iterator[Source]:
    """What it reads, as far as names say it; a module may hold anything, so that its file alone says too little.

    is_found_again: whether its module is, by its name.
    """
    file = _file_of(each.namespace) or ""
    for module, name, value in (*reads_of(each), *reads_by_text(each)):
        if value is sys.modules:
            raise Unwritable("code that ran while tracing looks at sys.modules, which may hold others at another start")
        if module == each.module and not is_found_again:
            if not _goes_by_itself(value, lies_in_its_module=_lies_in_its_module(each)):
                raise Unwritable(
                    f"{each.code.co_name} ran while tracing and reads {name}, and its module {module} is not found "
                    "again by its name"
                )
        elif not isinstance(value, types.ModuleType):
            try:
                held = digest_of_value(value)
            except Unwritable:
                if goes_by_version(module):
                    continue
                raise
            if held.depends_on_addresses and goes_through_values(each.code):
                raise Unwritable(f"{each.code.co_name} ran while tracing, and the order of {name} is that of addresses")
            yield Source(module, f"{_VALUE}{name}", file, held.text)


def namespace_of(module: str, namespace: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What a module of this name holds; nothing if it is not loaded. namespace: the globals of the cached function."""
    if namespace is not None and namespace.get("__name__") == module:
        return namespace
    return getattr(sys.modules.get(module), "__dict__", {})


def _file_of(namespace: Mapping[str, Any]) -> str | None:
    """The source file of a module; a compiled one counts itself."""
    file = namespace.get("__file__")
    return os.path.abspath(file) if isinstance(file, str) else None


def _would_load(module: str) -> str | None:
    """The file of a module that is not loaded yet. Imports nothing."""
    path: Any = None
    spec = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            spec = PathFinder.find_spec(name, path)
        except (ImportError, ValueError, OSError):
            return None
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return spec.origin if spec is not None and spec.has_location else None


def _checksum(file: str) -> str | None:
    """None for what is no ordinary file."""
    try:
        state = os.stat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST_FILE:
            return None
        return _checksum_of(file, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size)
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def _checksum_of(file: str, *state: int) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _check_loaded(codes: Iterable[CodeType], file: str) -> None:
    """Raises Unwritable where a file does not hold code of its module now: what was imported may be an earlier one."""
    codes = list(codes)
    if not codes or not file.endswith(".py"):
        return
    held: set[tuple[str, str]] | None = None
    for code in codes:
        if os.path.abspath(code.co_filename) != file:
            # Of another file, such as one that was edited and loaded again from elsewhere.
            raise Unwritable(f"{code.co_name} of {file} comes from {code.co_filename}")
        if held is None:
            held = _codes_in(file)
        if (code.co_name, digest_of_code(code)) not in held:
            raise Unwritable(
                f"{file} was edited after it was imported, or does not hold the code of {code.co_name} as it runs"
            )


def _codes_in(file: str) -> set[tuple[str, str]]:
    state = os.stat(file)
    return _codes_of(file, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size)


@functools.lru_cache(maxsize=64)
def _codes_of(file: str, *state: int) -> set[tuple[str, str]]:
    try:
        return set(_named(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)))
    except (OSError, SyntaxError, ValueError):
        return set()


def _named(code: CodeType) -> Iterator[tuple[str, str]]:
    return ((name, digest_of_code(each)) for name, each in nested(code))


def _follows_from_fields(code: CodeType) -> bool:
    """Whether it was written by dataclasses or collections, for a class that is compared by what it defines."""
    of_tuple = code.co_names == ("_tuple_new",)
    of_dataclass = code.co_name in ("__init__", "__eq__", "__repr__", "__hash__")
    return code.co_filename == "<string>" and (of_tuple or of_dataclass)


def _of_code(each: UsedCode) -> Source:
    """Of code that is in a file, or typed in, while its module has none."""
    file = os.path.abspath(each.code.co_filename)
    checksum = _checksum(file)
    if checksum is None:
        return _of_typed(each)
    _check_loaded([each.code], file)
    return Source(each.module, "", file, checksum)


def _of_typed(each: UsedCode) -> Source:
    """Of code that was typed in, or made by exec: it is found again by its name in its module."""
    name = qualified_name(each.code, each.namespace)
    digest = digest_of_code(each.code)
    found = named_function(each.namespace, name)
    if found is None or digest_of_code(found.__code__) != digest:
        raise Unwritable(f"the code of {each.code.co_name} is in no file, so that a change would not be seen")
    return Source(each.module, name, each.code.co_filename, digest)
