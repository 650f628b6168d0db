"""A small project of two modules and a script that is edited between starts; `render` writes one version of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# What may be edited, each with its versions.
EDITS: Mapping[str, tuple[str, ...]] = {
    "scale": ("2", "3"),
    "member": ("1", "4"),
    "gain": ("2", "5"),
    "hidden_gain": ("1", "6"),
    "default": ("2", "7"),
    "helper": ("x + 1", "x - 1"),
    "decorated": ("* 1", "* 2"),
    "base": ("x + 1", "x * 2"),
    "override": ("pass", "def part(self, x): return x - 3", "def part(self, x): return super().part(x) * 5"),
    "of_layer": ("pass", "def scaled(self, x): return x * 9"),
    "of_argument": ("pass", "def apply(self, x): return x * 11"),
    "static": ("x * 2", "x * 4"),
    "of_property": ("3", "8"),
    "chosen": ("self.part(x)", "self.other(x)"),
    "closed_over": ("2", "6"),
    "kind": ("'sum'", "'mean'"),
    "operator": ("x.relu() + x * 0.1", "x.abs() + x * 0.3"),
    "nested": ("x + 2", "x + 4"),
    "order": ("['part', 'other']", "['other', 'part']"),
    "argument": ("None", "1"),
    "of_set": ("'part', 'other'", "'part'", "'other', 'anything'"),
    "custom": ("x * 1.5", "x - 1.5"),
    "composite": ("torch.sin(x)", "torch.cos(x)"),
    "below": ("2", "9"),
    "metaclass": ("2", "3"),
    "swapped": ("", "Base.constant = staticmethod(lambda x: x * 17)"),
}

# Of these a version lacks what another has. Versions of the others differ in a number, a name or an operator, so that
# taking an edit back is an edit like it.
ADDS = frozenset({"override", "of_layer", "of_argument", "argument", "of_set", "swapped"})

_PARTS = """
import dataclasses
import enum
import os

import torch

SCALE = {scale}
NAMES = {order}


class Mode(enum.IntEnum):
    ADD = {member}


@dataclasses.dataclass
class Config:
    gain: int = {gain}


@dataclasses.dataclass
class Hidden:
    gain: int = {hidden_gain}


def helper(x, times={default}):
    def inner(x):
        return {nested}

    return inner({helper}) * times


def decorate(function):
    def wrapped(self, x):
        return function(self, x) {decorated}

    return wrapped


def scaled_by(factor):
    def scale(x):
        return x * factor

    return scale


BELOW = {below}


def beneath(x):
    return {operator} * BELOW


@torch.compiler.allow_in_graph
def opaque(x):
    return beneath(x)


@torch.library.custom_op("edited_project::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    return {custom}


@custom.register_fake
def _(x):
    return torch.empty_like(x)


_library = torch.library.Library("edited_project_composite", "FRAGMENT")
_library.define("turn(Tensor x) -> Tensor")


@torch.library.impl(_library, "turn", "CompositeImplicitAutograd")
def turn(x):
    return {composite}


class Counted(type):
    def count(cls):
        return {metaclass}


class Numbers(metaclass=Counted):
    pass


CHOSEN = {{{of_set}}}


class Base(torch.nn.Module):
    def part(self, x):
        return {base}

    @decorate
    def other(self, x):
        return x * 3

    @staticmethod
    def constant(x):
        return {static}

    @property
    def width(self):
        return {of_property}


class Layer(Base):
    def scaled(self, x):
        return x * 2


class Argument:
    def apply(self, x):
        return x + 1


{swapped}
"""

_MODEL = """
import os

import torch

from parts import (
    CHOSEN, NAMES, SCALE, Argument, Base, Config, Hidden, Layer, Mode, Numbers, custom, decorate, helper, opaque,
    scaled_by,
)


class OwnLayer(Layer):
    {of_layer}


class OwnArgument(Argument):
    {of_argument}


scale = scaled_by({closed_over})


class Model(Base):
    {override}

    def __init__(self):
        super().__init__()
        self.layer = OwnLayer()
        self.config = Config()
        self.mode = Mode.ADD

    def step(self, x, argument, times={argument}):
        y = {chosen} * SCALE + self.mode + self.config.gain + Hidden().gain
        y = self.constant(helper(y)) * self.width
        y = scale(self.layer.scaled(opaque(y / 50)))
        if os.environ.get("PROJECT_NEGATES"):
            y = -y
        for name in NAMES:
            y = getattr(self, name)(y)
        for name in CHOSEN:
            y = y * 1.1 + len(name)
        y = custom(y / 100) * Numbers.count() + torch.ops.edited_project_composite.turn(y)
        y = y * 2 if "other" in CHOSEN else y * 5
        if times is not None:
            y = y * 13
        y = argument.apply(y)
        return y.sum() if {kind} == "sum" else y.mean()
"""

_SCRIPT = """
import torch

import airgraph
from model import Model, OwnArgument

model, x = Model(), torch.arange(6.0)
call = airgraph.inference.cache_compile(model.step, cache_dir={folder!r}, strict=True)
with torch.no_grad():
    result = [call(x, OwnArgument()).item(), model.step(x, OwnArgument()).item(), len(call.files)]
"""


def render(state: Mapping[str, int], into: Path, cache: Path) -> Path:
    """Writes the project of these versions, and returns its script."""
    chosen = {name: versions[state.get(name, 0)] for name, versions in EDITS.items()}
    into.mkdir(parents=True, exist_ok=True)
    (into / "parts.py").write_text(_PARTS.format(**chosen))
    (into / "model.py").write_text(_MODEL.format(**chosen))
    script = into / "start.py"
    script.write_text(_SCRIPT.format(folder=str(cache)))
    return script
