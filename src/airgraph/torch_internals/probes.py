"""Every name of PyTorch's that this package uses and that PyTorch may change without notice.

Where one is gone, so is what it is used for; `airgraph doctor --internals` shows which are there.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["INTERNALS", "Internal", "is_there"]

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Internal:
    """One name, or several of one place.

    place: a module or class by its full name. names: what is taken of it. used_for: what would fail without.
    until: what would make it needless. seen_in: the versions of torch that have it. part_of: the distribution
    without which it is not asked for, or "cuda" for a torch that is built with CUDA.
    """

    place: str
    names: tuple[str, ...]
    used_for: str
    until: str
    seen_in: str = "2.11 to 2.13"
    part_of: str = ""
    # Makes an object of this class, for names that only objects have.
    example: Callable[[], Any] | None = None


def _of(place: str, *names: str, used_for: str, until: str, **others: Any) -> Internal:
    return Internal(place, names, used_for, until, **others)


def _size() -> Any:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return ShapeEnv().create_unbacked_symint().node


def _range() -> Any:
    from torch.utils._sympy.value_ranges import ValueRanges

    return ValueRanges(0, 1)


def _guard() -> Any:
    from torch._dynamo.source import LocalSource
    from torch._guards import Guard

    return Guard(LocalSource("x"), lambda builder, guard: None)


def _guard_entry() -> Any:
    from torch._dynamo.types import GuardFilterEntry

    return GuardFilterEntry("x", False, None, "TYPE_MATCH", (), False, _guard())


def _attribute_source() -> Any:
    from torch._dynamo.source import AttrSource, LocalSource

    return AttrSource(LocalSource("x"), "y")


def _constant_variable() -> Any:
    from torch._dynamo.variables import ConstantVariable

    return ConstantVariable.create(1)


def _module() -> Any:
    from torch import fx, nn

    return fx.GraphModule(nn.Module(), fx.Graph())


def _autocast() -> Any:
    import torch

    return torch.autocast("cpu")


def _placeholder() -> Any:
    """Of a graph as Dynamo hands it over."""
    import torch

    found: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        found.extend(gm.graph.find_nodes(op="placeholder"))
        return gm.forward

    torch.compile(lambda x: x + 1, backend=backend, fullgraph=True)(torch.ones(1))
    return found[0]


INTERNALS = (
    # untraced
    _of(
        "torch._C._dynamo.eval_frame", "set_code_exec_strategy", "_FrameExecStrategy", "_FrameAction",
        used_for="what runs when an object dies, which Dynamo would trace where that falls within a compiled function",
        until="torch.compiler.disable without an import of Dynamo",
    ),
    # dispatcher
    _of(
        "torch._C", "_DisableAutocast", used_for="replays and traced programs, which have their casts already",
        until="torch.autocast(enabled=False) at no cost for all devices at once",
    ),
    _of("torch._C", "_DisableTorchDispatch", used_for="digests of tensors under a mode", until="a public block"),
    _of(
        "torch._C", "_dispatch_keys", "DispatchKey", used_for="traits of tensors in cached graphs; foreign tensors",
        until="public keys of a tensor",
    ),
    _of(
        "torch._C", "_dispatch_key_for_device", "_dispatch_has_kernel", "_dispatch_has_kernel_for_dispatch_key",
        "_jit_get_schemas_for_operator", used_for="out-variants; operators named in cache files",
        until="public queries of torch.library",
    ),
    _of("torch.library", "_impls", used_for="kernels that Python has given to operators", until="a public query"),
    _of("torch._C", "_is_alias_of", used_for="the Python engine", until="Tensor.shares_storage or its like"),
    _of("torch", "_neg_view", used_for="lazy negatives, laid out again", until="torch.neg_view"),
    _of("torch", "_debug_has_internal_overlap", used_for="arguments that overlap themselves", until="a public query"),
    _of("torch.Tensor", "_is_zerotensor", used_for="refusing lazy zeros", until="a public query"),
    _of(
        "torch.autograd.forward_ad", "_current_level", used_for="tensors with a tangent, in the Python engine",
        until="a public query",
    ),
    # members
    _of(
        "torch.nn.Module", "_parameters", "_buffers", "_modules", used_for="what a cached function watches of modules",
        until="public views of a module's own members", example=_module,
    ),
    _of(
        "torch.amp.autocast_mode.autocast", "_enabled", "_cache_enabled", used_for="cached functions decorated with it",
        until="public attributes of torch.autocast", example=_autocast,
    ),
    # modes
    _of(
        "torch._C", "_len_torch_dispatch_stack", "_len_torch_function_stack", "_pop_torch_function_stack",
        "_is_torch_function_enabled", "_get_tracing_state", "DisableTorchFunction",
        used_for="modes around a call, and taking those off that an interrupted capture has left",
        until="public stacks of modes",
    ),
    _of(
        "torch._C._functorch", "peek_interpreter_stack", "is_functorch_wrapped_tensor",
        used_for="transforms of torch.func", until="a public query of torch.func",
    ),
    _of(
        "torch.utils._python_dispatch", "TorchDispatchMode", "_get_current_dispatch_mode_stack", "_pop_mode",
        "_disable_current_modes",
        "is_traceable_wrapper_subclass", used_for="captures by hand; tensor subclasses",
        until="TorchDispatchMode becomes public",
    ),
    _of("torch.overrides", "_get_current_function_mode_stack", used_for="modes around a call", until="as above"),
    # devices
    _of("torch", "_register_device_module", used_for="`airgraph run` without torch_npu", until="it is documented"),
    _of(
        "torch._C._acc", "register_python_privateuseone_hook", "register_python_privateuseone_device_guard",
        used_for="the same without the native engine", until="as above",
    ),
    _of(
        "torch.utils.backend_registration", "_DummyPrivateUse1Hook", "_DummyDeviceGuard",
        used_for="the same without the native engine", until="as above",
    ),
    _of(
        "torch._subclasses.fake_impls", "op_implementations_checks",
        used_for='`device="npu"` within compiled functions, by `airgraph run` without torch_npu', until="as above",
    ),
    # settings
    _of(
        "torch.utils._device", "CURRENT_DEVICE", "DeviceContext", used_for="the default device, watched without a call",
        until="torch.get_default_device at no cost",
    ),
    _of(
        "torch._C", "_get_deterministic_fill_uninitialized_memory", "_get_mkldnn_enabled", "_get_cublas_allow_tf32",
        "_get_cublas_allow_fp16_reduced_precision_reduction", "_get_cublas_allow_bf16_reduced_precision_reduction",
        used_for="settings that kernels read, in the Python engine", until="torch.backends answers for all of them",
    ),
    # storages
    _of(
        "torch.UntypedStorage", "_cdata", "_new_with_weak_ptr", used_for="which tensors share memory",
        until="public identity of a storage",
    ),
    _of(
        "torch.multiprocessing.reductions", "StorageWeakRef", used_for="storages that may go at any time",
        until="storages take weakref.ref",
    ),
    # fake tensors and sizes
    _of(
        "torch._subclasses.fake_tensor", "FakeTensor", "FakeTensorMode", "DataDependentOutputException",
        "DynamicOutputShapeException", "UnsupportedOperatorException", used_for="shapes at capture and in passes",
        until="fake tensors become public",
    ),
    _of(
        "torch.fx.experimental.symbolic_shapes", "statically_known_true", "free_unbacked_symbols",
        used_for="passes on graphs of any size", until="the module leaves torch.fx.experimental",
    ),
    _of(
        "torch.utils._config_module", "ConfigModule", used_for="settings of PyTorch's that a trace has looked at",
        until="a public type of its modules of settings",
    ),
    _of(
        "torch.fx.experimental._config", "patch", "use_duck_shape", used_for="sizes that happen to be equal",
        until="torch.compile has the setting",
    ),
    _of("torch.utils._sympy.interp", "sympy_interp", used_for="sizes as nodes of a graph", until="as above"),
    _of("torch.utils._sympy.reference", "PythonReferenceAnalysis", used_for="sizes as nodes", until="as above"),
    _of("torch.utils._sympy.symbol", "SymT", "symbol_is_type", used_for="floats as inputs", until="as above"),
    _of(
        "torch.fx.experimental.sym_node.SymNode", "_expr", used_for="sizes that decided in a cached trace",
        until="public expressions of a SymInt", example=_size,
    ),
    _of(
        "torch.utils._sympy.value_ranges.ValueRanges", "lower", "upper", used_for="sizes that a cached trace holds for",
        until="public bounds of a size", example=_range,
    ),
    # AOTAutograd
    _of(
        "torch._dynamo.backends.common", "aot_autograd", used_for="lowering", until="it moves to torch.compiler",
    ),
    _of(
        "torch._functorch._aot_autograd.graph_compile", "tensorify_python_scalars",
        used_for="the scope of what computes with a number", until="it keeps what is known of a node",
    ),
    _of("torch.fx.passes._tensorify_python_scalars", "tensorify_python_scalars", used_for="as above", until="as above"),
    _of(
        "torch._dynamo.symbolic_convert", "TensorifyState",
        used_for="writes to a float64 tensor of one number, which Dynamo leaves out when it traces anew",
        until="torch.compile(backend='aot_eager') keeps n.add_(1)",
    ),
    _of("torch._dynamo.exc", "TensorifyScalarRestartAnalysis", used_for="as above", until="as above"),
    _of("torch._dynamo.source", "CallMethodItemSource", "FloatTensorSource", used_for="as above", until="as above"),
    _of("torch._functorch._aot_autograd.utils", "make_boxed_func", used_for="lowering", until="as above"),
    _of(
        "torch._functorch._aot_autograd.logging_utils", "graph_being_compiled",
        used_for="graphs of training, in a backend of the user's own", until="as above",
    ),
    _of("torch._guards.TracingContext", "try_get", used_for="as above", until="as above"),
    _of(
        "torch._functorch._aot_autograd.schemas", "OutputType", "MutationType",
        used_for="roles of inputs, and outputs that are views of them", until="lowering returns them",
    ),
    _of("torch._guards", "TracingContext", used_for="what lowering has found out", until="as above"),
    _of(
        "torch._higher_order_ops.auto_functionalize", "AsStridedViewInfo", "SliceViewInfo", "auto_functionalized",
        "auto_functionalized_v2", "get_mutable_args", "read_view_information_from_args", "try_use_slice",
        used_for="custom operators that write their arguments", until="a public pass that takes the wrapper off",
    ),
    # Dynamo
    _of(
        "torch._dynamo", "mark_static", used_for="the caches of `airgraph generate`",
        until="it moves to torch.compiler",
    ),
    _of(
        "torch._dynamo.backends.registry", "_COMPILER_FNS", used_for="backends under names that others have",
        until="register_backend replaces a backend when asked to",
    ),
    _of(
        "torch._dynamo.symbolic_convert", "InstructionTranslator", "InliningInstructionTranslator", "TensorifyState",
        used_for="the compile cache: results, code that was inlined, floats", until="Dynamo reports what it traced",
    ),
    _of(
        "torch._dynamo.external_utils", "wrap_inline",
        used_for="the names of graphs of modules and functions of torch's own", until="Dynamo names what it traces",
    ),
    _of(
        "torch._dynamo.variables", "ConstDictVariable", "ConstantVariable", "TensorVariable", "functions",
        used_for="the compile cache", until="as above",
    ),
    _of(
        "torch._dynamo.variables.builder", "make_dupe_guard", used_for="the same: arguments that are globals, too",
        until="Dynamo guards them itself",
    ),
    _of("torch._dynamo.guards.GuardBuilder", "DUPLICATE_INPUT", used_for="as above", until="as above"),
    _of("torch._dynamo.source", "AttrSource", used_for="arguments that are wrappers of tensors", until="as above"),
    _of("torch._dynamo.variables.lists", "SizeVariable", used_for="the same: shapes in results", until="as above"),
    _of(
        "torch._dynamo.variables.base", "AttributeMutationExisting", "AttributeMutationNew",
        "ValueMutationExisting", "ValueMutationNew", "VariableTracker",
        used_for="the compile cache: what a function changes", until="as above",
    ),
    _of(
        "torch._dynamo.variables.builtin.BuiltinVariable", "call_id", "call_repr", "call_str",
        used_for="the compile cache: addresses that a trace takes for constants", until="as above",
    ),
    _of(
        "torch._dynamo.variables.builtin.BuiltinVariable", "call_hash",
        used_for="the same; before 2.13 Dynamo traces no hash of an object", until="as above", seen_in="2.13",
    ),
    _of(
        "torch._dynamo.symbolic_convert.InstructionTranslator", "current_tx", used_for="the compile cache",
        until="as above",
    ),
    _of(
        "torch._dynamo.variables.base.VariableTracker", "visit", "is_tensor", "python_type", "python_type_name",
        used_for="the same", until="as above",
    ),
    _of(
        "torch._dynamo.variables.ConstantVariable", "value", used_for="the same", until="as above",
        example=_constant_variable,
    ),
    _of(
        "torch._dynamo.types.GuardFilterEntry", "orig_guard", "guard_type", used_for="the compile cache: its guards",
        until="Dynamo's guards can be written down", example=_guard_entry,
    ),
    _of(
        "torch._guards.Guard", "create_fn", "originating_source", used_for="the same", until="as above", example=_guard,
    ),
    _of(
        "torch._dynamo.source.AttrSource", "name", "base", "member", used_for="the same", until="as above",
        example=_attribute_source,
    ),
    _of("torch._dynamo.variables.dicts.ConstDictVariable", "is_new_item", used_for="the same", until="as above"),
    _of("torch._dynamo.exc", "raise_observed_exception", used_for="the same: what objects lack", until="as above"),
    _of(
        "torch._dynamo.variables.functions", "BaseUserFunctionVariable", "UserFunctionVariable", "SkipFunctionVariable",
        "FunctoolsPartialVariable", used_for="the same", until="as above",
    ),
    _of("torch._dynamo.variables.misc", "PythonModuleVariable", used_for="the same", until="as above"),
    _of(
        "torch._dynamo.variables.functions", "invoke_and_store_as_constant",
        used_for="the same: torch.compiler.assume_constant_result", until="as above",
    ),
    _of(
        "torch._dynamo.variables.builder.VariableBuilder", "wrap_symfloat", used_for="the same: floats as inputs",
        until="as above",
    ),
    _of("torch._dynamo.variables.lazy", "LazyCache", used_for="what a trace looks at, and uses not", until="as above"),
    _of("torch._dynamo.variables.builder", "VariableBuilder", used_for="floats as inputs", until="as above"),
    _of("torch._dynamo.side_effects.SideEffects", "_get_modified_vars", used_for="the same", until="as above"),
    _of("torch._dynamo.eval_frame", "_stance", used_for="torch.compiler.set_stance", until="a public query"),
    _of("torch._dynamo", "config", "list_backends", used_for="settings of a trace", until="torch.compiler has them"),
    _of(
        "torch._dynamo.graph_bytecode_inputs", "index_to_external_object_weakref",
        used_for="priorities of torch's own streams", until="the graph says them",
    ),
    _of(
        "torch._dynamo.utils", "graph_break_reasons", used_for="the graph breaks in the report",
        until="PyTorch offers what broke a graph, and where",
    ),
    _of("torch._dynamo.utils", "get_debug_dir", used_for="TORCH_COMPILE_DEBUG=1", until="a public query"),
    _of(
        "torch.fx.Node", "_dynamo_source", used_for="names of inputs in reports; the compile cache",
        until="Dynamo reports what it traced", example=_placeholder,
    ),
    _of(
        "torch.distributed.distributed_c10d", "_resolve_process_group", used_for="cached graphs with collectives",
        until="a public look-up of a group by its name", part_of="distributed",
    ),
    _of(
        "torch.distributed.distributed_c10d", "_get_default_store", used_for="what ranks say of keys on CPU",
        until="torch.distributed gives it", part_of="distributed",
    ),
    # FX, Inductor, pytrees
    _of(
        "torch.fx.GraphModule", "_graph", used_for="passes, which generate code once",
        until="GraphModule.graph generates code when it is asked for", example=_module,
    ),
    _of("torch.utils._pytree", "tree_leaves", used_for="values within values", until="torch.utils.pytree everywhere"),
    _of(
        "torch._inductor.pattern_matcher", "PatternMatcherPass", "fwd_only", "register_replacement",
        used_for="register_replacement", until="a public matcher of torch.fx with the same rules",
    ),
    _of("torch._inductor.virtualized", "V", used_for="register_replacement", until="as above"),
    # allocators
    _of(
        "torch._C", "_cuda_endAllocateToPool", "_cuda_releasePool", used_for="captures that fail on CUDA",
        until="CUDAGraph.capture_end undoes a failed capture", part_of="cuda",
    ),
    _of(
        "torch._C", "_cuda_beginAllocateCurrentThreadToPool", used_for="what a graph needs beside, in its pool",
        until="torch.cuda.use_mem_pool takes the handle of a pool", part_of="cuda",
    ),
    _of(
        "torch._C", "_cuda_clearCublasWorkspaces", used_for="workspaces of cuBLAS that belong to a pool",
        until="those of one stream can be cleared from Python", part_of="cuda",
    ),
    _of(
        "torch_npu._C", "_npu_beginAllocateCurrentThreadToPool", used_for="buffers of inputs in the pool of a graph",
        until="a block takes the handle of a pool", part_of="torch_npu", seen_in="2.13",
    ),
    _of(
        "torch_npu._C", "_npu_endAllocateToPool", "_npu_releasePool", used_for="captures that fail on Ascend",
        until="NPUGraph.capture_end undoes a failed capture", part_of="torch_npu", seen_in="2.13",
    ),
)  # fmt: skip


def is_there(internal: Internal) -> bool | None:
    """Whether all its names are there; None where they are not asked for."""
    import torch

    if internal.part_of == "cuda":
        if torch.version.cuda is None:
            return None
    elif internal.part_of == "distributed":
        if not torch.distributed.is_available():
            return None
    elif internal.part_of and importlib.util.find_spec(internal.part_of) is None:
        return None
    place = _found(internal.place) if internal.example is None else internal.example()
    return place is not _MISSING and all(getattr(place, name, _MISSING) is not _MISSING for name in internal.names)


def _found(place: str) -> Any:
    """A module, or what lies in one."""
    parts = place.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for name in parts[length:]:
            found = getattr(found, name, _MISSING)
        return found
    return _MISSING
