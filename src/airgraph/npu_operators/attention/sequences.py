"""Batches of sequences of different lengths: one behind the other, padded, or in the blocks of a cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from airgraph.npu_operators.declaration import require

__all__ = ["from_blocks", "lengths_of_batch", "segments"]


def segments(
    operator: str, query: Tensor, key: Tensor, value: Tensor, ends: Mapping[str, Sequence[Any] | None]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The sequences of tensors [tokens, heads, size], each as [1, heads, length, size].

    ends: the names of two arguments and their values, where each sequence of the queries and of the keys ends. Those at
    the end whose end is 0 are left out.
    """
    for name, given in ends.items():
        require(given is not None, operator, name, "the end of each sequence with input_layout='TND'", given)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        require(tensor.dim() == 3, operator, name, "of 3 dimensions with input_layout='TND'", tensor)
    (_, query_ends), (key_name, key_ends) = ends.items()
    assert query_ends is not None and key_ends is not None
    expected = f"as many numbers as there are sequences of queries, {len(query_ends)}"
    require(len(key_ends) == len(query_ends), operator, key_name, expected, list(key_ends))
    for name, given, whole in zip(ends, (query_ends, key_ends), (query, key), strict=True):
        used = [end for end in given if end != 0]
        fits = all(a <= b for a, b in itertools.pairwise(used)) and (not used or used[-1] <= whole.shape[0])
        require(fits, operator, name, f"growing ends, none past {whole.shape[0]} tokens", list(given))
    query_begin = key_begin = 0
    for query_end, key_end in zip(query_ends, key_ends, strict=True):
        if query_end < query_begin or key_end < key_begin:
            break
        yield tuple(  # type: ignore[misc]
            part.transpose(0, 1)[None]
            for part in (query[query_begin:query_end], key[key_begin:key_end], value[key_begin:key_end])
        )
        query_begin, key_begin = query_end, key_end


def lengths_of_batch(
    operator: str, argument: str, lengths: Sequence[Any] | None, batch: Any, longest: Any
) -> list[Any] | None:
    """A length for each of the batch; a single one is for all, and those past the batch are left out."""
    if lengths is None:
        return None
    require(len(lengths) == 1 or len(lengths) >= batch, operator, argument, f"1 or {batch} lengths", list(lengths))
    found = list(lengths) * batch if len(lengths) == 1 else list(lengths[:batch])
    fits = all(0 <= each <= longest for each in found)
    require(fits, operator, argument, f"between 0 and {longest}", list(lengths))
    return found


def from_blocks(operator: str, cache: Tensor, table: Tensor, heads: int, block_size: int, argument: str) -> Tensor:
    """Keys or values of a cache in blocks, as [batch, heads, length, size]; what no block holds is garbage.

    cache: [blocks, block size, heads * size] or [blocks, heads, block size, size]. table: [batch, blocks of each].
    """
    require(table.dim() == 2, operator, "block_table", "of 2 dimensions", table)
    require(cache.dim() in (3, 4), operator, argument, "of 3 or 4 dimensions with a block_table", cache)
    found = cache.shape[-2]
    require(block_size in (0, found), operator, "block_size", f"{found}, as {argument} has", block_size)
    # Entries past a sequence's last block are not read on a card, and may be anything.
    picked = cache[table.long().clamp(0, cache.shape[0] - 1)]
    if cache.dim() == 3:
        require(cache.shape[2] % heads == 0, operator, argument, f"of a last dimension that {heads} divide", cache)
        return picked.flatten(1, 2).unflatten(2, (heads, cache.shape[2] // heads)).transpose(1, 2)
    require(cache.shape[1] == heads, operator, argument, f"of {heads} heads", cache)
    return picked.transpose(1, 2).flatten(2, 3)
