"""Every surprise we know of: how bad it is, and what the user is told.

| surprise | without care | what happens here |
|---|---|---|
| an output is held over the next call | silently overwritten | it keeps its memory and values |
| the same through a view, a NumPy array, or another graph of the pool | silently overwritten | the same |
| a weight is replaced or a cache reallocated | stale or freed memory read | followed, or captured anew |
| the same with `frozen_parameter=True` | stale results | nothing: that is what the option asks for |
| a graph would take more memory than there is | out of memory, halfway | `memory_budget`: predicted and refused |
| dozens of shapes are captured | their memory adds up | they share one pool, in whatever order they come |
| a shape is not captured | unexplained slowness | one warning and a row in the report: what, where, why |
| graphs are recaptured again and again | unexplained slowness | each has its reason; past `capture_limit` one warning |
| an output is fed back with `clone_input=False` | stale results | followed, or captured at each address |
| two threads call graphs of one pool | each other's memory | they take turns |
| a tensor's value is read in a capture by hand | a constant baked in | CaptureError with the line |
| an input is passed as a view, expanded or transposed | wrong layout read | copied as it lies, if anything can tell |
| arguments overlap at a later call, one is written | wrong results | run as traced, operator by operator; one warning |
| autocast or a mode is on around a call | other precision in replay | replays have a thread state of their own |
| determinism or precision is set after a capture | ignored | another capture serves |
| a signal handler raises in the middle of a call | the pool is locked for ever | nothing is locked |
| the process forks while graphs run | the child hangs | fork waits for them; turns are free in the child |
| an operator returns a number | that of the fake kernel baked in | refused by name |
| a tensor under capture is read by another thread | memory that is not there | RuntimeError |
| a tensor's storage is freed before a replay by hand | freed memory read | ReplayError that names its first use |
| a Python number changes | a constant baked in | another key, another capture |
| a caller writes into an output | the next result is wrong | results are computed anew |
| a caller frees an output's storage | freed memory written | new memory taken |
| an index is out of range at replay | memory corrupted | ReplayError with operator and line |
| a cached graph's model, code, passes or versions change | a stale graph | checked: traced anew |
| a cache file is damaged or forged | code executed, wrong results | refused by name, made anew |
| gradients are needed | missing gradients | uncaptured, with one warning |
"""

import pytest
import torch
from torch import nn

import airgraph
from airgraph.errors import ReplayError


@torch.no_grad()
def test_a_number_that_changes_is_not_baked_in() -> None:
    compiled = torch.compile(lambda x, n: x * n, backend="airgraph", dynamic=True)
    x = torch.ones(3)
    for n in (2, 5, 2.5, True, 0):
        assert torch.equal(compiled(x, n), x * n)


@torch.no_grad()
def test_a_caller_may_write_into_an_output() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="airgraph")
    compiled(torch.ones(3)).fill_(99)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


@torch.no_grad()
def test_an_index_out_of_range_is_named_and_the_next_call_works() -> None:
    embedding = nn.Embedding(4, 2)
    compiled = torch.compile(embedding, backend="airgraph")
    good = torch.tensor([1, 3])
    compiled(good)
    with pytest.raises(ReplayError, match="aten::embedding"):
        compiled(torch.tensor([1, 9]))
    assert torch.equal(compiled(good), embedding(good))


@torch.no_grad()
def test_a_cache_index_out_of_range_is_named() -> None:
    cache = torch.zeros(4, 2)
    compiled = torch.compile(lambda i, x: cache.index_copy_(0, i, x).sum(), backend="airgraph")
    compiled(torch.tensor([1]), torch.ones(1, 2))
    for bad in (-1, 4):
        with pytest.raises(ReplayError, match=rf"aten::index_copy_.*index {bad} is out of bounds"):
            compiled(torch.tensor([bad]), torch.ones(1, 2))
    assert cache.sum() == 2


@torch.no_grad()
def test_a_model_that_is_freed_and_made_anew() -> None:
    for _ in range(3):
        model = nn.Linear(64, 64)
        x = torch.randn(2, 64)
        assert torch.equal(torch.compile(model, backend="airgraph", options={"kernels": "exact"})(x), model(x))
        del model
    assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0


@torch.inference_mode()
def test_inference_mode_and_inference_tensors() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    compiled = torch.compile(model, backend="airgraph", options={"kernels": "exact"})
    held = []
    for _ in range(3):
        x = torch.randn(2, 8)
        held.append((compiled(x), model(x)))
    assert all(torch.equal(a, b) for a, b in held)


@torch.no_grad()
def test_autocast_is_part_of_the_program() -> None:
    model = nn.Linear(8, 8)
    compiled = torch.compile(model, backend="airgraph", options={"kernels": "exact"})
    x = torch.randn(2, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, expected = compiled(x), model(x)
    assert out.dtype == torch.bfloat16 and torch.equal(out, expected)
    assert torch.equal(compiled(x), model(x))


@torch.no_grad()
def test_field_1_outputs_are_not_overwritten_by_the_next_replay() -> None:
    """Also where only a NumPy array, a view or a storage holds them, and whichever graph of the pool replays.

    The other complaints of the field are tested on all devices, in conformance/test_device_{inputs,outputs,budget}.py.
    """
    compiled = torch.compile(lambda x: x * 2, backend="airgraph", dynamic=True)
    sizes = (4, 9, 4, 4, 9, 9, 4)
    arrays = [compiled(torch.full((n,), float(i))).numpy() for i, n in enumerate(sizes)]
    views = [compiled(torch.full((n,), float(i)))[1:3] for i, n in enumerate(sizes)]
    storages = [compiled(torch.full((n,), float(i))).untyped_storage() for i, n in enumerate(sizes)]
    for i, (array, view, storage) in enumerate(zip(arrays, views, storages, strict=True)):
        assert (array == 2 * i).all() and (view == 2 * i).all()
        assert torch.tensor([], dtype=torch.float32).set_(storage).eq(2 * i).all()
