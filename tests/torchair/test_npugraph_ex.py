"""npugraph_ex's names: the options are airgraph's own, and its cache takes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from reports import report
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx import GraphModule

from airgraph import Options
from airgraph.errors import NotOffered, OptionError
from airgraph.torchair import npugraph_ex
from airgraph.torchair.configs.npugraph_ex_config import NpuGraphExConfig


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 + 1


def test_every_option_is_taken_by_its_name() -> None:
    config = npugraph_ex.CompilerConfig()
    config.mode = "npugraph_ex"
    config.force_recapture = True
    config.capture_error_mode = "relaxed"
    config.deadlock_check = True
    # Only airgraph has it.
    config.live_outputs = "warn"
    assert config.as_options() == Options(force_recapture=True, capture_error_mode="relaxed", live_outputs="warn")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("clone_inputs", True, "unknown setting 'clone_inputs'. Did you mean 'clone_input'"),
        ("run_eagerly", True, "torchair.CompilerConfig has it as 'debug.run_eagerly'"),
        ("clone_input", "no", "setting 'clone_input': expected True or False, got 'no'"),
        (
            "capture_limit",
            0,
            "setting 'capture_limit': .* an integer of at least 1, got 0",
        ),
        ("static_kernel_compile", True, "setting 'static_kernel_compile': expected its default, False, got True: CANN"),
        ("dump_tensor_data", True, "setting 'dump_tensor_data': .* `verify_every` names"),
        ("unsafe_skip_npugraph_capture_validation", True, "airgraph always makes the checks of a capture"),
    ],
)
def test_a_bad_one_says_what_is_wrong_when_it_is_called(name: str, value: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        NpuGraphExConfig({name: value})
    with torch.no_grad(), pytest.raises(OptionError, match=message):
        torch.compile(Model(), backend=npugraph_ex.backend, options={name: value})(torch.ones(2))


@torch.no_grad()
def test_compile_fx_captures_the_graph_of_a_backend_of_ones_own(device: str) -> None:
    def backend(gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
        def compiler(lowered: GraphModule, inputs: Sequence[Any]) -> Any:
            return npugraph_ex.compile_fx(lowered, inputs, {"clone_input": False})

        return aot_module_simplified(gm, example_inputs, fw_compiler=compiler)

    x = torch.randn(3, device=device)
    torch.testing.assert_close(torch.compile(Model(), backend=backend)(x), x * 2 + 1)
    assert [row["copied_nbytes"] for row in report()["graphs"]] == [0]


@torch.no_grad()
def test_the_cache_takes_options_or_settings(device: str, tmp_path: Path) -> None:
    x = torch.randn(3, device=device)
    config = npugraph_ex.CompilerConfig({"clone_input": False})
    for given in ({"options": {"clone_input": False}}, {"config": config}):
        call = npugraph_ex.inference.cache_compile(Model().forward, cache_dir=tmp_path, **given)
        torch.testing.assert_close(call(x), x * 2 + 1)
        assert report()["graphs"][-1]["copied_nbytes"] == 0
    with pytest.raises(OptionError, match="options and config were both given"):
        npugraph_ex.inference.cache_compile(Model().forward, options={}, config=config)


def test_compile_fx_needs_the_inputs() -> None:
    with pytest.raises(OptionError, match="compile_fx: example_inputs: expected those that AOTAutograd"):
        npugraph_ex.compile_fx(torch.fx.symbolic_trace(Model()))


def test_its_blocks_are_said_or_refused() -> None:
    with pytest.warns(UserWarning, match="limit_core_num has no effect"):
        with npugraph_ex.scope.limit_core_num(4, 4, stream=None):
            pass
    with pytest.raises(NotOffered, match="scope.deterministic is not offered"):
        npugraph_ex.scope.deterministic(1)
