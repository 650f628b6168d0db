"""Two stacks of layers on two streams of Ascend, in the words of airgraph or of TorchAir."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["make"]


class TwoStacks(nn.Module):
    """Three Linear 64x64 with relu, twice; here on one stream."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.side = (
            nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.ReLU()))) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        return self.side(x) + self.main(x)


def _of_airgraph() -> nn.Module:
    import airgraph

    class OnTwoStreams(TwoStacks):
        def __init__(self) -> None:
            super().__init__()
            self.forked, self.joined = airgraph.Event("66"), airgraph.Event("77")

        def forward(self, x: Tensor) -> Tensor:
            x = x + 1
            self.forked.record()
            with airgraph.scope.stream("1"):
                self.forked.wait()
                beside = self.side(x)
                self.joined.record()
            main = self.main(x)
            self.joined.wait()
            return beside + main

    return OnTwoStreams()


def _of_torchair() -> nn.Module:
    import torchair

    class OnTwoStreams(TwoStacks):
        def __init__(self) -> None:
            super().__init__()
            self.forked = torchair.ops.npu_create_tagged_event("66")
            self.joined = torchair.ops.npu_create_tagged_event("77")

        def forward(self, x: Tensor) -> Tensor:
            x = x + 1
            torchair.ops.npu_tagged_event_record(self.forked)
            with torchair.scope.npu_stream_switch("1"):
                torchair.ops.npu_tagged_event_wait(self.forked)
                torchair.ops.npu_record_tagged_stream(x, "1")
                beside = self.side(x)
                torchair.ops.npu_tagged_event_record(self.joined)
            main = self.main(x)
            torchair.ops.npu_tagged_event_wait(self.joined)
            return beside + main

    return OnTwoStreams()


def make(words: str) -> nn.Module:
    """The model in these words: "airgraph", "torchair", or "" for one stream."""
    return {"airgraph": _of_airgraph, "torchair": _of_torchair, "": TwoStacks}[words]().eval()
