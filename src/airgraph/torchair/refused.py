"""Names of TorchAir's that airgraph does not offer, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from airgraph.errors import NotOffered

__all__ = ["FUNCTIONS", "MODULES", "refused"]

_GRAPH_ENGINE = "it belongs to CANN's graph engine, TorchAir's mode 'max-autotune'"

# Submodules, which only the graph engine needs.
MODULES = {
    "ge": _GRAPH_ENGINE,
    "llm_datadist": "it moves caches between Ascend servers",
    "npu_export": _GRAPH_ENGINE,
    "experimental": _GRAPH_ENGINE,
    "patterns": "its fusions are of operators that only an Ascend card has; register_replacement adds yours",
}

# Functions, by their names below `torchair`.
FUNCTIONS = {
    "dynamo_export": f"{_GRAPH_ENGINE}. Use torch.export, or keep graphs by inference.cache_compile",
    "register_fx_node_ge_converter": f"{_GRAPH_ENGINE}. Operators are captured as they are, custom ones too",
    "patch_for_hcom": "collectives are captured as torch has them. Leave the call out",
    "use_internal_format_weight": "weights stay in the format that they have. Leave it out, or cast them yourself",
    "npu_format_cast_via_cpu": "weights stay in the format that they have. Cast them yourself",
    "inference.set_dim_gears": f"{_GRAPH_ENGINE}. Sizes are captured as they come, or ahead by airgraph.warmup",
    "ops.npu_print": f"{_GRAPH_ENGINE}. Return the tensor, or run with debug.run_eagerly and print",
    "ops.npu_fused_infer_attention_score": f"{_GRAPH_ENGINE}. Call torch_npu's operator of this name",
    "ops.npu_fused_infer_attention_score_v2": f"{_GRAPH_ENGINE}. Call torch_npu's operator of this name",
    "scope.deterministic": "kernels are chosen for a whole program. Use torch.use_deterministic_algorithms",
    "scope.op_never_timeout": _GRAPH_ENGINE,
    "scope.data_dump": "values of tensors are not written to files. The option verify_every names what differs",
}


def refused(name: str) -> Callable[..., NoReturn]:
    """A function that raises NotOffered with the reason for this name, however it is called."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotOffered(f"torchair.{name} is not offered: {FUNCTIONS[name]}.")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__doc__ = f"Raises NotOffered: {FUNCTIONS[name]}."
    return refuse
