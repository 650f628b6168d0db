"""Memory formats: here there is one, so that a cast to it is all that can be asked."""

from __future__ import annotations

from torch import Tensor

from airgraph.npu_operators.declaration import Operator, require

__all__ = ["OPERATORS"]

_ND = 2


def _format_cast(input: Tensor, acl_format: int) -> Tensor:
    _check("npu_format_cast", acl_format)
    return input.clone()


def _format_cast_in_place(input: Tensor, acl_format: int) -> Tensor:
    _check("npu_format_cast_", acl_format)
    return input


def _check(name: str, acl_format: int) -> None:
    expected = f"{_ND} (ND): other formats are layouts of a card's memory. Leave the cast out where there is none, it"
    require(acl_format == _ND, name, "acl_format", f"{expected} changes no value", acl_format)


_ARGUMENTS = "int acl_format, *, int? customize_dtype=None, int? input_dtype=None"
_REFUSED = ("customize_dtype", "input_dtype")

OPERATORS = (
    Operator(f"npu_format_cast(Tensor input, {_ARGUMENTS}) -> Tensor", _format_cast, refused=_REFUSED),
    Operator(
        f"npu_format_cast_.acl_format(Tensor(a!) input, {_ARGUMENTS}) -> Tensor(a!)",
        _format_cast_in_place,
        refused=_REFUSED,
    ),
)
