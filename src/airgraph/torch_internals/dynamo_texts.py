"""What Dynamo writes as text: globals and attributes of its own, keys of its nodes, errors, and paths that are none."""

from __future__ import annotations

import re
from types import CodeType

__all__ = [
    "ATTRIBUTES",
    "GLOBALS",
    "KEYS_OF_INPUTS",
    "START_PATHS",
    "calls_what_is_compiled",
    "global_for",
    "is_guarded_elsewhere",
    "name_of_imported",
    "reason_and_trace",
    "without_conversion",
]

_COMPILED = "__compiled_fn"
_IMPORTED = "__import_"
_AS_TENSOR = "___as_tensor("
# Parts of an error's text. The explanation is the same for all errors of a kind, but for what stands in backquotes.
_EXPLANATION = re.compile(r"^ *Explanation: (.+)$", re.MULTILINE)
_CONTEXT = re.compile(r"^ *Developer debug context: (.+)$", re.MULTILINE)
_USER_CODE = "from user code:"

# How the attributes begin that it sets of what it compiles.
ATTRIBUTES = ("_dynamo", "_torchdynamo")
# How the globals begin that it adds to a module which it compiles something of.
GLOBALS = ("__builtins_dict__", f"{_COMPILED}_", "__resume_at_", _IMPORTED, "_torchdynamo")
# How the globals begin that paths may start at, and that exist only while its code does.
START_PATHS = ("__builtins_dict__", "___unnamed_scope", _COMPILED, "__resume_at", "___stack", "__nested")
# What a placeholder's meta says of the value that it stands for.
KEYS_OF_INPUTS = ("grapharg", "example_value")


def calls_what_is_compiled(code: CodeType) -> bool:
    """Whether code calls what Dynamo has compiled, in place of the function that was traced."""
    return any(name.startswith(_COMPILED) for name in code.co_names)


def global_for(module: str) -> str:
    """The global that Dynamo adds for a module which it imports."""
    return f"{_IMPORTED}{module.replace('.', '_dot_')}"


def is_guarded_elsewhere(text: str) -> bool:
    """Whether a guard is on the key of a dict at a position, or on a mode of functions, which have guards besides."""
    return text.startswith(("list(dict.keys(", "___get_torch_function_mode"))


def name_of_imported(name: str) -> str | None:
    """The module that a global of Dynamo's stands for: `__import_a_dot_b` is `a.b`. None for other globals."""
    return name.removeprefix(_IMPORTED).replace("_dot_", ".") if name.startswith(_IMPORTED) else None


def reason_and_trace(text: str) -> tuple[str, str]:
    """Of an error's text: what failed, in one line, with the name of what stands in the way; and where, as a stack
    trace of the user's code, "" if it says nothing of it."""
    before, _, trace = text.partition(_USER_CODE)
    first = next((line.strip() for line in before.splitlines() if line.strip()), "")
    said = [found[1].strip() for found in (_EXPLANATION.search(before), _CONTEXT.search(before)) if found]
    detail = next((each for each in said if "`" in each), said[-1] if said else "")
    return f"{first}: {detail}" if detail and first else first, trace


def without_conversion(text: str) -> str:
    """The path of a float that a graph takes as a tensor; any other path as it is."""
    return text[len(_AS_TENSOR) : -1] if text.startswith(_AS_TENSOR) and text.endswith(")") else text
