"""Fifty decode steps over a cache that the model writes equal eager's, step by step, and so does the cache."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo

import airgraph

PROMPT_LEN = 6
STEPS = 50
STEPS_AFTER_RESET = 3
BATCH = 2
# Compared with the ATen calls themselves, which takes another compilation; all are in a full sweep.
_BIT_FOR_BIT = {"llama", "mamba"}
# One of each kind of cache and of routing; T5 is run from the cache below, Llama with static shapes at its end.
SAMPLE = {
    ("llama", True),
    ("mixtral-grouped", True),
    ("mamba", True),
}
BROKEN_UP = {"mixtral-loop"}
WHOLE = [decoder for name, decoder in zoo.DECODERS.items() if name not in BROKEN_UP]


@dataclass(frozen=True, slots=True)
class Run:
    """logits: [calls, batch, vocabulary]. tokens: what was fed back, [calls, batch, 1]. cache: as it was at the end."""

    logits: torch.Tensor
    tokens: torch.Tensor
    cache: list[torch.Tensor]


def _decode(session: zoo.Session, prompt: torch.Tensor, steps: int) -> Run:
    """Prefill, then `steps` steps; each token fed back depends on the logits before."""
    logits = [(session.prefill or session.step)(prompt, session.cache).clone()]
    tokens = [_next_token(logits[0], 0)]
    for position in range(1, steps + 1):
        logits.append(session.step(tokens[-1], session.cache).clone())
        tokens.append(_next_token(logits[-1], position))
    cache = [tensor.clone() for tensor in zoo.cache_tensors(session.cache)]
    return Run(torch.stack(logits), torch.stack(tokens), cache)


def _next_token(logits: torch.Tensor, position: int) -> torch.Tensor:
    """The most likely token, shifted by the position: a small random model would repeat itself otherwise."""
    return 3 + (logits.argmax(dim=-1, keepdim=True) + 5 * position) % (zoo.VOCABULARY - 3)


def _decode_twice(session: zoo.Session) -> tuple[Run, Run]:
    """A long run, then one with a longer prompt over the same cache, emptied."""
    first = _decode(session, zoo.random_ids(BATCH, PROMPT_LEN), STEPS)
    session.cache.reset()
    return first, _decode(session, zoo.random_ids(BATCH, 9, seed=1), STEPS_AFTER_RESET)


@functools.cache
def _eager(name: str) -> tuple[Run, Run]:
    decoder = zoo.DECODERS[name]
    return _decode_twice(decoder.session(decoder.architecture.build(), BATCH))


@functools.cache
def _lowered(name: str) -> Run:
    """The first run by the ATen calls that airgraph captures, made one by one."""
    decoder = zoo.DECODERS[name]
    compiled = _compiler("aot_eager", dynamic=False)
    session = decoder.session(decoder.architecture.build(), BATCH, compiled=compiled)
    run = _decode(session, zoo.random_ids(BATCH, PROMPT_LEN), STEPS)
    torch._dynamo.reset()
    return run


def _compiler(backend: Any, *, dynamic: bool, fullgraph: bool = True) -> Callable[[zoo.Step], zoo.Step]:
    return functools.partial(torch.compile, backend=backend, dynamic=dynamic, fullgraph=fullgraph)


def _assert_close_to_eager(got: Run, eager: Run) -> None:
    """Equal tokens; logits and cache within tolerance, since transformers takes other paths when it is compiled."""
    assert torch.equal(got.tokens, eager.tokens)
    torch.testing.assert_close(got.logits, eager.logits)
    torch.testing.assert_close(got.cache, eager.cache)


@pytest.mark.parametrize(("decoder", "dynamic"), zoo.static_and_dynamic(WHOLE, SAMPLE))
@torch.no_grad()
def test_decode_equals_eager_at_every_step(decoder: zoo.Decoder, dynamic: bool, request: pytest.FixtureRequest) -> None:
    bit_for_bit = str(decoder) in _BIT_FOR_BIT or request.config.getoption("--full-sweep")
    backend = airgraph.get_backend({"kernels": "exact" if bit_for_bit else "fast"})
    session = decoder.session(decoder.architecture.build(), BATCH, compiled=_compiler(backend, dynamic=dynamic))
    runs = _decode_twice(session)
    for got, expected in zip(runs, _eager(str(decoder)), strict=True):
        _assert_close_to_eager(got, expected)
    report = airgraph.explain().to_dict()
    if bit_for_bit:
        lowered = _lowered(str(decoder))
        assert torch.equal(runs[0].logits, lowered.logits)
        assert all(map(torch.equal, runs[0].cache, lowered.cache))
    assert [row["state"] for row in report["graphs"]] == ["captured"] * len(report["graphs"])
    decode_steps = STEPS + STEPS_AFTER_RESET
    if session.prefill:
        assert report["counters"] == {
            "captures": 1,
            "recaptures": 0,
            "replays": decode_steps,
            "eager_calls": 0,
        }
        return
    # Prefill, decode, prefill of another length: one FX graph each, or one for both prefills where it is dynamic.
    assert report["counters"] == {
        "captures": 3,
        "recaptures": 0,
        "replays": decode_steps + 2,
        "eager_calls": 0,
    }
    assert sorted(row["replays"] for row in report["graphs"]) == [1, 1, decode_steps]
    assert len({row["name"] for row in report["graphs"]}) == (2 if dynamic else 3)


@pytest.mark.parametrize(
    # Llama's, too, is run from files by examples/hugging_face.py.
    "name",
    ["t5", *(pytest.param(name, marks=pytest.mark.sweep) for name in ("whisper", "llama", "gpt2", "mamba"))],
)
@torch.no_grad()
def test_decode_from_the_cache_equals_eager_at_every_step(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once traced and once, by a model of its own, read from the files alone.

    T5 and Whisper note in their caches that the encoder's keys are there: what a first call notes is a condition.
    """
    decoder = zoo.DECODERS[name]
    options = {"kernels": "exact" if name in _BIT_FOR_BIT else "fast"}
    cached = functools.partial(airgraph.inference.cache_compile, cache_dir=tmp_path, strict=True, options=options)
    for _ in range(2):
        session = decoder.session(decoder.architecture.build(), BATCH, compiled=cached)
        runs = _decode_twice(session)
        for got, expected in zip(runs, _eager(name), strict=True):
            _assert_close_to_eager(got, expected)
        if name in _BIT_FOR_BIT:
            assert torch.equal(runs[0].logits, _lowered(name).logits)
        assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0
        monkeypatch.setattr(torch, "compile", None)


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(BROKEN_UP))
@torch.no_grad()
def test_decode_with_graph_breaks_equals_eager_and_names_every_fallback(name: str) -> None:
    """Mixtral looping over the experts that were hit: Dynamo breaks the graph there (see test_architectures, which is
    run at every change).

    The layers share the pieces' code and so one FX graph, but not their weights.
    """
    decoder = zoo.DECODERS[name]
    compiled = _compiler(airgraph.get_backend(), dynamic=False, fullgraph=False)
    session = decoder.session(decoder.architecture.build(), BATCH, compiled=compiled)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = _decode(session, zoo.random_ids(BATCH, PROMPT_LEN), STEPS)
    _assert_close_to_eager(got, _eager(name)[0])
    report = airgraph.explain().to_dict()
    skipped = [row for row in report["graphs"] if row["state"] == "skipped"]
    assert report["counters"]["replays"] > STEPS
    assert bool(skipped) == (report["counters"]["eager_calls"] > 0)
    for row in skipped:
        assert "capture_limit" in row["reason"]
        assert sum(f"{row['name']} runs eagerly" in str(w.message) for w in caught) == 1


@pytest.mark.parametrize(("name", "dynamic"), [("llama", False), pytest.param("gpt2", True, marks=pytest.mark.sweep)])
@torch.no_grad()
def test_another_batch_is_captured_and_another_cache_followed(name: str, dynamic: bool) -> None:
    decoder = zoo.DECODERS[name]
    model = decoder.architecture.build()
    steps = 5

    captured = decoder.session(model, BATCH, compiled=_compiler(airgraph.get_backend(), dynamic=dynamic))

    kept: list[zoo.Session] = []

    def check(batch: int) -> dict[str, int]:
        """A request with a cache of its own, through the same compiled step."""
        fresh = decoder.session(model, batch)
        # Kept, so that no cache lies where an earlier one was.
        kept.append(fresh)
        prompt = zoo.random_ids(batch, 7, seed=batch)
        got = _decode(zoo.Session(captured.step, fresh.cache), prompt, steps)
        _assert_close_to_eager(got, _decode(decoder.session(model, batch), prompt, steps))
        return airgraph.explain().to_dict()["counters"]

    assert check(2) == {"captures": 2, "recaptures": 0, "replays": steps + 1, "eager_calls": 0}
    assert check(3) == {"captures": 4, "recaptures": 0, "replays": 2 * (steps + 1), "eager_calls": 0}
    # Memory that moves is followed.
    assert check(3) == {"captures": 4, "recaptures": 0, "replays": 3 * (steps + 1), "eager_calls": 0}
