"""All operators, in the order of the page that lists them."""

from airgraph.npu_operators import (
    activation,
    attention,
    cache_writes,
    formats,
    mla,
    normalisation,
    quantisation,
    rotary,
)
from airgraph.npu_operators.declaration import Operator

__all__ = ["OPERATORS"]

OPERATORS: tuple[Operator, ...] = (
    *normalisation.OPERATORS,
    *rotary.OPERATORS,
    *activation.OPERATORS,
    *attention.OPERATORS,
    *cache_writes.OPERATORS,
    *mla.OPERATORS,
    *quantisation.OPERATORS,
    *formats.OPERATORS,
)
