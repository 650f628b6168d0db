"""Every setting comes to an option or is refused by name; nothing is ignored."""

import copy
import pickle
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

import airgraph
from airgraph import Options, torchair
from airgraph.errors import OptionError
from airgraph.torchair.configs.compiler_config import CompilerConfig
from airgraph.torchair.configs.npugraph_ex_config import NpuGraphExConfig
from airgraph.torchair.configs.table import NPUGRAPH_EX, TORCHAIR


def _pass(gm: torch.fx.GraphModule, example_inputs: object, options: object) -> None:
    """Does nothing."""


def _with(path: str, value: object, config: Any = None) -> Any:
    config = config or CompilerConfig()
    section, _, name = path.rpartition(".")
    setattr(attrgetter(section)(config) if section else config, name, value)
    return config


def test_the_defaults_are_those_of_the_options() -> None:
    assert CompilerConfig().mode == "reduce-overhead"
    assert CompilerConfig().as_options() == NpuGraphExConfig().as_options() == Options()


@pytest.mark.parametrize(
    ("path", "value", "option", "expected"),
    [
        ("debug.aclgraph.clone_input", False, "clone_input", False),
        ("debug.aclgraph.enable_output_clone", True, "clone_output", True),
        ("debug.aclgraph.disable_reinplace_inplaceable_ops_pass", True, "inplace_pass", False),
        ("debug.aclgraph.disable_reinplace_input_mutated_ops_pass", True, "input_inplace_pass", False),
        ("debug.aclgraph.disable_mempool_reuse_in_same_fx", True, "reuse_graph_pool_in_same_fx", False),
        ("debug.aclgraph.static_capture_size_limit", 3, "capture_limit", 3),
        ("debug.aclgraph.remove_cat_ops", False, "remove_cat_ops", False),
        ("debug.run_eagerly", True, "force_eager", True),
        # TorchAir takes 1 as True.
        ("debug.run_eagerly", 1, "force_eager", True),
        ("aclgraph_config.use_custom_pool", (0, 1), "use_graph_pool", (0, 1)),
        ("experimental_config.keep_inference_input_mutations", False, "input_inplace_pass", False),
        ("experimental_config.frozen_parameter", True, "frozen_parameter", True),
        ("experimental_config.remove_noop_ops", False, "remove_noop_ops", False),
        ("experimental_config.pattern_fusion_pass", False, "pattern_fusion_pass", False),
    ],
)
def test_a_setting_comes_to_its_option_and_no_other(path: str, value: Any, option: str, expected: object) -> None:
    assert _with(path, value).as_options() == Options(**{option: expected})


@pytest.mark.parametrize("path", ["post_grad_custom_pre_pass", "post_grad_custom_post_pass"])
def test_a_pass_stays_the_program_s_own(path: str) -> None:
    held = getattr(_with(path, _pass).as_options(), path)
    assert held.__wrapped__ is _pass
    assert _with(path, _pass).as_options() == _with(path, _pass).as_options()
    assert _with(path, _pass).as_options() != _with(path, print).as_options()


def test_a_dump_goes_to_its_path_or_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = _with("debug.graph_dump.path", "there")
    assert config.as_options().dump_dir is None
    assert _with("debug.graph_dump.type", "py", config).as_options().dump_dir == str(tmp_path / "there")
    assert _with("debug.graph_dump.type", "py").as_options().dump_dir == "."


@pytest.mark.parametrize("mode", ["reduce-overhead", "npugraph_ex"])
def test_both_modes_that_capture_are_taken(mode: str) -> None:
    assert _with("mode", mode).as_options() == Options()


def test_max_autotune_is_refused_and_why() -> None:
    with pytest.raises(OptionError, match="'max-autotune': it hands the whole graph to CANN's graph engine"):
        CompilerConfig().mode = "max-autotune"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mode", "fastest"),
        ("debug.aclgraph.clone_input", "yes"),
        ("debug.aclgraph.clone_input", 2),
        ("debug.aclgraph.enable_output_clone", None),
        ("debug.aclgraph.static_capture_size_limit", 0),
        ("debug.aclgraph.static_capture_size_limit", True),
        ("debug.aclgraph.static_capture_size_limit", "64"),
        ("debug.graph_dump.type", "txt"),
        ("debug.graph_dump.type", "pbtxt"),
        ("debug.graph_dump.type", "png"),
        ("debug.graph_dump.path", 3),
        ("debug.deadlock_check", "on"),
        ("aclgraph_config.use_custom_pool", "pool"),
        ("post_grad_custom_pre_pass", 3),
        ("experimental_config.frozen_parameter", 0.0),
    ],
)
def test_a_bad_value_names_the_setting_and_the_value_and_is_not_kept(path: str, value: object) -> None:
    config = CompilerConfig()
    with pytest.raises(OptionError) as raised:
        _with(path, value, config)
    assert repr(path) in str(raised.value) and f"got {value!r}" in str(raised.value)
    assert isinstance(raised.value, ValueError) and config == CompilerConfig()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda config: setattr(config.debug.aclgraph, "clone_inputs", False),
            "unknown setting 'debug.aclgraph.clone_inputs'. Did you mean 'debug.aclgraph.clone_input'",
        ),
        (
            lambda config: setattr(config, "force_recapture", True),
            "unknown setting 'force_recapture'. It is an option of torch.compile(backend='npugraph_ex')",
        ),
        (lambda config: setattr(config.debug, "clone_input", True), "It is 'debug.aclgraph.clone_input'."),
        (lambda config: setattr(config, "xyzzy", 1), "unknown setting 'xyzzy'. TorchAir has it in no mode. Known: "),
        (lambda config: setattr(config, "debug", None), "setting 'debug' is a section: set what is in it, such as "),
        (lambda config: setattr(config.ge_config, "oo_level", "O1"), "only in its mode 'max-autotune'"),
        (lambda config: setattr(config.experimental_config, "cc_parallel_enable", True), "'max-autotune'"),
        (lambda config: setattr(config.dump_config, "enable_dump", True), "'dump_config.enable_dump': expected its"),
    ],
)
def test_an_unknown_name_and_one_of_another_mode_say_so(use: Callable[[CompilerConfig], None], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        use(CompilerConfig())
    assert message in str(raised.value)


def test_what_is_refused_may_be_given_its_default() -> None:
    config = CompilerConfig()
    for setting in TORCHAIR:
        if setting.refusal:
            _with(setting.path, setting.default, config)
    assert config == CompilerConfig()


def test_reading_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(CompilerConfig().debug, "clone_inputs")
    with pytest.raises(AttributeError, match="Did you mean 'mode'"):
        CompilerConfig().mod


def test_names_that_a_setting_has_are_listed() -> None:
    assert dir(CompilerConfig().debug.graph_dump) == ["path", "type"]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))])
def test_a_copy_has_values_of_its_own(duplicate: Callable[[CompilerConfig], CompilerConfig]) -> None:
    config = _with("debug.run_eagerly", True)
    other = duplicate(config)
    assert other == config
    other.debug.run_eagerly = False
    assert other != config and config.debug.run_eagerly is True


def test_a_copy_shares_its_pool() -> None:
    pool = airgraph.graph_pool_handle()
    assert copy.deepcopy(_with("aclgraph_config.use_custom_pool", pool)).aclgraph_config.use_custom_pool is pool


def test_every_setting_has_a_meaning_an_option_or_a_refusal_once() -> None:
    for table in (TORCHAIR, NPUGRAPH_EX):
        assert len({setting.path for setting in table}) == len(table)
        assert not [setting.path for setting in table if not (setting.option or setting.meaning or setting.refusal)]


def _paths(config: Any, prefix: str = "") -> set[str]:
    """Of torch_npu's own settings."""
    found: set[str] = set()
    for name, value in vars(config).items():
        below = vars(value) if hasattr(value, "__dict__") else {}
        if name in ("_fixed_attrs", "_path") or type(value).__name__ == "_NpuGraphExConfig":
            continue
        is_section = type(value).__name__.endswith(("Config", "_Dump", "_DataDump", "_FxSummary")) and below
        found |= _paths(value, f"{prefix}{name}.") if is_section else {f"{prefix}{name}"}
    return found


def test_every_name_of_torch_npus_is_in_the_tables() -> None:
    pytest.importorskip("torch_npu")
    from torch_npu.dynamo.npugraph_ex.configs.compiler_config import CompilerConfig as TheirsOfNpugraphEx
    from torch_npu.dynamo.torchair.configs.compiler_config import CompilerConfig as Theirs

    known = {setting.path for setting in TORCHAIR}
    assert _paths(Theirs()) - known == set()
    # Properties of theirs.
    assert known - _paths(Theirs()) == {"debug.graph_dump.path", "debug.data_dump.path"}
    assert _paths(TheirsOfNpugraphEx()) - {setting.path for setting in NPUGRAPH_EX} == set()


@pytest.mark.parametrize(
    "name",
    ["dynamo_export", "patch_for_hcom", "register_fx_node_ge_converter", "use_internal_format_weight",
     "npu_format_cast_via_cpu", "inference.set_dim_gears", "ops.npu_print", "scope.deterministic", "scope.data_dump",
     "scope.op_never_timeout"],
)  # fmt: skip
def test_a_name_that_is_not_offered_is_refused_by_name(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"torchair.{name} is not offered: "):
        attrgetter(name)(torchair)(None)


def test_a_module_that_is_not_offered_says_why() -> None:
    with pytest.raises(AttributeError, match="torchair.ge is not offered: it belongs to CANN's graph engine"):
        torchair.ge
