"""An input that moved costs no capture on CPU and few elsewhere, and nothing ends in eager calls."""

import threading
import warnings
from pathlib import Path

import pytest
import torch
from doors import both_doors, through
from reports import counters, report
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from airgraph.capture.callable import GraphedCallable
from airgraph.errors import InputMoved
from airgraph.memory.pool import MemoryPool

# How many captures of one key two addresses by turns may take.
_MOST = {"cpu": 1}


def step(cache: Tensor, row: Tensor, x: Tensor) -> Tensor:
    cache.index_copy_(0, row, x)
    return torch.softmax(cache * 2, -1).sum(0)


def scaled(x: Tensor, weight: Tensor) -> Tensor:
    return (x * weight).relu() + weight.sum()


def increment(prompt: Tensor) -> Tensor:
    return prompt * 0.5 + 1


def both_halves(keys: Tensor, values: Tensor, x: Tensor) -> Tensor:
    keys.add_(x)
    values.mul_(2)
    return keys - values


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


def _args(device: str, call: int, rows: int = 4) -> tuple[Tensor, Tensor]:
    return torch.tensor([call % rows], device=device), torch.full((1, 3), float(call), device=device)


def _few_captures(device: str, recaptures: bool = False) -> None:
    found = counters()
    assert found["eager_calls"] == 0
    assert found["captures"] <= _MOST.get(device, 4), found
    if device == "cpu":
        assert found["recaptures"] == 0


@torch.no_grad()
@both_doors
def test_two_caches_by_turns_are_one_capture(device: str, door: str, tmp_path: Path) -> None:
    ours = [torch.zeros(4, 3, device=device) for _ in range(2)]
    theirs = [cache.clone() for cache in ours]
    call = through(door, step, tmp_path, strict=True)
    for i in range(1000):
        args = _args(device, i)
        out, expected = call(ours[i % 2], *args), step(theirs[i % 2], *args)
        if i < 20 or i % 50 < 2:
            torch.testing.assert_close(out, expected)
            torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours, theirs)
    assert counters()["replays"] == 1000
    _few_captures(device)


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
            args = _args(device, i)
            torch.testing.assert_close(call(cache, *args), step(expected_cache, *args))
    torch.testing.assert_close(cache, expected_cache)
    _few_captures(device)


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
            args = _args(device, i)
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
def test_caches_by_turns_are_replayed_and_nothing_is_put_in_words(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What turns cost beside one cache is for benchmarks/moving_inputs.py; here, that nothing else happens."""
    call = torch.compile(step, backend="airgraph", dynamic=False)
    caches = [torch.zeros(4, 3, device=device) for _ in range(2)]
    args = _args(device, 1)
    for cache in caches:
        call(cache, *args)
    before = counters()
    monkeypatch.setattr(GraphedCallable, "_why_not", None)
    for i in range(100):
        call(caches[i % 2], *args)
    after = counters()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {"replays": 100}


@torch.no_grad()
def test_a_cache_of_the_model_that_is_exchanged(device: str) -> None:
    """As an attribute, as a buffer, and marked as static."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(4, 3, device=device))
            self.values = torch.zeros(4, 3, device=device)
            torch._dynamo.mark_static_address(self.values)

        def forward(self, row: Tensor, x: Tensor) -> Tensor:
            self.keys.index_copy_(0, row, x)
            self.values.index_copy_(0, row, x * 2)
            return self.keys.sum(0) * self.values.sum(0)

    ours, theirs = Decoder(), Decoder()
    sets = [[(torch.zeros(4, 3, device=device), torch.ones(4, 3, device=device)) for _ in range(2)] for _ in range(2)]
    call = torch.compile(ours, backend="airgraph", dynamic=False)
    for i in range(200):
        for model, pairs in ((ours, sets[0]), (theirs, sets[1])):
            keys, values = pairs[i % 2]
            torch._dynamo.mark_static_address(values)
            model.keys, model.values = keys, values
        args = _args(device, i)
        torch.testing.assert_close(call(*args), theirs(*args))
    torch.testing.assert_close(sets[0], sets[1])
    _few_captures(device)


@torch.no_grad()
@both_doors
def test_moved_parameters_are_followed(device: str, door: str, tmp_path: Path) -> None:
    model = Mlp().to(device)
    call = through(door, model.forward, tmp_path, strict=True)
    x = torch.randn(3, 8, device=device)
    first, last = model.first, model.last

    def exchange() -> None:
        first.weight.data, last.weight.data = last.weight.data, first.weight.data

    def both_of_one_storage() -> None:
        first.weight.data, last.weight.data = torch.randn(2, 8, 8, device=device)

    moves = (
        lambda: setattr(first.weight, "data", torch.randn(8, 8, device=device)),
        lambda: first.bias.set_(torch.randn(8, device=device)),
        exchange,
        lambda: last.weight.data.copy_(torch.randn(8, 8)),
        lambda: model.load_state_dict({n: torch.randn_like(p) for n, p in model.state_dict().items()}, assign=True),
        lambda: setattr(first, "weight", nn.Parameter(torch.randn(8, 8, device=device))),
        # At an address that is no multiple of what allocators align to.
        lambda: setattr(first.weight, "data", torch.randn(65, device=device)[1:].view(8, 8)),
        both_of_one_storage,
    )
    torch.testing.assert_close(call(x), model(x))
    for _ in range(3):
        for move in moves:
            move()
            for _ in range(2):
                torch.testing.assert_close(call(x), model(x))
    assert counters()["eager_calls"] == 0
    if device == "cpu":
        assert counters()["captures"] == 1


@torch.no_grad()
def test_prepared_kernels_follow_a_moved_weight(device: str) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64)).to(device).eval()
    call = torch.compile(model, backend="airgraph", dynamic=False)
    x = torch.randn(8, 64, device=device)
    sets = [[torch.randn_like(p) for p in model.parameters()] for _ in range(2)]
    for i in range(8):
        for parameter, value in zip(model.parameters(), sets[i % 2], strict=True):
            parameter.data = value
        if i >= 4:
            sets[i % 2][0].mul_(1.5)
        torch.testing.assert_close(call(x), model(x), rtol=1e-4, atol=1e-4)
    _few_captures(device)


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
def test_tied_weights_that_come_apart(device: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Parameter(torch.randn(8, 8, device=device))
            self.head = nn.Parameter(self.embedding.data)

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.embedding).relu() @ self.head.t()

    model = Tied()
    call = torch.compile(model, backend="airgraph", dynamic=False)
    x = torch.randn(3, 8, device=device)
    for change in (
        lambda: None,
        lambda: setattr(model.head, "data", torch.randn(8, 8, device=device)),
        lambda: setattr(model.embedding, "data", model.head.data),
        lambda: setattr(model.embedding, "data", torch.randn(8, 8, device=device)),
        lambda: setattr(model.head, "data", model.embedding.data.t()),
        lambda: setattr(model.head, "data", model.embedding.data.t().contiguous()),
    ):
        change()
        for _ in range(2):
            torch.testing.assert_close(call(x), model(x))
    assert counters()["eager_calls"] == 0


@torch.no_grad()
def test_static_inputs_tied_at_the_capture_only(device: str) -> None:
    """Marked static and read, so that nobody but airgraph compares where they lie."""
    call = torch.compile(lambda a, b: a * 2 + b, backend="airgraph", dynamic=False)
    one, two, whole = (torch.randn(4, device=device) for _ in range(3))
    views = [whole[:4], whole[:4].view(4)]
    for tensor in (one, two, *views):
        torch._dynamo.mark_static_address(tensor)
    for a, b in ((one, one), (one, two), (two, one), (*views,), (views[0], two), (two, two), (one, one)):
        torch.testing.assert_close(call(a, b), a * 2 + b)
    assert counters()["eager_calls"] == 0


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_another_place_in_the_same_storage(device: str, door: str, tmp_path: Path, shift: int) -> None:
    whole = torch.zeros(64, device=device)
    expected = whole.clone()
    call = through(door, step, tmp_path)
    for i in range(40):
        args = _args(device, i)
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
    _few_captures(device)


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
        call(cache, *_args(device, i))
        del cache
        assert gone[-1].expired()


@torch.no_grad()
@both_doors
def test_an_address_that_must_not_move_raises_each_time(device: str, door: str, tmp_path: Path) -> None:
    """And nothing is written then."""
    call = through(door, step, tmp_path, on_input_move="error")
    cache, other = torch.zeros(4, 3, device=device), torch.zeros(4, 3, device=device)
    call(cache, *_args(device, 1))
    for _ in range(3):
        with pytest.raises(InputMoved, match=r"cache, mutated\) was at 0x"):
            call(other, *_args(device, 2))
        assert not other.any()
        expected = cache.clone()
        torch.testing.assert_close(call(cache, *_args(device, 3)), step(expected, *_args(device, 3)))
        torch.testing.assert_close(cache, expected)
    assert counters()["captures"] == 1 and counters()["eager_calls"] == 0


@torch.no_grad()
def test_user_inputs_are_copied_and_caches_followed_where_asked(device: str) -> None:
    options = {"clone_input": False, "on_input_move": "copy"}
    call = torch.compile(step, backend="airgraph", dynamic=False, options=options)
    ours = [torch.zeros(4, 3, device=device) for _ in range(2)]
    theirs = [cache.clone() for cache in ours]
    for i in range(100):
        # The tensors of the first call are written by later ones, as upstream does.
        args = _args(device, i)
        torch.testing.assert_close(call(ours[i % 2], *(a.clone() for a in args)), step(theirs[i % 2], *args))
    torch.testing.assert_close(ours, theirs)
    _few_captures(device)


@torch.no_grad()
def test_threads_with_caches_of_their_own(device: str) -> None:
    # While one thread captures, others allocate and read.
    options = {"capture_error_mode": "thread_local"}
    call = torch.compile(step, backend="airgraph", dynamic=False, options=options)
    call(torch.zeros(4, 3, device=device), *_args(device, 0))
    wrong: list[object] = []

    @torch.no_grad()
    def work(number: int) -> None:
        try:
            ours, theirs = torch.zeros(4, 3, device=device), torch.zeros(4, 3, device=device)
            for i in range(60):
                args = _args(device, 10 * i + number)
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


@torch.no_grad()
@pytest.mark.parametrize("options", [{"verify_every": 3}, {"capture_limit": 1}], ids=str)
def test_caches_by_turns(device: str, options: dict[str, int]) -> None:
    """Verification follows a moved cache, and with one capture at a time nothing is eager."""
    call = torch.compile(step, backend="airgraph", dynamic=False, options=options)
    ours = [torch.zeros(4, 3, device=device) for _ in range(3)]
    theirs = [cache.clone() for cache in ours]
    for i in range(60):
        args = _args(device, i)
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
        args = _args(device, i)
        torch.testing.assert_close(call((cache, turned)[i % 2], *args), step(theirs[i % 2], *args))
    torch.testing.assert_close([cache, turned], theirs)
    assert counters()["eager_calls"] == 0


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
    _few_captures(device)
