"""What a program is, pass by pass, as files that a person reads and runs."""

from __future__ import annotations

import io
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph import environment
from airgraph.errors import OptionError
from airgraph.program import source_lines
from airgraph.program.inputs import InputPlan
from airgraph.program.nodes import notes
from airgraph.program.streams import stream_of
from airgraph.torch_internals import dynamo

__all__ = ["Dump", "dump_for", "form_of", "readable", "runnable"]


@dataclass(slots=True)
class Dump:
    """A folder for one FX graph; files are numbered in the order in which they are written."""

    folder: Path
    _written: int = field(default=0)

    def graph(self, what: str, gm: GraphModule) -> None:
        """The graph as it is now, such as before all passes or after one."""
        self._write(f"{self._written:02d}_{_plain(what)}.py", runnable(gm))

    def final(self, gm: GraphModule, plans: Sequence[InputPlan], *, header: str) -> None:
        """The program that is captured, as a file that runs, with constants beside it. header: what made it."""
        constants = _constants(gm)
        if constants:
            held = io.BytesIO()
            torch.save(constants, held)
            self._write("constants.pt", held.getvalue())
        self._write("program.py", f"# {header}\n{runnable(gm, plans)}")

    def tape(self, key: str, lines: Sequence[str]) -> None:
        """The calls of one capture."""
        self._write(f"tape_{_plain(key) or 'single'}.txt", "\n".join(lines) + "\n")

    def _write(self, name: str, content: str | bytes) -> None:
        """Raises OptionError where the folder cannot be written."""
        path = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        except OSError as error:
            raise OptionError(
                f"option 'dump_dir': cannot write {path}: {error.strerror}. Give another folder."
            ) from error
        self._written += 1


def dump_for(name: str, dump_dir: str | None) -> Dump | None:
    """Where a graph is dumped: into `dump_dir`, or into torch's own folder if TORCH_COMPILE_DEBUG=1 is set."""
    if dump_dir is not None:
        return Dump(Path(dump_dir) / _plain(name))
    if environment.torch_dumps_wanted():
        return Dump(Path(dynamo.debug_dir()) / "airgraph" / _plain(name))
    return None


def runnable(gm: GraphModule, plans: Sequence[InputPlan] = ()) -> str:
    """The graph as Python that runs on made-up inputs; shapes, dtypes, roles, streams and lines in comments."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    namespaces = {n.target.namespace for n in gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}
    custom = sorted(namespaces - {"aten", "prims"})
    lines = ["import math", "import operator", "from pathlib import Path", "", "import torch", ""]
    if custom:
        lines += [f"# Import what registers the operators of {', '.join(custom)} first.", ""]
    if _constants(gm):
        lines += ['constants = torch.load(Path(__file__).parent / "constants.pt", weights_only=True)', ""]
    lines += _definition("program", gm, _roles(gm, plans))
    lines += ["", "", "inputs = ["]
    lines += [f"    {_example(node)}," for node in placeholders]
    lines += ["]", "", 'if __name__ == "__main__":', "    with torch.no_grad():", "        print(program(*inputs))", ""]
    return "\n".join(lines)


def readable(gm: GraphModule, plans: Sequence[InputPlan]) -> str:
    """The graph as a Python function; shapes, dtypes, roles, streams and lines in comments."""
    return "\n".join(_definition("program", gm, _roles(gm, plans))).lstrip("\n")


def _roles(gm: GraphModule, plans: Sequence[InputPlan]) -> dict[Node, str]:
    placeholders = gm.graph.find_nodes(op="placeholder")
    return {node: f", {plan.role.value} {plan.source}" for node, plan in zip(placeholders, plans, strict=False)}


def _definition(name: str, gm: GraphModule, roles: Mapping[Node, str]) -> list[str]:
    """A function that computes the graph, after those of its subgraphs."""
    lines: list[str] = []
    for node in gm.graph.find_nodes(op="get_attr"):
        subgraph = _attribute(gm, str(node.target))
        if isinstance(subgraph, GraphModule):
            lines += _definition(node.name, subgraph, {})
    lines += ["", f"def {name}("]
    lines += [
        f"    {node.name},  # {form_of(node)}{roles.get(node, '')}" for node in gm.graph.find_nodes(op="placeholder")
    ]
    lines += ["):"]
    constants = _constants(gm)
    for node in gm.graph.nodes:
        if node.op == "get_attr" and str(node.target) in constants:
            lines.append(f"    {node.name} = constants[{str(node.target)!r}]")
        elif node.op == "call_function":
            arguments = [_text(arg) for arg in node.args] + [f"{k}={_text(v)}" for k, v in node.kwargs.items()]
            lines.append(f"    {node.name} = {_function(node)}({', '.join(arguments)}){_comment(node)}")
    return [*lines, f"    return {_text(gm.graph.output_node().args[0])}", ""]


def _constants(gm: GraphModule) -> dict[str, Any]:
    """What the graph takes from its module, its subgraphs excepted."""
    found = {str(node.target): _attribute(gm, str(node.target)) for node in gm.graph.find_nodes(op="get_attr")}
    return {name: value for name, value in found.items() if not isinstance(value, GraphModule)}


def _comment(node: Node) -> str:
    parts = [form_of(node)]
    stream = stream_of(node)
    if stream is not None:
        parts.append(f"stream {stream if stream.isprintable() else repr(stream)}")
    line = source_lines.of_node(node)
    if line:
        parts.append(line)
    if why := notes(node).get("why_kept"):
        parts.append(f"kept: {why}")
    return f"  # {', '.join(part for part in parts if part)}"


def form_of(node: Node) -> str:
    """Dtype, shape and strides of a node's value, as far as they are known."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype}{[_size(s) for s in value.shape]} strides {[_size(s) for s in value.stride()]}".replace("'", "")
    if isinstance(value, (list, tuple)):
        return f"{len(value)} results"
    # A graph that was read from a cache has its forms as text.
    return notes(node).get("form", "") if value is None else type(value).__name__


def _size(size: Any) -> Any:
    return size if isinstance(size, int) else str(size)


def _function(node: Node) -> str:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return _operator(target)
    name = getattr(target, "__name__", str(target))
    homes = (("operator", operator), ("math", math), ("torch", torch))
    return next((f"{home}.{name}" for home, module in homes if getattr(module, name, None) is target), _higher(name))


def _operator(op: torch._ops.OpOverload) -> str:
    return f"torch.ops.{op.namespace}.{op._schema.name.partition('::')[2]}.{op._overloadname}"


def _higher(name: str) -> str:
    return f"torch.ops.higher_order.{name}"


def _text(value: Any) -> str:
    if isinstance(value, Node):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(k)}: {_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, torch._ops.OpOverload):
        return _operator(value)
    return repr(value)


def _example(node: Node) -> str:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return repr(_hint(value))
    shape, stride = tuple(map(_hint, value.shape)), tuple(map(_hint, value.stride()))
    form = f"{shape}, {stride}, dtype={value.dtype}, device={str(value.device)!r}"
    # Those of a byte have no random numbers.
    filled = "normal_()" if value.dtype.is_floating_point and value.dtype.itemsize > 1 else "zero_()"
    return f"torch.empty_strided({form}).{filled}"


def _hint(size: Any) -> Any:
    node = getattr(size, "node", None)
    return size if node is None else node.hint


def _attribute(gm: GraphModule, target: str) -> Any:
    return operator.attrgetter(target)(gm)


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
