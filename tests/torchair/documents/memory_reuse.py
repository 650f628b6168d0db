"""Memory among captured graphs: a pool for several models, one for all shapes, copies of inputs and outputs."""

import torch
import torch_npu
import torchair
from torchair.configs.compiler_config import CompilerConfig


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(32, 64)
        self.down = torch.nn.Linear(64, 32)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def compiled(model, config, **given):
    backend = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(model, backend=backend, fullgraph=True, **given)


torch.manual_seed(0)
x = torch.randn(4, 32).npu()
with torch.no_grad():
    # One pool for two models.
    pool = torch.npu.graph_pool_handle()
    models = [Model().npu() for _ in range(2)]
    calls = []
    for model in models:
        config = CompilerConfig()
        config.mode = "reduce-overhead"
        config.aclgraph_config.use_custom_pool = pool
        calls.append(compiled(model, config, dynamic=False))
    for model, call in zip(models, calls, strict=True):
        torch.testing.assert_close(call(x), model(x))
        torch.testing.assert_close(call(x + 1), model(x + 1))

    # One pool for all shapes of a graph, and one for each.
    model = Model().npu()
    for apart in (False, True):
        config = CompilerConfig()
        config.mode = "reduce-overhead"
        config.debug.aclgraph.disable_mempool_reuse_in_same_fx = apart
        call = compiled(model, config, dynamic=True)
        for rows in (2, 3, 5, 2):
            given = torch.randn(rows, 32).npu()
            torch.testing.assert_close(call(given), model(given))

    # The caller's inputs as they are, and outputs of the caller's own.
    config = CompilerConfig()
    config.mode = "reduce-overhead"
    config.debug.aclgraph.clone_input = False
    config.debug.aclgraph.enable_output_clone = True
    call = compiled(model, config, dynamic=False)
    first = call(x)
    kept = first.clone()
    x.add_(1)
    second = call(x)
    torch.testing.assert_close(first, kept)
    torch.testing.assert_close(second, model(x))
torch.npu.synchronize()
print("memory reuse: done on", torch_npu.npu.get_device_name(0))
