"""Workloads of language models: a decode step over a static cache; a forward pass where a model does not generate."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from airgraph.cli.bench.workload import Workload
from airgraph.cli.demo import models
from airgraph.cli.demo.decode import make_cache, make_step
from airgraph.cli.failure import CommandError, UsageProblem

__all__ = ["demo_workload", "workload"]

# Steps that may follow one another before the cache is put back to its prefix.
STEPS_AT_MOST = 128
SEED = 0


def demo_workload(
    name: str, *, device: str | None, dtype: torch.dtype | None, tokens: int, announce: Callable[[str], None]
) -> Workload:
    """A model of `airgraph generate`. Raises CommandError where its weights are missing."""
    loaded = models.load(name, device=device or "cpu", on_step=announce)
    return _decode_step(loaded.name, loaded.model.to(dtype=dtype), tokens)


def workload(
    target: str, *, device: str | None, dtype: torch.dtype | None, tokens: int, announce: Callable[[str], None]
) -> Workload:
    """A model of transformers, from a folder or by its id.

    Raises UsageProblem for a folder without a model, CommandError for what cannot be loaded.
    """
    if os.path.isdir(target) and not Path(target, "config.json").is_file():
        raise UsageProblem(
            f"{target} holds no model: expected the folder of a Hugging Face model, with its config.json"
        )
    if importlib.util.find_spec("transformers") is None:
        raise CommandError(f"model {target!r} needs transformers: install it with `pip install 'airgraph[demo]'`")
    announce("importing transformers")
    models.silence_transformers()
    import transformers

    # It warns of each of its attempts to reach the network.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        announce("reading the weights")
        model = _load(transformers, target)
    except (ImportError, OSError, ValueError) as error:
        if os.path.isdir(target):
            raise CommandError(f"model {target} cannot be loaded: {error}") from error
        raise CommandError(
            f"model {target} is neither in the cache of Hugging Face here nor could it be fetched: check the name "
            f"and the network, or give the model's folder ({type(error).__name__})"
        ) from error
    model = model.to(device=device, dtype=dtype)
    return _decode_step(target, model, tokens) if _decodes(model) else _forward_pass(target, model, tokens)


def _load(transformers: Any, target: str) -> Any:
    """In evaluation mode, as the class that its configuration names; without the network where it is in the cache."""
    try:
        config, here = transformers.AutoConfig.from_pretrained(target, local_files_only=True), True
    except OSError:
        config, here = transformers.AutoConfig.from_pretrained(target), False
    architecture = getattr(transformers, (config.architectures or ["AutoModel"])[0], transformers.AutoModel)
    try:
        return architecture.from_pretrained(target, config=config, local_files_only=here).eval()
    except OSError:
        # The cache has no more than the configuration.
        return architecture.from_pretrained(target, config=config).eval()


def _decodes(model: Any) -> bool:
    """Whether it takes a static cache whose length is a tensor: a window counts in Python, anew at each step."""
    if not model.can_generate() or model.config.is_encoder_decoder:
        return False
    layers: list[Any] = make_cache(model, cache_len=1).layers
    return all(not layer.is_sliding and isinstance(_counter(layer), Tensor) for layer in layers)


def _decode_step(name: str, model: Any, tokens: int) -> Workload:
    """One more token after a prefix of `tokens`."""
    step = make_step(model)
    cache = make_cache(model, cache_len=tokens + STEPS_AT_MOST)
    with torch.inference_mode():
        step(_ids(model, tokens), cache)
    what = f"{name}, one token after {tokens}"
    return Workload(what, step, (_ids(model, 1), cache), held_by=_of_caches, calls_at_most=STEPS_AT_MOST)


def _forward_pass(name: str, model: Any, tokens: int) -> Workload:
    takes = getattr(model, "main_input_name", None)
    if takes != "input_ids":
        raise UsageProblem(
            f"{name} takes {takes}, and only models of text are known here: write a script with a function bench() "
            "that returns the model and its arguments"
        )
    given: dict[str, Any] = {"input_ids": _ids(model, tokens)}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = _ids(model, 1)
    if model.can_generate():
        given["use_cache"] = False
    return Workload(f"{name}, {tokens} tokens", model, (), given)


def _ids(model: nn.Module, count: int) -> Tensor:
    config: Any = model.config
    vocabulary = config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(vocabulary, (1, count), generator=generator)
    return ids.to(next(model.parameters()).device)


def _of_caches(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """What a step writes: the states, and how many there are."""
    return [tensor for layer in args[1].layers for tensor in (layer.keys, layer.values, _counter(layer))]


def _counter(layer: Any) -> Any:
    return getattr(layer, "cumulative_length", None)
