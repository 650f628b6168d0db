"""Every test here runs on every device that is present: what one promises, all do."""

import pytest
from devices import DEVICES, why_missing


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" not in metafunc.fixturenames:
        return
    wanted = metafunc.config.getoption("--device") or DEVICES
    params = []
    for device in wanted:
        reason = why_missing(device)
        marks = [pytest.mark.skip(reason=reason)] if reason else []
        params.append(pytest.param(device, marks=marks))
    metafunc.parametrize("device", params)
