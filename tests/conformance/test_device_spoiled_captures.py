"""What another thread does during a capture may spoil it, but not those after it."""

import contextlib
import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from reports import counters
from torch import Tensor

import airgraph

_meet: list[Callable[[], object]] = []


@torch.library.custom_op("airgraph_conformance::meets_others", mutates_args=())
def meets_others(x: Tensor) -> Tensor:
    # A call that a capture is made of may be run once before that, as on CUDA.
    if _meet and (x.device.type == "cpu" or torch.get_device_module(x.device).is_current_stream_capturing()):
        thread = threading.Thread(target=_meet.pop())
        thread.start()
        thread.join()
    return x * 2


meets_others.register_fake(torch.empty_like)


def _synchronize(device: str) -> Callable[[], object]:
    def run() -> None:
        with contextlib.suppress(RuntimeError):
            torch.get_device_module(device).synchronize()

    return run


@torch.no_grad()
@pytest.mark.parametrize("mode", ["auto", "global", "thread_local"])
@pytest.mark.parametrize("spoiled", [1, 3, 8])
def test_the_next_call_captures_anew(device: str, mode: str, spoiled: int) -> None:
    """Eagerly for good only after eight in a row; what other threads do counts by capture_error_mode, by which default
    CUDA's captures are the thread's own."""
    call = torch.compile(
        lambda x: meets_others(x) + 1, backend="airgraph", dynamic=False, options={"capture_error_mode": mode}
    )
    _meet.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(spoiled):
            _meet.append(_synchronize(device))
            assert call(torch.ones(4, device=device)).tolist() == [3.0] * 4
            _meet.clear()
        for i in range(3):
            assert call(torch.full((4,), float(i), device=device)).tolist() == [2.0 * i + 1] * 4
    messages = [str(each.message) for each in caught if str(each.message).startswith("airgraph")]
    found = counters()
    if device == "cpu" or mode == "thread_local" or (mode == "auto" and device == "cuda"):
        assert found["captures"] == 1 and found["eager_calls"] == 0 and not messages
    elif spoiled < 8:
        assert found["captures"] == 1 and found["eager_calls"] == spoiled and found["replays"] == 3
        assert len(messages) == 1 and "another thread" in messages[0] and "captures anew" in messages[0]
        assert not [row for row in airgraph.explain().to_dict()["graphs"] if row["state"] == "skipped"]
    else:
        assert found["captures"] == 0 and found["eager_calls"] == 11
        assert len(messages) == 2 and "not replayed" in messages[1]
