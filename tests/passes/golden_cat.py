"""remove_cat_ops."""

import torch
from golden import case
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten
cat = case("remove_cat_ops")


@cat
def rows(x: Tensor, y: Tensor):
    return torch.cat([x.exp(), y.neg()])


@cat
def columns(x: Tensor, y: Tensor):
    return torch.cat([x + 1, x @ y, y.sum(1, keepdim=True)], -1)


@cat
def stacked(x: Tensor, y: Tensor):
    return torch.stack([x.exp(), y.neg()], 1)


@cat
def one_part(x: Tensor):
    return torch.cat([x.exp()])


@cat
def one_part_is_copied(x: Tensor, y: Tensor):
    return torch.cat([x, y.neg()])


@cat
def two_parts_would_be_copied(x: Tensor, y: Tensor):
    return torch.cat([x, y, x.neg()])


@cat
def no_part_is_made(x: Tensor):
    return torch.cat([x, x.t()])


@cat
def copies_are_made_in_place(x: Tensor, n: Tensor):
    return torch.cat([x.clone(), n.to(torch.float32)], 1)


@cat
def same_part_twice(x: Tensor):
    part = x.exp()
    return torch.cat([part, part], 1)


@cat
def part_of_two_cats(x: Tensor, y: Tensor):
    part = x.exp()
    return torch.cat([part, y.neg()]), torch.cat([part, y.sin()], 1)


@cat
def nested(x: Tensor, y: Tensor):
    return torch.cat([torch.cat([x.exp(), y.neg()], 1), torch.stack([x[0].sin(), y[0].cos()]).reshape(1, 8)])


@cat
def nested_where_an_inner_part_is_read(x: Tensor, y: Tensor):
    part = x.exp()
    inner = torch.cat([part, y.neg()])
    return torch.cat([inner, kv_like(x)], 1), part.sum()


def kv_like(x: Tensor) -> Tensor:
    return torch.stack([x, x]).reshape(8, 4).sin()


@cat
def part_is_read_with_the_same_strides(x: Tensor, y: Tensor):
    part = x.exp()
    return torch.cat([part, y.neg()]), part * 2


@cat
def part_is_read_with_other_strides(x: Tensor, y: Tensor):
    part = x.exp()
    return torch.cat([part, y.neg()], 1), part * 2


@cat
def part_is_an_output(x: Tensor, y: Tensor):
    part = x.exp()
    return torch.cat([part, y.neg()]), part


@cat
def view_of_a_part_is_an_output(x: Tensor, y: Tensor):
    part = x.exp()
    return torch.cat([part, y.neg()]), part.t()


@case("remove_cat_ops", direct=True)
def part_is_written(x: Tensor, y: Tensor):
    part = x.exp()
    part.add_(1)
    return torch.cat([part, y.neg()])


@case("remove_cat_ops", direct=True)
def result_is_written(x: Tensor, y: Tensor):
    part = x.exp()
    joined = torch.cat([part, y.neg()])
    joined.add_(1)
    return joined, part * 2


@cat
def other_dtype(x: Tensor, d: Tensor):
    return torch.cat([x.exp(), d.neg()])


@cat
def empty_tensor_of_another_rank(e: Tensor, y: Tensor):
    return torch.cat([e, y.neg()])


@cat
def random_numbers_in_rows(x: Tensor):
    return torch.cat([torch.bernoulli(x), x.neg()])


@cat
def random_numbers_in_columns(x: Tensor):
    return torch.cat([torch.bernoulli(x), x.neg()], 1)


@cat
def operator_that_writes_densely_in_rows(x: Tensor):
    return torch.cat([F.gelu(x), x.softmax(1)])


@cat
def operator_that_writes_densely_in_columns(x: Tensor):
    return torch.cat([F.gelu(x), x.softmax(1)], 1)


@cat
def operator_of_several_results(x: Tensor):
    return torch.cat([x.topk(2)[0], x.neg()], 1)


@case("remove_cat_ops", dynamic=True)
def symbols(x: Tensor, kv: Tensor):
    return torch.cat([x.exp(), kv.neg()]), torch.cat([x.sin(), x.cos()], 1)


@case("remove_cat_ops", dynamic=True)
def symbols_in_nested_cats(x: Tensor, kv: Tensor):
    return torch.stack([torch.cat([x.exp(), x.sin()]), kv.neg()[: 2 * x.shape[0]]])


@case("remove_cat_ops", dynamic=True)
def size_that_depends_on_data(x: Tensor):
    return torch.cat([x.nonzero() * 2, x.nonzero() * 3])


@case("remove_cat_ops", "inplace_pass")
def result_is_written_in_place_later(x: Tensor, y: Tensor):
    return torch.cat([x.exp(), y.neg()], 1).relu()
