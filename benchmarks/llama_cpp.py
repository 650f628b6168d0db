"""llama.cpp's decoding of a model, by the package xllamacpp, for `llm.py`: the peer that runs on the same weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from processes import answer

__all__ = ["FORMATS", "serve", "write_as"]

FORMATS = ("F32", "BF16", "Q8_0")


def write_as(source: Path, target: Path, kind: str) -> None:
    """The model of a GGUF file with all its matrices in one of FORMATS; what else is in the file stays."""
    import gguf
    from gguf import GGMLQuantizationType, GGUFValueType

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        inner = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    wanted = GGMLQuantizationType[kind]
    for tensor in reader.tensors:
        numbers = gguf.dequantize(tensor.data, tensor.tensor_type)
        is_matrix = numbers.ndim > 1 and tensor.tensor_type is not GGMLQuantizationType.F32
        form = wanted if is_matrix else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quantize(numbers, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def serve(model: Path, prompt: list[int], threads: int, length: int) -> None:
    """In a worker: decode as many tokens as each line says; the nanoseconds are those that llama.cpp counts itself.

    It counts from the first token on, which comes of the prompt.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx, params.n_parallel, params.warmup, params.n_gpu_layers = length, 1, True, 0
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = threads
    server = xllamacpp.Server(params)

    def decode(tokens: int) -> int:
        asked = {"prompt": prompt, "n_predict": tokens + 1, "temperature": 0, "ignore_eos": True, "cache_prompt": True}
        told: Any = server.handle_completions(asked)
        timings = told["timings"]
        if timings["predicted_n"] != tokens + 1:
            raise SystemExit(f"llama.cpp chose {timings['predicted_n']} tokens, not {tokens + 1}")
        return int(timings["predicted_ms"] * 1e6)

    decode(8)
    answer(True)
    for line in sys.stdin:
        answer(decode(int(line)))
