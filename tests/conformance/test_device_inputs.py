"""How inputs reach a graph, and what happens when one that is used in place has moved."""

import gc
import sys

import pytest
import torch
from reports import counters, report
from torch import nn

import airgraph
from airgraph.capture.ledger import ledger
from airgraph.errors import InputMoved, OptionError
from airgraph.memory.pool import MemoryPool
from airgraph.runtime.registry import runtime_for


@torch.no_grad()
def test_user_inputs_in_place_are_followed_where_they_move(device: str) -> None:
    compiled = torch.compile(lambda x: x * 2, backend="airgraph", options={"clone_input": False})
    x = torch.ones(4, device=device)
    assert compiled(x).tolist() == [2.0] * 4
    x.add_(1)
    assert compiled(x).tolist() == [4.0] * 4
    other = torch.full((4,), 5.0, device=device)
    assert compiled(other).tolist() == [10.0] * 4
    follows = device == "cpu"
    assert counters()["captures"] == 2 - follows and counters()["recaptures"] == 1 - follows
    moved = ["input 0 (x, user) was at" in row["reason"] for row in report()["graphs"]]
    assert moved == ([False] if follows else [False, True])
    assert not any(row["copied_nbytes"] for row in report()["graphs"])


@torch.no_grad()
def test_a_user_input_in_place_with_other_strides_is_captured_anew(device: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * torch.arange(4.0, device=x.device)

    compiled = torch.compile(program, backend="airgraph", options={"clone_input": False}, dynamic=True)
    x = torch.randn(4, 4, device=device)
    for given in (x, x.t(), x, x.t()):
        torch.testing.assert_close(compiled(given), program(given))


@torch.no_grad()
def test_user_inputs_are_copied_into_the_captured_tensor(device: str) -> None:
    options = {"clone_input": False, "on_input_move": "copy"}
    compiled = torch.compile(lambda x: x * 2, backend="airgraph", options=options)
    first = torch.ones(4, device=device)
    assert compiled(first).tolist() == [2.0] * 4
    address = first.data_ptr()
    for value in (3.0, 4.0):
        assert compiled(torch.full((4,), value, device=device)).tolist() == [value * 2] * 4
    # As upstream does: the tensor of the capture is written.
    assert first.tolist() == [4.0] * 4 and first.data_ptr() == address
    del first
    assert compiled(torch.zeros(4, device=device)).tolist() == [0.0] * 4
    assert counters()["captures"] == 1
    with pytest.raises(OptionError, match="'copy' needs clone_input=False"):
        airgraph.get_backend({"on_input_move": "copy"})


@torch.no_grad()
def test_user_tensors_that_were_swapped_are_copied_as_they_were(device: str, pool: MemoryPool) -> None:
    options = {"clone_input": False, "on_input_move": "copy", "use_graph_pool": pool}
    compiled = torch.compile(lambda a, b: a * 2 - b, backend="airgraph", options=options)
    a, b = torch.full((3,), 1.0, device=device), torch.full((3,), 5.0, device=device)
    assert compiled(a, b).tolist() == [-3.0] * 3
    assert compiled(b, a).tolist() == [9.0] * 3
    # A tensor of the pool that was kept, and is given away later.
    made = torch.compile(lambda x: x + 1, backend="airgraph", options=options)
    doubled = torch.compile(lambda x: x * 2, backend="airgraph", options=options)
    for value in range(4):
        out = made(torch.full((3,), float(value), device=device))
        assert doubled(out).tolist() == [2.0 * value + 2] * 3
    assert doubled(torch.full((3,), 9.0, device=device)).tolist() == [18.0] * 3
    assert all(row["copied_nbytes"] > 0 for row in report()["graphs"])


@torch.no_grad()
def test_a_moved_user_input_is_named(device: str) -> None:
    options = {"clone_input": False, "on_input_move": "error"}
    compiled = torch.compile(lambda x, scale: x * scale, backend="airgraph", options=options)
    x, scale = torch.ones(4, device=device), torch.ones(4, device=device)
    compiled(x, scale)
    with pytest.raises(InputMoved, match=r"input 1 \(scale, user\) was at 0x[0-9a-f]+, now 0x[0-9a-f]+"):
        compiled(x, scale.clone())
    assert compiled(x, scale).tolist() == [1.0] * 4


@torch.no_grad()
def test_an_input_that_lies_in_its_buffer_already(device: str, pool: MemoryPool) -> None:
    """Also across models that share a pool: the first input of each is the same buffer."""
    options = {"use_graph_pool": pool}
    double = torch.compile(lambda x: x * 2, backend="airgraph", options=options)
    triple = torch.compile(lambda x: x * 3, backend="airgraph", options=options)
    x = torch.arange(6.0, device=device)
    double(x), triple(x)
    buffer = pool.inputs.block(0, x.nbytes)[: x.nbytes].view(x.dtype)
    for value in (4.0, 7.0):
        buffer.fill_(value)
        assert double(buffer).tolist() == [value * 2] * 6
        assert triple(buffer).tolist() == [value * 3] * 6
    assert pool.inputs.nbytes == (x.nbytes,)
    # Seen in another way it does not lie there as the graph reads it.
    square = torch.compile(lambda x: x - x.sum(0), backend="airgraph", options=options)
    x = torch.randn(4, 4, device=device)
    square(x)
    flipped = pool.inputs.block(0, x.nbytes)[: x.nbytes].view(x.dtype).view(4, 4).copy_(x).t()
    expected = x.t() - x.t().sum(0)
    torch.testing.assert_close(square(flipped), expected)


@torch.no_grad()
def test_inputs_are_copied_without_python_for_each(device: str) -> None:
    def calls_of_python(count: int) -> int:
        torch._dynamo.reset()
        compiled = torch.compile(lambda *xs: sum(xs), backend="airgraph", fullgraph=True)
        args = [torch.ones(3, device=device) for _ in range(count)]
        compiled(*args)
        (graph,) = [g for c in ledger.callables for g in c.captures if len(c._program.inputs) == count]
        seen = []
        sys.setprofile(lambda frame, event, arg: seen.append(event))
        try:
            graph.device_graph.run(list(args))
        finally:
            sys.setprofile(None)
        return len(seen)

    assert calls_of_python(2) == calls_of_python(40)


@torch.no_grad()
@pytest.mark.parametrize("clone_input", [True, False])
def test_outputs_of_a_pool_that_its_graphs_use_in_place(device: str, pool: MemoryPool, clone_input: bool) -> None:
    """As a cache that one graph makes and another writes, as a weight, and as an input."""
    options = {"use_graph_pool": pool, "clone_input": clone_input, "capture_limit": 100}

    class Decoder(nn.Module):
        def __init__(self, cache: torch.Tensor, weight: torch.Tensor) -> None:
            super().__init__()
            self.register_buffer("cache", cache)
            self.weight = nn.Parameter(weight, requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = (x * self.weight).exp().log()
            self.cache.add_(y)
            return (self.cache * 2 + y).relu() + 1

    def prefill(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * 2).relu() + 1, x.abs() + 0.5

    prompt = torch.linspace(-1, 1, 4096, device=device)
    ours = Decoder(*torch.compile(prefill, backend="airgraph", options=options)(prompt))
    theirs = Decoder(*prefill(prompt))
    compiled = torch.compile(ours, backend="airgraph", options=options)
    x, y = prompt, prompt
    for _ in range(8):
        x, y = compiled(x) * 0.1, theirs(y) * 0.1
        torch.testing.assert_close(x, y)
        torch.testing.assert_close(ours.cache, theirs.cache)
    x, y = prompt, prompt
    for _ in range(4):
        x, y = compiled(x), theirs(y)
        torch.testing.assert_close(x, y)


@torch.no_grad()
def test_moved_weights_take_no_more_memory(device: str) -> None:
    model = nn.Linear(64, 64).to(device).eval()
    compiled = torch.compile(model, backend="airgraph", options={"capture_limit": 4})
    x = torch.randn(500, 64, device=device)
    torch.testing.assert_close(compiled(x), model(x))
    before = report()["pools"]
    held, weights = [], [model.weight.data]
    for _ in range(3):
        held.append((compiled(x), model(x)))
        # The old ones live on, so that each has an address of its own.
        weights.append(model.weight.data * 2)
        model.weight.data = weights[-1]
        torch.testing.assert_close(compiled(x), model(x))
    captures = 1 if device == "cpu" else 4
    assert counters()["captures"] == captures and counters()["recaptures"] == captures - 1
    assert [row["graphs"] for row in report()["pools"]] == [captures]
    assert report()["pools"][0]["nbytes"] <= before[0]["nbytes"] * (1 if device == "cpu" else 2)
    model.weight.data = weights[-1] * 2
    if device == "cpu":
        torch.testing.assert_close(compiled(x), model(x))
    else:
        with pytest.warns(UserWarning, match=r"capture_limit=4 .* changing: input \d \(\w+.weight, static\)"):
            torch.testing.assert_close(compiled(x), model(x))
        assert [row["graphs"] for row in report()["pools"]] == [4]
        # One that is kept serves again.
        model.weight.data = weights[-1]
        torch.testing.assert_close(compiled(x), model(x))
        assert counters()["captures"] == 5
    torch.testing.assert_close(compiled(x), model(x))
    assert counters()["eager_calls"] == 0
    for ours, theirs in held:
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:airgraph.*capture_limit")
def test_the_old_capture_goes_before_the_new_one_is_made(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = runtime_for(device)
    alive: list[int] = []
    record = type(runtime).record

    def watched(self: object, program: object, args: list, pool: MemoryPool, options: object, call: object) -> object:
        gc.collect()
        alive.append(pool.graphs)
        return record(self, program, args, pool, options, call)

    monkeypatch.setattr(type(runtime), "record", watched)
    few = torch.compile(lambda x: x + 1, backend="airgraph", dynamic=True, options={"capture_limit": 1})
    forced = torch.compile(lambda x: x + 2, backend="airgraph", options={"force_recapture": True})
    for rows in (3, 4, 5):
        few(torch.ones(rows, device=device))
        forced(torch.ones(3, device=device))
    assert alive == [0] * 6


@torch.no_grad()
def test_every_skip_and_every_recapture_has_its_reason(device: str) -> None:
    """The field's sixth complaint."""
    holder = nn.Module()
    holder.register_buffer("weight", torch.randn(4, device=device))
    compiled = torch.compile(lambda x: x * holder.weight, backend="airgraph", dynamic=True)
    kept = []
    for _ in range(5):
        holder.weight = holder.weight.clone()
        kept.append(holder.weight)
        compiled(torch.ones(4, device=device))
    strided = torch.ones(4, 2, device=device)[:, 0]
    compiled(strided.contiguous())
    torch.backends.mkldnn.set_flags(False)
    try:
        compiled(strided.contiguous())
    finally:
        torch.backends.mkldnn.set_flags(True)
    reasons = [row["reason"] for row in report()["graphs"]]
    assert all(reasons)
    assert sum("weight" in reason and "was at 0x" in reason for reason in reasons) == (0 if device == "cpu" else 4)
    assert sum("settings of torch" in reason for reason in reasons) == 1
    assert counters()["recaptures"] == len(reasons) - 1


@torch.no_grad()
def test_reloaded_weights_are_never_stale(device: str) -> None:
    """The field's second complaint."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to(device).eval()
    compiled = torch.compile(model, backend="airgraph")
    x = torch.randn(3, 8, device=device)
    for load in (
        lambda state: model.load_state_dict(state),
        lambda state: model.load_state_dict(state, assign=True),
        lambda state: [setattr(p, "data", state[name]) for name, p in model.named_parameters()],
        lambda state: setattr(model[2], "weight", nn.Parameter(state["2.weight"])),
    ):
        torch.testing.assert_close(compiled(x), model(x))
        load({name: torch.randn_like(value) for name, value in model.state_dict().items()})
        torch.testing.assert_close(compiled(x), model(x))
    assert counters()["eager_calls"] == 0


@torch.no_grad()
def test_a_reallocated_cache_is_followed(device: str) -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = torch.zeros(2, 8, device=device)

        def forward(self, position: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            self.cache.index_copy_(1, position, x)
            return self.cache.sum(1)

    ours, theirs = Decoder(), Decoder()
    compiled = torch.compile(ours, backend="airgraph")
    for step in range(12):
        if step % 4 == 3:
            ours.cache, theirs.cache = ours.cache.clone(), theirs.cache.clone()
        args = torch.tensor([step % 8], device=device), torch.full((2, 1), float(step), device=device)
        torch.testing.assert_close(compiled(*args), theirs(*args))
        torch.testing.assert_close(ours.cache, theirs.cache)
    # An accelerator's allocator may hand out an address that was captured before.
    assert counters()["recaptures"] <= (0 if device == "cpu" else 3)


@torch.no_grad()
def test_a_model_freed_while_its_graph_lives(device: str) -> None:
    """Weights and caches are not kept alive; a call cannot come any more, and its outputs stay good."""

    class Counting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(16, 16)
            self.register_buffer("calls", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)
            return super().forward(x)

    model = Counting().to(device).eval()
    x = torch.randn(3, 16, device=device)
    expected = model(x)
    compiled = torch.compile(model, backend="airgraph")
    out = compiled(x)
    given = [
        torch.multiprocessing.reductions.StorageWeakRef(tensor.untyped_storage())
        for tensor in (model.weight, model.calls)
    ]
    graphs = [graph for graphed in ledger.callables for graph in graphed.captures]
    assert len(graphs) == 1
    del compiled, model
    torch._dynamo.reset()
    gc.collect()
    assert all(storage.expired() for storage in given)
    torch.testing.assert_close(out, expected)
    del graphs
    gc.collect()
    torch.testing.assert_close(out, expected)
