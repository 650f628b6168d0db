"""A program as its author wrote it for TorchAir; it prints what a test compares. Arguments: device and folder."""

import sys

import npugraph_ex
import torch
import torchair
import torchair as tng
import torchair.inference
from torchair.configs.compiler_config import CompilerConfig
from torchair.core.utils import logger

device, folder = sys.argv[1:]
traces_nothing = "torch._dynamo" not in sys.modules


class Model(torch.nn.Module):
    def forward(self, x):
        with tng.scope.npu_stream_switch("1"):
            return x * 2


config = CompilerConfig()
config.mode = "reduce-overhead"
config.debug.aclgraph.clone_input = False
x = torch.ones(3, device=device)
with torch.no_grad():
    for backend, options in (
        (tng.get_npu_backend(compiler_config=config), None),
        ("npugraph_ex", {"clone_output": True}),
        ("npu", None),
    ):
        torch._dynamo.reset()
        assert torch.compile(Model(), backend=backend, options=options, fullgraph=True)(x).tolist() == [2.0] * 3
    cached = torchair.inference.cache_compile(Model().forward, config=config, cache_dir=folder)
    assert cached(x).tolist() == [2.0] * 3
    if hasattr(torch, "npu"):
        assert torch.npu.npugraph_ex is npugraph_ex
        with torch.npu.npugraph_ex.scope.limit_core_num(4, 4):
            pass
assert logger is tng.logger and npugraph_ex.inference.cache_compile
print(torchair.__name__, npugraph_ex.__name__, traces_nothing)
