"""Weights in huge pages: what moves, what follows, and what graphs make of it."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from process import run_program
from torch import nn

import airgraph
from airgraph.runtime.engine.loading import engine

needs_engine = pytest.mark.skipif(not engine().MOVES_MEMORY, reason="the engine in Python moves no memory")
HUGE_PAGE = 2 << 20


class Tied(nn.Module):
    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 32)
        self.head = nn.Linear(32, 64)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.rand(32))
        self.register_buffer("empty", torch.empty(0))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens) * self.scale)


@needs_engine
@torch.no_grad()
def test_values_ties_views_and_objects_stay() -> None:
    model = Tied()
    weight, view = model.head.weight, model.head.weight[3:5]
    before = {name: each.clone() for name, each in model.state_dict().items()}
    addresses = [each.data_ptr() for each in (model.head.weight, model.head.bias, model.scale)]
    placed = airgraph.cpu.place_weights(model)
    assert placed.left == {}
    assert placed.nbytes == (64 * 32 + 64 + 32) * 4
    assert model.head.weight is weight is model.embedding.weight
    assert isinstance(weight, nn.Parameter) and weight.requires_grad and weight.is_leaf
    after = [each.data_ptr() for each in (model.head.weight, model.head.bias, model.scale)]
    assert after == [after[0], after[0] + 64 * 32 * 4, after[0] + 64 * 32 * 4 + 64 * 4]
    assert after[0] % HUGE_PAGE == 0 and not set(addresses) & set(after)
    for name, each in model.state_dict().items():
        assert torch.equal(each, before[name]), name
    view.fill_(7)
    assert torch.equal(weight[3:5], torch.full((2, 32), 7.0))


@needs_engine
def test_the_kernel_has_them_in_huge_pages() -> None:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[never]" in setting.read_text():
        pytest.skip("this machine gives no huge pages")
    placed = airgraph.cpu.place_weights(nn.Linear(2048, 4096))
    # The kernel may be out of them.
    assert placed.huge_nbytes % HUGE_PAGE == 0 or placed.huge_nbytes == placed.nbytes
    assert placed.huge_nbytes <= placed.nbytes == 2048 * 4096 * 4 + 4096 * 4
    assert str(placed).startswith("32.0 MiB of weights placed, ")


def flags_of(address: int) -> list[str]:
    """What the kernel was asked for about the memory at an address, as /proc tells it."""
    is_here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            is_here = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif is_here and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []


@needs_engine
def test_the_kernel_is_asked_for_huge_pages() -> None:
    """Whether or not it has some now."""
    model = nn.Linear(2048, 4096)
    if not flags_of(model.weight.data_ptr()) or not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel does not tell, or has no huge pages")
    airgraph.cpu.place_weights(model)
    first = model.weight.data_ptr()
    assert all("hg" in flags_of(each) for each in (first, first + model.weight.nbytes - 1, model.bias.data_ptr()))


@needs_engine
@torch.no_grad()
def test_graphs_are_captured_anew_where_they_lie_now() -> None:
    model, tokens = Tied(), torch.arange(8)
    compiled = torch.compile(model, backend="airgraph")
    x = torch.rand(2, 32)
    graph = airgraph.cpu.CPUGraph()
    with airgraph.cpu.graph(graph):
        model.head(x)
    for _ in range(3):
        compiled(tokens)
    airgraph.cpu.place_weights(model)
    # What was freed would show.
    garbage = [torch.full((64, 32), float("nan")) for _ in range(64)]
    for _ in range(3):
        torch.testing.assert_close(compiled(tokens), model(tokens))
    with pytest.raises(airgraph.errors.ReplayError, match="its memory was freed, resized or replaced"):
        graph.replay()
    airgraph.cpu.place_weights(model)
    torch.testing.assert_close(compiled(tokens), model(tokens))
    del garbage


@needs_engine
def test_training_goes_on_with_them() -> None:
    torch.manual_seed(0)
    model, other = nn.Linear(4, 4), nn.Linear(4, 4)
    other.load_state_dict(model.state_dict())
    pairs = [(each, torch.optim.Adam(each.parameters())) for each in (model, other)]
    for step in range(3):
        if step == 1:
            airgraph.cpu.place_weights(model)
        for each, optimizer in pairs:
            optimizer.zero_grad()
            each(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()
    assert torch.equal(model.weight, other.weight) and torch.equal(model.bias, other.bias)


@needs_engine
@torch.no_grad()
def test_the_block_goes_with_the_last_weight(tmp_path: Path) -> None:
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    model = nn.Sequential(first, second)
    airgraph.cpu.place_weights(model)
    kept, expected = second.weight, second.weight.clone()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt")
    first.weight.untyped_storage().resize_(2 * 8 * 8 * 4)
    assert first.weight.untyped_storage().nbytes() == 2 * 8 * 8 * 4
    del model, first, second
    assert torch.equal(kept, expected) and torch.equal(loaded["1.weight"], expected)


@needs_engine
def test_memory_of_others_is_copied_or_left() -> None:
    array = np.ones(8, dtype=np.float32)
    model = nn.Module()
    model.register_buffer("array", torch.from_numpy(array))
    model.register_buffer("shared", torch.ones(8).share_memory_())
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("meta", torch.empty(3, device="meta"))
    model.register_buffer("lazy", torch._lazy_clone(source := torch.ones(8)))
    placed = airgraph.cpu.place_weights(model)
    assert placed.left == {
        "shared": "other processes share its memory",
        "sparse": "its layout is torch.sparse_coo",
        "meta": "it is on meta",
    }
    array[:] = 2
    model.get_buffer("lazy").fill_(3)
    assert torch.equal(model.get_buffer("array"), torch.ones(8)) and torch.equal(source, torch.ones(8))


@needs_engine
def test_an_array_that_was_made_of_a_weight_keeps_its_memory() -> None:
    model = nn.Linear(64, 64)
    array = model.weight.detach().numpy()
    before = array.copy()
    airgraph.cpu.place_weights(model)
    garbage = [torch.full((64, 64), 7.0) for _ in range(64)]
    assert (array == before).all()
    array[:] = 3
    assert np.array_equal(model.weight.detach().numpy(), before)
    del garbage


@needs_engine
def test_no_memory_moves_nothing() -> None:
    program = """
import resource, torch, airgraph
model = torch.nn.Linear(4096, 4096)
address = model.weight.data_ptr()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), resource.RLIM_INFINITY))
try:
    airgraph.cpu.place_weights(model)
except RuntimeError as error:
    print("refused:", str(error).splitlines()[0])
assert model.weight.data_ptr() == address and model(torch.ones(1, 4096)).isfinite().all()
"""
    done = run_program(program)
    assert done.stdout.startswith("refused: no memory for"), done.stderr


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(airgraph.errors.OptionError, match=r"model: expected a torch.nn.Module, got dict"):
        airgraph.cpu.place_weights({})
