"""What is kept of captures stays bounded."""

import pytest
import torch

import airgraph
import airgraph.capture.captures


@pytest.mark.filterwarnings("ignore:airgraph. .* keeps capture_limit")
def test_nothing_is_kept_of_the_keys_of_dropped_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    init = airgraph.capture.captures.Captures.__init__

    def noted(self: object, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(airgraph.capture.captures.Captures, "__init__", noted)
    call = torch.compile(lambda x, n: x * n, backend="airgraph", dynamic=True, options={"capture_limit": 2})
    with torch.no_grad():
        for n in range(2, 40):
            assert call(torch.ones(3), n).tolist() == [n] * 3
    assert made
    for each in made:
        assert len(each._of_key) <= 2


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:airgraph. .* keeps capture_limit")
def test_what_the_limit_dropped_is_recaptured_and_no_new_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airgraph.capture.captures, "_MOST_REMEMBERED", 2)
    call = torch.compile(lambda x: x * 2, backend="airgraph", dynamic=True, options={"capture_limit": 2})
    for rows in (3, 4, 5, 3, 4, 5, 4, 6, 7, 8, 5, 3):
        call(torch.ones(rows))
    report = airgraph.explain().to_dict()
    dropped = [(row["key"], row["reason"]) for row in report["graphs"] if row["reason"] != "new key"]
    # The last key was dropped so long ago that it is not remembered.
    assert dropped == [(f"({rows})", f"key ({rows}) was dropped by capture_limit=2") for rows in (3, 4, 5)]
    assert report["counters"]["recaptures"] == 3 and report["counters"]["captures"] == 11
    airgraph.reset()
    call(torch.ones(4))
    assert [row["reason"] for row in airgraph.explain().to_dict()["graphs"]] == ["new key"]
