"""TorchAir's logger writes to standard output once its level allows it."""

import logging

import pytest

from airgraph import torchair
from airgraph.torchair.core.utils import logger


def test_it_says_errors_only_until_its_level_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert torchair.logger is logger is logging.getLogger("torchair") and logger.level == logging.ERROR
    logger.info("unsaid")
    try:
        logger.setLevel(logging.INFO)
        logger.info("said of %s", "it")
    finally:
        logger.setLevel(logging.ERROR)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("[INFO] TORCHAIR(") and line.endswith("] said of it")
