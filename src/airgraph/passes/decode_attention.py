"""Let few queries attend to a cache as it lies, where a program first repeats each head for those that share it."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.few_rows import MOST_SHARING, has_few_rows
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.program.own_operators import DECODE_ATTENTION
from airgraph.program.streams import stream_of
from airgraph.torch_internals.symbolic_shapes import settled_expression_of

__all__ = ["attend_as_stored"]

_aten = torch.ops.aten
_VIEWS = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)
_FLASH = _aten._scaled_dot_product_flash_attention_for_cpu.default


def attend_as_stored(gm: GraphModule) -> int:
    """Replace attention of few queries, without dropout and causal masking, by one operator; returns how many.

    Keys and values whose heads were copied for grouped queries (`repeat_kv` of transformers) are taken where they come
    from. For the CPU.
    """
    use = MemoryUse(gm.graph)
    # All is asked before anything changes.
    found = [(node, _sources(node, use)) for node in gm.graph.nodes if node.target is _FLASH and _is_served(node)]
    made_of: dict[Node, Node] = {}
    for node, sources in found:
        query, *copies = _nodes(node)
        # Of another attention's result, perhaps.
        key, value = (made_of.get(each, each) for each in sources)
        if _sharing(query, key) > MOST_SHARING:
            continue
        (mixed,) = node.users
        scale = node.kwargs.get("scale")
        scale = 1 / math.sqrt(_form(query).shape[3]) if scale is None else scale
        with gm.graph.inserting_before(node):
            made = gm.graph.call_function(DECODE_ATTENTION, (query, key, value, node.kwargs.get("attn_mask"), scale))
        made.meta = dict(mixed.meta)
        mixed.replace_all_uses_with(made)
        made_of[mixed] = made
        for old in (mixed, node):
            gm.graph.erase_node(old)
        for copied in dict.fromkeys(copies):
            _erase_unused(gm, copied)
    return len(made_of)


def _sources(node: Node, use: MemoryUse) -> tuple[Node, Node]:
    """The keys and values that attention can take: both as they lie before their heads were repeated, or as given."""
    _, key, value = _nodes(node)
    before = _before_repeat(key, use), _before_repeat(value, use)
    if before[0] is None or before[1] is None or not _may_be_same(_form(before[0]).shape, _form(before[1]).shape):
        return key, value
    return before[0], before[1]


def _sharing(query: Node, key: Node) -> int:
    """Rows of queries that share a head of keys."""
    _, heads, queries, _ = _form(query).shape
    return heads // _form(key).shape[1] * queries


def _is_served(node: Node) -> bool:
    forms = [_form(each) for each in _nodes(node)]
    dropout, causal = (*node.args[3:], *(0.0, False)[len(node.args) - 3 :])[:2]
    return (
        len(_nodes(node)) == 3
        and has_few_rows(_nodes(node)[0], 2)
        # How many keys there are may vary.
        and all(form.dim() == 4 and all(isinstance(form.shape[dim], int) for dim in (0, 1, 3)) for form in forms)
        and all(form.dtype is forms[0].dtype and _is_one(form.stride(3)) for form in forms)
        and _may_be_same(forms[1].shape, forms[2].shape)
        and forms[0].shape[3] == forms[1].shape[3]
        and bool(node.kwargs.get("dropout_p", dropout) == 0.0)
        and node.kwargs.get("is_causal", causal) is False
        and [(user.target, user.args[1:]) for user in node.users] == [(operator.getitem, (0,))]
    )


def _before_repeat(node: Node, use: MemoryUse) -> Node | None:
    """What `repeat_kv` copied, [batch, heads, length, size], if nobody writes it before the copy is read; or None."""
    copy = node
    while copy.target in _VIEWS:
        copy = _nodes(copy, 1)[0]
    if copy.target is not _aten.clone.default or _form(copy).dim() != 5:
        return None
    (expanded,) = _nodes(copy, 1)
    (one,) = _nodes(expanded, 1) if expanded.target is _aten.expand.default else (expanded,)
    if one.target is not _aten.unsqueeze.default or one.args[1] != 2:
        return None
    (source,) = _nodes(one, 1)
    batch, heads, groups, length, size = _form(copy).shape
    if not all(isinstance(each, int) for each in (heads, groups)):
        return None
    if not _are_same(_form(node).shape, (batch, heads * groups, length, size)):
        return None
    if not _are_same(_form(source).shape, (batch, heads, length, size)) or not _is_one(_form(source).stride(3)):
        return None
    return source if stream_of(copy) == stream_of(node) and use.may_stand_for(expanded, copy) else None


def _are_same(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether they are so at every call: numbers, or one expression of symbols."""
    return list(map(_plain, sizes)) == list(map(_plain, others))


def _may_be_same(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """The same, but for symbols: keys and values are of one length, or the call fails as eager's does."""
    return all(
        not isinstance(size, int) or not isinstance(other, int) or size == other
        for size, other in zip(sizes, others, strict=True)
    )


def _plain(size: Any) -> Any:
    return size if isinstance(size, int) else settled_expression_of(size)


def _is_one(stride: Any) -> bool:
    return isinstance(stride, int) and stride == 1


def _nodes(node: Node, count: int = 3) -> tuple[Node, ...]:
    """The first arguments of a call, which are tensors."""
    return tuple(each for each in node.args[:count] if isinstance(each, Node))


def _form(node: Node) -> torch.Tensor:
    form: torch.Tensor = node.meta["val"]
    return form


def _erase_unused(gm: GraphModule, node: Node) -> None:
    while node.op == "call_function" and not node.users:
        (before,) = _nodes(node, 1)
        gm.graph.erase_node(node)
        node = before
