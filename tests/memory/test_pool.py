"""Pools count what their graphs take together, overlay them in one region, and return everything."""

import ctypes
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import airgraph.memory.pool as pool_file
from airgraph.errors import ReplayError, UnsupportedGraph
from airgraph.memory.budget import check_budget
from airgraph.memory.footprint import Footprint, overlaid
from airgraph.memory.input_buffers import InputBuffers
from airgraph.memory.plan import ALIGNMENT
from airgraph.memory.pool import ArenaPool
from airgraph.memory.region import Region
from airgraph.memory.replay_lock import ReplayLock

_BYTES = st.integers(0, 1 << 20)
_FOOTPRINTS = st.builds(Footprint, _BYTES, st.lists(_BYTES, max_size=4).map(tuple), _BYTES)


@given(st.lists(_FOOTPRINTS, max_size=6))
def test_what_graphs_share_is_between_the_largest_and_the_sum(footprints: list[Footprint]) -> None:
    shared = overlaid(footprints)
    assert shared == overlaid(reversed(footprints)) == overlaid([shared, *footprints])
    assert max((f.nbytes for f in footprints), default=0) <= shared.nbytes <= sum(f.nbytes for f in footprints)


@given(st.lists(st.tuples(_FOOTPRINTS, st.booleans()), max_size=8))
def test_a_pool_takes_what_its_leases_take_together(events: list[tuple[Footprint, bool]]) -> None:
    pool = ArenaPool()
    leases = []
    for footprint, drop in events:
        predicted = pool.nbytes_with(footprint)
        leases.append(pool.take(footprint))
        assert pool.nbytes == predicted and pool.graphs == len(leases)
        if drop:
            leases.pop(0)
        assert pool.footprint == overlaid(lease.footprint for lease in leases)
        assert pool.unshared_nbytes == sum(lease.footprint.nbytes for lease in leases)
    leases.clear()
    assert pool.nbytes == pool.graphs == 0


def test_leases_overlay_one_region_in_whatever_order_they_come() -> None:
    pool = ArenaPool()
    regions = [pool.take(Footprint(nbytes)).region for nbytes in (100, 1 << 20, 64, 1 << 24)]
    leases = [pool.take(Footprint(nbytes)) for nbytes in (100, 1 << 20, 64, 1 << 24)]
    assert len({lease.region.address for lease in leases}) == 1
    assert all(region.address % ALIGNMENT == 0 for region in regions)


def test_a_region_keeps_what_is_below_a_trim_and_returns_the_rest() -> None:
    region = Region(64 << 20)
    data = torch.frombuffer((ctypes.c_char * (64 << 20)).from_address(region.address), dtype=torch.uint8)
    data.fill_(7)
    before = _resident_nbytes()
    region.trim(1 << 20)
    assert _resident_nbytes() < before - (60 << 20)
    assert data[: 1 << 20].eq(7).all() and data[-1] == 0


def test_many_small_regions_take_little() -> None:
    before = _resident_nbytes()
    regions = [Region(1000) for _ in range(50)]
    for region in regions:
        ctypes.memset(region.address, 1, 1000)
    assert _resident_nbytes() - before < 4 << 20


def test_a_region_where_address_space_is_limited() -> None:
    code = (
        "import resource, ctypes, torch; from airgraph.memory.region import Region;"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096;"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2);"
        "region = Region(1 << 20); assert region.address % 64 == 0 and region.capacity == 1 << 20;"
        "ctypes.memset(region.address, 1, 1 << 20); region.trim(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_input_buffer_grows_and_its_followers_move() -> None:
    class Follower:
        address = 0

        def move_to(self, address: int) -> None:
            self.address = address

    buffers = InputBuffers(torch.device("cpu"))
    first, second = Follower(), Follower()
    small = buffers.block(1, 100, first)
    assert buffers.nbytes == (0, 100) and first.address == small.data_ptr()
    large = buffers.block(1, 1000, second)
    # Counted while somebody keeps it.
    assert buffers.nbytes == (0, 1100) and buffers.block_nbytes == (0, 1000)
    assert first.address == second.address == large.data_ptr() != small.data_ptr()
    del small
    assert buffers.nbytes == (0, 1000)
    assert buffers.block(1, 10) is large
    buffers.clear()
    assert buffers.nbytes == ()


def test_a_budget_counts_only_what_a_pool_would_grow_by() -> None:
    pool = ArenaPool()
    lease = pool.take(Footprint(1000, (50,), 50))
    check_budget(pool, Footprint(900, (50,), 10), 1100)
    # Smaller than what is there: no growth, whatever the budget says.
    check_budget(pool, Footprint(900), 500)
    check_budget(pool, Footprint(5000), None)
    message = "grow from 1100 to 1300 bytes, by 200, of which 100 are free"
    with pytest.raises(UnsupportedGraph, match=message):
        check_budget(pool, Footprint(1200), 1200)
    del lease


def test_a_turn_is_one_threads_at_a_time_and_never_nested() -> None:
    replay_lock, inside, most = ReplayLock(), [0], [0]

    def work() -> None:
        for _ in range(20):
            with replay_lock.holding("a replay"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0005)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    with replay_lock.holding("one"), pytest.raises(ReplayError, match="two was called by an operator of a graph"):
        with replay_lock.holding("two"):
            pass
    with replay_lock.holding("three"):
        pass


def test_a_wait_that_would_never_end_raises() -> None:
    replay_locks, both, outcomes = (ReplayLock(), ReplayLock()), threading.Barrier(2), []

    def work(first: ReplayLock, second: ReplayLock) -> None:
        with first.holding("outer"):
            both.wait()
            try:
                with second.holding("inner"):
                    outcomes.append("ran")
            except ReplayError as error:
                outcomes.append(str(error))

    threads = [threading.Thread(target=work, args=pair) for pair in (replay_locks, replay_locks[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(outcomes)[1] == "ran" and "inner would wait for ever" in sorted(outcomes)[0]


def _resident_nbytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


class Stopped(Exception):
    """As a signal's handler raises it, at any line."""


def _raise_at(line: int) -> Callable[[FrameType, str, object], object]:
    """A trace function that raises at the n-th line that is executed in the pool's file."""
    passed = 0

    def trace(frame: FrameType, event: str, arg: object) -> object:
        nonlocal passed
        if frame.f_code.co_filename != pool_file.__file__ and not frame.f_code.co_filename.endswith("weakref.py"):
            return None
        if event == "line":
            passed += 1
            if passed == line:
                raise Stopped
        return trace

    return trace


@pytest.mark.parametrize("line", range(1, 25))
def test_an_exception_at_any_line_leaves_no_graph_in_the_books(line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is raised while an object dies is lost.
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: None)
    pool = ArenaPool()
    kept = [pool.take(Footprint(64, (8,), 8))]
    try:
        sys.settrace(_raise_at(line))
        lease = pool.take(Footprint(128, (8,), 8))
        del lease
    except Stopped:
        pass
    finally:
        sys.settrace(None)
    assert pool.graphs == 1
    kept.clear()
    assert pool.graphs == 0 and pool.nbytes == 0
    pool.strike_off()
    again = pool.take(Footprint(32, (), 0))
    assert pool.graphs == 1 and pool.nbytes == again.footprint.nbytes
