"""An input that moved costs no capture on CPU and few elsewhere, and nothing ends in eager calls."""

import threading
from pathlib import Path

import pytest
import torch
from doors import both_doors, through
from moving import args_of, few_captures, increment, step
from reports import counters
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from airgraph.capture.callable import GraphedCallable
from airgraph.memory.pool import MemoryPool


def scaled(x: Tensor, weight: Tensor) -> Tensor:
    return (x * weight).relu() + weight.sum()


def both_halves(keys: Tensor, values: Tensor, x: Tensor) -> Tensor:
    keys.add_(x)
    values.mul_(2)
    return keys - values


@torch.no_grad()
@both_doors
def test_two_caches_by_turns_are_one_capture(device: str, door: str, tmp_path: Path) -> None:
    ours = [torch.zeros(4, 3, device=device) for _ in range(2)]
    theirs = [cache.clone() for cache in ours]
    call = through(door, step, tmp_path, strict=True)
    for i in range(1000):
        args = args_of(device, i)
        out, expected = call(ours[i % 2], *args), step(theirs[i % 2], *args)
        if i < 20 or i % 50 < 2:
            torch.testing.assert_close(out, expected)
            torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours, theirs)
    assert counters()["replays"] == 1000
    few_captures(device)


@torch.no_grad()
@both_doors
def test_a_new_cache_for_each_request_is_one_capture(device: str, door: str, tmp_path: Path) -> None:
    """The old one is dropped when the new one is there, as a server does; an allocator then has few addresses."""
    call = through(door, step, tmp_path, strict=True)
    cache = expected_cache = None
    for request in range(200):
        cache = torch.full((4, 3), float(request), device=device)
        expected_cache = cache.clone() if expected_cache is None else expected_cache.copy_(cache)
        for i in range(2):
            args = args_of(device, i)
            torch.testing.assert_close(call(cache, *args), step(expected_cache, *args))
    torch.testing.assert_close(cache, expected_cache)
    few_captures(device)


@torch.no_grad()
def test_caches_by_turns_are_replayed_and_nothing_is_put_in_words(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What turns cost beside one cache is for benchmarks/moving_inputs.py; here, that nothing else happens."""
    call = torch.compile(step, backend="airgraph", dynamic=False)
    caches = [torch.zeros(4, 3, device=device) for _ in range(2)]
    args = args_of(device, 1)
    for cache in caches:
        call(cache, *args)
    before = counters()
    monkeypatch.setattr(GraphedCallable, "_why_not", None)
    for i in range(100):
        call(caches[i % 2], *args)
    after = counters()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {"replays": 100}


@torch.no_grad()
@both_doors
def test_what_moved_in_part(device: str, door: str, tmp_path: Path) -> None:
    """Two of one storage at first; later each of its own, in the other order, and of one storage again."""
    whole, other = torch.randn(2, 4, 3, device=device), torch.randn(3, 4, 3, device=device)
    pairs = [
        (whole[0], whole[1]),
        (whole[0], other[1]),
        (other[0], whole[1]),
        (whole[1], whole[0]),
        (other[2], other[0]),
        (whole[0].clone(), whole[1].clone()),
    ]
    ours = [pair for pair in pairs]
    memo = {id(t): t.clone() for t in (whole, other)}
    theirs = [
        (memo[id(whole)][0], memo[id(whole)][1]),
        (memo[id(whole)][0], memo[id(other)][1]),
        (memo[id(other)][0], memo[id(whole)][1]),
        (memo[id(whole)][1], memo[id(whole)][0]),
        (memo[id(other)][2], memo[id(other)][0]),
        (pairs[5][0].clone(), pairs[5][1].clone()),
    ]
    call = through(door, both_halves, tmp_path)
    x = torch.full((4, 3), 0.25, device=device)
    for i in (0, 1, 2, 3, 4, 5, 0, 5, 4, 3, 2, 1, 0):
        torch.testing.assert_close(call(*ours[i], x), both_halves(*theirs[i], x))
        torch.testing.assert_close([whole, other], [memo[id(whole)], memo[id(other)]])
    assert counters()["eager_calls"] == 0


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_another_place_in_the_same_storage(device: str, door: str, tmp_path: Path, shift: int) -> None:
    whole = torch.zeros(64, device=device)
    expected = whole.clone()
    call = through(door, step, tmp_path)
    for i in range(40):
        args = args_of(device, i)
        place = slice(shift + 12 * (i % 4), shift + 12 * (i % 4) + 12)
        ours, theirs = whole[place].view(4, 3), expected[place].view(4, 3)
        torch.testing.assert_close(call(ours, *args), step(theirs, *args))
        torch.testing.assert_close(whole, expected)
    assert counters()["eager_calls"] == 0
    if device == "cpu":
        assert counters()["recaptures"] == 0


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_a_cache_at_an_odd_address(device: str, dtype: torch.dtype) -> None:
    """A kernel prepared for one alignment must not be used at another."""
    call = torch.compile(lambda cache, x: (cache.add_(x), cache * 2)[1], backend="airgraph", dynamic=False)
    x = torch.ones(33, dtype=dtype, device=device)
    for shift in (0, 1, 2, 0, 3, 7, 1):
        whole = torch.arange(48, device=device).to(dtype)
        expected = whole.clone()
        ours, theirs = whole[shift : shift + 33], expected[shift : shift + 33]
        torch.testing.assert_close(call(ours, x), theirs.add_(x) * 2)
        torch.testing.assert_close(whole, expected)


@torch.no_grad()
@both_doors
def test_user_inputs_used_in_place_are_followed(device: str, door: str, tmp_path: Path) -> None:
    call = through(door, scaled, tmp_path, strict=True, clone_input=False)
    inputs = [(torch.randn(6, device=device), torch.randn(6, device=device)) for _ in range(2)]
    for i in range(300):
        x, weight = inputs[i % 2]
        torch.testing.assert_close(call(x, weight), scaled(x, weight))
    few_captures(device)


@torch.no_grad()
def test_inputs_that_are_exchanged(device: str) -> None:
    call = torch.compile(lambda a, b: a * 2 - b, backend="airgraph", dynamic=False, options={"clone_input": False})
    a, b, c = (torch.randn(5, device=device) for _ in range(3))
    for first, second in ((a, b), (b, a), (a, c), (c, b), (a, b), (b, c)) * 3:
        torch.testing.assert_close(call(first, second), first * 2 - second)
    assert counters()["eager_calls"] == 0
    if device == "cpu":
        assert counters()["captures"] == 1


@torch.no_grad()
@pytest.mark.parametrize("clone_input", [True, False])
def test_outputs_fed_back_as_inputs(device: str, clone_input: bool) -> None:
    """With clone_input=False each input lies in the memory that the graph writes its outputs to."""
    call = torch.compile(increment, backend="airgraph", dynamic=False, options={"clone_input": clone_input})
    x = y = torch.full((2000,), 7.0, device=device)
    for _ in range(100):
        x, y = call(x), increment(y)
        torch.testing.assert_close(x, y)
    # With all of them held, and with two of them kept.
    held = [(call(x), increment(y))]
    for _ in range(20):
        held.append((call(held[-1][0]), increment(held[-1][1])))
    for ours, theirs in held:
        torch.testing.assert_close(ours, theirs)
    assert counters()["eager_calls"] == 0
    if device == "cpu":
        assert counters()["captures"] == 1


@torch.no_grad()
def test_a_cache_made_by_the_graph_that_writes_it(device: str) -> None:
    def advance(cache: Tensor, x: Tensor) -> Tensor:
        cache.add_(x)
        return cache * 2

    call = torch.compile(advance, backend="airgraph", dynamic=False)
    ours = theirs = torch.zeros(1000, device=device)
    theirs = theirs.clone()
    x = torch.ones(1000, device=device)
    for _ in range(30):
        ours, theirs = call(ours, x), advance(theirs, x)
        torch.testing.assert_close(ours, theirs)
    assert counters()["eager_calls"] == 0
    if device == "cpu":
        assert counters()["captures"] == 1


@torch.no_grad()
def test_a_capture_keeps_no_input_alive_that_it_was_pointed_at(device: str) -> None:
    call = torch.compile(step, backend="airgraph", dynamic=False)
    gone = []
    for i in range(4):
        cache = torch.zeros(4, 3, device=device)
        gone.append(StorageWeakRef(cache.untyped_storage()))
        call(cache, *args_of(device, i))
        del cache
        assert gone[-1].expired()


@torch.no_grad()
def test_user_inputs_are_copied_and_caches_followed_where_asked(device: str) -> None:
    options = {"clone_input": False, "on_input_move": "copy"}
    call = torch.compile(step, backend="airgraph", dynamic=False, options=options)
    ours = [torch.zeros(4, 3, device=device) for _ in range(2)]
    theirs = [cache.clone() for cache in ours]
    for i in range(100):
        # The tensors of the first call are written by later ones, as upstream does.
        args = args_of(device, i)
        torch.testing.assert_close(call(ours[i % 2], *(a.clone() for a in args)), step(theirs[i % 2], *args))
    torch.testing.assert_close(ours, theirs)
    few_captures(device)


@torch.no_grad()
def test_threads_with_caches_of_their_own(device: str) -> None:
    # While one thread captures, others allocate and read.
    options = {"capture_error_mode": "thread_local"}
    call = torch.compile(step, backend="airgraph", dynamic=False, options=options)
    call(torch.zeros(4, 3, device=device), *args_of(device, 0))
    wrong: list[object] = []

    @torch.no_grad()
    def work(number: int) -> None:
        try:
            ours, theirs = torch.zeros(4, 3, device=device), torch.zeros(4, 3, device=device)
            for i in range(60):
                args = args_of(device, 10 * i + number)
                out, expected = call(ours, *args), step(theirs, *args)
                if not torch.allclose(out, expected) or not torch.equal(ours, theirs):
                    wrong.append((number, i))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert counters()["eager_calls"] == 0
    if device == "cpu":
        assert counters()["captures"] == 1


def wide_step(cache: Tensor, x: Tensor) -> Tensor:
    """Its intermediates are larger than its arguments and results by far."""
    wide = x.repeat(2000, 100)
    wide = (wide * 2).relu() + wide.sin()
    cache.add_(wide.sum(0)[:4])
    return cache * 2


@torch.no_grad()
def test_captures_at_several_addresses_share_one_pool(device: str, pool: MemoryPool) -> None:
    """The memory of the pool does not grow with the addresses that a cache was seen at."""
    call = torch.compile(wide_step, backend="airgraph", dynamic=False, options={"use_graph_pool": pool})
    caches = [torch.zeros(4, device=device) for _ in range(4)]
    x = torch.rand(1, 8, device=device)
    for _ in range(2):
        call(caches[0], x)
    before = pool.nbytes
    # Megabytes, of which nothing is for one capture alone.
    assert before > 1 << 20
    for i in range(40):
        call(caches[i % 4], x)
    assert pool.nbytes <= 1.1 * before


@torch.no_grad()
@both_doors
def test_new_caches_of_several_layers_for_each_request(device: str, door: str, tmp_path: Path) -> None:
    """An allocator gives the same blocks to other layers: sets of addresses come in any order."""

    def decode(caches: list[Tensor], x: Tensor) -> Tensor:
        for layer, cache in enumerate(caches):
            x = x * 2 + cache.sum(0) + layer
            cache.add_(x)
        return x

    call = through(door, decode, tmp_path, strict=True)
    # Beside small tensors CUDA's graphs keep numbers of their generators, so that those of each request lie elsewhere.
    rows, requests = (1 << 17, 40) if device == "cuda" else (4, 200)
    for request in range(requests):
        caches = [torch.full((rows, 3), float(layer), device=device) for layer in range(3)]
        twins = [cache.clone() for cache in caches]
        if request % 3 == 0:
            # What is freed later is given out later.
            caches.reverse()
            twins.reverse()
        for i in range(2):
            x = torch.full((3,), float(i), device=device)
            torch.testing.assert_close(call(caches, x), decode(twins, x))
        torch.testing.assert_close(caches, twins)
    assert counters()["eager_calls"] == 0
    few_captures(device)
