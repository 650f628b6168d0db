"""The `npu_*` operators of torch_npu that scripts of language models use, where torch_npu is not.

They have torch_npu's schemas in its namespace (`torch.ops.npu.npu_rms_norm`) and are written in PyTorch's operators.
Nothing is registered until `register` is called.
"""

from airgraph.npu_operators.declaration import Operator
from airgraph.npu_operators.registration import callables, register
from airgraph.npu_operators.table import OPERATORS

__all__ = ["OPERATORS", "Operator", "callables", "register"]
