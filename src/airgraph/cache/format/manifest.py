"""One traced graph as a file: JSON text that says what it is, what it needs and what it took for granted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

import torch

from airgraph.cache.format.fingerprint import Fingerprint
from airgraph.cache.format.graph import value_from, value_to
from airgraph.cache.format.guard import Guard
from airgraph.cache.format.guards import guard_from
from airgraph.cache.format.process import Process
from airgraph.cache.format.signed import FORMAT, signed_data, signed_text
from airgraph.cache.format.source import Source
from airgraph.cache.format.source_path import Attribute, Item, SourcePath, parse
from airgraph.cache.format.torch_settings import State
from airgraph.errors import CacheError
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.torch_internals.dispatcher import dispatch_keys

__all__ = ["CachedInput", "Manifest", "Traits", "Write", "lazy_of"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What Dynamo guards of a tensor besides its form: its class, whether gradients are wanted and it is a leaf.

    keys: by which its operators are dispatched, as PyTorch's number for them.
    """

    class_name: str
    requires_grad: bool
    is_leaf: bool
    keys: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Traits:
        return cls(type(tensor).__name__, tensor.requires_grad, tensor.is_leaf, dispatch_keys(tensor).raw_repr())

    @classmethod
    def from_data(cls, data: Any) -> Traits:
        if not isinstance(data, list) or [type(each) for each in data] != [str, bool, bool, int]:
            raise CacheError(f"traits of a tensor are a text, two booleans and a number, got {data!r}")
        return cls(*data)


@dataclass(frozen=True, slots=True)
class CachedInput:
    """An argument of the graph: its plan, where it lies, and its form.

    Of a tensor dtype, device, shape, strides and offset in its storage, as numbers or expressions over symbols; what is
    lazily done to it: "", "conj", "neg" or "conj neg"; and its traits. Of an integer its symbol. is_float: a Python
    float, which the graph takes as a tensor without dimensions.
    """

    plan: InputPlan
    path: SourcePath
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    shape: tuple[int | str, ...] = ()
    stride: tuple[int | str, ...] = ()
    offset: int | str = 0
    lazy: str = ""
    symbol: int | str | None = None
    traits: Traits | None = None
    is_float: bool = False

    @classmethod
    def of_float(cls, plan: InputPlan, path: SourcePath) -> CachedInput:
        return cls(plan, path, torch.float64, torch.device("cpu"), is_float=True)

    @property
    def is_tensor(self) -> bool:
        """For the graph."""
        return self.dtype is not None

    @property
    def varies(self) -> bool:
        """Whether it may be of several sizes."""
        return any(isinstance(size, str) for size in (*self.shape, *self.stride, self.offset, self.symbol))

    def to_data(self) -> dict[str, Any]:
        held: dict[str, Any] = {"path": self.path.text, "name": self.plan.source, "role": self.plan.role.value}
        if self.plan.parameter:
            held["parameter"] = True
        if self.is_float:
            return {**held, "float": True}
        if not self.is_tensor:
            return {**held, "symbol": self.symbol}
        form = {"dtype": value_to(self.dtype)["dtype"], "device": str(self.device)}
        place = {"shape": list(self.shape), "stride": list(self.stride), "offset": self.offset}
        assert self.traits is not None
        return {**held, **form, **place, "lazy": self.lazy, "traits": list(astuple(self.traits))}

    @classmethod
    def from_data(cls, index: int, data: Mapping[str, Any]) -> CachedInput:
        plan = InputPlan(index, InputRole(data["role"]), str(data["name"]), bool(data.get("parameter")))
        path = parse(data["path"])
        if data.get("float") is True:
            return cls.of_float(plan, path)
        if "dtype" not in data:
            return cls(plan, path, symbol=_size(data["symbol"]))
        dtype, device = value_from({"dtype": data["dtype"]}, {}), value_from({"device": data["device"]}, {})
        shape, stride = tuple(map(_size, data["shape"])), tuple(map(_size, data["stride"]))
        if len(shape) != len(stride):
            raise CacheError(f"{path.text}: {len(shape)} sizes and {len(stride)} strides")
        traits = Traits.from_data(data["traits"])
        return cls(plan, path, dtype, device, shape, stride, _size(data["offset"]), str(data["lazy"]), None, traits)


@dataclass(frozen=True, slots=True)
class Write:
    """`owner.attribute = value` or `owner[key] = value`, done after the graph. structure: of the value, see
    `result_spec`."""

    owner: SourcePath
    step: Attribute | Item
    structure: Any

    def __str__(self) -> str:
        return (
            f"{self.owner.text}.{self.step.name}"
            if isinstance(self.step, Attribute)
            else (f"{self.owner.text}[{self.step.key!r}]")
        )

    def to_data(self) -> list[Any]:
        step = self.step.name if isinstance(self.step, Attribute) else {"item": self.step.key}
        return [self.owner.text, step, self.structure]

    @classmethod
    def from_data(cls, data: Any) -> Write:
        owner, step, structure = parse(data[0]), data[1], data[2]
        match step:
            case {"item": int() | str() as key} if type(key) is not bool and len(step) == 1 and not owner.is_global:
                return cls(owner, Item(key), structure)
            case str() if not owner.is_global and step.isidentifier() and not step.startswith("__"):
                return cls(owner, Attribute(step), structure)
        raise CacheError(f"no call writes {step} of {owner.text}")


def lazy_of(tensor: torch.Tensor) -> str:
    """What is lazily done to a tensor."""
    return " ".join(name for name, is_so in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if is_so)


def _size(size: Any) -> int | str:
    if type(size) not in (int, str):
        raise CacheError(f"a size is a number or an expression, got {size!r}")
    return size


_LISTS = ("sources", "codes", "inputs", "looked_at", "guards", "shape_guards", "writes")


@dataclass(frozen=True, slots=True)
class Manifest:
    """function: full name of what was traced. fingerprint, process: see there. sources: see `module_sources`.
    codes: digests of all code that took part, see `code_identity`.

    looked_at: tensors and numbers that are no inputs of the graph, but decided what it is. graph, structure: plain
    data, see `graph` and `result_spec`. writes: in their order. guards, shape_guards: see `guards` and `shape_guard`.
    """

    function: str
    fingerprint: Fingerprint
    sources: tuple[Source, ...]
    process: Process
    device: torch.device
    state: State
    inputs: tuple[CachedInput, ...]
    looked_at: tuple[CachedInput, ...]
    guards: tuple[Guard, ...]
    shape_guards: tuple[str, ...]
    graph: Mapping[str, Any]
    structure: Any
    writes: tuple[Write, ...] = ()
    codes: frozenset[str] = frozenset()

    def to_text(self, key: bytes = b"") -> str:
        """The file's content, signed with a key. The same manifest gives the same text."""
        return signed_text(
            {
                "format": FORMAT,
                "function": self.function,
                "fingerprint": self.fingerprint.to_data(),
                "sources": [each.to_data() for each in self.sources],
                "codes": sorted(self.codes),
                "process": self.process.to_data(),
                "device": str(self.device),
                "state": asdict(self.state),
                "inputs": [each.to_data() for each in self.inputs],
                "looked_at": [each.to_data() for each in self.looked_at],
                "guards": [each.to_data() for each in self.guards],
                "shape_guards": list(self.shape_guards),
                "structure": self.structure,
                "writes": [each.to_data() for each in self.writes],
                "graph": self.graph,
            },
            key,
        )

    @classmethod
    def from_text(cls, text: str, key: bytes = b"") -> Manifest:
        """Raises CacheError, saying what is wrong, for a text that is not whole or not of this format."""
        return cls.from_data(signed_data(text, key))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Manifest:
        """From `signed_data`. Raises CacheError for what is missing, malformed or unknown."""
        unknown = data.keys() - {each.name for each in fields(cls)} - {"format"}
        if unknown or data.get("format") != FORMAT:
            raise CacheError(f"a part is unknown, or of another format: {', '.join(sorted(unknown)) or 'format'}")
        for name in _LISTS:
            if not isinstance(data.get(name), list):
                raise CacheError(f"a part is missing or malformed: {name} is no list")
        try:
            return cls(
                function=str(data["function"]),
                fingerprint=Fingerprint.from_data(data["fingerprint"]),
                sources=tuple(Source.from_data(each) for each in data["sources"]),
                process=Process.from_data(data["process"]),
                device=value_from({"device": data["device"]}, {}),
                state=State.from_data(data["state"]),
                inputs=tuple(CachedInput.from_data(i, each) for i, each in enumerate(data["inputs"])),
                looked_at=tuple(CachedInput.from_data(i, each) for i, each in enumerate(data["looked_at"])),
                guards=tuple(guard_from(each) for each in data["guards"]),
                shape_guards=tuple(map(str, data["shape_guards"])),
                graph=data["graph"],
                structure=data["structure"],
                writes=tuple(Write.from_data(each) for each in data["writes"]),
                codes=frozenset(map(str, data["codes"])),
            )
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise CacheError(f"a part is missing or malformed: {type(error).__name__}: {error}") from error
