"""Small programs and what a pass makes of each: every rule, and every reason to leave the graph alone.

`@case("remove_noop_ops")` collects a function. Its parameters are named tensors of `_inputs`.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._inductor import config as inductor_config
from torch.func import functionalize
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from airgraph.options import Options
from airgraph.passes.pipeline import run_passes

__all__ = ["CASES", "SWITCHES", "Case", "case", "rewritten"]

_LOGGERS = ("auto_functionalized", "reinplace_intermediates", "reinplace_inputs", "remove_cat")
SWITCHES = (
    "pattern_fusion_pass",
    "remove_noop_ops",
    "input_inplace_pass",
    "remove_cat_ops",
    "inplace_pass",
)


@dataclass(frozen=True)
class Case:
    """options: on for this program. dynamic: sizes are symbols. direct: operators in place are kept as written.

    version: lowered by torch.compile, with this version of auto_functionalized.
    """

    name: str
    program: Callable[..., Any]
    options: dict[str, bool]
    dynamic: bool
    direct: bool
    version: int | None


CASES: list[Case] = []


def case(
    *options: str, dynamic: bool = False, direct: bool = False, version: int | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """options: the passes to switch on; those without an option always run."""

    def collect(program: Callable[..., Any]) -> Callable[..., Any]:
        name = "-".join([*options, program.__name__, *([f"v{version}"] if version else [])])
        assert name not in {each.name for each in CASES}, name
        CASES.append(Case(name, program, {each: each in options for each in SWITCHES}, dynamic, direct, version))
        return program

    return collect


def _inputs() -> dict[str, Tensor]:
    return {
        "x": torch.zeros(4, 4),
        "y": torch.zeros(4, 4),
        "kv": torch.zeros(8, 4),
        "strided": torch.zeros(4, 8)[:, ::2],
        "row": torch.zeros(1, 4),
        "v": torch.zeros(4),
        "i": torch.zeros(1, dtype=torch.long),
        "n": torch.zeros(4, 4, dtype=torch.long),
        "m": torch.zeros(4, 4, dtype=torch.bool),
        "d": torch.zeros(4, 4, dtype=torch.double),
        "e": torch.zeros(0),
    }


def rewritten(each: Case) -> str:
    """The program before and after the passes, how often each changed it, and what they logged."""
    gm = _lowered(each)
    before = _text(gm)
    with _logged() as lines:
        changes = run_passes(gm, Options(**{"kernels": "exact", **each.options}))
    counts = ", ".join(f"{name} {count}" for name, count in changes.items() if count) or "nothing"
    after = _text(gm) if any(changes.values()) else []
    return "\n".join([*before, "", f"changed: {counts}", *[f"log: {line}" for line in lines], *after])


def _lowered(each: Case) -> GraphModule:
    known = _inputs()
    given = [known[name] for name in inspect.signature(each.program).parameters]
    if each.version is not None:
        return _lowered_by_compile(each.program, given, each.version)
    program = each.program if each.direct else functionalize(each.program, remove="mutations")
    tracing = "symbolic" if each.dynamic else "fake"
    return make_fx(program, tracing_mode=tracing, _error_on_data_dependent_ops=False)(*given)


def _lowered_by_compile(program: Callable[..., Any], given: list[Tensor], version: int) -> GraphModule:
    found: list[GraphModule] = []

    def keep(gm: GraphModule, inputs: object) -> Any:
        found.append(GraphModule(gm, copy.deepcopy(gm.graph)))
        return make_boxed_func(gm.forward)

    backend = aot_autograd(fw_compiler=keep, inference_compiler=keep, keep_inference_input_mutations=True)
    with torch.no_grad(), inductor_config.patch(enable_auto_functionalized_v2=version == 2):
        torch.compile(program, backend=backend, fullgraph=True)(*given)
    return found[0]


def _text(gm: GraphModule) -> list[str]:
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    lines = [f"({', '.join(names)}):"]
    for node in gm.graph.nodes:
        if node.op == "call_function":
            arguments = [_argument(a) for a in node.args] + [f"{k}={_argument(v)}" for k, v in node.kwargs.items()]
            kept = f"  # kept: {node.meta['why_kept']}" if node.meta.get("why_kept") else ""
            target = getattr(node.target, "__name__", str(node.target))
            lines.append(f"    {node.name} = {target}({', '.join(arguments)}){kept}")
    return [*lines, f"    return {_argument(gm.graph.output_node().args[0])}"]


def _argument(value: Any) -> str:
    if isinstance(value, Node):
        return value.name
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_argument, value))}]"
    return str(value)


@contextmanager
def _logged() -> Iterator[list[str]]:
    """What passes say about nodes that they leave alone."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    loggers = [logging.getLogger(f"airgraph.passes.{name}") for name in _LOGGERS]
    handler = Collect()
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
