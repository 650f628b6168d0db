"""A cache file is whole and of this format, or says what is wrong with it."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import airgraph
from airgraph.cache.format.manifest import Manifest
from airgraph.cache.format.signed import FORMAT
from airgraph.cache.store.folder import read_manifest
from airgraph.errors import CacheError


def advance(x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
    cache.add_(x.sum(0))
    return x * 2, cache


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder that is left as it is, and where in it the file lies."""
    # The first trace of a process runs code that later ones do not, and a file names all of it.
    for _ in range(2):
        folder = tmp_path_factory.mktemp("written")
        call = airgraph.inference.cache_compile(advance, cache_dir=folder, strict=True)
        call(torch.randn(4, 3), torch.zeros(3))
        torch._dynamo.reset()
    return folder, call.files[0].relative_to(folder)


@pytest.fixture
def file(written: tuple[Path, Path], tmp_path: Path) -> Path:
    folder, file = written
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / file


def key_of(file: Path) -> bytes:
    return next(folder / ".key" for folder in file.parents if (folder / ".key").exists()).read_bytes()


def rewrite(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """With a checksum that is right."""
    head, _, body = file.read_text().partition("\n")
    data = json.loads(body)
    change(data)
    body = json.dumps(data)
    head = f"{head.rpartition(' ')[0]} {hmac.new(key_of(file), body.encode(), hashlib.sha256).hexdigest()}"
    file.write_text(f"{head}\n{body}\n")


def named(data: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in data["inputs"] if each["name"] == name)


def test_it_comes_back_as_it_was(file: Path) -> None:
    text, key = file.read_text(), key_of(file)
    assert Manifest.from_text(text, key).to_text(key) == text
    with pytest.raises(CacheError, match="checksum is wrong"):
        Manifest.from_text(text, bytes(len(key)))


def test_it_holds_data_only(file: Path) -> None:
    body = file.read_text().partition("\n")[2]
    assert json.loads(body)["format"] == FORMAT


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a cache file: it begins with ''"),
        (lambda data: b"\x80\x04\x95", "not a cache file: it is not text"),
        (lambda data: b"hello\nworld", "not a cache file: it begins with 'hello'"),
        (lambda data: data[: len(data) // 2], "the checksum is wrong: the file is damaged or was changed"),
        (lambda data: data.replace(b"aten.mul.Tensor", b"aten.add.Tensor"), "the checksum is wrong"),
        (
            lambda data: data.replace(b"airgraph cache %d " % FORMAT, b"airgraph cache 3 ", 1),
            f"format 3, expected {FORMAT}",
        ),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(file: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CacheError, match=message) as raised:
        read_manifest(file)
    assert str(file) in str(raised.value)


def test_a_damaged_file_is_made_anew_with_a_warning(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    x, cache = torch.randn(4, 3), torch.zeros(3)
    call = airgraph.inference.cache_compile(advance, cache_dir=tmp_path)
    with pytest.warns(UserWarning, match="a cached graph is not used and made anew: .*the checksum is wrong"):
        got, _ = call(x, cache)
    torch.testing.assert_close(got, x * 2)
    torch.testing.assert_close(cache, x.sum(0))
    assert file.read_bytes() == whole
    file.write_bytes(b"")
    with pytest.raises(CacheError, match="not a cache file"):
        airgraph.inference.cache_compile(advance, cache_dir=tmp_path, strict=True)(x, cache)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("inputs"), "a part is missing or malformed: inputs is no list"),
        (lambda data: data.update(inputs=3), "a part is missing or malformed"),
        (lambda data: data["inputs"].pop(), "inputs for a graph of"),
        (lambda data: data["inputs"][0].update(role="unheard"), "a part is missing or malformed: ValueError"),
        (lambda data: data["inputs"][0].update(path="L['x'].__globals__"), "is not a path"),
        (lambda data: data["inputs"][0].update(path="L['other']"), "the function has no parameter 'other'"),
        (lambda data: data["guards"].append(["runs", "L['x']", 1]), "unknown kind of guard: 'runs'"),
        (lambda data: data["guards"].append(["equals"]), "a part is missing or malformed"),
        (lambda data: data["graph"].pop("nodes"), "the graph is malformed"),
        (
            lambda data: data.update(structure={"record": ["subprocess.Popen", []]}),
            "subprocess.Popen is not loaded, or",
        ),
        (lambda data: data.update(structure={"record": ["os.system", []]}), "os.system is not loaded, or"),
        (lambda data: data.update(structure={"call": "os.system"}), "no such structure: call"),
        (lambda data: data.update(structure=[]), "expected a structure"),
        (lambda data: named(data, "cache").update(role="user"), "writes cache, which is said to be user"),
        (lambda data: named(data, "x").update(role="scalar"), "x is said to be scalar"),
        (lambda data: data.update(structure={"argument": "L['x'].missing"}), "the result cannot be put together"),
        (lambda data: data.update(structure={"number": "s0 // 0"}), "no argument has the size|cannot be put together"),
        (lambda data: data["writes"].append(["L['x']", "data", {"output": 0}]), "its class is not guarded"),
        (
            lambda data: (
                data["writes"].append(["L['x']", "data", {"output": 0}]),
                data["guards"].append(["type", "L['x']", "torch.Tensor"]),
            ),
            "which is a property",
        ),
        (lambda data: data["writes"].append(["L['x']", "__class__", {"output": 0}]), "no call writes"),
        (lambda data: data["writes"].append(["G['x']", "value", {"output": 0}]), "no call writes"),
        (
            lambda data: data["writes"].append(["L['x']", "__class__", {"output": 0}]),
            "a part is missing|no call writes",
        ),
        (lambda data: data["graph"]["nodes"][-1].update(args=[]), "fails on these inputs|writes|malformed"),
        (lambda data: data["inputs"][-1].update(shape=[None]), "a size is a number or an expression, got None"),
        (lambda data: data["inputs"][0].update(symbol=1.5, dtype=None), "a part is missing|no such value"),
        (lambda data: data["guards"].append(["has", "L['x']", 3]), "unexpected 3"),
        (lambda data: data.update(structure={"output": 7}), "the graph has no output 7"),
        (lambda data: data.update(structure={"argument": "G['x']"}), "which is no argument"),
        (lambda data: data.update(state={"grad": True}), "a part is missing or malformed"),
    ],
)
def test_a_file_that_airgraph_did_not_write_is_refused(
    file: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    rewrite(file, change)
    x, cache = torch.randn(4, 3), torch.zeros(3)
    with pytest.raises(CacheError, match=message) as raised:
        airgraph.inference.cache_compile(advance, cache_dir=tmp_path, strict=True)(x, cache)
    assert str(file) in str(raised.value)
    assert not cache.any()
    with pytest.warns(UserWarning, match="made anew"):
        airgraph.inference.cache_compile(advance, cache_dir=tmp_path)(x, cache)
    torch.testing.assert_close(cache, x.sum(0))


def test_conditions_that_do_not_hold_make_a_graph_of_its_own(file: Path, tmp_path: Path) -> None:
    def never(data: dict[str, Any]) -> None:
        (symbol,) = {each["shape"][0] for each in data["inputs"] if each["name"] == "x"}
        data["shape_guards"].append(f"{symbol} > 1000")

    rewrite(file, never)
    x, cache = torch.randn(4, 3), torch.zeros(3)
    call = airgraph.inference.cache_compile(advance, cache_dir=tmp_path, strict=True)
    call(x, cache)
    torch.testing.assert_close(cache, x.sum(0))
    assert [path.name for path in call.files] == ["graph_1.airgraph", "graph_0.airgraph"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["sources"].append(["no.module", "", "/dev/zero", ""]),
        lambda data: data["sources"].append(["no.module", "", "nul\0", ""]),
        lambda data: data["shape_guards"].append("((7**16)**16)**16 > 1"),
        lambda data: data["shape_guards"].append("unknown > 1"),
        lambda data: data["fingerprint"].update(torch="another"),
    ],
)
def test_a_file_that_does_not_fit_is_passed_over(
    file: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    rewrite(file, change)
    x, cache = torch.randn(4, 3), torch.zeros(3)
    call = airgraph.inference.cache_compile(advance, cache_dir=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(call(x, cache)[0], x * 2)
    torch.testing.assert_close(cache, x.sum(0))


def test_it_can_be_read_by_people(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = airgraph.inference.readable_cache(file)
    assert capsys.readouterr().out == f"{text}\n"
    assert "test_manifest.advance on cpu, made by airgraph" in text
    assert "float32[s77, 3]" in text or "float32[s" in text
    assert "mutated cache" in text and "torch.ops.aten.mul.Tensor" in text and __file__ in text
    assert '# returns {"tuple": [{"output": 0}, {"argument": "L[\'cache\']"}]}' in text
    (tmp_path / "copy").mkdir()
    with (tmp_path / "copy" / "text").open("w") as target:
        assert airgraph.inference.readable_cache(tmp_path, file=target) == text
    assert (tmp_path / "copy" / "text").read_text() == f"{text}\n"
    with pytest.raises(CacheError, match="holds no cached graph"):
        airgraph.inference.readable_cache(tmp_path / "copy")
    with pytest.raises(CacheError, match="cannot read"):
        airgraph.inference.readable_cache(tmp_path / "missing")
