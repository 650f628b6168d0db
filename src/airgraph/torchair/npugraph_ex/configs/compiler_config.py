"""npugraph_ex's settings object, where npugraph_ex has it."""

from airgraph.torchair.configs.npugraph_ex_config import NpuGraphExConfig as CompilerConfig

__all__ = ["CompilerConfig"]
