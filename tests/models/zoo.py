"""Small random models of real architectures, each with inputs of any batch and length.

Weights and inputs are seeded, so that every call gives equal models. All have two layers and a width of 32: what is
tested is the operators that an architecture uses, not their size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers as hf

__all__ = [
    "ARCHITECTURES",
    "DECODERS",
    "VOCABULARY",
    "Architecture",
    "Decoder",
    "Session",
    "cache_tensors",
    "random_ids",
    "static_and_dynamic",
]

VOCABULARY = 128
MEL_BINS = 16
AUDIO_FRAMES = 40
CACHE_LEN = 72
_WIDTH, _LAYERS, _HEADS = 32, 2, 4
_DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": _WIDTH,
    "intermediate_size": 2 * _WIDTH,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Architecture:
    """make: the model. inputs: keyword arguments of its forward for a batch and a length (where it has one).

    output: the field of the result that is compared.
    """

    name: str
    make: Callable[[], Any]
    inputs: Callable[[int, int], Inputs]
    output: str = "logits"

    def build(self) -> Any:
        """The model in evaluation mode, with the same weights at every call."""
        torch.manual_seed(0)
        return self.make().eval().requires_grad_(False)

    def __str__(self) -> str:
        return self.name


def static_and_dynamic(models: Iterable[Any], sample: Collection[tuple[str, bool]]) -> list[Any]:
    """Parameters of a test: models with static or with dynamic shapes, those of the sample, or all in a full sweep."""
    return [
        pytest.param(
            model,
            dynamic,
            marks=[pytest.mark.sweep] * ((str(model), dynamic) not in sample),
            id=f"{model}-{'dynamic' if dynamic else 'static'}",
        )
        for model in models
        for dynamic in (False, True)
    ]


def random_ids(batch: int, length: int, *, seed: int = 0) -> torch.Tensor:
    """Token ids of shape [batch, length] that are no special tokens."""
    return torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def _ids(batch: int, length: int) -> Inputs:
    return {"input_ids": random_ids(batch, length)}


def _short_ids(batch: int, length: int) -> Inputs:
    """A third of the length: Mamba's reference implementation unrolls the sequence, which takes long to compile."""
    return _ids(batch, length // 3)


def _padded(batch: int, length: int) -> Inputs:
    """Ids of which the last row's end is padding."""
    ids = random_ids(batch, length)
    mask = torch.ones_like(ids)
    mask[-1, length // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _pair(batch: int, length: int) -> Inputs:
    """For an encoder and its decoder."""
    return {**_padded(batch, length), "decoder_input_ids": random_ids(batch, length + 2, seed=1)}


def _audio(batch: int, length: int) -> Inputs:
    """Features have a fixed number of frames; the length is the decoder's."""
    mel = torch.randn(batch, MEL_BINS, 2 * AUDIO_FRAMES, generator=torch.Generator().manual_seed(2))
    return {"input_features": mel, "decoder_input_ids": random_ids(batch, length)}


def _image(batch: int, length: int) -> Inputs:
    """Images are 16 pixels square: their size belongs to the model, so the length changes nothing."""
    return {"pixel_values": torch.randn(batch, 3, 16, 16, generator=torch.Generator().manual_seed(length))}


def _llama() -> Any:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**_DECODER))


def _qwen3() -> Any:
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(**_DECODER, head_dim=16))


def _gpt2() -> Any:
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=128,
            n_embd=_WIDTH,
            n_layer=_LAYERS,
            n_head=_HEADS,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


def _bert() -> Any:
    return hf.BertModel(
        hf.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=_WIDTH,
            num_hidden_layers=_LAYERS,
            num_attention_heads=_HEADS,
            intermediate_size=2 * _WIDTH,
            max_position_embeddings=64,
        )
    )


def _mixtral(experts: str) -> Callable[[], Any]:
    def make() -> Any:
        config = hf.MixtralConfig(**_DECODER, num_local_experts=4, num_experts_per_tok=2)
        model = hf.MixtralForCausalLM(config)
        model.set_experts_implementation(experts)
        return model

    return make


def _t5_config() -> Any:
    return hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=_WIDTH,
        d_kv=_WIDTH // _HEADS,
        d_ff=2 * _WIDTH,
        num_layers=_LAYERS,
        num_heads=_HEADS,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=0,
    )


def _whisper() -> Any:
    return hf.WhisperForConditionalGeneration(
        hf.WhisperConfig(
            vocab_size=VOCABULARY,
            num_mel_bins=MEL_BINS,
            d_model=_WIDTH,
            encoder_layers=_LAYERS,
            decoder_layers=_LAYERS,
            encoder_attention_heads=_HEADS,
            decoder_attention_heads=_HEADS,
            encoder_ffn_dim=2 * _WIDTH,
            decoder_ffn_dim=2 * _WIDTH,
            max_source_positions=AUDIO_FRAMES,
            max_target_positions=96,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
    )


def _vit() -> Any:
    return hf.ViTForImageClassification(
        hf.ViTConfig(
            image_size=16,
            patch_size=4,
            hidden_size=_WIDTH,
            num_hidden_layers=_LAYERS,
            num_attention_heads=_HEADS,
            intermediate_size=2 * _WIDTH,
            num_labels=10,
        )
    )


def _mamba() -> Any:
    return hf.MambaForCausalLM(
        hf.MambaConfig(
            vocab_size=VOCABULARY,
            hidden_size=_WIDTH,
            state_size=8,
            num_hidden_layers=_LAYERS,
            time_step_rank=4,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("llama", _llama, _ids),
        Architecture("qwen3", _qwen3, _padded),
        Architecture("gpt2", _gpt2, _ids),
        Architecture("bert", _bert, _padded, output="last_hidden_state"),
        # transformers has three ways to run the experts: "eager" loops over those that were hit, the others do not.
        Architecture("mixtral-loop", _mixtral("eager"), _ids),
        Architecture("mixtral-batched", _mixtral("batched_mm"), _ids),
        Architecture("mixtral-grouped", _mixtral("grouped_mm"), _ids),
        Architecture("t5-encoder", lambda: hf.T5EncoderModel(_t5_config()), _padded, output="last_hidden_state"),
        Architecture("t5", lambda: hf.T5ForConditionalGeneration(_t5_config()), _pair),
        Architecture("whisper", _whisper, _audio),
        Architecture("vit", _vit, _image),
        Architecture("mamba", _mamba, _short_ids),
    )
}


Step = Callable[[torch.Tensor, Any], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Session:
    """step(ids, cache) -> logits of the last position, [batch, vocabulary]; it appends to the cache.

    prefill: the same, for a prompt; None where `step` serves prompts as well.
    """

    step: Step
    cache: Any
    prefill: Step | None = None


@dataclass(frozen=True, slots=True)
class Decoder:
    """An architecture that decodes over a cache of fixed addresses. encoder_len: positions to attend to, or 0."""

    architecture: Architecture
    encoder_len: int = 0

    def session(self, model: Any, batch: int, *, compiled: Callable[[Step], Step] = lambda step: step) -> Session:
        """A session of `model` with a cache of its own. compiled: turns the step into a compiled one."""
        if self.architecture.name == "mamba":

            def advance(ids: torch.Tensor, cache: Any) -> torch.Tensor:
                return model(input_ids=ids, cache_params=cache, use_cache=True).logits[:, -1]

            # Mamba allocates its states within the first call, so that one stays outside the compiled step.
            return Session(compiled(advance), hf.DynamicCache(config=model.config), prefill=advance)
        if self.encoder_len:
            generator = torch.Generator().manual_seed(3)
            states = torch.randn(batch, self.encoder_len, _WIDTH, generator=generator)
            cache = hf.EncoderDecoderCache(
                _static_cache(model, batch, CACHE_LEN), _static_cache(model, batch, self.encoder_len)
            )

            def attend(ids: torch.Tensor, cache: Any) -> torch.Tensor:
                outputs = model(decoder_input_ids=ids, encoder_outputs=(states,), past_key_values=cache, use_cache=True)
                return outputs.logits[:, -1]

            return Session(compiled(attend), cache)

        def step(ids: torch.Tensor, cache: Any) -> torch.Tensor:
            return model(input_ids=ids, past_key_values=cache, use_cache=True).logits[:, -1]

        return Session(compiled(step), _static_cache(model, batch, CACHE_LEN))

    def __str__(self) -> str:
        return self.architecture.name


def cache_tensors(cache: Any) -> list[torch.Tensor]:
    """All state of a cache, in a fixed order."""
    if isinstance(cache, hf.EncoderDecoderCache):
        return cache_tensors(cache.self_attention_cache) + cache_tensors(cache.cross_attention_cache)
    found: list[torch.Tensor] = []
    for layer in cache.layers:
        if hasattr(layer, "conv_states"):
            found += [*layer.conv_states.values(), *layer.recurrent_states.values()]
        else:
            found += [layer.keys, layer.values, layer.cumulative_length]
    return found


def _static_cache(model: Any, batch: int, length: int) -> Any:
    """Allocated here, not within the first call, so that a compiled prefill finds its addresses fixed."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache = hf.StaticCache(config=model.config, max_cache_len=length)
    cache.early_initialization(
        batch_size=batch, num_heads=heads, head_dim=size, dtype=torch.float32, device=torch.device("cpu")
    )
    return cache


DECODERS = {
    name: Decoder(ARCHITECTURES[name], encoder_len)
    for name, encoder_len in {
        "llama": 0,
        "qwen3": 0,
        "gpt2": 0,
        "mixtral-grouped": 0,
        "mixtral-loop": 0,
        "t5": 5,
        "whisper": AUDIO_FRAMES,
        "mamba": 0,
    }.items()
}
