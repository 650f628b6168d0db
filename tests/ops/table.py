"""Writes the counts of a sweep as a page of the documentation."""

from __future__ import annotations

import datetime
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import torch
from samples import Kind, Outcome

__all__ = ["reason", "table"]

_LOCATION = re.compile(r" at \S+:\d+")
_OPERATOR = re.compile(r"\w+::[\w.]+|torch\.[\w.]+")


def reason(detail: str) -> str:
    """A fallback's reason in the words of its message, without the operator and the source line."""
    text = _LOCATION.sub("", detail).removeprefix("the capture failed: ")
    text = text.removeprefix("the capture was invalidated: ").removeprefix("cannot be captured: ")
    text = text.removesuffix(". Move it out of the capture.")
    operator, _, clause = text.partition(": ")
    return clause if _OPERATOR.fullmatch(operator) else text


def table(found: Sequence[Outcome]) -> str:
    kinds = Counter(o.kind for o in found)
    per_dtype = Counter((o.dtype, o.kind) for o in found)
    dtypes = sorted({o.dtype for o in found})
    by_reason: dict[str, list[Outcome]] = defaultdict(list)
    for o in found:
        if o.kind is Kind.FALLBACK:
            by_reason[reason(o.detail)].append(o)
    names = {o.operator for o in found}
    incomplete = {o.operator for o in found if o.kind is not Kind.EQUAL}
    rows = [
        f"| {kind.value} | {' | '.join(str(per_dtype[d, kind]) for d in dtypes)} | {kinds[kind]} |" for kind in Kind
    ]
    lines = [
        "# Operators on CPU",
        "",
        "Each operator that PyTorch describes for its own tests (`op_db`, in-place and `out=` forms too) is captured",
        "by hand with PyTorch's samples, replayed twice, and compared with eager: bit by bit, or else in PyTorch's",
        "tolerance for the dtype. A *fallback* is a capture refused with a message that names the operator; through",
        "`torch.compile` such a graph runs eagerly.",
        "",
        f"Date: {datetime.date.today().isoformat()}. torch {torch.__version__}. Samples: {len(found)}, of",
        f"{len(names)} operators, of which {len(names - incomplete)} are equal to eager in every sample.",
        "Written by `python -m tests.ops.sweep --write docs/operators.md`.",
        "",
        f"| outcome | {' | '.join(dtypes)} | all |",
        f"|---|{'---:|' * (len(dtypes) + 1)}",
        *rows,
        "",
        "## Fallbacks by reason",
        "",
        "| reason | samples | operators |",
        "|---|---:|---|",
    ]
    for why, group in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        operators = ", ".join(f"`{name}`" for name in sorted({o.operator for o in group}))
        lines.append(f"| {why.replace('|', chr(92) + '|')} | {len(group)} | {operators} |")
    return "\n".join(lines) + "\n"
