"""auto_functionalized of both versions: the operator writes its arguments again, or copies of them."""

from collections.abc import Callable
from typing import Any

import torch
from custom_operators import add_and_double, add_into, add_to_all, two_results
from golden import case
from torch import Tensor

_BOTH = ("input_inplace_pass", "inplace_pass")


def both_versions(*options: str) -> Callable[[Callable[..., Any]], Any]:
    def collect(program: Callable[..., Any]) -> Callable[..., Any]:
        for version in (1, 2):
            case(*options, version=version)(program)
        return program

    return collect


@both_versions(*_BOTH)
def two_written_inputs(x: Tensor, y: Tensor, row: Tensor):
    return add_and_double(x, y, row) * 2


@both_versions(*_BOTH)
def written_input_and_intermediate(x: Tensor, y: Tensor):
    made = y * 2
    return add_and_double(x, made, y) + made


@both_versions("inplace_pass")
def written_input_where_inputs_are_not_to_be_written(x: Tensor, y: Tensor):
    add_into(x, y)
    return x * 2


@both_versions("input_inplace_pass")
def written_intermediate_where_they_are_not_to_be_written(x: Tensor, y: Tensor):
    made = x * 2
    add_into(made, y)
    return made


@both_versions(*_BOTH)
def written_parts_of_an_input(kv: Tensor, x: Tensor):
    add_into(kv[2:6], x)
    add_into(kv.t()[0], x[0, :1].expand(8))
    return kv.sum()


@both_versions(*_BOTH)
def written_row_of_an_input_with_strides(strided: Tensor, v: Tensor):
    add_into(strided[2], v)
    return strided.sum()


@both_versions(*_BOTH)
def written_diagonal_of_an_input(x: Tensor, v: Tensor):
    add_into(x.diagonal(), v)
    return x.sum()


@both_versions(*_BOTH)
def written_diagonal_of_an_input_with_strides(strided: Tensor, v: Tensor):
    add_into(strided.diagonal(), v)
    return strided.sum()


@both_versions(*_BOTH)
def two_parts_of_one_input(kv: Tensor, x: Tensor):
    return add_and_double(kv[:4], kv[4:], x).sum()


@both_versions(*_BOTH)
def other_argument_shares_its_memory(x: Tensor):
    add_into(x, x.t())
    return x.sum()


@both_versions(*_BOTH)
def old_input_is_read_later(x: Tensor, y: Tensor):
    old = x + 0
    add_into(x, y)
    return old * x


@both_versions(*_BOTH)
def old_intermediate_is_read_later(x: Tensor, y: Tensor):
    made = x * 2
    kept = made.clone()
    add_into(made, y)
    return kept * made


@both_versions(*_BOTH)
def written_input_is_returned(x: Tensor, y: Tensor):
    add_into(x, y)
    return x


@both_versions(*_BOTH)
def written_twice(x: Tensor, y: Tensor):
    add_into(x, y)
    middle = x * 2
    add_into(x, y)
    return middle + x


@both_versions(*_BOTH)
def results_beside_what_is_written(x: Tensor):
    first, second = two_results(x)
    return first * second


@both_versions(*_BOTH)
def written_list(x: Tensor, y: Tensor, row: Tensor):
    add_to_all([x, y], row)
    made = [x + 1, x + 2]
    add_to_all(made, row)
    return made[0] * made[1]


@both_versions(*_BOTH)
def written_column_of_an_input(kv: Tensor, v: Tensor):
    add_into(kv.view(-1, 1), v[:1])
    return kv.sum()


@both_versions(*_BOTH)
def written_views_of_an_input(kv: Tensor, v: Tensor):
    add_into(kv[1:].view(-1)[::2], v[:1])
    add_into(kv.view(4, 2, 4).transpose(0, 1)[1], v)
    add_into(kv.view(2, 4, 4).diagonal(0, 1, 2), v)
    return kv.sum()


@both_versions(*_BOTH)
def written_whole_of_an_input(kv: Tensor, v: Tensor):
    add_into(kv[:], v)
    add_into(kv.detach(), v)
    return kv.sum()


@both_versions(*_BOTH)
def source_is_the_target(x: Tensor):
    add_into(x, x)
    made = x * 2
    add_into(made, made)
    return made


@both_versions(*_BOTH)
def source_lies_in_the_target(kv: Tensor):
    add_into(kv, kv[1:2])
    return kv.sum()


@both_versions(*_BOTH)
def source_is_a_copy_of_the_target(x: Tensor):
    add_into(x, x.clone())
    return x.sum()


@both_versions(*_BOTH)
def one_input_for_two_arguments(x: Tensor, v: Tensor):
    return add_and_double(x, x, v) * 2


@both_versions(*_BOTH)
def two_equal_allocations(x: Tensor):
    first, second = torch.zeros(4, 4), torch.zeros(4, 4)
    return add_and_double(first, second, x) + first - second
