"""The cache script of TorchAir's documentation with a clock: run by torchair_starts.py, by `airgraph run`.

Prints seconds from the model on its device to the first result and to all three, and whether Dynamo was imported.
"""

import json
import sys
import time

import torch
import torch_npu
import torchair
from torchair.configs.compiler_config import CompilerConfig

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
torch_npu.npu.synchronize()
with torch.no_grad():
    start = time.perf_counter()
    prompt = model(torch.ones(2, 2).npu())
    assert prompt.cpu().tolist() == [[3.0], [3.0]]
    first_s = time.perf_counter() - start
    step = model(torch.ones(1, 2).npu())
    longer = model(torch.ones(3, 2).npu())
    assert step.cpu().tolist() == [[3.0]] and longer.cpu().shape == (3, 1)
    all_s = time.perf_counter() - start
print("measured", json.dumps({"first_s": first_s, "all_s": all_s, "dynamo": "torch._dynamo" in sys.modules}))
