"""Paths from a function's arguments are read by names and constant keys, and by nothing else."""

import contextlib
import sys
import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from airgraph.cache.format.source_path import parse, resolve
from airgraph.errors import CacheError, UnsupportedPath


class Owner:
    shared = "shared"

    def __init__(self) -> None:
        self.items = [torch.zeros(2, 3), {"a b": 5, "it's": 6, 7: "seven"}]
        self._modules = {"inner": self}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L['self'].items[1]['a b']", 5),
        ("L['self'].items[-1][\"it's\"]", 6),
        ("L['self'].items[1][7]", "seven"),
        ("L['self']._modules['inner'].items[0].size()[1]", 3),
        ("L['self'].items[0].stride()[0]", 3),
        ("L['self'].items[0].storage_offset()", 0),
        ("L['self'].__dict__['items'][1][7]", "seven"),
        ("type(L['self'])", Owner),
        ("L['self'].__class__.shared", "shared"),
        ("dict(type(L['self']).__mro__[0].__dict__)['shared']", "shared"),
        ("G['known']", 1),
        ("G['__import_torch_dot_nn'].Linear", torch.nn.Linear),
    ],
)
def test_it_reads(text: str, expected: object) -> None:
    assert parse(text).read({"self": Owner()}, {"known": 1}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "self",
        "L",
        "L[self]",
        "L['self'].__globals__",
        "L['self'].__class__.__subclasses__",
        "G['x'].__builtins__",
        "type(L['self']",
        "L['self'])",
        "eval(L['self'])",
        "L['self'].forward.__globals__['os']",
        "L['self'].run()",
        "L['self'].size()",
        "L['self'][key]",
        "L['self'][0:1]",
        "L['self'].a b",
        "L['self']..a",
        "L['self']; import os",
        "__import__('os').system('true')",
        "M['self'].x",
        "L['self'].x\n.y",
    ],
)
def test_it_refuses(text: str) -> None:
    with pytest.raises(UnsupportedPath, match="is not a path"):
        parse(text)


@given(st.text())
def test_any_text_is_a_path_or_refused(text: str) -> None:
    for candidate in (text, f"L['x']{text}", f"L['x'].{text}"):
        with contextlib.suppress(CacheError):
            assert parse(candidate).text == candidate


def test_a_module_that_is_not_loaded_is_not_imported() -> None:
    name = "antigravity"
    assert name not in sys.modules
    with pytest.raises(KeyError):
        parse(f"G['__import_{name}'].x").read({}, {})
    assert name not in sys.modules


def test_keys_by_position_are_looked_up() -> None:
    held = types.SimpleNamespace(d={"first": {"second": 3}})
    read = lambda path: path.read({"x": held}, {})
    inner = "dict.__getitem__(L['x'].d, list(dict.keys(L['x'].d))[0])"
    assert resolve(inner, read).text == "L['x'].d['first']"
    outer = f"{inner}[list(dict.keys({inner}))[0]]"
    assert resolve(outer, read).text == "L['x'].d['first']['second']"
    assert read(resolve(outer, read)) == 3
    for text in ("dict.__getitem__(L['x'].d, key())", "list(L['x'].d)[0]", "L['x'].d[list(dict.keys(L['x'].e))[0]]"):
        with pytest.raises(UnsupportedPath):
            resolve(text, read)
