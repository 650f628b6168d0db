"""No garbage is collected while a capture is made, and afterwards it is as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from airgraph.runtime.recording.collection import uncollected


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """One entry a collection, which each new object may begin."""
    began: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        began.append(phase)

    threshold = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1, 1, 1)
    yield began
    gc.set_threshold(*threshold)
    gc.callbacks.remove(note)


def program(x: Tensor) -> Tensor:
    return (x @ x).relu() + 1


def test_a_capture_is_not_interrupted_by_collections(collections: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from airgraph.runtime.cpu import runtime

    seen = []
    record = runtime.record

    def watched(*args: object) -> object:
        before = len(collections)
        made = record(*args)  # type: ignore[arg-type]
        seen.append(len(collections) - before)
        return made

    monkeypatch.setattr(runtime, "record", watched)
    with torch.no_grad():
        torch.compile(program, backend="airgraph")(torch.rand(4, 4))
    assert seen == [0] and collections and gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_afterwards_it_is_as_before(enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with pytest.raises(ValueError), uncollected():
            raise ValueError
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
