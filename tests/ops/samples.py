"""Captures one operator sample by hand and compares its replay with eager."""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import described_operators
import torch
from torch.utils._pytree import tree_flatten, tree_map_only

import airgraph.cpu
from airgraph.errors import CaptureError

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

__all__ = ["DTYPES", "Kind", "Outcome", "operators", "outcomes"]

DTYPES = ("float32", "int64")

# Their results have no values: shape and dtype are compared.
_NO_VALUES = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# The one that op_db's random operators set for themselves; replays of them need it set from outside.
_SEED = 42
_NAMES_OPERATOR = re.compile(r"\w+::\w+|is read during capture, by \S+|higher-order operators|torch\.[\w.]+ at ")


class Kind(enum.Enum):
    EQUAL = "equal"
    FALLBACK = "fallback"  # CaptureError that names the operator
    MISMATCH = "MISMATCH"  # replay and eager differ
    CRASH = "CRASH"  # any other exception, or the process died


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """One sample's result. operator: OpInfo's name, with "_" for its in-place form. detail: the message."""

    operator: str
    dtype: str
    sample: int
    kind: Kind
    detail: str = ""


@functools.cache
def operators() -> dict[str, OpInfo]:
    """PyTorch's operator descriptions by name, in a fixed order; the first call takes ten seconds, for their import."""
    described = sorted(described_operators.operators(), key=lambda op: op.formatted_name)
    return {op.formatted_name: op for op in described}


def outcomes(name: str, dtype: str, limit: int) -> Iterator[Outcome]:
    """Outcomes of the first `limit` samples of an operator, in-place and out= forms too, less what eager refuses."""
    op = operators()[name]
    if getattr(torch, dtype) not in op.supported_dtypes("cpu"):
        return
    _seed(0)
    for index, sample in enumerate(islice(op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False), limit)):
        variants = [(name, op.op)]
        if op.inplace_variant is not None and not sample.broadcasts_input:
            variants.append((f"{name}_", op.inplace_variant))
        if op.supports_out:
            variants += [(f"{name}.out", into) for into in _into_outs(op.op, sample)]
        for label, variant in variants:
            found = _outcome(variant, sample, compare_values=op.name not in _NO_VALUES)
            if found is not None:
                yield Outcome(label, dtype, index, *found)


class _Different(Exception):
    pass


def _outcome(variant: Callable[..., Any], sample: SampleInput, *, compare_values: bool) -> tuple[Kind, str] | None:
    """None where eager refuses the sample."""
    inputs = (sample.input, sample.args, sample.kwargs)
    mine, theirs, before = _copied(inputs), _copied(inputs), _copied(inputs)
    try:
        expected = _seeded(variant, theirs)
    except Exception:  # whatever eager raises, there is nothing to compare with
        return None
    try:
        graph = airgraph.cpu.CPUGraph()
        with torch.no_grad(), airgraph.cpu.graph(graph):
            got = variant(mine[0], *mine[1], **mine[2])
        if _stored(mine) != _stored(before):
            raise _Different("capture executed the work: an input changed")
        for attempt in ("first", "second"):
            # Other values between replays would show what a replay fails to write.
            _restore(mine, before)
            _seed()
            graph.replay()
            if compare_values:
                _compare(f"result of the {attempt} replay", got, expected)
                _compare(f"inputs after the {attempt} replay", mine, theirs)
            else:
                _compare(
                    "result", tree_map_only(torch.Tensor, _blank, got), tree_map_only(torch.Tensor, _blank, expected)
                )
    except CaptureError as error:
        return (Kind.FALLBACK if _NAMES_OPERATOR.search(str(error)) else Kind.CRASH), str(error)
    except _Different as error:
        return Kind.MISMATCH, str(error)
    except Exception as error:  # a report, not a way out: the sweep goes on with the next sample
        return Kind.CRASH, f"{type(error).__name__}: {error}"
    return Kind.EQUAL, ""


def _seed(seed: int = _SEED) -> None:
    """As torch.manual_seed on CPU, which keeps a traceback for each device that is not initialized."""
    torch.default_generator.manual_seed(seed)


def _into_outs(variant: Callable[..., Any], sample: SampleInput) -> Iterator[Callable[..., Any]]:
    """The call with out= tensors that fit, which hold other values before, and with ones that have to grow."""
    try:
        result = _seeded(variant, _copied((sample.input, sample.args, sample.kwargs)))
    except Exception:  # whatever eager raises, there is nothing to compare with
        return
    for prepared in (torch.zeros_like, lambda tensor: tensor.new_empty(0)):

        def call(*args: Any, prepared: Callable[..., torch.Tensor] = prepared, **kwargs: Any) -> Any:
            outs = tree_map_only(torch.Tensor, prepared, result)
            variant(*args, **kwargs, out=outs)
            return outs

        yield call


def _seeded(variant: Callable[..., Any], inputs: Any) -> Any:
    _seed()
    with torch.no_grad():
        return variant(inputs[0], *inputs[1], **inputs[2])


def _copied(inputs: Any) -> Any:
    return tree_map_only(torch.Tensor, _twin, inputs)


def _twin(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and offset."""
    if tensor.layout is not torch.strided:
        return tensor.clone()
    extent = tensor.untyped_storage().nbytes() // tensor.element_size()
    data = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage(), 0, (extent,), (1,)).clone()
    twin = data.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return torch._neg_view(twin) if tensor.is_neg() else twin.conj() if tensor.is_conj() else twin


def _storages(inputs: Any) -> list[torch.Tensor]:
    """Memory of the dense inputs as bytes; in-place operators may have changed their shapes meanwhile."""
    dense = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    return [torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()) for tensor in dense]


def _stored(inputs: Any) -> list[bytes]:
    return [data.numpy().tobytes() for data in _storages(inputs)]


def _restore(inputs: Any, values: Any) -> None:
    for data, value in zip(_storages(inputs), _storages(values), strict=True):
        data.copy_(value)


def _blank(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor)


def _compare(what: str, got: Any, expected: Any) -> None:
    """Raises _Different unless equal bit by bit, or close."""
    got_leaves, got_tree = tree_flatten(got)
    leaves, tree = tree_flatten(expected)
    if str(got_tree) != str(tree):
        raise _Different(f"{what}: structure {got_tree}, eager {tree}")
    for left, right in zip(got_leaves, leaves, strict=True):
        if not isinstance(right, torch.Tensor):
            same = type(left) is type(right) and (left == right or left is right or left != left)
            if not same and not callable(left):
                raise _Different(f"{what}: {left!r}, eager {right!r}")
        elif not isinstance(left, torch.Tensor):
            raise _Different(f"{what}: {type(left).__name__}, eager a tensor")
        elif left.shape != right.shape or left.dtype != right.dtype:
            raise _Different(f"{what}: {left.dtype}{list(left.shape)}, eager {right.dtype}{list(right.shape)}")
        elif not _bits_equal(left, right):
            try:
                torch.testing.assert_close(left, right, equal_nan=True)
            except AssertionError as error:
                message = " ".join(str(error).split())
                raise _Different(f"{what}: {message}") from error


def _bits_equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.layout is not torch.strided or left.is_quantized:
        return False
    return _bits(left) == _bits(right)


def _bits(tensor: torch.Tensor) -> bytes:
    dense = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return dense.reshape(-1).view(torch.uint8).numpy().tobytes()


warnings.filterwarnings("ignore", module="torch")
