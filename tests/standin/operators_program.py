"""Run by test_standin.py: a cached block of torch_npu's operators; prints what it gave, and how often it was traced."""

import torch
import torch_npu
import torchair


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.full((16,), 2.0))

    def forward(self, x, residual, cache, index):
        torch_npu.npu_add_rms_norm_v2(x, residual, self.gamma)
        torch_npu.npu_scatter_nd_update_(cache, index, x)
        gated = torch_npu.npu_swiglu(torch.cat([x, residual], -1))
        return gated + torch_npu.npu_rms_norm(x, self.gamma)[0]


@torch.no_grad()
def main():
    model = Block().npu()
    call = torchair.inference.cache_compile(model.forward)
    index = torch.tensor([[1], [3]], device="npu")
    for function in (model, call, call):
        x, residual = torch.ones(2, 16).npu(), torch.full((2, 16), 3.0).npu()
        cache = torch.zeros(4, 16, device="npu")
        # 1 + 3 is 4, which divided by its root mean square is 1, times gamma 2.
        given = function(x, residual, cache, index)
        assert x[0, 0] == 2 and residual[0, 0] == 4 and cache[:, 0].tolist() == [0, 2, 0, 2], (x, residual, cache)
        print(f"{given.sum().item():.4f}")
    print("traces", call.counts().traces)


main()
