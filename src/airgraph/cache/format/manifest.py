"""One traced graph as a file: JSON text that says what it is, what it needs and what it took for granted.

The first line signs all that follows with a key of the folder, so that damaged files and those of others are known as
such. Format version 4.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

import torch

from airgraph.cache.format.conditions import Condition, Read
from airgraph.cache.format.graph import value_from, value_to
from airgraph.cache.format.process import Process
from airgraph.cache.format.source import Source
from airgraph.cache.format.source_path import SourcePath, parse
from airgraph.cache.format.torch_settings import State
from airgraph.errors import CacheError
from airgraph.program.inputs import InputPlan, InputRole

__all__ = ["FORMAT", "CachedInput", "Manifest", "Traits", "Write", "lazy_of"]

FORMAT = 6
_MAGIC = "airgraph cache"


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
        return cls(
            type(tensor).__name__, tensor.requires_grad, tensor.is_leaf, torch._C._dispatch_keys(tensor).raw_repr()
        )

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
    """`owner.attribute = value`, done after the graph. structure: of the value, see `result_spec`."""

    owner: SourcePath
    attribute: str
    structure: Any

    def to_data(self) -> list[Any]:
        return [self.owner.text, self.attribute, self.structure]

    @classmethod
    def from_data(cls, data: Any) -> Write:
        owner, attribute, structure = parse(data[0]), data[1], data[2]
        if owner.is_global or not str.isidentifier(attribute) or attribute.startswith("__"):
            raise CacheError(f"no call writes {owner.text}.{attribute}")
        return cls(owner, attribute, structure)


def lazy_of(tensor: torch.Tensor) -> str:
    """What is lazily done to a tensor."""
    return " ".join(name for name, is_so in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if is_so)


def _size(size: Any) -> int | str:
    if type(size) not in (int, str):
        raise CacheError(f"a size is a number or an expression, got {size!r}")
    return size


@dataclass(frozen=True, slots=True)
class Manifest:
    """function: full name of what was traced. versions: of what traced it. sources: see `module_sources`.
    process: see there. codes: digests of all code that took part, see `code_identity`.

    looked_at: tensors and numbers that are no inputs of the graph, but decided what it is. graph, structure: plain
    data, see `graph` and `result_spec`. writes: in their order. shape_conditions: see `shape_condition`.
    """

    function: str
    fingerprint: str
    versions: Mapping[str, str]
    sources: tuple[Source, ...]
    process: Process
    device: torch.device
    state: State
    inputs: tuple[CachedInput, ...]
    looked_at: tuple[CachedInput, ...]
    conditions: tuple[Condition, ...]
    shape_conditions: tuple[str, ...]
    graph: Mapping[str, Any]
    structure: Any
    writes: tuple[Write, ...] = ()
    codes: frozenset[str] = frozenset()

    def to_text(self, key: bytes = b"") -> str:
        """The file's content, signed with a key. The same manifest gives the same text."""
        body = json.dumps(
            {
                "format": FORMAT,
                "function": self.function,
                "fingerprint": self.fingerprint,
                "versions": dict(self.versions),
                "sources": [each.to_data() for each in self.sources],
                "codes": sorted(self.codes),
                "process": self.process.to_data(),
                "device": str(self.device),
                "state": asdict(self.state),
                "inputs": [each.to_data() for each in self.inputs],
                "looked_at": [each.to_data() for each in self.looked_at],
                "conditions": [each.to_data() for each in self.conditions],
                "shape_conditions": list(self.shape_conditions),
                "structure": self.structure,
                "writes": [each.to_data() for each in self.writes],
                "graph": self.graph,
            },
            allow_nan=False,
            separators=(",", ":"),
        )
        return f"{_MAGIC} {FORMAT} hmac-sha256 {_signature(body, key)}\n{body}\n"

    @classmethod
    def from_text(cls, text: str, key: bytes = b"") -> Manifest:
        """Raises CacheError, saying what is wrong, for a text that is not whole or not of this format."""
        return cls.from_data(signed_data(text, key))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Manifest:
        """From `signed_data`. Raises CacheError for what is missing or malformed."""
        try:
            return cls(
                function=str(data["function"]),
                fingerprint=str(data["fingerprint"]),
                versions=dict(data["versions"]),
                sources=tuple(Source.from_data(each) for each in data["sources"]),
                process=Process.from_data(data["process"]),
                device=value_from({"device": data["device"]}, {}),
                state=State.from_data(data["state"]),
                inputs=tuple(CachedInput.from_data(i, each) for i, each in enumerate(data["inputs"])),
                looked_at=tuple(CachedInput.from_data(i, each) for i, each in enumerate(data["looked_at"])),
                conditions=tuple(Condition.from_data(each) for each in data["conditions"]),
                shape_conditions=tuple(map(str, data["shape_conditions"])),
                graph=data["graph"],
                structure=data["structure"],
                writes=tuple(Write.from_data(each) for each in data["writes"]),
                codes=frozenset(map(str, data["codes"])),
            )
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise CacheError(f"a part is missing or malformed: {type(error).__name__}: {error}") from error


def signed_data(text: str, key: bytes = b"") -> Mapping[str, Any]:
    """What a file says, as JSON has it. Raises CacheError for a text that is not whole, or not signed with this key."""
    head, _, body = text.partition("\n")
    words = head.split()
    if words[:2] != _MAGIC.split() or len(words) != 5:
        raise CacheError(f"not a cache file: it begins with {head[:40]!r}")
    if words[2] != str(FORMAT):
        raise CacheError(f"format {words[2]}, expected {FORMAT}: another version of airgraph wrote it")
    body = body.removesuffix("\n")
    if not hmac.compare_digest(words[4].encode(), _signature(body, key).encode()):
        raise CacheError("the checksum is wrong: the file is damaged or was changed, or comes from another folder")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CacheError(f"not a cache file: {error}") from error
    if not isinstance(data, dict):
        raise CacheError(f"not a cache file: it holds a {type(data).__name__}")
    return data


def other_constant(data: Mapping[str, Any], read: Read) -> str | None:
    """The first constant that is another one now, in words, or None: that, many graphs of one class are told apart by.

    Looks at little of the data, and passes over what is malformed.
    """
    conditions = data.get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        try:
            if each[0] == "equals" and (reason := Condition.from_data(each).broken(read)) is not None:
                return reason
        except (LookupError, TypeError, ValueError, AttributeError, CacheError):
            continue
    return None


def _signature(body: str, key: bytes) -> str:
    return hmac.new(key, body.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
