"""An FX graph of ATen operators as plain data (dicts, lists, numbers, text), and back; it can hold no code.

A value is what JSON has, or a dict with one key that says what it is: `{"node": name}`, `{"tuple": [...]}`,
`{"dtype": "float32"}`, `{"device": "cpu"}`, `{"float": "inf"}`, ...
"""

from __future__ import annotations

import base64
import keyword
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from airgraph.errors import CacheError, Unwritable
from airgraph.program import own_operators as own_operators  # graphs name them
from airgraph.program import source_lines
from airgraph.program.collectives import NAMESPACE
from airgraph.program.dump import form_of
from airgraph.program.nodes import notes
from airgraph.program.streams import priority_of, stream_of
from airgraph.torch_internals import dispatcher

__all__ = ["graph_from", "graph_to", "value_from", "value_to"]

# What torch itself registers apart from these reads files, talks to other processes or is made for its own compilers.
_ALLOWED = {"aten", "prims", "quantized", "mkldnn", "onednn"}
_TORCHS_OWN = {
    "c10d", "c10d_functional", "debug_mode_ops", "debugprims", "export", "fsdp", "higher_order", "image", "inductor",
    "inductor_prims", "mkl", "mkldnn_prepacked", "onnx", "prim", "profiler", "quantization", "rngprims", "sparse",
    "static_runtime", "streams", "symm_mem", "triton",
}  # fmt: skip
# They name a group, whose ranks are in the file.
_COLLECTIVES = {
    f"{NAMESPACE}::{name}"
    for name in (
        "all_gather_into_tensor", "all_gather_into_tensor_coalesced", "all_reduce", "all_reduce_",
        "all_reduce_coalesced", "all_reduce_coalesced_", "all_to_all_single", "broadcast", "broadcast_",
        "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "wait_tensor",
    )
}  # fmt: skip
_REFUSED = {"aten::from_file", "aten::save", "aten::warn", "aten::_print"}
_SYMBOLIC: dict[str, Callable[..., Any]] = {
    **{
        f"operator.{name}": getattr(operator, name)
        for name in (
            "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg", "pos", "abs", "getitem",
            "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "not_",
        )
    },
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc", "sqrt")},
    **{
        f"torch.{name}": getattr(torch, name)
        for name in ("sym_max", "sym_min", "sym_float", "sym_int", "sym_not", "sym_sum")
    },
}  # fmt: skip
_NAME_OF_SYMBOLIC = {function: name for name, function in _SYMBOLIC.items()}
_NAMED_VALUES: dict[str, type] = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}
_LARGEST_CONSTANT = 1 << 20
_MOST_EXPONENT = 64
# Of a stream's priority; devices have fewer.
_MOST_URGENT = 1000


def graph_to(gm: GraphModule) -> dict[str, Any]:
    """The graph as plain data. Raises Unwritable for what has no place in it."""
    nodes, constants = [], {}
    for node in gm.graph.nodes:
        if node.op == "output":
            continue
        row: dict[str, Any] = {"name": node.name, "op": node.op}
        if node.op == "get_attr":
            row["target"] = str(node.target)
            constants[str(node.target)] = _constant_to(operator.attrgetter(str(node.target))(gm), str(node.target))
        elif node.op == "call_function":
            row["target"] = _operator_to(node.target)
            row["args"] = [value_to(arg) for arg in node.args]
            if node.kwargs:
                row["kwargs"] = {key: value_to(value) for key, value in node.kwargs.items()}
        elif node.op != "placeholder":
            raise Unwritable(f"a node of kind {node.op}: {node.name}")
        for key, text in (("form", form_of(node)), ("line", source_lines.of_node(node)), ("stream", stream_of(node))):
            if text:
                row[key] = text
        if priority_of(node):
            row["priority"] = priority_of(node)
        nodes.append(row)
    return {"nodes": nodes, "outputs": value_to(gm.graph.output_node().args[0]), "constants": constants}


def graph_from(data: Mapping[str, Any]) -> GraphModule:
    """The graph that `graph_to` wrote. Raises CacheError, naming the node, for anything that it cannot have written."""
    root = torch.nn.Module()
    for name, constant in data["constants"].items():
        if not _is_name(name):
            raise CacheError(f"constant {name!r} is not a name")
        root.register_buffer(name, _constant_from(constant))
    graph = Graph()
    known: dict[str, Node] = {}
    for row in data["nodes"]:
        name = row.get("name")
        if not _is_name(name) or name in known:
            raise CacheError(f"node {name!r}: expected a new name")
        try:
            node = _node_from(graph, row, known, data["constants"])
        except CacheError as error:
            raise CacheError(f"node {name!r}: {error}") from error
        if row.get("line"):
            file, _, line = str(row["line"]).rpartition(":")
            node.meta["stack_trace"] = f'File "{file}", line {line}'
        if row.get("stream") is not None:
            notes(node)["stream"] = str(row["stream"])
        priority = row.get("priority", 0)
        if type(priority) is not int or abs(priority) > _MOST_URGENT:
            raise CacheError(f"node {name!r}: priority {priority!r} is no small integer")
        notes(node)["priority"] = priority
        notes(node)["form"] = str(row.get("form", ""))
        known[name] = node
    _check_powers(graph)
    outputs = value_from(data["outputs"], known)
    if not isinstance(outputs, (tuple, list)):
        raise CacheError("the outputs are not a list")
    graph.output(tuple(outputs))
    return GraphModule(root, graph)


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and name.isascii() and not keyword.iskeyword(name)


def value_to(value: Any) -> Any:
    """An argument as plain data."""
    if value is None or type(value) in (bool, str, int):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, list):
        return [value_to(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [value_to(item) for item in value]}
    if isinstance(value, complex):
        return {"complex": [value_to(value.real), value_to(value.imag)]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    for kind, type_ in _NAMED_VALUES.items():
        if isinstance(value, type_):
            return {kind: str(value).removeprefix("torch.")}
    raise Unwritable(f"a value of type {type(value).__name__}: {value!r}")


def value_from(data: Any, nodes: Mapping[str, Node]) -> Any:
    """The argument that `value_to` wrote. Raises CacheError."""
    if isinstance(data, list):
        return [value_from(item, nodes) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise CacheError(f"expected a value of one kind, got {sorted(data)}")
    ((kind, content),) = data.items()
    if kind == "node" and isinstance(content, str) and content in nodes:
        return nodes[content]
    if kind == "tuple" and isinstance(content, list):
        return tuple(value_from(item, nodes) for item in content)
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "complex" and isinstance(content, list) and len(content) == 2:
        return complex(*(value_from(part, {}) for part in content))
    if kind == "device" and isinstance(content, str):
        try:
            return torch.device(content)
        except RuntimeError as error:
            raise CacheError(f"no such device: {content!r}") from error
    if kind in _NAMED_VALUES and isinstance(content, str):
        named = getattr(torch, content, None)
        if isinstance(named, _NAMED_VALUES[kind]):
            return named
    raise CacheError(f"no such value: {kind} {content!r}")


def _node_from(graph: Graph, row: Mapping[str, Any], known: Mapping[str, Node], constants: Mapping[str, Any]) -> Node:
    op, name = row.get("op"), row["name"]
    if op == "placeholder":
        return graph.create_node("placeholder", name, name=name)
    if op == "get_attr":
        if row.get("target") not in constants:
            raise CacheError(f"there is no constant {row.get('target')!r}")
        return graph.create_node("get_attr", row["target"], name=name)
    if op != "call_function":
        raise CacheError(f"unknown kind {op!r}")
    args = value_from({"tuple": row.get("args", [])}, known)
    target = _operator_from(str(row.get("target")))
    schema = getattr(target, "_schema", None)
    names = {argument.name for argument in schema.arguments} if schema is not None else set()
    for key in row.get("kwargs", {}):
        # FX writes these into source code.
        if key not in names:
            raise CacheError(f"{row.get('target')} has no argument {key!r}")
    kwargs = {key: value_from(value, known) for key, value in row.get("kwargs", {}).items()}
    return graph.create_node("call_function", target, args, kwargs, name=name)


def _check_powers(graph: Graph) -> None:
    """Raises CacheError for powers of sizes that are too large to be worked out."""
    powers: set[Node] = set()
    for node in graph.nodes:
        of_powers = not powers.isdisjoint(node.all_input_nodes)
        if node.target is operator.pow:
            exponent: Any = node.args[1] if len(node.args) == 2 else None
            if of_powers or type(exponent) not in (int, float) or abs(exponent) > _MOST_EXPONENT:
                raise CacheError(f"node {node.name!r}: a power has a small number as exponent, and no power within")
        if node.target is operator.pow or (of_powers and node.target in _NAME_OF_SYMBOLIC):
            powers.add(node)


def _operator_to(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        name = f"{target.namespace}.{target._schema.name.partition('::')[2]}.{target._overloadname}"
    else:
        name = _NAME_OF_SYMBOLIC.get(target, "")
    if not name:
        name = getattr(target, "__name__", target)
        raise Unwritable(f"its graph calls {name}, which is no operator and no function over sizes that a file names")
    _operator_from(name)
    return name


def _operator_from(name: str) -> Callable[..., Any]:
    """An operator that is registered in this process, or one of a few functions over sizes; nothing else is found."""
    if name in _SYMBOLIC:
        return _SYMBOLIC[name]
    namespace, _, rest = name.partition(".")
    operator_name, _, overload = rest.rpartition(".")
    qualified = f"{namespace}::{operator_name}"
    own = namespace in _TORCHS_OWN or namespace.startswith("_")
    if (own and namespace not in _ALLOWED and qualified not in _COLLECTIVES) or qualified in _REFUSED:
        raise Unwritable(f"the operator {qualified} is not allowed in a cache")
    if overload not in dispatcher.overloads_of(qualified):
        raise CacheError(f"the operator {name} is not registered; import what registers it before the first call")
    if not dispatcher.has_kernel(qualified if overload == "default" else f"{qualified}.{overload}"):
        raise Unwritable(f"the operator {qualified} is not one of PyTorch's dispatcher")
    packet = getattr(getattr(torch.ops, namespace), operator_name)
    return getattr(packet, overload)


def _constant_to(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor) or type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise Unwritable(f"the constant {name} of type {type(value).__name__}")
    if value.nbytes > _LARGEST_CONSTANT:
        raise Unwritable(f"the constant {name} of {value.nbytes} bytes; make it a buffer of the module")
    if not value.is_contiguous() or value.is_conj() or value.is_neg():
        raise Unwritable(
            f"the constant {name}, which does not lie in memory row by row; make it a buffer of the module"
        )
    dense = value.detach().to("cpu")
    content = bytes(dense.reshape(-1).view(torch.uint8).tolist()) if dense.numel() else b""
    return {
        "dtype": value_to(value.dtype)["dtype"],
        "shape": list(value.shape),
        "device": str(value.device),
        "bytes": base64.b64encode(content).decode(),
    }


def _constant_from(data: Mapping[str, Any]) -> torch.Tensor:
    try:
        content = bytearray(base64.b64decode(data["bytes"], validate=True))
        dtype = value_from({"dtype": data["dtype"]}, {})
        shape = [int(size) for size in data["shape"]]
        flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
        return flat.reshape(shape).to(value_from({"device": data["device"]}, {}))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CacheError(f"a constant is damaged: {error}") from error
