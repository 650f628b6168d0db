"""Passes over the captured graph: those that write in place, those of the program's own, and replaced patterns."""

import torch
import torch_npu
import torchair
from torchair.configs.compiler_config import CompilerConfig

seen = []


def count_nodes(gm, example_inputs, config):
    assert config.mode == "reduce-overhead" and config.debug.aclgraph.clone_input
    seen.append(len(gm.graph.nodes))


class Step(torch.nn.Module):
    def forward(self, cache, x):
        cache.add_(x)
        y = torch.nn.functional.gelu(x) * 2
        return torch.cat([y, y + 1], dim=-1).sum(-1) + cache.sum(-1)


def square_plus_one(x):
    return x * x + 1


def replacement(x):
    return torch.addcmul(torch.ones_like(x), x, x)


torch.manual_seed(0)
step = Step().npu()
with torch.no_grad():
    for disabled in (False, True):
        config = CompilerConfig()
        config.mode = "reduce-overhead"
        config.debug.aclgraph.disable_reinplace_inplaceable_ops_pass = disabled
        config.debug.aclgraph.disable_reinplace_input_mutated_ops_pass = disabled
        config.experimental_config.remove_noop_ops = not disabled
        config.post_grad_custom_pre_pass = count_nodes
        config.post_grad_custom_post_pass = count_nodes
        call = torch.compile(step, backend=torchair.get_npu_backend(compiler_config=config), fullgraph=True)
        cache, twin = torch.zeros(3, 8).npu(), torch.zeros(3, 8).npu()
        for _ in range(3):
            x = torch.randn(3, 8).npu()
            torch.testing.assert_close(call(cache, x), step(twin, x))
            torch.testing.assert_close(cache, twin)
        torch._dynamo.reset()

    torchair.register_replacement(search_fn=square_plus_one, replace_fn=replacement, example_inputs=(torch.ones(2),))
    config = CompilerConfig()
    config.mode = "reduce-overhead"
    call = torch.compile(square_plus_one, backend=torchair.get_npu_backend(compiler_config=config), fullgraph=True)
    x = torch.randn(4).npu()
    torch.testing.assert_close(call(x), square_plus_one(x))
print("fx passes: done,", len(seen), "looks at graphs, on", torch_npu.npu.get_device_name(0))
