"""The engine serves every patch version and build of the torch minor that it was built for, and no other minor."""

import importlib

import pytest
import torch

from airgraph.runtime.engine import loading


@pytest.mark.parametrize(
    ("version", "is_served"),
    [("2.13.1", True), ("2.13.7+cu130", True), ("2.13.0a0+git1234", True), ("2.130.0", False), ("2.14.0+cpu", False)],
)
def test_torch_is_compared_by_its_minor_version(
    version: str, is_served: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    native = loading.engine()
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(loading, "_built_for", lambda: "2.13")
    # As it is installed: nothing to compile another one from.
    monkeypatch.setattr(loading, "_CHECKOUT", tmp_path)
    imported = importlib.import_module
    monkeypatch.setattr(
        importlib, "import_module", lambda name: native if name == "airgraph._engine" else imported(name)
    )
    monkeypatch.setattr(loading, "_native", lambda module: (module, "native"))
    if is_served:
        assert loading._load.__wrapped__() == (native, "native")
        return
    with pytest.warns(UserWarning, match=f"built for torch 2.13, and this is torch {version.partition('+')[0]}"):
        _, status = loading._load.__wrapped__()
    assert not status.loaded and 'pip install "torch==2.13.*"' in str(status.remedy)
