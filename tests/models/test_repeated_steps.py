"""What benchmarks call thousands of times is the same call each time."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

_DECODE = Path(__file__).parents[2] / "benchmarks" / "llama_decode.py"
_LENGTH, _POSITION = 8, 6


def _llama(**shape: Any) -> Any:
    spec = importlib.util.spec_from_file_location("llama_decode", _DECODE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LlamaDecode("cpu", cache_length=_LENGTH, dtype=torch.float32, **shape)


@torch.no_grad()
@pytest.mark.parametrize("door", ["eager", "compiled"])
def test_a_step_of_llama_does_not_leave_its_cache(door: str) -> None:
    model = _llama(vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                   num_key_value_heads=1)  # fmt: skip
    call = model if door == "eager" else torch.compile(model, backend="airgraph", fullgraph=True)
    args = torch.tensor([[7]]), torch.tensor([_POSITION])
    first = call(*args).clone()
    for _ in range(2 * _LENGTH):
        assert torch.equal(call(*args), first)
    assert int(model.cache.layers[0].cumulative_length) == _POSITION + 1
