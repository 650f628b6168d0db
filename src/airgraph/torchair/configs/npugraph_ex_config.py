"""npugraph_ex's settings object."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from airgraph.options import Options
from airgraph.torchair.configs.table import NPUGRAPH_EX, TORCHAIR
from airgraph.torchair.configs.tree import Config

__all__ = ["NpuGraphExConfig"]


class NpuGraphExConfig(Config):
    """All settings of npugraph_ex, and those that only airgraph has, as attributes: `config.clone_input = False`.

    Setting one raises OptionError, which is a ValueError, for an unknown name, for a bad value and for what airgraph
    does not offer.
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        """given: names to values, as `torch.compile(options=...)` has them."""
        super().__init__(NPUGRAPH_EX, TORCHAIR, "torchair.CompilerConfig has")
        for name, value in (given or {}).items():
            setattr(self, name, value)

    def replacing(self, options: Options, names: Iterable[str]) -> Options:
        """Options with those replaced that these settings come to. Raises OptionError for what excludes another."""
        own = self._options()
        return dataclasses.replace(options, **{name: own[name] for name in names if name in own})
