"""What computes each product of many rows: ATen's kernel, ours, or ours on a weight that is kept in panels.

Which is fastest differs from machine to machine and from shape to shape, so it is measured, over the graph's own
weights one after another, as a replay reads them: a single one would stay in the cache.
"""

from __future__ import annotations

import enum
import functools
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from airgraph.runtime.choices import Choice
from airgraph.runtime.cpu.product_times import ProductTimes, Times
from airgraph.runtime.cpu.tape import Call, TensorRef
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.modes import without_modes

__all__ = ["Product", "Way", "choose", "packed_weight", "product_of"]

log = logging.getLogger(__name__)

aten = torch.ops.aten

# As in csrc/kernels/own/row_step.h: with fewer rows, memory decides, and the kernels of ours are made for that.
_FEW_ROWS = 8
# Multiplications of a product that is not worth measuring; and of one that is ATen's: where arithmetic takes so long,
# nothing else does, and BLAS is at its best.
_SMALL, _LARGE = 200_000, 400_000_000
# Of a matrix so many bytes are measured at most, of all its rows and some of its columns; and of all matrices together.
_MATRIX_NBYTES, _ALL_NBYTES = 16 << 20, 64 << 20
# At least so many rounds, and for so long at least, but not more than so many.
_ROUNDS, _MOST_ROUNDS, _ROUNDS_NS = 2, 20, 5_000_000
# By how much another way must be faster than ours.
_WORTH = 0.95
# Sizes between which nothing is measured: times of near ones have nearly the same ratio.
_SIZES = (12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class Way(str, enum.Enum):
    """How a product is computed."""

    OWN = "own"
    PACKED = "packed"
    ATEN = "aten"


@dataclass(frozen=True, slots=True)
class Product:
    """left [rows, k] times right [k, n], or as many of each as `batch`; bias: of each row, or None."""

    call: Call
    left: TensorRef
    right: TensorRef
    bias: TensorRef | None

    @property
    def multiplications(self) -> int:
        return math.prod(self.left.shape) * self.right.shape[-1]

    @property
    def rows(self) -> int:
        return self.left.shape[-2]

    def key(self, threads: int) -> str:
        """Alike for products that take the same time, about."""
        k, n = self.right.shape[-2:]
        batch = ""
        if len(self.left.shape) == 3:
            # Such as scores of attention, whose sizes are those of the sequence.
            batch, k, n = f"{self.left.shape[0]} x ", _rounded(k), _rounded(n)
        lies = "by columns" if self.right.stride[-2] == 1 else "by rows"
        bias = " + bias" if self.bias is not None else ""
        precision = torch.get_float32_matmul_precision()
        less = "" if precision == "highest" else f", {precision} precision"
        return f"{batch}{_rounded(self.rows)}x{k} @ {n} {lies}{bias}, {threads} threads{less}"


def _rounded(size: int) -> int:
    return next((most for most in _SIZES if size <= most), 1 << (size - 1).bit_length())


_OPERANDS: Mapping[object, tuple[int, int, int | None]] = {
    aten.mm.default: (0, 1, None),
    aten.bmm.default: (0, 1, None),
    aten.addmm.default: (1, 2, 0),
    aten.baddbmm.default: (1, 2, 0),
}


def product_of(call: Call) -> Product | None:
    """Of a call that has another way than ATen's; None where there is none."""
    places = _OPERANDS.get(call.op)
    if places is None or call.redispatch or call.kwargs or len(call.outs) != 1:
        return None
    left, right = call.args[places[0]], call.args[places[1]]
    bias = None if places[2] is None else call.args[places[2]]
    refs = [left, right, call.outs[0], *([] if bias is None else [bias])]
    if any(ref.dtype is not torch.float32 or 0 in ref.shape for ref in refs) or left.shape[-2] <= _FEW_ROWS:
        return None
    if left.stride[-1] != 1 and left.shape[-1] != 1:
        return None
    return Product(call, left, right, bias)


def choose(
    calls: Sequence[Call],
    view: Callable[[TensorRef], torch.Tensor],
    readable: Collection[int],
    packable: Callable[[TensorRef], bool],
    times: ProductTimes,
    threads: int,
) -> dict[int, Choice]:
    """For each product of many rows, by its position among the calls, how it is computed on so many threads.

    view: of memory as the tape reads it. readable: buffers whose memory is there now. packable: whether a matrix may be
    kept in panels. What is not known yet is measured on memory of its own, weights apart, and noted in `times`.
    """
    products = {index: found for index, call in enumerate(calls) if (found := product_of(call)) is not None}
    groups: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for index, product in products.items():
        is_packable = len(product.right.shape) == 2 and packable(product.right)
        groups[product.key(threads), is_packable].append(index)
    chosen: dict[int, Choice] = {}
    measured: dict[str, Times] = {}
    for (key, is_packable), members in groups.items():
        ways = (Way.OWN, Way.ATEN, *((Way.PACKED,) if is_packable else ()))
        pieces = [_piece(products[index]) for index in members]
        known: Times = {}
        best = Way.OWN
        if pieces[0].multiplications > _LARGE:
            best = Way.ATEN
        elif pieces[0].multiplications > _SMALL:
            known = measured.get(key) or times.get(key) or {}
            if not known.keys() >= {way.value for way in ways}:
                parts = products[members[0]].multiplications / pieces[0].multiplications
                known = {way: ns * parts for way, ns in _measure(pieces, ways, view, readable, threads).items()}
                if known:
                    measured[key] = known
            best = _best(known, ways)
        choice = Choice(key, best.value, {way.value: known[way] for way in ways if way in known})
        chosen.update(dict.fromkeys(members, choice))
    if measured:
        times.add(measured)
    return chosen


def _best(times: Times, ways: Iterable[Way]) -> Way:
    # What is not served, or had no memory, has no time.
    best = Way.OWN if Way.OWN in times else Way.ATEN
    for way in ways:
        if times.get(way, math.inf) < _WORTH * times.get(best, math.inf):
            best = way
    return best


def _piece(product: Product) -> Product:
    """The first columns of a product, where its matrix is large."""
    k, n = product.right.shape[-2:]
    most = max(256, _MATRIX_NBYTES // (4 * k) // 64 * 64)
    if n <= most:
        return product

    def cut(ref: TensorRef) -> TensorRef:
        return replace(ref, shape=(*ref.shape[:-1], min(ref.shape[-1], most)))

    call = replace(product.call, outs=(cut(product.call.outs[0]),))
    return Product(call, product.left, cut(product.right), None if product.bias is None else cut(product.bias))


def _measure(
    products: Sequence[Product],
    ways: Sequence[Way],
    view: Callable[[TensorRef], torch.Tensor],
    readable: Collection[int],
    threads: int,
) -> Times:
    """Each way's nanoseconds for one product, the best of some rounds that alternate; none where there is no memory to
    measure them."""
    matrix_nbytes = 4 * math.prod(products[0].right.shape)
    few = products[: max(1, min(_LARGE // products[0].multiplications, _ALL_NBYTES // matrix_nbytes))]
    best: dict[Way, float] = {}
    try:
        # Tensors of inference mode count no versions, by which what is packed is known.
        with torch.inference_mode(False), torch.no_grad(), without_modes():
            tapes = {way: tape for way in ways if (tape := _tape(few, way, view, readable)) is not None}
            start = time.perf_counter_ns()
            for done in range(_MOST_ROUNDS):
                if done >= _ROUNDS and time.perf_counter_ns() - start > _ROUNDS_NS:
                    break
                for way, tape in tapes.items():
                    begin = time.perf_counter_ns()
                    tape.replay_on(threads)
                    best[way] = min(best.get(way, math.inf), time.perf_counter_ns() - begin)
    except (MemoryError, RuntimeError) as error:
        log.info("products are not measured: %s", error)
        return {}
    return {way.value: ns / len(few) for way, ns in best.items()}


def packed_weight(weight: torch.Tensor, matrix: torch.Tensor) -> Any:
    """Panels of a matrix within a weight, which the engine makes anew when the weight has changed."""
    _watch_optimizers()
    return engine().PackedWeight(weight, matrix)


@functools.cache
def _watch_optimizers() -> None:
    """Fused optimizers write to parameters without counting it."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    distrust = engine().distrust_packed_weights
    register_optimizer_step_post_hook(lambda optimizer, args, kwargs: distrust())


def _tape(
    products: Sequence[Product], way: Way, view: Callable[[TensorRef], torch.Tensor], readable: Collection[int]
) -> Any | None:
    """Of the engine: these products, one after another. None: they are not computed so."""
    native = engine()
    tape = native.Tape()
    made: dict[tuple[object, ...], torch.Tensor] = {}

    def scratch(what: str, ref: TensorRef) -> torch.Tensor:
        form = (what, ref.shape, ref.stride)
        if form not in made:
            # Zeros: numbers that happen to be tiny would be slow.
            made[form] = torch.empty_strided(ref.shape, ref.stride, dtype=ref.dtype, device="cpu").zero_()
        return made[form]

    for product in products:
        right = view(product.right) if product.right.buffer in readable else scratch("right", product.right)
        args = [scratch("left", product.left), right]
        if product.bias is not None:
            args.insert(0, scratch("bias", product.bias))
        schema = product.call.op._schema
        tier = tape.append(
            native.RecordedCall(
                name=schema.name,
                overload=schema.overload_name,
                args=tuple(args),
                kwargs={},
                outs=[scratch("out", product.call.outs[0])],
                fresh=(True,),
                needed=[True],
                out_overload="out",
                redispatch=False,
                exact=way is Way.ATEN,
                packed=native.PackedWeight(right, right) if way is Way.PACKED else None,
            )
        )
        if way is not Way.ATEN and tier != "own":
            return None
    return tape
