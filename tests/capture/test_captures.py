"""What is kept of captures stays bounded."""

import pytest
import torch

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
