"""Inputs that keep moving stay within what the options allow, and are never eager."""

import warnings
from pathlib import Path

import pytest
import torch
from doors import both_doors, through
from moving import args_of, increment, step
from reports import counters, report

from airgraph.errors import InputMoved


@torch.no_grad()
@both_doors
def test_every_request_keeps_its_cache(device: str, door: str, tmp_path: Path) -> None:
    """Each at an address of its own: more than `capture_limit` captures elsewhere than on CPU, and never eager."""
    call = through(door, step, tmp_path, strict=True, capture_limit=8)
    caches = [torch.full((4, 3), float(i), device=device) for i in range(40)]
    twins = [cache.clone() for cache in caches]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(120):
            args = args_of(device, i)
            torch.testing.assert_close(call(caches[i % 40], *args), step(twins[i % 40], *args))
    torch.testing.assert_close(caches, twins)
    limits = [str(w.message) for w in caught if "capture_limit" in str(w.message)]
    assert counters()["eager_calls"] == 0
    if device == "cpu":
        assert counters()["captures"] == 1 and not limits
    else:
        assert len(limits) == 1 and "cache" in limits[0]
        assert sum(row["state"] == "captured" for row in report()["graphs"]) <= 8


@torch.no_grad()
@both_doors
def test_an_address_that_must_not_move_raises_each_time(device: str, door: str, tmp_path: Path) -> None:
    """And nothing is written then."""
    call = through(door, step, tmp_path, on_input_move="error")
    cache, other = torch.zeros(4, 3, device=device), torch.zeros(4, 3, device=device)
    call(cache, *args_of(device, 1))
    for _ in range(3):
        with pytest.raises(InputMoved, match=r"cache, mutated\) was at 0x"):
            call(other, *args_of(device, 2))
        assert not other.any()
        expected = cache.clone()
        torch.testing.assert_close(call(cache, *args_of(device, 3)), step(expected, *args_of(device, 3)))
        torch.testing.assert_close(cache, expected)
    assert counters()["captures"] == 1 and counters()["eager_calls"] == 0


@torch.no_grad()
@pytest.mark.parametrize("options", [{"verify_every": 3}, {"capture_limit": 1}], ids=str)
def test_caches_by_turns(device: str, options: dict[str, int]) -> None:
    """Verification follows a moved cache, and with one capture at a time nothing is eager."""
    call = torch.compile(step, backend="airgraph", dynamic=False, options=options)
    ours = [torch.zeros(4, 3, device=device) for _ in range(3)]
    theirs = [cache.clone() for cache in ours]
    for i in range(60):
        args = args_of(device, i)
        torch.testing.assert_close(call(ours[i % 3], *args), step(theirs[i % 3], *args))
    torch.testing.assert_close(ours, theirs)
    assert counters()["eager_calls"] == 0
    if device == "cpu":
        assert counters()["captures"] == 1


@torch.no_grad()
@both_doors
def test_past_the_capture_limit_the_oldest_goes(device: str, door: str, tmp_path: Path) -> None:
    """With one warning that names what keeps changing."""
    call = through(door, increment, tmp_path, dynamic=True, capture_limit=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rows in (2, 3, 2, 4, 2, 5, 2, 3, 6, 7, 8):
            x = torch.randn(rows, device=device)
            torch.testing.assert_close(call(x), increment(x))
    messages = [str(w.message) for w in caught if "capture_limit" in str(w.message)]
    assert len(messages) == 1 and "capture_limit=2" in messages[0]
    assert "prompt" in messages[0]
    # Two rows come back again and again, and stay: the least recently used goes, not the first made.
    assert counters()["captures"] == 8 and counters()["eager_calls"] == 0
    assert sum(row["state"] == "captured" for row in report()["graphs"]) == 2


@torch.no_grad()
def test_a_cache_in_two_forms_by_turns_is_never_eager(device: str, tmp_path: Path) -> None:
    """Through the cached door nobody but airgraph compares strides."""
    call = through("cached", step, tmp_path, capture_limit=4)
    cache, turned = torch.zeros(4, 3, device=device), torch.zeros(3, 4, device=device).t()
    theirs = [cache.clone(), turned.clone()]
    for i in range(40):
        args = args_of(device, i)
        torch.testing.assert_close(call((cache, turned)[i % 2], *args), step(theirs[i % 2], *args))
    torch.testing.assert_close([cache, turned], theirs)
    assert counters()["eager_calls"] == 0
