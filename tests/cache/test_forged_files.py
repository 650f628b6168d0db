"""Files that were damaged, or written by somebody else with the folder's key, never do harm.

`--forged N` takes N damaged files, and a tenth of that signed again.
"""

from __future__ import annotations

import copy
import faulthandler
import hashlib
import hmac
import json
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from torch import Tensor, nn

import airgraph
from airgraph.cache.store.folder import read_manifest
from airgraph.errors import AirgraphError, CacheError, OptionError

# What the function computes, and what it returns and writes: with the key, one can say anything there.
_SAYS_WHAT = {"graph", "structure", "writes"}
_JUNK: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**70), 1e308, -0.0, "", "x", "\ud800", "a" * 10_000, [], {}, [[]]),
    *("L['x']", "L['held'].value", "G['torch']", "L['x'].__class__.__subclasses__", "L['x'].data"),
    *("__import__('os').system('true')", "s0", "s77 // 0", "9**9**9"),
    *(
        "aten.mul.Tensor",
        "aten.add_.Tensor",
        "aten.resize_.default",
        "aten.set_.source_Tensor",
        "aten.from_file.default",
    ),
    *("user", "mutated", "static", "scalar", "float32", "int64", "complex128", "cpu", "cuda:7", "meta"),
    *({"node": "mul"}, {"output": 0}, {"output": -1}, {"argument": "L['x']"}, {"record": ["subprocess.Popen", []]}),
    *({"tuple": [{"tuple": []}]}, {"float": "nan"}, {"dtype": "bfloat16"}, {"device": "cuda"}),
]
_REACHES_OUT = (
    "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "shutil.rmtree", "socket.connect",
)  # fmt: skip


class Held:
    def __init__(self) -> None:
        self.value = torch.zeros(3)
        self.count = 0


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 3)
        self.scale = 2.0

    def forward(self, x: Tensor, cache: Tensor, held: Held, factor: float) -> Any:
        y = self.inner(x) * self.scale * factor
        cache.add_(y.sum(0))
        held.value = y[0].clone()
        held.count += x.shape[0]
        return {"y": y, "sizes": (x.shape[0], x.size()), "cache": cache, "mean": y.mean(-1, keepdim=True).expand(-1, 2)}


@pytest.fixture
def written(tmp_path: Path) -> tuple[Model, Path]:
    """A model and the file of its graph, which serves."""
    model = Model()
    call = cached(model.forward, tmp_path)
    check(call, model)
    return model, call.files[0]


def check(call: Callable[..., Any], model: Model) -> None:
    """It does and returns what the model does and returns."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(4, 3, generator=generator)
    ours, theirs = (torch.zeros(3), Held()), (torch.zeros(3), Held())
    got = call(x, *ours, 0.5)
    with torch.no_grad():
        expected = model(x, *theirs, 0.5)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close((ours[0], ours[1].value), (theirs[0], theirs[1].value))
    assert ours[1].count == theirs[1].count and got["cache"] is ours[0]


def test_damaged_files_are_known_as_such(written: tuple[Model, Path], pytestconfig: pytest.Config) -> None:
    model, file = written
    whole = file.read_bytes()
    chance = random.Random(11)
    for number in range(pytestconfig.getoption("forged")):
        damaged = _damaged(whole, chance)
        if damaged == whole:
            continue
        file.write_bytes(damaged)
        with pytest.raises(CacheError):
            read_manifest(file)
        if number % 500 == 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(cached(model.forward, file.parents[3], strict=False), model)
    file.write_bytes(whole)
    check(cached(model.forward, file.parents[3]), model)


def _damaged(whole: bytes, chance: random.Random) -> bytes:
    made = bytearray(whole)
    for _ in range(chance.choice((1, 1, 1, 3, 20))):
        at = chance.randrange(len(made) or 1)
        match chance.randrange(5):
            case 0:
                made[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del made[at : at + chance.randrange(1, 200)]
            case 2:
                made[at:at] = chance.randbytes(chance.randrange(1, 50))
            case 3:
                made[at:at] = made[at : at + chance.randrange(1, 400)]
            case _:
                del made[at:]
    return bytes(made)


def test_signed_files_of_any_content_do_no_harm(written: tuple[Model, Path], pytestconfig: pytest.Config) -> None:
    """Through the door that all take: a call is right, or what was forged says that it computes something else."""
    model, file = written
    root = file.parents[3]
    head, _, body = file.read_text().partition("\n")
    key = (root / ".key").read_bytes()
    chance = random.Random(12)
    anew = served = otherwise = 0
    for number in range(max(10, pytestconfig.getoption("forged") // 10)):
        data = json.loads(body)
        parts = {_forge(data, chance) for _ in range(chance.choice((1, 1, 2, 4)))}
        text = json.dumps(data)
        signature = hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        forged = f"{head.rpartition(' ')[0]} {signature}\n{text}\n".encode("utf-8", "surrogatepass")
        for other in file.parent.glob("graph_*"):
            other.unlink()
        file.write_bytes(forged)
        call = cached(model.forward, root, strict=False)
        values = torch.ones(4, 3), torch.zeros(3), Held(), 0.5
        with _harmless(root), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call(*values)
            except AirgraphError:
                # Nothing is half done.
                assert parts & _SAYS_WHAT and not values[1].any() and values[2].count == 0, (number, parts)
                otherwise += 1
                continue
            is_served = call.files == [file] and file.read_bytes() == forged
            if parts & _SAYS_WHAT and is_served:
                # It may compute something else.
                otherwise += 1
                continue
            check(call, model)
        served += is_served
        anew += not is_served
    assert anew > served > 0
    file.unlink()
    airgraph.reset()
    check(cached(model.forward, root), model)


def _forge(data: Any, chance: random.Random) -> str:
    """Change something somewhere; returns in which part."""
    first = None
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            return first or ""
        key = chance.choice(keys)
        first = first or str(key)
        if isinstance(data[key], (dict, list)) and data[key] and chance.random() < 0.85:
            data = data[key]
            continue
        match chance.randrange(5):
            case 0 if isinstance(data, list):
                data.insert(key, copy.deepcopy(chance.choice(_JUNK)))
            case 1:
                del data[key]
            case 2:
                data[key] = copy.deepcopy(data[chance.choice(keys)])
            case 3 if type(data[key]) is int:
                data[key] += chance.choice((-1, 1, 1 << 40))
            case _:
                data[key] = copy.deepcopy(chance.choice(_JUNK))
        return first


_watching: tuple[Path, list[str]] | None = None


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching is None:
        return
    root, seen = _watching
    if event in _REACHES_OUT:
        seen.append(f"{event} {arguments}")
    elif event in ("open", "os.remove") and isinstance(arguments[0], (str, bytes, Path)):
        path, flags = os.fsdecode(arguments[0]), arguments[-1]
        writes = event != "open" or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes and not path.startswith((str(root), os.devnull)):
            seen.append(f"{event} {arguments}")


sys.addaudithook(_on_audit)


@contextmanager
def _harmless(root: Path) -> Iterator[None]:
    """No program is started, nothing is written elsewhere and nobody called, and it ends."""
    global _watching
    seen: list[str] = []
    _watching = root, seen
    faulthandler.dump_traceback_later(120, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        _watching = None
    assert not seen


def test_a_file_is_not_blamed_for_the_options_it_is_read_with(tmp_path: Path) -> None:
    def step(x: Tensor) -> Tensor:
        return x * 2 + 1

    pool = airgraph.graph_pool_handle()
    cached(step, tmp_path, options={"use_graph_pool": pool})(torch.ones(3))
    (path,) = tmp_path.rglob("*.airgraph")
    known = path.stat().st_mtime_ns
    pool.close()
    for strict in (True, False):
        with pytest.raises(OptionError, match="is closed"):
            cached(step, tmp_path, options={"use_graph_pool": pool}, strict=strict)(torch.ones(3))
    assert path.stat().st_mtime_ns == known
