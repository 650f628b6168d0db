"""TorchAir's logger: to standard output, errors only unless its level is set."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

from airgraph import environment

__all__ = ["logger"]


class _ToStandardOutput(logging.StreamHandler[TextIO]):
    """To what is standard output when a line is written, which a program may replace."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self.setFormatter(
            logging.Formatter("[%(levelname)s] TORCHAIR(%(process)d):%(asctime)s [%(filename)s:%(lineno)d] %(message)s")
        )

    def emit(self, record: Any) -> None:
        self.stream = sys.stdout
        super().emit(record)


# Under the name that TorchAir's own has, for programs that ask logging for it.
logger = logging.getLogger("torchair")
if not any(isinstance(each, _ToStandardOutput) for each in logger.handlers):
    logger.addHandler(_ToStandardOutput())
    logger.setLevel(logging.DEBUG if environment.torch_dumps_wanted() else logging.ERROR)
