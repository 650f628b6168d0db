"""remove_noop_ops, shape arithmetic, common subexpressions, dead code."""

import torch
from golden import case
from torch import Tensor

aten = torch.ops.aten
noop = case("remove_noop_ops")


@noop
def full_slice(x: Tensor):
    return aten.slice.Tensor(x, 0, 0, 9223372036854775807).relu()


@noop
def part_of_a_slice(x: Tensor):
    return aten.slice.Tensor(x, 0, 0, 3).relu()


@noop
def slice_with_a_step(row: Tensor):
    return aten.slice.Tensor(row, 0, 0, 1, 2).relu()


@noop
def cast_to_the_same(x: Tensor):
    return aten._to_copy.default(x, dtype=torch.float32).relu()


@noop
def cast_to_another(x: Tensor):
    return aten._to_copy.default(x, dtype=torch.float64).relu()


@noop
def cast_to_another_layout(x: Tensor):
    return aten._to_copy.default(x.t(), memory_format=torch.contiguous_format).relu()


@noop
def convert_to_the_same(x: Tensor):
    return torch.ops.prims.convert_element_type.default(x, torch.float32).relu()


@noop
def repeat_by_one(x: Tensor):
    return x.repeat(1, 1).relu()


@noop
def repeat_by_two(x: Tensor):
    return x.repeat(1, 2).relu()


@noop
def repeat_into_another_rank(x: Tensor):
    return x.repeat(1, 1, 1).relu()


@noop
def power_of_one(x: Tensor):
    return x.pow(1).relu()


@noop
def power_of_two(x: Tensor):
    return x.pow(2).relu()


@noop
def power_of_one_promotes(n: Tensor):
    return n.pow(1.0).relu()


@noop
def product_with_one(x: Tensor):
    return (x * 1).relu(), aten.mul.Scalar(x, 1.0).neg()


@noop
def product_with_one_promotes(n: Tensor):
    return (n * 1.0).relu()


@noop
def product_with_true(x: Tensor):
    return (x * True).relu()


@noop
def quotient_by_one(x: Tensor):
    return (x / 1).relu()


@noop
def quotient_by_one_promotes(n: Tensor):
    return (n / 1).relu()


@noop
def cat_of_one(x: Tensor):
    return torch.cat([x]).relu()


@noop
def cat_of_two(x: Tensor, y: Tensor):
    return torch.cat([x, y]).relu()


@noop
def padding_by_nothing(x: Tensor):
    return aten.constant_pad_nd.default(x, [0, 0]).relu()


@noop
def padding(x: Tensor):
    return aten.constant_pad_nd.default(x, [0, 1]).relu()


@noop
def clone(x: Tensor):
    return x.clone().relu()


@noop
def clone_with_another_layout(x: Tensor):
    return x.t().clone(memory_format=torch.contiguous_format).relu()


@noop
def alias(x: Tensor):
    return aten.alias.default(x).relu()


@noop
def views_of_the_same_form(x: Tensor):
    viewed = aten.view.default(x.expand(4, 4), [4, 4]).permute(0, 1)
    return aten._unsafe_view.default(aten.reshape.default(viewed, [4, -1]), [4, 4]).relu()


@noop
def views_of_another_form(x: Tensor):
    return x.view(2, 8).relu(), x.permute(1, 0).neg(), x[:, :1].expand(4, 4).exp()


@noop
def clone_that_is_an_output_stays(x: Tensor):
    return x.clone()


@noop
def alias_that_is_an_output_stays(x: Tensor):
    return aten.alias.default(x)


@noop
def clone_of_which_a_view_is_an_output_stays(x: Tensor):
    return x.clone().t()


@case("remove_noop_ops", direct=True)
def clone_that_is_written_stays(x: Tensor):
    copy = x.clone()
    copy.add_(1)
    return copy * 2


@case("remove_noop_ops", direct=True)
def clone_whose_source_is_written_before_it_is_read_stays(x: Tensor):
    copy = x.clone()
    x.add_(1)
    return copy * 2


@case("remove_noop_ops", direct=True)
def clone_whose_source_is_written_after_it_was_read(x: Tensor):
    read = x.clone() * 2
    x.add_(1)
    return read


@case("remove_noop_ops", dynamic=True)
def full_slice_of_symbols(x: Tensor):
    return x[: x.shape[0]].relu()


@case("remove_noop_ops", dynamic=True)
def slice_that_is_full_for_some_sizes(x: Tensor):
    return x[:4].relu()


@case(dynamic=True)
def size_of_an_input(x: Tensor):
    return x.relu().sum() * aten.sym_size.int(x, 0)


@case(dynamic=True)
def same_size_by_other_arithmetic(x: Tensor):
    return x.new_zeros(x.shape[0] * 2), x.new_ones((x.shape[0] * 4) // 2)


@case(dynamic=True)
def other_size(x: Tensor):
    return x.new_zeros(x.shape[0] * 2), x.new_ones(x.shape[0] * 3)


@case()
def computed_twice(x: Tensor, y: Tensor):
    return (x * y).relu() + (x * y).neg()


@case()
def computed_twice_of_computed_twice(x: Tensor):
    return x.exp().sin() * 2 + x.exp().sin() * 3


@case()
def numbers_of_other_types(x: Tensor):
    return x.add(1).relu() + x.add(1.0).neg() + x.add(True).exp()


@case()
def zeros_of_both_signs(x: Tensor):
    return (x * 0.0).reciprocal() + (x * -0.0).reciprocal()


@case()
def results_of_one_operator_taken_twice(x: Tensor):
    first, second = torch.topk(x, 2), torch.topk(x, 2)
    return first[0].relu() + second[0].neg()


@case()
def random_numbers_drawn_twice(x: Tensor):
    return torch.rand_like(x).relu() + torch.rand_like(x).neg()


@case(direct=True)
def computed_again_after_a_write(x: Tensor):
    first = x * 2
    x.add_(1)
    return first.relu() + (x * 2).neg()


@case(direct=True)
def computed_twice_and_written(x: Tensor):
    first, second = x * 2, x * 2
    second.add_(1)
    return first.relu() + second.neg()


@case(direct=True)
def seen_twice_and_written(x: Tensor):
    x.t().add_(1)
    return x.t().relu()


@case()
def computed_twice_for_two_outputs(x: Tensor):
    return x * 2, x * 2


@case()
def unused(x: Tensor):
    x.exp().sin()
    return x.relu()


@case(direct=True)
def unused_but_written(x: Tensor):
    x.add_(1)
    return x.relu()


@noop
def copied_over_a_fill(x: Tensor):
    return torch.zeros_like(x).copy_(x)


@noop
def copied_over_a_fill_and_read(x: Tensor):
    return torch.zeros_like(x).copy_(x) * 2


@noop
def put_into_the_whole_of_a_fill(x: Tensor):
    whole = torch.ones_like(x)
    whole[:] = x
    return whole


@case()
def spread_over_a_fill(row: Tensor):
    return torch.zeros(4, 4).copy_(row)


@case()
def copied_over_a_value_of_another_layout(x: Tensor, y: Tensor):
    return (x * y).t().contiguous().copy_(x), (x + y).copy_(y.t())


@case()
def filled_over_a_fill(x: Tensor):
    return torch.zeros_like(x).fill_(2), (x * 3).zero_()


@case()
def random_numbers_over_a_fill(x: Tensor):
    return torch.zeros_like(x).uniform_()


@case(dynamic=True)
def filled_over_a_fill_of_symbols(x: Tensor):
    return x.new_zeros(x.shape[0] * 2, 3).fill_(1)


@case()
def copied_over_random_numbers_which_are_drawn(x: Tensor, y: Tensor):
    return torch.rand_like(x).copy_(y.t())


@case()
def copied_over_what_is_read_before(x: Tensor, row: Tensor):
    made = x * 2
    total = made.sum()
    return made.copy_(row), total


@case()
def a_part_of_a_fill_is_read(x: Tensor, row: Tensor):
    whole = torch.zeros(4, 4)
    whole[1:] = x[1:]
    return whole


@noop
def copied_over_another(x: Tensor, y: Tensor):
    x.copy_(y * 2)
    return x.sum()


@noop
def part_that_is_put_back(kv: Tensor):
    kv[2:6] = kv[2:6]
    kv.t()[0].copy_(kv.t()[0])
    return kv.sum()


@noop
def part_that_is_put_elsewhere(kv: Tensor):
    kv[2:6] = kv[1:5]
    return kv.sum()


@case()
def new_memory_that_is_written_is_not_shared(n: Tensor, x: Tensor):
    first, second = torch.zeros(4, 4), torch.zeros(4, 4)
    return first.scatter_(0, n, x) * second.scatter_(1, n, x)


@case()
def new_memory_that_is_read_is_shared(x: Tensor):
    return x.maximum(torch.zeros(4, 4)) - x.minimum(torch.zeros(4, 4))
