"""A replay is work of the current stream."""

import pytest
import torch


@torch.no_grad()
def test_a_replay_follows_the_current_stream(device: str) -> None:
    if device == "cpu":
        pytest.skip("work on the CPU runs in the calling thread")
    module = getattr(torch, device)
    compiled = torch.compile(lambda x: (x * 2).relu(), backend="airgraph", fullgraph=True)
    side = module.Stream()
    for value in range(1, 6):
        with module.stream(side):
            x = torch.full((1000,), float(value), device=device)
            out = compiled(x)
            total = out.sum()
        side.synchronize()
        assert total.item() == 2000.0 * value
