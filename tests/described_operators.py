"""PyTorch's own descriptions of its operators, with samples of their arguments."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo

__all__ = ["operators"]


@functools.cache
def operators() -> tuple[OpInfo, ...]:
    """All of `op_db`; the first call takes ten seconds, for its import.

    For each operator and each sample PyTorch looks through all frames, with their source texts, for the unittest that
    asked: a good half of what drawing samples takes. Here there is none.
    """
    from torch.testing._internal import common_methods_invocations, common_utils
    from torch.testing._internal.opinfo import core

    common_utils.extract_test_fn = core.extract_test_fn = lambda: None
    return tuple(common_methods_invocations.op_db)
