"""The same with its compilation in files: a second start loads what the first has saved."""

import logging

import torch
import torch_npu
import torchair
from torchair import logger
from torchair.configs.compiler_config import CompilerConfig

logger.setLevel(logging.INFO)
config = CompilerConfig()
config.mode = "reduce-overhead"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = torch.nn.Linear(2, 1)
        self.linear2 = torch.nn.Linear(2, 1)
        for parameter in self.parameters():
            torch.nn.init.ones_(parameter)
        self.cached_prompt = torchair.inference.cache_compile(self.prompt, config=config)
        self.cached_decode = torchair.inference.cache_compile(self.decode, config=config)

    def forward(self, tokens):
        return self.cached_prompt(tokens) if tokens.shape[0] > 1 else self.cached_decode(tokens)

    def _forward(self, tokens):
        return self.linear2(tokens)

    def prompt(self, tokens):
        return self._forward(tokens)

    def decode(self, tokens):
        return self._forward(tokens)


model = Model().npu()
with torch.no_grad():
    prompt = model(torch.ones(2, 2).npu())
    step = model(torch.ones(1, 2).npu())
    longer = model(torch.ones(3, 2).npu())
assert torch.equal(prompt.cpu(), torch.full((2, 1), 3.0)) and torch.equal(step.cpu(), torch.full((1, 1), 3.0))
assert longer.shape == (3, 1)
print("after: done on", torch_npu.npu.get_device_name(0))
