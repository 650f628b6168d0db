"""input_inplace_pass and inplace_pass."""

import torch
from golden import case
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten
on_input = case("input_inplace_pass")
on_input_as_written = case("input_inplace_pass", direct=True)
on_intermediate = case("inplace_pass")


@on_input
def index_copy(kv: Tensor, row: Tensor, i: Tensor):
    kv.index_copy_(0, i, row)
    return kv * 2


@on_input
def index_put(kv: Tensor, row: Tensor, i: Tensor):
    kv[i] = row
    return kv.sum()


@on_input
def scatter(kv: Tensor, n: Tensor, x: Tensor):
    kv.scatter_(0, n, x)
    return kv.sum()


@on_input
def scatter_add(kv: Tensor, n: Tensor, x: Tensor):
    kv.scatter_add_(0, n, x)
    return kv.sum()


@on_input
def index_add(kv: Tensor, row: Tensor, i: Tensor):
    kv.index_add_(0, i, row)
    return kv.sum()


@on_input
def masked_fill(x: Tensor, m: Tensor):
    x.masked_fill_(m, 0.5)
    return x.sum()


@on_input
def rows_of_an_input(kv: Tensor, x: Tensor):
    kv[2:6] = x
    return kv.sum()


@on_input
def row_of_an_input(kv: Tensor, v: Tensor):
    kv[3] = v
    return kv.sum()


@on_input
def diagonal_of_an_input(x: Tensor, v: Tensor):
    x.diagonal().copy_(v)
    return x.sum()


@on_input
def view_of_an_input(kv: Tensor, row: Tensor):
    kv[1:2].add_(row)
    return kv.sum()


@on_input
def chain(kv: Tensor, row: Tensor, i: Tensor):
    kv.mul_(2)
    kv.add_(row)
    kv.index_copy_(0, i, row)
    kv[2:3] = row
    return kv.sum(0)


@on_input
def seen_as_another_shape(kv: Tensor, row: Tensor, i: Tensor):
    kv.view(2, 4, 4)[1].index_copy_(0, i, row)
    return kv.sum()


@on_input
def seen_flat(kv: Tensor, v: Tensor, i: Tensor):
    kv.view(-1).index_put_((i,), v[:1])
    return kv.sum()


@on_input
def seen_turned(kv: Tensor, i: Tensor, v: Tensor):
    kv.t()[1:3].mul_(2)
    kv.t()[0].add_(1)
    return v + 1


@on_input
def row_of_a_part(kv: Tensor, row: Tensor):
    kv[2:6][1:2] = row
    return kv.sum()


@on_input_as_written
def turned_and_not_turned_back(x: Tensor, v: Tensor):
    aten.copy_.default(x, aten.add.Tensor(x.t(), 1))
    return v + 1


@on_input_as_written
def turned_twice_but_not_back(x: Tensor, v: Tensor):
    aten.copy_.default(x, aten.add.Tensor(x.view(16), 1).view(4, 4).t())
    return v + 1


@on_input_as_written
def written_after_it_was_copied(x: Tensor, v: Tensor):
    new = aten.add.Tensor(x, 1)
    aten.copy_.default(x, new)
    new.mul_(2)
    return new.sum()


@on_input_as_written
def value_in_another_shape_is_read_late(x: Tensor, v: Tensor):
    flat = aten.add.Tensor(x.view(16), 1)
    second = aten.mul.Tensor(flat.view(4, 4), 2)
    late = flat.sum()
    aten.copy_.default(x, second)
    return late


@on_input_as_written
def strides_differ_and_a_view_is_taken(strided: Tensor):
    new = aten.add.Tensor(strided, 1)
    flat = new.view(16).sum()
    aten.copy_.default(strided, new)
    return flat


@on_input_as_written
def strides_differ_and_no_view_is_taken(strided: Tensor):
    new = aten.add.Tensor(strided, 1)
    total = new.sum()
    aten.copy_.default(strided, new)
    return total


@on_input
def two_inputs(x: Tensor, y: Tensor):
    x.add_(y)
    y.mul_(2)
    return x.sum() + y.sum()


@on_input
def old_value_is_read_before(x: Tensor, y: Tensor):
    old = x * 3
    x.add_(y)
    return old + x


@on_input_as_written
def old_value_is_read_after(x: Tensor, y: Tensor):
    new = aten.add.Tensor(x, y)
    late = x.neg()
    aten.copy_.default(x, new)
    return late


@on_input_as_written
def view_of_the_old_value_is_read_after(x: Tensor, y: Tensor):
    turned = x.t()
    new = aten.add.Tensor(x, y)
    late = turned.neg()
    aten.copy_.default(x, new)
    return late


@on_input_as_written
def another_argument_is_a_view_of_the_input(x: Tensor, v: Tensor):
    aten.copy_.default(x, aten.add.Tensor(x, x.t()))
    return v + 1


@on_input_as_written
def another_argument_is_the_input(x: Tensor, v: Tensor):
    aten.copy_.default(x, aten.mul.Tensor(x, x))
    return v + 1


@on_input
def new_value_is_an_output(x: Tensor, y: Tensor):
    x.add_(y)
    return x


@on_input_as_written
def functional_new_value_is_an_output(x: Tensor, y: Tensor):
    new = aten.add.Tensor(x, y)
    aten.copy_.default(x, new)
    return new


@on_input_as_written
def functional_new_value_s_view_is_an_output(x: Tensor, y: Tensor):
    new = aten.add.Tensor(x, y)
    aten.copy_.default(x, new)
    return new.t()


@on_input
def not_computed_from_the_old_value(x: Tensor, y: Tensor):
    x.copy_(y * 2)
    return x.sum()


@on_input_as_written
def copy_is_read(x: Tensor, y: Tensor):
    return aten.copy_.default(x, aten.add.Tensor(x, y)).sum()


@on_input
def rows_from_elsewhere_in_the_input(kv: Tensor, x: Tensor):
    kv[2:6] = kv[1:5]
    return x.sum()


@on_input
def rows_from_another_input_that_is_written(kv: Tensor, x: Tensor):
    kv[2:6] = x
    x.add_(1)
    return x.sum()


@on_input_as_written
def replaced_by_another_input(x: Tensor, y: Tensor, v: Tensor):
    aten.copy_.default(x, y)
    return v + 1


@on_input_as_written
def copied_to_itself(x: Tensor, v: Tensor):
    aten.copy_.default(x, x)
    return v + 1


@on_input_as_written
def no_form_in_place(x: Tensor, v: Tensor):
    aten.copy_.default(x, aten.flip.default(x, [0]))
    return v + 1


@on_input
def times_itself(x: Tensor):
    x.mul_(x)
    x.add_(x, alpha=2)
    return x.sum()


@on_input
def a_part_times_itself(kv: Tensor):
    kv[2:4].mul_(kv[2:4])
    return kv.sum()


@on_input
def times_itself_turned(x: Tensor):
    x.mul_(x.t() + 0)
    x.sub_(x.t())
    return x.sum()


@on_input
def part_of_a_part_seen_flat(kv: Tensor, v: Tensor):
    kv[1:].view(-1)[::2].add_(v[0])
    return kv.sum()


@case("input_inplace_pass", "remove_noop_ops")
def copied_to_itself_in_all_ways(x: Tensor, kv: Tensor):
    x.copy_(x)
    kv.view(-1).copy_(kv.view(-1))
    kv[2:6] = kv[2:6]
    x.mul_(1)
    return x.sum() + kv.sum()


@on_input_as_written
def other_shape(x: Tensor, row: Tensor, v: Tensor):
    aten.copy_.default(x, aten.add.Tensor(row, 1))
    return v + 1


@on_input_as_written
def other_type(x: Tensor, d: Tensor, v: Tensor):
    aten.copy_.default(x, aten.add.Tensor(x, d))
    return v + 1


@on_intermediate
def elementwise(x: Tensor, y: Tensor):
    return ((x * y) + x).relu()


@on_intermediate
def activations(x: Tensor):
    return F.silu(x.exp()) + F.gelu(x.sin()) + F.hardtanh(x.cos()) + x.neg().sigmoid()


@on_intermediate
def elementwise_of_itself(x: Tensor):
    y = x.exp()
    return y * y


@on_intermediate
def indexing(kv: Tensor, row: Tensor, i: Tensor):
    return kv.exp().index_put((i,), row).index_copy(0, i, row).index_add(0, i, row)


@on_intermediate
def scatters(kv: Tensor, n: Tensor, x: Tensor):
    return kv.exp().scatter(0, n, x).scatter_add(0, n, x)


@on_intermediate
def fills(x: Tensor, m: Tensor):
    return x.exp().masked_fill(m, 0.5).cumsum(0)


@on_intermediate
def first_of_a_chain_is_the_input_s(x: Tensor):
    return x.relu().neg()


@on_intermediate
def view_of_an_input_is_not_written(x: Tensor):
    return x.t().relu()


@on_intermediate
def value_is_read_later(x: Tensor):
    y = x.exp()
    return y.relu() + y


@on_intermediate
def view_is_read_later(x: Tensor):
    y = x.exp()
    turned = y.t()
    return y.relu() + turned


@on_intermediate
def value_is_an_output(x: Tensor):
    y = x.exp()
    return y, y.relu()


@on_intermediate
def another_argument_is_a_view_of_it(x: Tensor):
    y = x.exp()
    return y + y.t()


@on_intermediate
def index_is_made_of_it(kv: Tensor):
    y = kv.long()
    return y.index_put((y,), y[0])


@on_intermediate
def result_has_another_shape(row: Tensor, x: Tensor):
    return row.exp() + x


@on_intermediate
def result_has_another_type(n: Tensor, x: Tensor):
    return n.neg() + x


@on_intermediate
def result_has_other_strides(x: Tensor):
    return torch.relu(x.exp().expand(2, 4, 4))


@on_intermediate
def nothing_in_place(x: Tensor):
    return x.exp().flip(0)


@case("inplace_pass", "input_inplace_pass")
def both(kv: Tensor, row: Tensor, i: Tensor):
    kv.index_copy_(0, i, (row * 2).relu())
    return (kv.exp() + 1).sum()
