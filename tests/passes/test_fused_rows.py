"""Which neighbours in a graph become a row program, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import airgraph
from airgraph.passes.fused_rows import fuse_rows
from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def fused(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, int]:
    """What a call gives, and how many row programs its graph has."""
    before = airgraph.explain().to_dict()["passes"].get("fused_rows", 0)
    with torch.no_grad():
        out = torch.compile(function, backend="airgraph", fullgraph=True, dynamic=False, options=options)(*args)
    return out, airgraph.explain().to_dict()["passes"].get("fused_rows", 0) - before


def norm(x: Tensor, weight: Tensor) -> Tensor:
    h = x.float()
    return weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def gated(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def shared_half(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, dim=-1)
    return F.silu(gate) * up


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (norm, [(2, 3, 48), (48,)]),
        (rotated, [(2, 4, 3, 16), (2, 1, 3, 16), (2, 1, 3, 16)]),
        (gated, [(5, 40), (5, 40)]),
        (shared_half, [(5, 40)]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_models_have_between_products_is_one_operator(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype
) -> None:
    args = [torch.randn(shape).to(dtype) for shape in shapes]
    out, programs = fused(function, *args)
    assert programs == 1
    torch.testing.assert_close(out, function(*args))
    _, programs = fused(function, *args, kernels="exact")
    assert programs == 0


def test_how_many_rows_there_are_may_vary() -> None:
    compiled = torch.compile(norm, backend="airgraph", fullgraph=True, dynamic=True)
    weight = torch.randn(48)
    with torch.no_grad():
        for rows in (3, 7, 600):
            x = torch.randn(rows, 48)
            torch.testing.assert_close(compiled(x, weight), norm(x, weight))
    assert airgraph.explain().to_dict()["passes"]["fused_rows"] >= 1


def test_a_value_that_is_handed_out_stays_one() -> None:
    x = torch.randn(3, 8)
    (double, out), programs = fused(lambda x: ((y := x * 2), (y + 1).neg()), x)
    assert programs == 1
    assert torch.equal(double, x * 2)
    assert torch.equal(out, -(x * 2 + 1))


def test_a_view_that_is_handed_out_keeps_its_value() -> None:
    x = torch.randn(3, 8)
    (part, out), programs = fused(lambda x: ((y := x * 2)[1:], y.neg()), x)
    assert programs == 0
    assert torch.equal(part, x[1:] * 2)
    assert torch.equal(out, x * -2)


def test_what_is_written_in_between_is_read_before() -> None:
    def program(x: Tensor, state: Tensor) -> Tensor:
        early = state * 2
        state.add_(1)
        return (early + x).neg() + state.sum()

    x, state, ours = torch.randn(3, 8), torch.ones(3, 8), torch.ones(3, 8)
    for _ in range(3):
        expected = program(x, state)
        out, _ = fused(program, x, ours)
        assert torch.equal(out, expected)
        assert torch.equal(ours, state)


def test_neighbours_on_other_streams_stay_there() -> None:
    def program(x: Tensor) -> Tensor:
        ready = airgraph.Event("ready")
        with airgraph.scope.stream("side"):
            y = (x * 2).neg()
            ready.record()
        ready.wait()
        return (y + 1).neg()

    x = torch.randn(3, 8)
    out, programs = fused(program, x)
    # One of each stream, and not one of all four.
    assert programs == 2
    assert torch.equal(out, x * 2 - 1)


def test_neighbours_of_nothing() -> None:
    for shape in ((0, 8), (3, 0)):
        out, programs = fused(gated, torch.randn(shape), torch.randn(shape))
        assert programs == 1
        assert out.shape == shape


def test_programs_that_read_one_another() -> None:
    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        first = norm(x, w)
        second = gated(first @ first.t(), first @ first.t())
        return first, second * 2 + first.sum()

    args = torch.randn(8, 8), torch.randn(8)
    out, programs = fused(program, *args)
    assert programs >= 2
    torch.testing.assert_close(out, program(*args))


def test_a_product_is_overwritten_by_what_comes_of_it() -> None:
    def program(x: Tensor, w: Tensor, up: Tensor) -> Tensor:
        return (F.silu(x @ w) * up) @ w

    args = torch.randn(12, 64), torch.randn(64, 64), torch.randn(12, 64)
    out, programs = fused(program, *args)
    assert programs == 1
    assert airgraph.explain().to_dict()["passes"]["inplace_pass"] == 1
    torch.testing.assert_close(out, program(*args))


def test_an_input_is_written_in_place_as_without() -> None:
    def program(cache: Tensor, x: Tensor) -> Tensor:
        doubled = cache * 2
        cache[0] = x
        return (doubled + 1).neg()

    x, cache, ours = torch.randn(8), torch.ones(3, 8), torch.ones(3, 8)
    expected = program(cache, x)
    out, programs = fused(program, ours, x)
    assert programs == 1
    assert airgraph.explain().to_dict()["passes"]["input_inplace_pass"] == 1
    assert torch.equal(out, expected)
    assert torch.equal(ours, cache)


def test_a_cat_that_has_the_form_of_an_operand() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        t = x @ w
        return torch.cat([t.mean(-1, keepdim=True), (t * t).mean(-1, keepdim=True)], -1)

    def on_itself(s: Tensor) -> None:
        s.copy_(torch.cat([s.mean(-1, keepdim=True), (s * s).mean(-1, keepdim=True)], -1))

    args = torch.randn(5, 8), torch.randn(8, 2)
    out, programs = fused(program, *args)
    assert programs == 1
    torch.testing.assert_close(out, program(*args))
    state, ours = args[0][:, :2].clone(), args[0][:, :2].clone()
    on_itself(state)
    fused(on_itself, ours)
    torch.testing.assert_close(ours, state)


@pytest.mark.parametrize(
    "step", [lambda p, g: p.sub_(g * 0.1), lambda s, x: s.mul_(0.9).add_(x * 0.1)], ids=["descent", "average"]
)
def test_a_state_is_written_where_it_lies(step: Callable[..., Any]) -> None:
    state, x = torch.randn(30, 40), torch.randn(30, 40)
    ours = state.clone()
    step(state, x)
    _, programs = fused(step, ours, x)
    assert programs == 1
    assert airgraph.explain().to_dict()["passes"]["input_inplace_pass"] == 1
    torch.testing.assert_close(ours, state)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("join", [torch.cat, torch.stack])
def test_parts_are_written_in_their_places(join: Callable[..., Tensor], dim: int) -> None:
    def program(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return join([gated(x, y), gated(y, x)], dim) @ w

    x, y = torch.randn(12, 40), torch.randn(12, 40)
    args = x, y, torch.randn(join([x, y], dim).shape[-1], 8)
    out, _ = fused(program, *args)
    torch.testing.assert_close(out, program(*args))
    if join is torch.stack or dim == 0:
        assert airgraph.explain().to_dict()["passes"]["remove_cat_ops"] == 1


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: (F.silu(x) * 2).neg(), (20000, 1)),
        (lambda x: (x - x.mean(-1, keepdim=True)).neg(), (20000, 3)),
        (lambda x: (x.t() * 2).neg(), (60, 60)),
    ],
)
def test_short_rows_and_columns_stay_atens(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    out, programs = fused(function, x)
    assert programs == 0
    torch.testing.assert_close(out, function(x))


def test_short_rows_of_any_number_stay_atens() -> None:
    def program(x: Tensor) -> Tensor:
        return (F.silu(x) * 2).neg()

    compiled = torch.compile(program, backend="airgraph", fullgraph=True, dynamic=True)
    x = torch.randn(5, 1)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), program(x))
    assert airgraph.explain().to_dict()["passes"]["fused_rows"] == 0


@pytest.mark.parametrize("count", [14, 15, 16, 40])
def test_more_operands_than_a_program_takes(count: int) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.cat([x[each] for each in range(count - 1)] + [x[count - 1] * 2], -1)

    x = torch.randn(count, 3, 8)
    out, programs = fused(program, x)
    assert programs == (1 if count <= 15 else 0)
    assert torch.equal(out, program(x))


def test_a_value_of_many_readers_takes_no_longer() -> None:
    gm = torch.fx.experimental.proxy_tensor.make_fx(lambda x: [(x * i).neg() for i in range(1000)])(torch.ones(64))
    for node in gm.graph.nodes:
        node.meta["val"] = torch.ones(64)
    count = 0
    users = airgraph.passes.analysis.aliases.Aliases.users

    def counted(self: Any, node: torch.fx.Node) -> set[torch.fx.Node]:
        nonlocal count
        count += 1
        return users(self, node)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(airgraph.passes.analysis.aliases.Aliases, "users", counted)
        assert fuse_rows(gm) == 1000
    assert count < 3000


def test_what_a_cat_could_have_in_its_place_stays() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        return torch.cat([x @ w, x * 2], dim=-1).neg()

    x, w = torch.randn(12, 8), torch.randn(8, 8)
    out, programs = fused(program, x, w)
    assert programs == 0
    torch.testing.assert_close(out, program(x, w))


def test_what_streams_from_memory_stays() -> None:
    out, programs = fused(gated, *[torch.ones(1025, 1024)] * 2)
    assert programs == 0
    torch.testing.assert_close(out, gated(*[torch.ones(1025, 1024)] * 2))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.add(x, x, alpha=2).neg(),
        lambda x: (x.double() * 2).neg(),
        lambda x: x.long() * 2 + 1,
        lambda x: x.pow(3).exp(),
        lambda x: x.mean(0, keepdim=True).sum(0),
        lambda x: (x > 0).logical_not(),
    ],
)
def test_others_stay_as_they_are(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(3, 8)
    out, programs = fused(function, x)
    assert programs == 0
    torch.testing.assert_close(out, function(x))


def test_numbers_keep_their_type() -> None:
    def program(x: Tensor, one: Tensor) -> Tensor:
        return ((x * one) + 3 - 0.5) / 7

    x, one = torch.randn(3, 8, dtype=torch.bfloat16), torch.tensor(1.001)
    out, _ = fused(program, x, one)
    assert out.dtype is torch.bfloat16
    assert torch.equal(out, program(x, one))


def test_a_graph_from_a_file_has_them_too(tmp_path: Path) -> None:
    args = torch.randn(2, 16), torch.randn(2, 16)
    for strict in (False, True):
        call = airgraph.inference.cache_compile(gated, cache_dir=str(tmp_path), strict=strict)
        with torch.no_grad():
            torch.testing.assert_close(call(*args), gated(*args))
        assert "row_program" in airgraph.inference.readable_cache(call.files[0], print_output=False)


def test_a_dump_says_what_is_computed(tmp_path: Path) -> None:
    fused(gated, torch.randn(2, 16), torch.randn(2, 16), dump_dir=str(tmp_path))
    dumps = [path.read_text() for path in tmp_path.rglob("*fused_rows*")]
    assert any("'silu 0; mul 2 1'" in text for text in dumps)
