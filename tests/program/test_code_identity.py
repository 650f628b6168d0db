"""The identity of code is the same whoever asks, and in whatever order."""

import sys
import types

import pytest

from airgraph.program.code_identity import at_once, goes_by_version, identity_of


class Made:
    def __new__(cls) -> "Made":
        return super().__new__(cls)

    def method(self) -> type:
        return __class__


def test_a_function_that_closes_over_its_class() -> None:
    for function in (Made.__new__, Made.method):
        alone = identity_of(function)
        with at_once():
            identity_of(Made)
            assert identity_of(function) == alone
        with at_once():
            identity_of(function)
            identity_of(Made)
            assert identity_of(function) == alone


def test_only_what_comes_with_python_goes_by_its_version() -> None:
    assert all(map(goes_by_version, ("os.path", "sys", "torch.nn", "airgraph", "json.decoder", "math")))
    assert not any(map(goes_by_version, ("numpy", "transformers", "__main__", "", None)))


def test_a_users_module_that_is_named_as_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("lib2to3")
    module.__file__ = "/home/user/project/lib2to3.py"
    monkeypatch.setitem(sys.modules, "lib2to3", module)
    assert not goes_by_version("lib2to3")
