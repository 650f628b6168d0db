"""Each folder of the package has an order, which import-linter holds; a new one needs a contract in pyproject.toml."""

import re
from pathlib import Path

import pytest

import airgraph

_PACKAGE = Path(airgraph.__file__).parent


def test_each_folder_has_its_layers() -> None:
    settings = _PACKAGE.parents[1] / "pyproject.toml"
    if not settings.is_file():
        pytest.skip("not a checkout")
    contracts = settings.read_text().split("[[tool.importlinter.contracts]]")
    ordered = {
        name
        for each in contracts
        if "exhaustive = true" in each
        for name in re.findall(r'containers = \["(.*)"\]', each)
    }
    folders = {
        ".".join(("airgraph", *init.parent.relative_to(_PACKAGE).parts))
        for init in _PACKAGE.rglob("__init__.py")
        if len([*init.parent.glob("*.py"), *init.parent.glob("*/__init__.py")]) > 2
    }
    assert folders == ordered
