"""A stand-in for torch_npu, for programs that were written for it: they run on CPU or CUDA instead.

`install` makes the device "npu", `torch.npu` and `import torch_npu` mean what is here. It is for a whole process, and
`airgraph run` calls it; nothing of it is there otherwise.
"""

from airgraph.standin.package import install

__all__ = ["install"]
