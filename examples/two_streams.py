"""Two parts of a model that run side by side: on two cores here, on two streams of a card elsewhere.

python examples/two_streams.py
"""

import time

import torch

import airgraph
from airgraph import scope

WIDTH = 256


class TwoTowers(torch.nn.Module):
    """A text and a picture, each through layers of its own. stream: what the picture's run on."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self.stream = stream
        self.text, self.picture = (
            torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))) for _ in range(2)
        )
        self.done = airgraph.Event("picture")

    def forward(self, text: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
        with scope.stream(self.stream):
            seen = self.picture(picture)
            self.done.record()
        read = self.text(text)
        self.done.wait()
        return (read * seen).sum(-1)


torch.set_num_threads(1)
given = torch.randn(8, WIDTH), torch.randn(8, WIDTH)
for stream in ("default", "picture"):
    model = TwoTowers(stream).eval()
    compiled = torch.compile(model, backend="airgraph", fullgraph=True)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(*given), model(*given))
        start = time.perf_counter()
        for _ in range(1000):
            compiled(*given)
        elapsed_us = (time.perf_counter() - start) * 1e3
    print(f"{'on one stream' if stream == 'default' else 'side by side'}: {elapsed_us:.0f} µs a call")
print(airgraph.explain())
