"""What computes each product of many rows: ATen's kernel, ours, or ours on a weight that is kept in panels.

Which is fastest differs from machine to machine and from shape to shape, so it is measured, over the graph's own
weights one after another, as a replay reads them: a single one would stay in the cache.
"""

from __future__ import annotations

import enum
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

__all__ = ["Product", "Way", "choose", "product_of"]

aten = torch.ops.aten

# As in csrc/kernels/own/products.cpp: with fewer rows, memory decides, and the kernels of ours are made for that.
_FEW_ROWS = 8
# Multiplications of a product that is not worth measuring, and of what one measurement computes at most.
_SMALL = 200_000
_MEASURED = 100_000_000
# At least, and for so long at least, but not more than so many.
_ROUNDS, _MOST_ROUNDS, _ROUNDS_NS = 3, 20, 5_000_000
# By how much another way must be faster than ours.
_WORTH = 0.95
# Numbers of rows between which nothing is measured: times of near ones have nearly the same ratio.
_ROWS = (12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class Way(enum.StrEnum):
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
        batch = f"{self.left.shape[0]} x " if len(self.left.shape) == 3 else ""
        rows = next((most for most in _ROWS if self.rows <= most), _ROWS[-1])
        lies = "by columns" if self.right.stride[-2] == 1 else "by rows"
        bias = " + bias" if self.bias is not None else ""
        return f"{batch}{rows}x{self.left.shape[-1]} @ {self.right.shape[-1]} {lies}{bias}, {threads} threads"


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
    return Product(call, left, right, bias)


def choose(
    calls: Sequence[Call],
    view: Callable[[TensorRef], torch.Tensor],
    readable: Collection[int],
    packable: Collection[int],
    times: ProductTimes,
) -> dict[int, Choice]:
    """For each product of many rows, by its position among the calls, how it is computed.

    view: of memory as the tape reads it. readable: buffers whose memory is there now. packable: those of weights that
    may be kept in panels. What is not known yet is measured on memory of its own, weights apart, and noted in `times`.
    """
    products = {index: found for index, call in enumerate(calls) if (found := product_of(call)) is not None}
    threads = torch.get_num_threads()
    groups: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for index, product in products.items():
        is_packable = product.right.buffer in packable and len(product.right.shape) == 2
        groups[product.key(threads), is_packable].append(index)
    chosen: dict[int, Choice] = {}
    measured: dict[str, Times] = {}
    for (key, is_packable), members in groups.items():
        ways = (Way.OWN, Way.ATEN, *((Way.PACKED,) if is_packable else ()))
        known: Times = {}
        if products[members[0]].multiplications > _SMALL:
            known = measured.get(key) or times.get(key) or {}
            if not known.keys() >= set(ways):
                known = measured[key] = _measure([products[index] for index in members], ways, view, readable)
        choice = Choice(key, _best(known, ways), {way.value: known[way] for way in ways} if known else {})
        chosen.update(dict.fromkeys(members, choice))
    if measured:
        times.add(measured)
    return chosen


def _best(times: Times, ways: Iterable[Way]) -> Way:
    best = Way.OWN
    for way in ways:
        if times and times[way] < _WORTH * times[best]:
            best = way
    return best


def _measure(
    products: Sequence[Product],
    ways: Sequence[Way],
    view: Callable[[TensorRef], torch.Tensor],
    readable: Collection[int],
) -> Times:
    """Each way's nanoseconds for one product, the best of some rounds that alternate."""
    few = [_with_fewer_rows(product) for product in products]
    few = few[: max(1, _MEASURED // few[0].multiplications)]
    # Tensors of inference mode count no versions, by which what is packed is known.
    with torch.inference_mode(False), torch.no_grad():
        tapes = {way: _tape(few, way, view, readable) for way in ways}
        best = dict.fromkeys(ways, math.inf)
        start = time.perf_counter_ns()
        for done in range(_MOST_ROUNDS):
            if done > _ROUNDS and time.perf_counter_ns() - start > _ROUNDS_NS:
                break
            for way, tape in tapes.items():
                begin = time.perf_counter_ns()
                tape.replay()
                best[way] = min(best[way], time.perf_counter_ns() - begin)
    return {way.value: ns / len(few) for way, ns in best.items()}


def _with_fewer_rows(product: Product) -> Product:
    """So many that one product is not too much to measure."""
    most = max(_FEW_ROWS + 1, min(_ROWS[-1], product.rows * _MEASURED // product.multiplications))
    if product.rows <= most:
        return product

    def cut(ref: TensorRef) -> TensorRef:
        return replace(ref, shape=(*ref.shape[:-2], most, ref.shape[-1]))

    out = product.call.outs[0]
    return replace(product, left=cut(product.left), call=replace(product.call, outs=(cut(out),)))


def _tape(
    products: Sequence[Product], way: Way, view: Callable[[TensorRef], torch.Tensor], readable: Collection[int]
) -> Any:
    """Of the engine: these products, one after another."""
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
        tape.append(
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
    return tape
