"""What CUDA's operators read on the host or wait for, though no tag of theirs says so: it would spoil a capture."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from airgraph.program.trees import leaves_of

__all__ = ["by_name", "fills_where_a_mask_says", "host_read", "is_number"]

_MADE_OF_NUMBERS = {torch.ops.aten.scalar_tensor.default, torch.ops.aten.full.default}
_Given = Mapping[str, Any]

# Of a slice that torch.mode counts in one block of threads; the values of a longer one are sorted and counted apart.
_ONE_BLOCK = 2048
# The least ones for which torch.isin compares each pair are 10 times the elements to this power.
_SORTS_FROM = 0.145


def is_number(node: Node) -> bool:
    """Whether a tensor on the host is one that operators take as they take a number, computed from nothing but such.

    The graph computes with it on its device, or it is the same at each call, so it cannot be handed out.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.dim() != 0:
        return False
    if node.op == "placeholder":
        return True
    if node.op == "get_attr":
        return all(user.op != "output" for user in node.users)
    handed_out = any(user.op == "output" for user in node.users)
    sources = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    is_made = bool(sources) or node.target in _MADE_OF_NUMBERS
    return not handed_out and is_made and all(map(is_number, sources))


def host_read(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Which of a call's values CUDA's operator reads on the host, or None. The arguments may be nodes."""
    namespace, _, name = op._schema.name.partition("::")
    # One that writes its argument or an `out` reads what the others do.
    reads = _HOST_READS.get(name.removesuffix("_")) if namespace == "aten" else None
    if reads is None:
        return None
    reason, where = reads
    return reason if where is None or where(by_name(op, args, kwargs)) else None


def by_name(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Given:
    """The arguments of a call, those too that it leaves out."""
    arguments = op._schema.arguments
    given = {each.name: each.default_value for each in arguments if each.has_default_value()}
    return given | dict(zip((each.name for each in arguments), args, strict=False)) | dict(kwargs)


def _value(argument: Any) -> Any:
    return map_arg(argument, lambda node: node.meta.get("val"))


def _is_tensor(argument: Any) -> bool:
    return isinstance(_value(argument), torch.Tensor)


def _is_on_device(argument: Any) -> bool:
    """Whether a number is a tensor that lies on the device. A constant of the host's does not; one that comes with a
    call reaches the graph in memory of the device."""
    return _is_tensor(argument) and not _is_constant_number(argument)


def _is_constant_number(node: Any) -> bool:
    """Whether a tensor of one number on the host is the same at each call."""
    if not isinstance(node, Node) or not is_number(node):
        return False
    return node.op == "get_attr" or (node.op == "call_function" and all(map(_is_constant_number, node.all_input_nodes)))


def _masks_in(given: _Given) -> list[bool]:
    """Of each tensor that an `index_put` is indexed by."""
    return [each.dtype in (torch.bool, torch.uint8) for each in leaves_of(torch.Tensor, _value(given["indices"]))]


def fills_where_a_mask_says(given: _Given) -> bool:
    """Whether a call of `index_put` fills in one number of the host's, which its kernel takes as it is.

    given: see `by_name`.
    """
    return _masks_in(given) == [True] and not given["accumulate"] and _is_constant_number(given["values"])


def _writes_where_a_mask_says(given: _Given) -> bool:
    return any(_masks_in(given)) and not fills_where_a_mask_says(given)


def _is_empty(given: _Given, name: str = "self") -> bool:
    return _is_tensor(given[name]) and 0 in _value(given[name]).shape


def _counts_long_slices(given: _Given) -> bool:
    # Sizes that are not known yet are left to the capture.
    shape = _value(given["self"]).shape
    size = shape[given["dim"]] if shape else 1
    return isinstance(size, int) and size > _ONE_BLOCK


def _sorts_many(given: _Given) -> bool:
    compared = [argument for name, argument in given.items() if name.startswith(("element", "test_element"))]
    counts = [_value(each).numel() if _is_tensor(each) else 1 for each in compared]
    if not all(isinstance(count, int) for count in counts) or 0 in counts:
        return False
    return counts[1] >= int(10 * counts[0] ** _SORTS_FROM)


def _has_no_range(given: _Given) -> bool:
    # As they are in the type that the values are counted in.
    dtype = _value(given["self"]).dtype
    narrow = (lambda bound: ctypes.c_float(bound).value) if dtype is not torch.float64 else float
    least, most = map(narrow if dtype.is_floating_point else int, (given["min"], given["max"]))
    return bool(least == most) and not _is_empty(given)


def _factors_by_magma(given: _Given, *, checks: bool = False) -> bool:
    """Whether LU factors are computed by a library that waits for the device; what has them checked reads as well."""
    library = str(torch.backends.cuda.preferred_linalg_library()).rpartition(".")[2]
    if checks or library == "Magma":
        return True
    matrices = _value(given["A"] if "A" in given else given["self"])
    *batch, rows, columns = matrices.shape
    count = math.prod(batch)
    # Sizes that are not known yet are left to the capture.
    if library == "Cusolver" or not all(isinstance(n, int) for n in (count, rows, columns)):
        return False
    if count * rows * columns == 0:
        return False
    return rows != columns or not (count == 1 or rows <= 16 or (rows <= 128 and count <= 16))


def _multiplies_groups_one_by_one(given: _Given) -> bool:
    left, right = _value(given["self"]), _value(given["mat2"])
    if left.dim() == 3 and right.dim() == 3:
        return False
    together = left.dtype == right.dtype == torch.bfloat16
    return not together or (
        torch.cuda.is_available() and torch.cuda.get_device_capability(left.device)[0] not in (9, 10)
    )


_FAILED = "whether it failed for a matrix is read on the host"
_FAILED_CHECKED = (
    "whether it failed for a matrix is read on the host; the forms of torch.linalg that end in _ex leave that out"
)

# Operators in all their forms; the reason; in which calls, if not in all. They are those from whose CUDA kernels calls
# lead to `item`, `nonzero`, a copy to the host or a wait for the stream in the libraries of torch 2.13.
_READS: tuple[tuple[tuple[str, ...], str, Callable[[_Given], bool] | None], ...] = (
    (
        ("index_put", "_index_put_impl", "_unsafe_index_put"),
        "how many elements its mask chooses is read on the host; torch.where and masked_scatter are captured",
        _writes_where_a_mask_says,
    ),
    (("masked_scatter_backward",), "how many elements its mask chooses is read on the host", None),
    (
        ("normal",),
        "whether its deviations are negative is read on the host; torch.randn(...) * std + mean is captured",
        lambda given: _is_tensor(given["std"]) and not _is_empty(given, "std"),
    ),
    (
        ("masked_fill", "index_fill"),
        "the value that it fills in is read on the host; torch.where and index_copy are captured",
        lambda given: _is_on_device(given["value"]),
    ),
    (
        ("linspace", "logspace"),
        "its bounds are read on the host; with numbers it is captured",
        lambda given: _is_on_device(given["start"]) or _is_on_device(given["end"]),
    ),
    (
        ("searchsorted",),
        "whether its sorter is in bounds is read on the host; boundaries that are sorted are captured",
        lambda given: given["sorter"] is not None and not _is_empty(given, "sorted_sequence"),
    ),
    (
        ("histc",),
        "the range of its values is read on the host; with min and max it is captured",
        _has_no_range,
    ),
    (
        ("mode",),
        "how many values it finds is read on the host; of up to 2048 it is captured",
        _counts_long_slices,
    ),
    (
        ("isin",),
        "how many values it finds is read on the host; among few, or by == and any, it is captured",
        _sorts_many,
    ),
    (
        ("segment_reduce",),
        "whether its lengths add up is read on the host; with unsafe it is captured",
        lambda given: given["lengths"] is not None and given["offsets"] is None and not given["unsafe"],
    ),
    (
        ("_grouped_mm",),
        "the sizes of its groups are read on the host; bfloat16 is captured on cards of capability 9 and 10",
        _multiplies_groups_one_by_one,
    ),
    (
        ("fake_quantize_per_channel_affine_cachemask",),
        "whether its zero points are in range is read on the host; floating-point ones are captured",
        lambda given: not _value(given["zero_point"]).dtype.is_floating_point,
    ),
    (
        tuple(
            f"_fake_quantize_learnable_per_{what}_affine{back}"
            for what in ("tensor", "channel")
            for back in ("", "_backward")
        ),
        "its scale or zero point is read on the host",
        None,
    ),
    (
        ("_fused_moving_avg_obs_fq_helper", "_fused_moving_avg_obs_fq_helper_functional"),
        "whether it quantizes is read on the host; by tensor, not by row, it is captured",
        lambda given: bool(given["per_row_fake_quant"]),
    ),
    (("_linalg_check_errors",), _FAILED_CHECKED, None),
    (
        ("linalg_cholesky_ex",),
        _FAILED_CHECKED,
        lambda given: bool(given["check_errors"]),
    ),
    (
        ("linalg_ldl_factor_ex",),
        _FAILED_CHECKED,
        lambda given: bool(given["check_errors"] or (given["hermitian"] and _value(given["self"]).is_complex())),
    ),
    (
        ("linalg_inv_ex", "linalg_lu_factor_ex", "_linalg_solve_ex"),
        "whether it failed for a matrix is read on the host, or the host waits; the forms of torch.linalg that end in "
        "_ex are captured for one square matrix, and for a few small ones",
        lambda given: _factors_by_magma(given, checks=bool(given["check_errors"])),
    ),
    (
        ("_linalg_det", "_linalg_slogdet", "linalg_lu"),
        "the host waits for the device in it; of one square matrix, and of a few small ones, it is captured",
        _factors_by_magma,
    ),
    (("linalg_pinv",), _FAILED, lambda given: not _is_empty(given)),
    (
        ("randint_like",),
        "its bound is read on the host; with a number it is captured",
        lambda given: _is_on_device(given["high"]),
    ),
    (("_ctc_loss_backward", "batch_norm_gather_stats"), "it copies from the host", None),
    (
        (
            "_linalg_eigh",
            "_linalg_eigvals",
            "_linalg_svd",
            "cholesky",
            "cholesky_inverse",
            "linalg_eig",
            "linalg_lstsq",
        ),
        _FAILED,
        None,
    ),
    (
        ("linalg_matrix_exp",),
        "the norms of its matrices are read on the host",
        lambda given: _value(given["self"]).shape[-1] not in (0, 1),
    ),
    (("linalg_ldl_solve",), "the host waits for the device in it", None),
)

_HOST_READS = {name: (reason, where) for names, reason, where in _READS for name in names}
