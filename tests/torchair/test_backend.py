"""`get_npu_backend` is a backend of torch.compile with TorchAir's settings."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors
from facade_doors import through
from reports import report
from torch import Tensor, nn
from torch.fx import GraphModule

import airgraph
from airgraph import torchair
from airgraph.errors import OptionError


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.silu(x) + 1


def _config(change: Callable[[torchair.CompilerConfig], None]) -> torchair.CompilerConfig:
    config = torchair.CompilerConfig()
    change(config)
    return config


@torch.no_grad()
@both_doors
def test_results_are_eagers_and_shapes_are_captured(door: str, device: str, tmp_path: Path) -> None:
    model = Model()
    call = through(door, model.forward, tmp_path)
    for rows in (2, 3, 2):
        x = torch.randn(rows, 4, device=device)
        torch.testing.assert_close(call(x), model(x))
    assert [row["state"] for row in report()["graphs"]] == ["captured"] * 2


@torch.no_grad()
@both_doors
def test_airgraphs_own_doors_take_the_settings(door: str, device: str, tmp_path: Path) -> None:
    config = _config(lambda c: setattr(c.debug, "run_eagerly", True))
    call = (
        torch.compile(Model(), backend=airgraph.get_backend(config))
        if door == "compiled"
        else airgraph.inference.cache_compile(Model().forward, config=config, cache_dir=tmp_path)
    )
    call(torch.ones(2, device=device))
    assert report()["counters"]["eager_calls"] == 1


@torch.no_grad()
@both_doors
def test_run_eagerly_runs_the_program_uncaptured(door: str, device: str, tmp_path: Path) -> None:
    call = through(door, Model().forward, tmp_path, _config(lambda c: setattr(c.debug, "run_eagerly", True)))
    x = torch.randn(2, 4, device=device)
    torch.testing.assert_close(call(x), Model()(x))
    assert report()["counters"]["eager_calls"] == 1 and report()["counters"]["captures"] == 0


@torch.no_grad()
def test_models_share_a_custom_pool(device: str) -> None:
    # As the documentation has it on a card.
    handle = getattr(getattr(torch, device), "graph_pool_handle", None)
    pool = handle() if handle else airgraph.graph_pool_handle(device)
    config = _config(lambda c: setattr(c.aclgraph_config, "use_custom_pool", pool))
    for scale in (2, 3):
        backend = torchair.get_npu_backend(compiler_config=config)
        torch.compile(lambda x, scale=scale: x * scale, backend=backend)(torch.ones(2, device=device))
    assert len({row["pool"] for row in report()["graphs"]}) == 1
    torch._dynamo.reset()
    airgraph.reset()


@torch.no_grad()
@both_doors
def test_mutated_inputs_are_written_whatever_keeps_them(door: str, device: str, tmp_path: Path) -> None:
    class Cache(nn.Module):
        def forward(self, kept: Tensor, x: Tensor) -> Tensor:
            kept.add_(x)
            return kept * 2

    for keep in (True, False):
        config = _config(lambda c, keep=keep: setattr(c.experimental_config, "keep_inference_input_mutations", keep))
        call = through(door, Cache().forward, tmp_path / str(keep), config)
        kept, x = torch.zeros(3, device=device), torch.ones(3, device=device)
        for calls in (1, 2):
            assert call(kept, x).tolist() == [2.0 * calls] * 3 and kept.tolist() == [float(calls)] * 3
        torch._dynamo.reset()


@torch.no_grad()
@both_doors
def test_a_dump_of_type_py_is_the_final_program_as_python(door: str, device: str, tmp_path: Path) -> None:
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type, config.debug.graph_dump.path = "py", str(tmp_path / "dump")
    through(door, Model().forward, tmp_path / "cache", config)(torch.ones(2, 4, device=device))
    (program,) = (tmp_path / "dump").rglob("program.py")
    assert re.search(r"torch\.ops\.(aten\.silu|airgraph\.row_program)", program.read_text())
    compile(program.read_text(), str(program), "exec")


class _Joins(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor, cache: Tensor) -> Tensor:
        cache.add_(x)
        return torch.cat([x * self.weight, (x + 1).exp()])


def _set(path: str, value: object) -> torchair.CompilerConfig:
    config: Any = torchair.CompilerConfig()
    *sections, name = path.split(".")
    held = config
    for each in sections:
        held = getattr(held, each)
    setattr(held, name, value)
    return config


@torch.no_grad()
@both_doors
@pytest.mark.parametrize(
    ("path", "off", "name"),
    [
        ("debug.aclgraph.disable_reinplace_inplaceable_ops_pass", True, "inplace_pass"),
        ("debug.aclgraph.disable_reinplace_input_mutated_ops_pass", True, "input_inplace_pass"),
        ("debug.aclgraph.remove_cat_ops", False, "remove_cat_ops"),
        ("experimental_config.remove_noop_ops", False, "remove_noop_ops"),
        ("experimental_config.pattern_fusion_pass", False, "pattern_fusion_pass"),
        ("experimental_config.keep_inference_input_mutations", False, "input_inplace_pass"),
    ],
)
def test_a_pass_is_switched_off(door: str, path: str, off: bool, name: str, device: str, tmp_path: Path) -> None:
    model = _Joins().to(device)
    for value in (not off, off):
        airgraph.reset()
        call = through(door, model.forward, tmp_path / str(value), _set(path, value))
        given, expected = [[torch.ones(4, device=device), torch.zeros(4, device=device)] for _ in range(2)]
        torch.testing.assert_close(call(*given), model(*expected))
        torch.testing.assert_close(given, expected)
        assert (name in airgraph.explain().to_dict()["passes"]) == (value is not off)


@torch.no_grad()
@both_doors
def test_no_more_shapes_are_kept_than_the_limit_says(door: str, device: str, tmp_path: Path) -> None:
    call = through(door, Model().forward, tmp_path, _set("debug.aclgraph.static_capture_size_limit", 1))
    with pytest.warns(UserWarning, match="capture_limit"):
        for rows in (2, 3, 2):
            x = torch.randn(rows, 4, device=device)
            torch.testing.assert_close(call(x), Model()(x))
    assert report()["counters"]["captures"] == 3


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_frozen_parameter_is_not_looked_at_again(door: str, is_frozen: bool, device: str, tmp_path: Path) -> None:
    model = _Joins().to(device)
    call = through(door, model.forward, tmp_path, _set("experimental_config.frozen_parameter", is_frozen))
    x, held = torch.ones(4, device=device), model.weight.data
    # Always the same one: on accelerators a cache elsewhere would be captured anew, with the weight of then.
    cache = torch.zeros(4, device=device)
    call(x, cache)
    model.weight.data = held * 5
    made = call(x, cache)[:4]
    assert made.tolist() == [1.0 if is_frozen else 5.0] * 4


_seen: list[str] = []


def _before(gm: GraphModule, example_inputs: Sequence[Any], config: Any) -> None:
    _seen.append(f"before {config.debug.aclgraph.clone_input}")


def _after(gm: GraphModule, example_inputs: Sequence[Any], config: Any) -> None:
    _seen.append(f"after {config.debug.aclgraph.clone_input}")


@torch.no_grad()
@both_doors
def test_passes_of_ones_own_run_before_and_after_with_the_settings(door: str, device: str, tmp_path: Path) -> None:
    _seen.clear()
    config = torchair.CompilerConfig()
    config.post_grad_custom_pre_pass, config.post_grad_custom_post_pass = _before, _after
    config.debug.aclgraph.clone_input = False
    call = through(door, Model().forward, tmp_path, config)
    # What is set later counts for what is made later.
    config.debug.aclgraph.clone_input = door == "compiled"
    call(torch.ones(2, 4, device=device))
    assert _seen == [f"before {door == 'compiled'}", f"after {door == 'compiled'}"]


def _silu_by_hand(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x) + 1000


@torch.no_grad()
@both_doors
def test_decompositions_are_applied(door: str, device: str, tmp_path: Path) -> None:
    decompositions = {torch.ops.aten.silu.default: _silu_by_hand}
    backend = torchair.get_npu_backend(custom_decompositions=decompositions)
    call = (
        torch.compile(Model(), backend=backend)
        if door == "compiled"
        else torchair.inference.cache_compile(Model().forward, backend=backend, cache_dir=tmp_path)
    )
    x = torch.randn(2, 4, device=device)
    torch.testing.assert_close(call(x), Model()(x) + 1000)


@torch.no_grad()
def test_decompositions_are_applied_where_a_call_is_not_cached(device: str, tmp_path: Path) -> None:
    class Refused(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch._dynamo.graph_break()
            return torch.nn.functional.silu(x)

    decompositions = {torch.ops.aten.silu.default: _silu_by_hand}
    call = torchair.inference.cache_compile(Refused().forward, custom_decompositions=decompositions, cache_dir=tmp_path)
    with pytest.warns(UserWarning):
        assert call(torch.zeros(2, device=device)).tolist() == [1000.0] * 2


@torch.no_grad()
def test_options_of_torch_compile_go_before_the_settings(device: str) -> None:
    config = _config(lambda c: setattr(c.debug, "run_eagerly", True))
    backend = torchair.get_npu_backend(compiler_config=config)
    torch.compile(Model(), backend=backend, options={"force_eager": False})(torch.ones(2, device=device))
    assert report()["counters"]["captures"] == 1 and config.debug.run_eagerly is True


@torch.no_grad()
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "max-autotune"}, "mode='max-autotune' of torch.compile: the mode is a setting"),
        ({"options": {"clone_inputs": True}}, "unknown setting 'clone_inputs'. Did you mean 'clone_input'"),
        ({"options": {"static_capture_size_limit": 3}}, "has it as 'debug.aclgraph.static_capture_size_limit'"),
    ],
)
def test_what_torch_compile_hands_over_is_not_ignored(given: dict[str, Any], message: str) -> None:
    compiled = torch.compile(Model(), backend=torchair.get_npu_backend(), **given)
    with pytest.raises(OptionError, match=message):
        compiled(torch.ones(2))


@torch.no_grad()
def test_a_replacement_is_made_where_its_check_allows_it(device: str) -> None:
    from torch._inductor.pattern_matcher import CallFunction, KeywordArg, fwd_only, joint_fwd_bwd

    allowed: list[bool] = []

    def check(match: Any) -> bool:
        allowed.append(len(allowed) > 0)
        return allowed[-1]

    torchair.register_replacement(
        # What is looked for stands in the expression.
        search_fn=lambda x, scale: None,
        replace_fn=lambda x, scale: x - scale,
        example_inputs=(torch.ones(2, device=device),),
        trace_fn=fwd_only,
        extra_check=check,
        search_fn_pattern=CallFunction(torch.ops.aten.mul.Tensor, KeywordArg("x"), KeywordArg("scale")),
        scalar_workaround={"scale": 0.125},
        skip_duplicates=True,
    )
    for expected in (12.0, 1.0):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: x * 3, backend=torchair.get_npu_backend())
        assert compiled(torch.full((2,), 4.0, device=device)).tolist() == [expected] * 2
    with pytest.raises(OptionError, match="trace_fn: expected None or fwd_only"):
        torchair.register_replacement(lambda x: x, lambda x: x, (torch.ones(1),), trace_fn=joint_fwd_bwd)
