"""A model of a prompt and of a step, as it is before its compilation is cached."""

import torch
import torch_npu
import torchair
from torchair.configs.compiler_config import CompilerConfig


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = torch.nn.Linear(2, 1)
        self.linear2 = torch.nn.Linear(2, 1)
        for parameter in self.parameters():
            torch.nn.init.ones_(parameter)

    def forward(self, tokens):
        return self.linear2(tokens) if tokens.shape[0] > 1 else self.linear1(tokens)


config = CompilerConfig()
config.mode = "reduce-overhead"
model = torch.compile(Model().npu(), backend=torchair.get_npu_backend(compiler_config=config))
with torch.no_grad():
    prompt = model(torch.ones(3, 2).npu())
    step = model(torch.ones(1, 2).npu())
assert torch.equal(prompt.cpu(), torch.full((3, 1), 3.0)) and torch.equal(step.cpu(), torch.full((1, 1), 3.0))
print("before:", prompt.shape, step.shape, "on", torch_npu.npu.get_device_name(0))
