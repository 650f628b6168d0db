"""Two side streams within one graph, kept in order by events that have names."""

import torch
import torch_npu
import torchair
from torchair.configs.compiler_config import CompilerConfig


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("constant", torch.ones(4, 4))
        self.first = torchair.ops.npu_create_tagged_event(tag="66")
        self.second = torchair.ops.npu_create_tagged_event(tag="77")

    def forward(self, in1, in2, in3, in4):
        added = torch.add(in1, in2)
        torchair.ops.npu_tagged_event_record(self.first)
        with torchair.scope.npu_stream_switch("1"):
            torchair.ops.npu_tagged_event_wait(self.first)
            product = torch.mm(added, in3)
            torchair.ops.npu_record_tagged_stream(added, "1")
            torchair.ops.npu_tagged_event_record(self.second)
        main = torch.mm(added, in4)
        del added
        with torchair.scope.npu_stream_switch("2", 3):
            torchair.ops.npu_tagged_event_wait(self.second)
            together = torch.add(product, in1)
        self.constant.add_(1)
        return product, main, together


torch.manual_seed(0)
model, twin = Model().npu(), None
config = CompilerConfig()
config.mode = "reduce-overhead"
call = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config), fullgraph=True, dynamic=False)
with torch.no_grad():
    for number in range(20):
        given = [torch.randn(4, 4).npu() for _ in range(4)]
        product, main, together = call(*given)
        added = given[0] + given[1]
        torch.testing.assert_close(product, added @ given[2])
        torch.testing.assert_close(main, added @ given[3])
        torch.testing.assert_close(together, added @ given[2] + given[0])
        assert model.constant.sum().item() == 16 * (number + 2)
torch.npu.synchronize()
print("multi stream: done on", torch_npu.npu.get_device_name(0))
