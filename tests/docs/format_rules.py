"""The rules of docs/cache_format.md, each with what breaks it: in a file, in its content, or for one call only."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from format_page import names
from written_cache import Cache, data_of, step

from airgraph.cache.format import graph, source_path
from airgraph.cache.format.signed import FORMAT, signed_text

__all__ = ["FILES", "MISSES", "REFUSED", "more"]


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


def _read_on_another_stream(data: dict[str, Any]) -> None:
    made = {"node": _mul(data)["name"]}
    reads = {"name": "reads", "op": "call_function", "target": "aten.neg.default", "args": [made], "stream": "side"}
    data["graph"]["nodes"].append(reads)


def _wait_for_nothing(data: dict[str, Any]) -> None:
    wait = {"name": "waits", "op": "call_function", "target": "airgraph.wait_event.default", "args": ["never"]}
    data["graph"]["nodes"].append(wait)


def _communicates(data: dict[str, Any]) -> None:
    of_input = {"node": data["graph"]["nodes"][0]["name"]}
    args = [of_input, "sum", "7"]
    reduce = {"name": "reduce", "op": "call_function", "target": "_c10d_functional.all_reduce.default", "args": args}
    data["graph"]["nodes"].append(reduce)


FILES: list[tuple[str, Callable[..., Any], str]] = [
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
    ("F8", lambda cache: cache.file.write_text(signed_text(data_of(cache.file))), "the checksum is wrong"),
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


def more(part: str, each: Any) -> Callable[[dict[str, Any]], None]:
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
    return f"{step.__module__}.{name}"


_MALFORMED = "a part is missing or malformed"
_OTHER_KEYS = names("Manifest")
_WRONG_VIEWS = ([], ["L['x']", [1], [1]], [0, [1], [1], 0], ["L['x']", [1.5], [1], 0], ["L['x']", [True], [1], 0])
_VIEWS_BEYOND = (
    ["L['x']", [1 << 20], [1], 0],
    ["L['x']", [1], [1], -1],
    ["L['x']", [1], [1, 1], 0],
    ["L['factor']", [], [], 0],
)
_WRONG_KEYS = (
    {"item": None},
    {"item": 1.5},
    {"item": True},
    {"item": 0, "more": 0},
    {"attribute": "a"},
    ["item", 0],
    0,
)
# Signed, and not what a writer writes.
REFUSED: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    *(("M10", lambda data, key=key: data.pop(key), "a part is ") for key in _OTHER_KEYS),
    ("M10", _set(more=1), "a part is unknown"),
    ("M10", _set(format=FORMAT - 1), "of another format"),
    ("M10", _set(guards={}), "guards is no list"),
    ("M10", _set(inputs=3), _MALFORMED),
    ("M11", more("sources", ["module", "", ""]), "a source is four texts"),
    ("M11", more("sources", ["module", "", "", 3]), "a source is four texts"),
    ("M12", _within("process", environment={"A": 1}), "variables of the environment are texts"),
    ("M12", _within("process", environment={"\ud800": None}), "a part is missing or malformed"),
    ("M12", _within("process", hashes="1"), "a hash is a number"),
    *(("M12", _within("process", groups={"0": ranks}), "has a list of ranks") for ranks in (0, [0.5], "01")),
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
    ("C1", more("guards", ["runs", "L['x']", 1]), "unknown kind of guard"),
    ("C2", more("guards", ["has", "L['x']", 3]), "unexpected 3"),
    ("C2", more("guards", ["keys", "L['x']", "ab"]), "unexpected 'ab'"),
    ("C3", more("guards", ["equals", "L['x']"]), _MALFORMED),
    *(
        ("P1", _in_input("x", path=text), "is not a path")
        for text in ("x", "L['x'].run()", "L['x'][0:1]", "L['x'][key]", "L['x'].a + 1", "L['x'] .a", "eval(L['x'])")
    ),
    *(("P2", _in_input("x", path=f"L['x'].{name}"), "is not a path") for name in sorted(source_path._HIDDEN)),
    ("P3", _in_input("x", path="L['other']"), "the function has no parameter 'other'"),
    ("P3", more("guards", ["has", "L['other']", "a"]), "the function has no parameter 'other'"),
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
    *(("G12", lambda data, key=key: data["graph"].pop(key), "malformed") for key in names("Graph")),
    ("G13", _in_mul(args=[]), "fails on these inputs"),
    *(("G14", _in_mul(priority=value), "is no small integer") for value in ("1", 1.5, True, 10**6)),
    ("G15", _read_on_another_stream, "and nothing orders the two"),
    ("G15", _wait_for_nothing, "is waited for at"),
    ("G16", _communicates, "in a group '7' whose ranks are not in the file"),
    ("S1", _set(structure={"call": "os.system"}), "no such structure: call"),
    ("S1", _set(structure={"output": 0, "list": []}), "expected a structure"),
    *(("S1", _set(structure={"view": view}), "no such structure: view") for view in _WRONG_VIEWS),
    ("S2", _set(structure={"output": 7}), "the graph has no output 7"),
    ("C3", more("guards", ["equals", "L['factor']", 2, 3]), "unexpected 2"),
    ("C3", more("guards", ["same", "L['x']", "nonsense"]), "nonsense"),
    ("C3", more("guards", ["distinct", "L['x']", ["nonsense"]]), "nonsense"),
    *(("G11", _power(*args), _POWERS) for args in ([9, 65], [9], [9, "2"])),
    ("G11", lambda data: (_power(9, 64)(data), _power({"node": "power"}, 2, name="more")(data)), _POWERS),
    ("S2", _set(structure={"output": -1}), "the graph has no output -1"),
    ("S3", _set(structure={"argument": "G['torch']"}), "which is no argument"),
    ("S3", _set(structure={"argument": "L['other']"}), "which is no argument"),
    ("S3", _set(structure={"view": ["G['torch']", [1], [1], 0]}), "which is no argument"),
    ("S4", _set(structure={"number": "s9999 + 1"}), "no argument has the size s9999"),
    ("S4", _set(structure={"view": ["L['x']", ["s9999"], [1], 0]}), "no argument has the size s9999"),
    ("S5", _set(structure={"same": 5}), "no such structure: same"),
    ("S5", _set(structure={"tuple": [{"same": 0}]}), "a structure is within itself"),
    ("S6", _set(structure={"record": ["subprocess.Popen", []]}), "subprocess.Popen is not loaded, or"),
    ("S6", _set(structure={"record": ["antigravity.Class", []]}), "antigravity.Class is not loaded, or"),
    ("S6", _set(structure={"record": [_of_tests("Noisy"), [["value", {"output": 0}]]]}), "Noisy is not loaded, or"),
    ("S7", _set(structure={"record": [_of_tests("Pair"), [["first", {"output": 0}]]]}), "Pair has other fields"),
    ("S8", _set(structure={"argument": "L['x'].missing"}), "the result cannot be put together"),
    ("S8", _set(structure={"number": "1 // 0"}), "the result cannot be put together"),
    *(("S8", _set(structure={"view": view}), "the result cannot be put together") for view in _VIEWS_BEYOND),
    ("W1", more("writes", ["G['torch']", "a", {"output": 0}]), "no call writes"),
    ("W1", more("writes", ["L['counter']", "__class__", {"output": 0}]), "no call writes"),
    ("W1", more("writes", ["L['counter']", "a b", {"output": 0}]), "no call writes"),
    *(("W1", more("writes", ["L['counter']", key, {"output": 0}]), "no call writes") for key in _WRONG_KEYS),
    ("W2", more("writes", ["L['x']", "data", {"output": 0}]), "which is a property"),
    ("W2", more("writes", ["L['counter']", {"item": 0}, {"output": 0}]), "is to be written, of a"),
    ("W1", more("writes", ["type(L['counter'])", "count", {"output": 0}]), "its class is not guarded"),
]  # fmt: skip
# Signed, and well formed, but not for this call in this process.
MISSES: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("M1", _within("fingerprint", torch="1.0")),
    ("M1", _within("fingerprint", passes="0" * 32)),
    ("M1", _within("fingerprint", unheard_of="a")),
    ("M3", more("sources", ["antigravity.a", "", "/dev/zero", ""])),
    ("M3", more("sources", ["builtins", "=len", "", "0" * 64])),
    ("M3", more("sources", [step.__module__, "step", "", "0" * 64])),
    ("M4", _within("process", environment={"AIRGRAPH_IS_NOT_SET": "1"})),
    ("M4", _within("process", groups={"7": [0, 1]})),
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
    ("C4", more("guards", ["equals", "L['factor']", 7])),
    ("C4", more("guards", ["equals", "L['factor']", 2.0])),
    ("C4", more("guards", ["has", "L['counter'].missing", "a"])),
    ("C4", more("guards", ["type", "L['x'].imag", "a"])),
    ("C4", more("guards", ["equals", "L['counter'].size()[0]", 5])),
    ("P4", more("guards", ["has", "G['__import_antigravity']", "a"])),
    ("E1", more("shape_guards", "Eq(1, 2)")),
    *(
        ("E2", more("shape_guards", text))
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
