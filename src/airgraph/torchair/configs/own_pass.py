"""A pass of the user's, which TorchAir gives its settings and airgraph its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from airgraph.options import Options
from airgraph.passes.fingerprint import deep_identity

__all__ = ["OwnPass"]

_PLAIN = (bool, int, float, str, type(None))


class OwnPass:
    """Calls `function(gm, example_inputs, config)`. values: of all settings, by path."""

    def __init__(self, function: Callable[..., None], config: object, values: Mapping[str, Any]) -> None:
        self.__wrapped__, self.config, self.values = function, config, dict(values)

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any], options: Options) -> None:
        self.__wrapped__(gm, example_inputs, self.config)

    def uuid(self) -> str:
        """What tells it from another in all processes. Raises Unwritable where the function holds what cannot be
        compared."""
        read = {path: value for path, value in self.values.items() if type(value) in _PLAIN}
        return f"{deep_identity(self.__wrapped__)} {sorted(read.items())}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OwnPass):
            return NotImplemented
        return self.__wrapped__ == other.__wrapped__ and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.__wrapped__)
