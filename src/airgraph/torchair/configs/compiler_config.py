"""TorchAir's settings object."""

from __future__ import annotations

from airgraph.torchair.configs.table import NPUGRAPH_EX, TORCHAIR
from airgraph.torchair.configs.tree import Config

__all__ = ["CompilerConfig"]


class CompilerConfig(Config):
    """All settings of TorchAir's, as attributes: `config.debug.aclgraph.clone_input = False`.

    What each comes to is in docs/from_torchair.md. Setting one raises OptionError, which is a ValueError, for an
    unknown name, for a bad value and for what airgraph does not offer.
    """

    def __init__(self) -> None:
        others_are = "It is an option of torch.compile(backend='npugraph_ex') and of airgraph.Options, which have"
        super().__init__(TORCHAIR, NPUGRAPH_EX, others_are)
