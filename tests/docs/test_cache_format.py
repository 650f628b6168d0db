"""docs/cache_format.md is what the compile cache writes and reads: each key, each kind, each rule, and the example."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import importlib
import inspect
import json
import os
import re
import shutil
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule

from airgraph.cache import cached_function
from airgraph.cache.format import graph, guards, result_spec, shape_guard, source_path
from airgraph.cache.format.signed import FORMAT, signed_text
from airgraph.cache.format.torch_settings import State
from airgraph.errors import CacheError, Unwritable
from airgraph.program.inputs import InputRole
from airgraph.program.nodes import notes

sys.path.insert(0, str(Path(__file__).parents[1] / "cache"))

from cached_functions import cached

_PAGE = (Path(__file__).parents[2] / "docs" / "cache_format.md").read_text()


def _tables(section: str) -> list[list[list[str]]]:
    """The tables under a heading, as cells, without their heads."""
    text = re.split(rf"^##+ {section}$", _PAGE, flags=re.MULTILINE)[1]
    text = re.split(r"^##", text, flags=re.MULTILINE)[0]
    found = re.findall(r"^\|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in table.splitlines()] for table in found]


def _names(section: str, table: int = 0, column: int = 0) -> list[str]:
    cells = [row[column] for row in _tables(section)[table]]
    return [re.match(r"`([^`]+)`", cell)[1] for cell in cells if cell]  # type: ignore[index]


# What is written


class Counter:
    def __init__(self) -> None:
        self.count = 0


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


@dataclasses.dataclass
class Noisy:
    value: Any

    def __post_init__(self) -> None:
        raise AssertionError("a file has run this")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor, cache: Tensor, factor: float, steps: int, only_looked_at: Tensor) -> Any:
        cache.add_(x.sum(0, dtype=torch.float32))
        y = self.inner(x) * factor * torch.tensor([1.0, 2.0, 3.0])
        if only_looked_at.shape[0] > 2:
            y = y + steps
        return Pair(y, [cache])


def _data(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(file.read_text().partition("\n")[2])
    return data


def _keys(rows: Any) -> set[str]:
    return {key for row in rows for key in row}


def test_each_key_that_is_written_is_in_a_table_and_no_other(tmp_path: Path) -> None:
    call = cached(Model().forward, tmp_path)
    call(torch.ones(4, 3), torch.zeros(3), 0.5, 2, torch.ones(5))
    data = _data(call.files[0])
    node = Graph().placeholder("x")
    notes(node)["stream"] = "side"
    node.graph.output((node,))
    rows = [*data["graph"]["nodes"], *graph.graph_to(GraphModule(nn.Module(), node.graph))["nodes"]]
    assert {each["role"] for each in data["inputs"] if "float" in each} == {"user"}
    for table, keys in (
        (_names("Manifest"), data),
        (_names("Process"), data["process"]),
        (_names("Settings of PyTorch"), data["state"]),
        (_names("Settings of PyTorch"), [each.name for each in dataclasses.fields(State)]),
        (_names("Inputs"), _keys((*data["inputs"], *data["looked_at"]))),
        (_names("Graph"), data["graph"]),
        (_names("Graph", 1), _keys(rows)),
        (_names("Graph", 2), _keys(data["graph"]["constants"].values())),
        (_names("Index"), _data(call.files[0].parent / ".index")),
    ):
        assert sorted(table) == sorted(keys)


def test_each_kind_is_in_a_table_and_no_other() -> None:
    read = set(re.findall(r'kind == "(\w+)"', inspect.getsource(graph.value_from))) | graph._NAMED_VALUES.keys()
    structures = re.findall(r'case "(\w+)", ', inspect.getsource(result_spec.Expressions))
    for table, kinds in (
        (_names("Inputs", 1), [role.value for role in InputRole]),
        (_names("Graph", 3), read),
        (_names("Guards"), guards._KINDS),
        (_names("Source paths", column=1), [each.__name__ for each in typing.get_args(source_path.Step)]),
        (_names("Result"), structures),
    ):
        assert sorted(table) == sorted(kinds)
    functions = _tables("Shape guards")[0][-1][1]
    assert re.findall(r"`(\w+)`", functions) == list(shape_guard._FUNCTIONS)
    for name in (*graph._SYMBOLIC, *graph._ALLOWED, *graph._TORCHS_OWN, *graph._REFUSED):
        assert f"`{name}`" in _PAGE
    for name in source_path._HIDDEN:
        assert f"`{name}`" in _PAGE


def test_the_examples_of_kinds_are_read() -> None:
    known = {"mul": Graph().placeholder("mul")}
    for example in _names("Graph", 3, 2):
        value = graph.value_from(json.loads(example), known)
        assert graph.value_to(value) == json.loads(example)
    for kind, example in zip(_names("Guards"), _names("Guards", column=3), strict=True):
        assert guards.guard_from(json.loads(example)).kind == kind
    for example in _names("Source paths", column=3)[2:]:
        source_path.parse(example)
    for kind, example in zip(_names("Result"), _names("Result", column=3), strict=True):
        assert list(json.loads(example)) == [kind]


def test_it_is_the_page_of_this_version() -> None:
    versions = re.findall(r"version (\d+) of the format|airgraph cache (\d+) ", _PAGE)
    assert len(versions) >= 3 and {"".join(each) for each in versions} == {str(FORMAT)}


# The example


def _normal(data: Mapping[str, Any]) -> Any:
    """Without what differs from machine to machine: digests, versions, paths, and the names of symbols."""
    fingerprint = sorted(set(data["fingerprint"]) & {"format", "airgraph", "torch", "python"})
    data = {**data, "fingerprint": fingerprint, "codes": bool(data["codes"])}
    for each in data["inputs"]:
        each.get("traits", [0])[-1] = 0
    text = re.sub(r'[0-9a-f]{12}\.\.\.|(?<=")[0-9a-f]{32,64}(?=")', "digest", json.dumps(data))
    text = re.sub(r'(?<=")/[^"]*/', "", text)
    symbols = list(dict.fromkeys(re.findall(r"\bs\d+\b", text)))
    return json.loads(re.sub(r"\bs\d+\b", lambda match: f"symbol{symbols.index(match[0])}", text))


def test_the_example_is_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (module,) = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
    head, body = re.findall(r"```\n(airgraph cache \d+ hmac-sha256) [0-9a-f]+\.\.\.\n(\{.*?)```", _PAGE, re.DOTALL)[0]
    (tmp_path / "scaling.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        call = cached(importlib.import_module("scaling").scale, tmp_path / "cache")
        call(torch.ones(4, 3), 2)
    finally:
        sys.modules.pop("scaling", None)
    text = call.files[0].read_text()
    assert text.startswith(f"{head} ") and text.isascii() and text.count("\n") == 2
    written, shown = _normal(_data(call.files[0])), _normal(json.loads(body))
    assert written == shown
    # In this order, so that the same graph gives the same text.
    assert list(written) == list(shown) == _names("Manifest")


# The rules


def step(x: Tensor, cache: Tensor, counter: Counter, factor: int) -> Any:
    cache.add_(x.sum(0))
    counter.count += x.shape[0]
    return {"y": x * factor, "cache": cache}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "cache"
    cached(step, folder)(torch.ones(4, 3), torch.zeros(3), Counter(), 2)
    return folder


class Cache:
    """A copy of a cache with one graph, as another process finds it; tracing ends in an error."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (self.file,) = root.rglob("*.airgraph")
        self.key = root / ".key"

    def change(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Signed as the folder's files are."""
        data = _data(self.file)
        change(data)
        self.sign(data)

    def sign(self, data: Any) -> None:
        self.file.write_text(signed_text(data, self.key.read_bytes()))

    def sign_body(self, body: str) -> None:
        head = self.file.read_text().partition("\n")[0].rpartition(" ")[0]
        digest = hmac.new(self.key.read_bytes(), body.encode(), hashlib.sha256).hexdigest()
        self.file.write_text(f"{head} {digest}\n{body}\n")

    def call(self) -> None:
        """Serves a call from the file, or raises."""
        call, cache, counter = cached(step, self.root), torch.zeros(3), Counter()
        x = torch.ones(4, 3)
        try:
            result = call(x, cache, counter, 2)
        except CacheError:
            assert not cache.any() and counter.count == 0
            raise
        assert call.files == [self.file] and counter.count == 4
        torch.testing.assert_close((result["y"], result["cache"]), (x * 2, x.sum(0)))


@pytest.fixture
def cache(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    def trace(request: Any) -> Any:
        raise Unwritable("it would be traced anew")

    monkeypatch.setattr(cached_function, "trace", trace)
    shutil.copytree(written, tmp_path / "cache")
    loaded = set(sys.modules)
    yield Cache(tmp_path / "cache")
    assert "antigravity" not in set(sys.modules) - loaded


def _link(cache: Cache) -> None:
    cache.file.rename(cache.root / "elsewhere")
    cache.file.symlink_to(cache.root / "elsewhere")


def _pipe(cache: Cache) -> None:
    cache.file.unlink()
    os.mkfifo(cache.file, 0o600)


def _key_link(cache: Cache) -> None:
    cache.key.rename(cache.root / "elsewhere")
    cache.key.symlink_to(cache.root / "elsewhere")


def _give_away(path: Callable[[Cache], Path]) -> Callable[[Cache, pytest.MonkeyPatch], None]:
    def give(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        if os.geteuid() == 0:
            os.chown(path(cache), 12345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)

    return give


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Cache], Any]:
    return lambda cache: cache.file.write_bytes(change(cache.file.read_bytes()))


_FILES: list[tuple[str, Callable[..., Any], str]] = [
    ("F1", _link, "cannot read"),
    ("F1", _pipe, "it is no ordinary file"),
    ("F1", _key_link, r"\.key"),
    ("F2", lambda cache: os.truncate(cache.file, (1 << 30) + 1), "it has 1073741825 bytes"),
    ("F3", _give_away(lambda cache: cache.file), "belongs to the user"),
    ("F3", _give_away(lambda cache: cache.key), "belongs to the user"),
    ("F3", _give_away(lambda cache: cache.file.parent), "belongs to the user"),
    ("F3", _give_away(lambda cache: cache.root), "belongs to the user"),
    ("F4", lambda cache: cache.file.chmod(0o620), "others may write"),
    ("F4", lambda cache: cache.key.chmod(0o602), "others may write"),
    ("F4", lambda cache: cache.file.parent.parent.chmod(0o702), "others may write"),
    ("F5", _bytes(lambda text: text.replace(b"relu", b"\xff").replace(b"mul", b"\xff")), "it is not text"),
    ("F6", _bytes(lambda text: b""), "not a cache file: it begins with"),
    ("F6", _bytes(lambda text: b"other" + text), "not a cache file: it begins with"),
    ("F6", _bytes(lambda text: text.replace(b"\n", b" more\n", 1)), "not a cache file: it begins with"),
    ("F7", _bytes(lambda text: text.replace(b"cache %d " % FORMAT, b"cache %d " % (FORMAT - 1), 1)), "another version"),
    ("F7", _bytes(lambda text: text.replace(b"cache %d " % FORMAT, b"cache %d " % (FORMAT + 1), 1)), "another version"),
    ("F8", _bytes(lambda text: text[:-1]), "the checksum is wrong"),
    ("F8", _bytes(lambda text: text[:-2] + b" }\n"), "the checksum is wrong"),
    ("F8", _bytes(lambda text: text.replace(b"sha256", b"sha512", 1)), "the checksum is wrong"),
    ("F8", lambda cache: cache.key.write_bytes(bytes(32)), "the checksum is wrong"),
    ("F1", lambda cache: cache.key.unlink(), r"\.key is missing"),
    ("F1", lambda cache: cache.key.write_bytes(b""), "has 0 bytes instead of 32"),
    ("F8", lambda cache: cache.file.write_text(signed_text(_data(cache.file))), "the checksum is wrong"),
    ("F9", lambda cache: cache.sign_body("{"), "not a cache file"),
    ("F9", lambda cache: cache.sign([]), "it holds a list"),
    ("F9", lambda cache: cache.sign_body('{"a":NaN}'), "NaN is no number"),
    ("F9", lambda cache: cache.sign_body('{"a":1,"a":2}'), "a key twice"),
]


def _input(data: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in data["inputs"] if each["name"] == name)


def _in_input(name: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: _input(data, name).update(changes)


def _without(name: str, key: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: _input(data, name).pop(key)


def _mul(data: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in data["graph"]["nodes"] if row.get("target") == "aten.mul.Tensor")


def _in_mul(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: _mul(data).update(changes)


def _set(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.update(changes)


def _within(part: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data[part].update(changes)


def _more(part: str, each: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data[part].append(each)


def _constant(name: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    made = {"dtype": "float32", "shape": [1], "device": "cpu", "bytes": "AAAAAA==", **changes}
    return lambda data: data["graph"]["constants"].update({name: made})


_POWERS = "a small number as exponent, and no power within"


def _power(*args: Any, name: str = "power") -> Callable[[dict[str, Any]], None]:
    row = {"name": name, "op": "call_function", "target": "operator.pow", "args": list(args)}
    return lambda data: data["graph"]["nodes"].append(row)


def _repeat_a_node(data: dict[str, Any]) -> None:
    data["graph"]["nodes"].append(data["graph"]["nodes"][0])


def _write_through_a_view(data: dict[str, Any]) -> None:
    _input(data, "cache")["role"] = "user"
    rows = data["graph"]["nodes"]
    (at,) = [at for at, row in enumerate(rows) if row.get("target", "").partition("_.")[0] in ("aten.add", "aten.copy")]
    rows.insert(
        at, {"name": "seen", "op": "call_function", "target": "aten.view.default", "args": [rows[at]["args"][0], [3]]}
    )
    rows[at + 1]["args"][0] = {"node": "seen"}


def _of_tests(name: str) -> str:
    return f"{__name__}.{name}"


_MALFORMED = "a part is missing or malformed"
_OTHER_KEYS = _names("Manifest")
# Signed, and not what a writer writes.
_REFUSED: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    *(("M10", lambda data, key=key: data.pop(key), "a part is ") for key in _OTHER_KEYS),
    ("M10", _set(more=1), "a part is unknown"),
    ("M10", _set(format=FORMAT - 1), "of another format"),
    ("M10", _set(guards={}), "guards is no list"),
    ("M10", _set(inputs=3), _MALFORMED),
    ("M11", _more("sources", ["module", "", ""]), "a source is four texts"),
    ("M11", _more("sources", ["module", "", "", 3]), "a source is four texts"),
    ("M12", _within("process", environment={"A": 1}), "variables of the environment are texts"),
    ("M12", _within("process", environment={"\ud800": None}), "a part is missing or malformed"),
    ("M12", _within("process", hashes="1"), "a hash is a number"),
    ("M13", _set(device="nowhere"), "no such device"),
    ("M14", _within("state", more=""), _MALFORMED),
    ("M14", lambda data: data["state"].pop("modes"), _MALFORMED),
    ("M15", _in_input("x", role="unheard"), _MALFORMED),
    *(("M15", _without("x", key), _MALFORMED) for key in ("path", "name", "role", "shape", "stride", "offset")),
    *(("M15", _without("x", key), _MALFORMED) for key in ("device", "lazy", "traits")),
    ("M16", _in_input("x", offset=None), "a size is a number or an expression"),
    ("M16", _in_input("x", stride=[1]), "2 sizes and 1 strides"),
    ("M17", _in_input("x", traits=["Tensor", 0, True, 1]), "traits of a tensor are"),
    ("M18", lambda data: data["inputs"].pop(), "inputs for a graph of"),
    ("M19", _in_input("x", role="scalar"), "x is said to be scalar"),
    ("M19", _in_input("factor", role="user"), "factor is said to be user"),
    ("M20", _in_input("cache", role="user"), "writes cache, which is said to be user"),
    ("M20", _write_through_a_view, "writes cache, which is said to be user"),
    ("C1", _more("guards", ["runs", "L['x']", 1]), "unknown kind of guard"),
    ("C2", _more("guards", ["has", "L['x']", 3]), "unexpected 3"),
    ("C2", _more("guards", ["keys", "L['x']", "ab"]), "unexpected 'ab'"),
    ("C3", _more("guards", ["equals", "L['x']"]), _MALFORMED),
    *(
        ("P1", _in_input("x", path=text), "is not a path")
        for text in ("x", "L['x'].run()", "L['x'][0:1]", "L['x'][key]", "L['x'].a + 1", "L['x'] .a", "eval(L['x'])")
    ),
    *(("P2", _in_input("x", path=f"L['x'].{name}"), "is not a path") for name in sorted(source_path._HIDDEN)),
    ("P3", _in_input("x", path="L['other']"), "the function has no parameter 'other'"),
    ("P3", _more("guards", ["has", "L['other']", "a"]), "the function has no parameter 'other'"),
    *(("G1", _in_mul(name=name), "expected a new name") for name in ("a b", "class", "é", 3)),
    ("G1", _repeat_a_node, "expected a new name"),
    ("G2", _in_mul(op="call_method"), "unknown kind 'call_method'"),
    ("G2", _in_mul(op="call_module"), "unknown kind 'call_module'"),
    ("G3", _in_mul(op="get_attr", target="missing"), "there is no constant 'missing'"),
    ("G4", _in_mul(args=[{"node": "missing"}, 2]), "no such value: node 'missing'"),
    ("G4", _in_mul(args=[{"node": "mul"}, 2]), "no such value: node 'mul'"),
    *(("G5", _in_mul(target=name), "is not registered") for name in ("aten.no.default", "os.system", "antigravity.a")),
    ("G6", _in_mul(target="aten.len.t"), "is not one of PyTorch's dispatcher"),
    *(
        ("G7", _in_mul(target=f"{name.replace('::', '.')}.default"), "is not allowed")
        for name in sorted(graph._REFUSED)
    ),
    *(("G7", _in_mul(target=f"{name}.a.b"), "is not allowed") for name in (*sorted(graph._TORCHS_OWN), "_test", "_c")),
    ("G8", _in_mul(kwargs={"a=print(), b": 1}), "has no argument"),
    ("G8", _in_mul(kwargs={"more": 1}), "has no argument 'more'"),
    ("G9", _in_mul(args=[{"call": "os.system"}]), "no such value: call"),
    ("G9", _in_mul(args=[{"tuple": [], "float": "inf"}]), "expected a value of one kind"),
    ("G9", _in_mul(args=[{"dtype": "load"}]), "no such value: dtype"),
    ("G10", _constant("a.b"), "constant 'a.b' is not a name"),
    ("G10", _constant("a", shape=[2]), "a constant is damaged"),
    ("G10", _constant("a", bytes="?"), "a constant is damaged"),
    ("G11", _within("graph", outputs=None), "the graph is malformed"),
    ("G11", _within("graph", outputs=[]), "the graph is malformed"),
    *(("G12", lambda data, key=key: data["graph"].pop(key), "malformed") for key in _names("Graph")),
    ("G13", _in_mul(args=[]), "fails on these inputs"),
    ("S1", _set(structure={"call": "os.system"}), "no such structure: call"),
    ("S1", _set(structure={"output": 0, "list": []}), "expected a structure"),
    ("S2", _set(structure={"output": 7}), "the graph has no output 7"),
    ("C3", _more("guards", ["equals", "L['factor']", 2, 3]), "unexpected 2"),
    ("C3", _more("guards", ["same", "L['x']", "nonsense"]), "nonsense"),
    ("C3", _more("guards", ["distinct", "L['x']", ["nonsense"]]), "nonsense"),
    *(("G11", _power(*args), _POWERS) for args in ([9, 65], [9], [9, "2"])),
    ("G11", lambda data: (_power(9, 64)(data), _power({"node": "power"}, 2, name="more")(data)), _POWERS),
    ("S2", _set(structure={"output": -1}), "the graph has no output -1"),
    ("S3", _set(structure={"argument": "G['torch']"}), "which is no argument"),
    ("S3", _set(structure={"argument": "L['other']"}), "which is no argument"),
    ("S4", _set(structure={"number": "s9999 + 1"}), "no argument has the size s9999"),
    ("S5", _set(structure={"same": 5}), "no such structure: same"),
    ("S5", _set(structure={"tuple": [{"same": 0}]}), "a structure is within itself"),
    ("S6", _set(structure={"record": ["subprocess.Popen", []]}), "subprocess.Popen is not loaded, or"),
    ("S6", _set(structure={"record": ["antigravity.Class", []]}), "antigravity.Class is not loaded, or"),
    ("S6", _set(structure={"record": [_of_tests("Noisy"), [["value", {"output": 0}]]]}), "Noisy is not loaded, or"),
    ("S7", _set(structure={"record": [_of_tests("Pair"), [["first", {"output": 0}]]]}), "Pair has other fields"),
    ("S8", _set(structure={"argument": "L['x'].missing"}), "the result cannot be put together"),
    ("S8", _set(structure={"number": "1 // 0"}), "the result cannot be put together"),
    ("W1", _more("writes", ["G['torch']", "a", {"output": 0}]), "no call writes"),
    ("W1", _more("writes", ["L['counter']", "__class__", {"output": 0}]), "no call writes"),
    ("W1", _more("writes", ["L['counter']", "a b", {"output": 0}]), "no call writes"),
    ("W2", _more("writes", ["L['x']", "data", {"output": 0}]), "which is a property"),
    ("W1", _more("writes", ["type(L['counter'])", "count", {"output": 0}]), "its class is not guarded"),
]  # fmt: skip
# Signed, and well formed, but not for this call in this process.
_MISSES: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("M1", _within("fingerprint", torch="1.0")),
    ("M1", _within("fingerprint", passes="0" * 32)),
    ("M1", _within("fingerprint", unheard_of="a")),
    ("M3", _more("sources", ["antigravity.a", "", "/dev/zero", ""])),
    ("M3", _more("sources", ["builtins", "=len", "", "0" * 64])),
    ("M3", _more("sources", [__name__, "step", "", "0" * 64])),
    ("M4", _within("process", environment={"AIRGRAPH_IS_NOT_SET": "1"})),
    ("M5", _within("process", hashes=hash("airgraph") + 1)),
    ("M6", _within("state", default_dtype="torch.float64")),
    ("M6", _within("state", modes=["app.Mode"])),
    *(
        ("M7", _in_input("x", **{key: value}))
        for key, value in {
            "dtype": "float64",
            "device": "meta",
            "stride": [7, 1],
            "lazy": "conj",
            "traits": ["Tensor", True, True, 0],
        }.items()
    ),
    ("M7", _in_input("x", traits=["Module", False, True, 0])),
    ("M7", lambda data: _input(data, "x")["shape"].__setitem__(1, 7)),
    ("M7", _in_input("factor", symbol=7)),
    ("M7", _in_input("factor", path="G['torch'].x")),
    ("C4", _more("guards", ["equals", "L['factor']", 7])),
    ("C4", _more("guards", ["equals", "L['factor']", 2.0])),
    ("C4", _more("guards", ["has", "L['counter'].missing", "a"])),
    ("C4", _more("guards", ["type", "L['x'].imag", "a"])),
    ("C4", _more("guards", ["equals", "L['counter'].size()[0]", 5])),
    ("P4", _more("guards", ["has", "G['__import_antigravity']", "a"])),
    ("E1", _more("shape_guards", "Eq(1, 2)")),
    *(
        ("E2", _more("shape_guards", text))
        for text in (
            "unknown > 1",
            "1 // 0 > 0",
            "((7**16)**16)**16 + 1 > 1",
            "__import__('os')",
            "1 if 1 else 1",
            "+1",
        )
    ),
]


def _ids(rows: list[Any]) -> list[str]:
    return [f"{row[0]}-{number}" for number, row in enumerate(rows)]


def test_each_rule_is_tested() -> None:
    tested = {row[0] for row in (*_FILES, *_REFUSED, *_MISSES)} | {"I1"}
    assert set(re.findall(r"\b[A-Z]\d{1,2}\b", _PAGE)) == tested


def test_what_was_written_is_served(cache: Cache) -> None:
    cache.change(lambda data: None)
    cache.call()


@pytest.mark.parametrize(("rule", "damage", "message"), _FILES, ids=_ids(_FILES))
def test_such_a_file_is_refused(
    rule: str, damage: Callable[..., Any], message: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(*(cache, monkeypatch)[: len(inspect.signature(damage).parameters)])
    with pytest.raises(CacheError, match=message):
        cache.call()


@pytest.mark.parametrize(("rule", "change", "message"), _REFUSED, ids=_ids(_REFUSED))
def test_such_content_is_refused(rule: str, change: Callable[..., Any], message: str, cache: Cache) -> None:
    cache.change(change)
    with pytest.raises(CacheError, match=message) as raised:
        cache.call()
    assert str(cache.file) in str(raised.value)


@pytest.mark.parametrize(("rule", "change"), _MISSES, ids=_ids(_MISSES))
def test_such_content_is_a_miss(rule: str, change: Callable[..., Any], cache: Cache) -> None:
    cache.change(change)
    with pytest.raises(CacheError, match="is not cached: it would be traced anew"):
        cache.call()


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_text("{}"), lambda path: path.chmod(0o666)]
)
def test_an_index_is_passed_over(damage: Callable[[Path], Any], cache: Cache) -> None:
    """I1; another file beside it makes it be asked."""
    shutil.copy(cache.file, cache.file.with_name("graph_1.airgraph"))
    damage(cache.file.parent / ".index")
    cache.call()


def test_tensors_that_share_memory_with_what_is_written(cache: Cache) -> None:
    call, both = cached(step, cache.root), torch.ones(3)
    with pytest.raises(CacheError, match="it would be traced anew"):
        call(both.expand(4, 3), both, Counter(), 2)
    assert torch.equal(both, torch.ones(3))


def test_a_refused_file_is_made_anew(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path / "cache")
    cache = Cache(tmp_path / "cache")
    whole = _data(cache.file)
    cache.change(_more("guards", ["runs", "L['x']", 1]))
    call = cached(step, cache.root, strict=False)
    with pytest.warns(UserWarning, match="a cached graph is not used and made anew"):
        call(torch.ones(4, 3), torch.zeros(3), Counter(), 2)
    # What else ran meanwhile is part of the codes, such as what is imported at the first trace.
    assert {**_data(cache.file), "codes": 0} == {**whole, "codes": 0}
