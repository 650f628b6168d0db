"""Every setting of TorchAir's and of npugraph_ex's: the option that it comes to, or why it is refused.

The only place where the two vocabularies meet; docs/from_torchair.md is generated from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from airgraph.options import Options
from airgraph.torchair.configs.setting import ANYTHING, COUNT, FUNCTION, PATH, SWITCH, Accepted, Setting, one_of

__all__ = ["NPUGRAPH_EX", "TORCHAIR"]

_GRAPH_ENGINE = "TorchAir has it only in its mode 'max-autotune', for CANN's graph engine"
_KERNELS = "CANN would compile kernels for it; airgraph calls those that are there"
_TENSORS = "values of tensors are not written to files; the option `verify_every` names the first operator that differs"
_CHECKS = "airgraph always makes the checks of a capture"


def _switch(path: str, option: str, default: bool) -> Setting:
    return Setting(path=path, default=default, accepted=SWITCH, option=option)


def _switch_off(path: str, option: str) -> Setting:
    """TorchAir's name says what is left out, the option's what is done."""
    return Setting(
        path=path,
        default=False,
        accepted=SWITCH,
        option=option,
        value_of=lambda value, values: not value,
        meaning="turned round: True is False",
    )


def _refused(path: str, default: Any, why: str) -> Setting:
    return Setting(path=path, default=default, refusal=why)


def _graph_engine(path: str, default: Any) -> Setting:
    return _refused(path, default, _GRAPH_ENGINE)


def _function(path: str) -> Setting:
    return Setting(
        path=path,
        default=None,
        accepted=FUNCTION,
        option=path,
        meaning="called with a copy of these settings, where a pass of airgraph's gets its options",
    )


def _dump_dir(value: Any, values: Mapping[str, Any]) -> str | None:
    return (values["debug.graph_dump.path"] or ".") if values["debug.graph_dump.type"] else None


def _mutations_in_place(value: Any, values: Mapping[str, Any]) -> bool:
    return value and not values["debug.aclgraph.disable_reinplace_input_mutated_ops_pass"]


_OF_THE_GRAPH_ENGINE = "it is a form of the graph engine's, in TorchAir's mode 'max-autotune'; 'py' is the one of both"

TORCHAIR: tuple[Setting, ...] = (
    Setting(
        path="mode",
        default="reduce-overhead",
        accepted=one_of(
            "reduce-overhead",
            "npugraph_ex",
            reasons={
                "max-autotune": "it hands the whole graph to CANN's graph engine, which only an Ascend card has; "
                "airgraph captures operators, as the other two modes do"
            },
        ),
        meaning="both are what airgraph does; the default is `'reduce-overhead'`, where TorchAir's is `'max-autotune'`",
    ),
    _switch("debug.run_eagerly", "force_eager", False),
    Setting(
        path="debug.graph_dump.type",
        default=None,
        accepted=one_of(None, "py", reasons={"txt": _OF_THE_GRAPH_ENGINE, "pbtxt": _OF_THE_GRAPH_ENGINE}),
        option="dump_dir",
        value_of=_dump_dir,
        meaning="`'py'`: `debug.graph_dump.path`, or the working directory",
    ),
    Setting(
        path="debug.graph_dump.path",
        default=None,
        accepted=PATH,
        option="dump_dir",
        value_of=_dump_dir,
        meaning="the folder, where `debug.graph_dump.type` is set",
    ),
    _switch("debug.aclgraph.clone_input", "clone_input", True),
    _switch("debug.aclgraph.enable_output_clone", "clone_output", False),
    _switch_off("debug.aclgraph.disable_mempool_reuse_in_same_fx", "reuse_graph_pool_in_same_fx"),
    _switch_off("debug.aclgraph.disable_reinplace_inplaceable_ops_pass", "inplace_pass"),
    _switch_off("debug.aclgraph.disable_reinplace_input_mutated_ops_pass", "input_inplace_pass"),
    Setting(path="debug.aclgraph.static_capture_size_limit", default=64, accepted=COUNT, option="capture_limit"),
    _switch("debug.aclgraph.remove_cat_ops", "remove_cat_ops", True),
    Setting(
        path="debug.deadlock_check",
        default=False,
        accepted=SWITCH,
        meaning="waits that can never end are always looked for: `StreamError` names them",
    ),
    Setting(path="aclgraph_config.use_custom_pool", default=None, accepted=ANYTHING, option="use_graph_pool"),
    _function("post_grad_custom_pre_pass"),
    _function("post_grad_custom_post_pass"),
    _switch("experimental_config.frozen_parameter", "frozen_parameter", False),
    _switch("experimental_config.remove_noop_ops", "remove_noop_ops", True),
    _switch("experimental_config.pattern_fusion_pass", "pattern_fusion_pass", True),
    Setting(
        path="experimental_config.keep_inference_input_mutations",
        default=True,
        accepted=SWITCH,
        option="input_inplace_pass",
        value_of=_mutations_in_place,
        meaning="False: mutated inputs are copied back at the end",
    ),
    # Of all modes, and not offered.
    _refused("debug.data_dump.type", None, _TENSORS),
    _refused("debug.data_dump.filter", None, _TENSORS),
    _refused("debug.data_dump.path", None, _TENSORS),
    _refused("dump_config.enable_dump", False, _TENSORS),
    _refused("dump_config.dump_path", "./", _TENSORS),
    _refused("dump_config.data_dump_stage", "optimized", _TENSORS),
    _refused("experimental_config.aclgraph._aclnn_static_shape_kernel", False, _KERNELS),
    _refused("experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir", None, _KERNELS),
    _refused("experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range", None, _KERNELS),
    _refused("experimental_config.aclgraph._aclnn_static_shape_kernel_sym_index", 0, _KERNELS),
    _refused("experimental_config.aclgraph._super_kernel_optimize", False, _KERNELS),
    _refused("experimental_config.aclgraph._super_kernel_optimize_options", None, _KERNELS),
    _refused("experimental_config.aclgraph._super_kernel_debug_options", None, _KERNELS),
    # Of max-autotune.
    _graph_engine("debug.fx_summary.type", None),
    _graph_engine("debug.fx_summary.skip_compile", True),
    _graph_engine("aoe_config.aoe_mode", None),
    _graph_engine("aoe_config.work_path", "./"),
    _graph_engine("aoe_config.aoe_config_file", None),
    _graph_engine("export.export_mode", False),
    _graph_engine("export.export_path_dir", "./"),
    _graph_engine("export.export_name", None),
    _graph_engine("export.weight_name", None),
    _graph_engine("export.inputs_name", None),
    _graph_engine("export.experimental.enable_record_nn_module_stack", False),
    _graph_engine("export.experimental.auto_atc_config_generated", False),
    _graph_engine("export.experimental.enable_lite_export", False),
    _graph_engine("dump_config.dump_mode", "all"),
    _graph_engine("dump_config.quant_dumpable", False),
    _graph_engine("dump_config.dump_step", ""),
    _graph_engine("dump_config.dump_layer", ""),
    _graph_engine("dump_config.dump_data", "tensor"),
    _graph_engine("dump_config.dump_config_path", None),
    _graph_engine("fusion_config.fusion_switch_file", None),
    _graph_engine("inference_config.dynamic_gears_merge_policy", "zip"),
    _graph_engine("ge_config.enable_single_stream", False),
    _graph_engine("ge_config.oo_level", "O3"),
    _graph_engine("ge_config.oo_constant_folding", None),
    _graph_engine("ge_config.oo_dead_code_elimination", None),
    _graph_engine("ge_config.export_compile_stat", "2"),
    _graph_engine("ge_config.aicore_num", None),
    _graph_engine("ge_config.optimization_switch", None),
    _graph_engine("ge_config.multistream_parallel_mode", None),
    _graph_engine("experimental_config.cc_parallel_enable", False),
    _graph_engine("experimental_config.memory_efficiency", False),
    _graph_engine("experimental_config.static_model_ops_lower_limit", None),
    _graph_engine("experimental_config.jit_compile", "auto"),
    _graph_engine("experimental_config.npu_fx_pass", False),
    _graph_engine("experimental_config.aot_config_enable_joint_graph", False),
    _graph_engine("experimental_config.aot_config_output_loss_index", 0),
    _graph_engine("experimental_config.topology_sorting_strategy", "DFS"),
    _graph_engine("experimental_config.enable_ref_data", False),
    _graph_engine("experimental_config.enable_view_optimize", True),
    _graph_engine("experimental_config.tiling_schedule_optimize", False),
)


def _as_the_option(option: dataclasses.Field[Any]) -> Setting:
    """The options have npugraph_ex's names; those that only airgraph has are taken beside them."""
    accepted: Accepted = ANYTHING
    if isinstance(option.default, bool) and option.name != "clone_output":
        accepted = SWITCH
    return Setting(path=option.name, default=option.default, accepted=accepted, option=option.name)


NPUGRAPH_EX: tuple[Setting, ...] = (
    Setting(path="mode", default="npugraph_ex", accepted=one_of("npugraph_ex"), meaning="what airgraph does"),
    *(_as_the_option(option) for option in dataclasses.fields(Options)),
    Setting(
        path="deadlock_check",
        default=False,
        accepted=SWITCH,
        meaning="waits that can never end are always looked for: `StreamError` names them",
    ),
    _refused("static_kernel_compile", False, _KERNELS),
    _refused("disable_static_kernel_compile_cache", False, _KERNELS),
    _refused("_vllm_aclnn_static_kernel_sym_index", 0, _KERNELS),
    _refused("_vllm_aclnn_static_kernel_sym_range", None, _KERNELS),
    _refused("super_kernel_optimize", False, _KERNELS),
    _refused("super_kernel_optimize_options", None, _KERNELS),
    _refused("super_kernel_debug_options", None, _KERNELS),
    _refused("dump_tensor_data", False, _TENSORS),
    _refused("data_dump_stage", "optimized", _TENSORS),
    _refused("data_dump_dir", "./", _TENSORS),
    _refused("unsafe_skip_npugraph_capture_validation", False, _CHECKS),
    _refused("record_statistics_debug_info", False, "`airgraph.explain()` has captures, replays and their memory"),
)
