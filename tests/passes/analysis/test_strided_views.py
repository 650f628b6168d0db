"""Views by strides are found again as the views that a user wrote."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from airgraph.passes.analysis.strided_views import plain_views


def _same(base: Tensor, view: Tensor) -> bool:
    steps = plain_views(base, view.shape, view.stride(), view.storage_offset())
    if steps is None:
        return False
    found = base
    for op, args in steps:
        found = op(found, *args)
    assert (found.shape, found.stride(), found.data_ptr()) == (view.shape, view.stride(), view.data_ptr())
    return True


@pytest.mark.parametrize(
    "take",
    [
        lambda x: x[1],
        lambda x: x[:, 2],
        lambda x: x[1, :, 3],
        lambda x: x[:, 1:3],
        lambda x: x[1, 1:, 2:5],
        lambda x: x.transpose(0, 2),
        lambda x: x.permute(2, 0, 1)[1:3],
        lambda x: x[1, 2, 3:],
        lambda x: x[:, ::2],
        lambda x: x[1:, 1::3, 4],
        lambda x: x[1, 2, 3],
    ],
)
def test_what_a_user_takes_of_a_tensor(take: Callable[[Tensor], Tensor]) -> None:
    whole = torch.arange(200.0)
    assert _same(whole[:120].view(4, 5, 6), take(whole[:120].view(4, 5, 6)))
    assert _same(whole[17:137].view(4, 5, 6), take(whole[17:137].view(4, 5, 6)))
    turned = whole[:120].view(6, 5, 4).permute(2, 1, 0)
    assert _same(turned, take(turned))


@pytest.mark.parametrize(
    "take",
    [
        lambda x: x.view(-1),
        lambda x: x.view(-1, 1),
        lambda x: x.view(-1)[7:],
        lambda x: x.view(2, -1)[1],
        lambda x: x.view(-1)[3::5],
        lambda x: x.view(4, 15, 2)[:, 3],
        lambda x: x.view(6, 20).t(),
        lambda x: x.view(4, 5, 2, 3).permute(2, 0, 3, 1),
        lambda x: x.view(12, 10).diagonal(),
        lambda x: x.diagonal(1, 1, 2),
        lambda x: x.view(-1).unfold(0, 7, 3),
        lambda x: x.as_strided((3, 4), (31, 7), x.storage_offset() + 2),
    ],
)
def test_views_that_reshape(take: Callable[[Tensor], Tensor]) -> None:
    whole = torch.arange(200.0)
    assert _same(whole[:120].view(4, 5, 6), take(whole[:120].view(4, 5, 6)))
    assert _same(whole[17:137].view(4, 5, 6), take(whole[17:137].view(4, 5, 6)))


def test_reshaped_parts_of_a_larger_tensor() -> None:
    part = torch.arange(960.0).view(8, 10, 12)[2:6, :, :6]
    # Its last two dimensions are not one: no view of the flattened tensor there.
    for view in (
        part.view(40, 6),
        part.view(2, 20, 6)[1],
        part.view(40, 2, 3)[::2].transpose(0, 2),
        part[1, ::3, 1::2],
    ):
        assert _same(part, view)
    turned = torch.arange(240.0).view(6, 40).t()[:, 1:5]
    for view in (turned.unflatten(0, (5, 8))[1:3], turned.unflatten(0, (5, 8)).permute(2, 0, 1)[2]):
        assert _same(turned, view)
    assert not _same(part, part[0].diagonal())


def test_other_views_are_not_expressed() -> None:
    x = torch.arange(24.0).view(4, 6)
    assert not _same(x, x.expand(2, 4, 6))
    assert plain_views(torch.zeros(1).expand(4), [2], [0], 0) is None
    assert plain_views(x, [4, 6], [6, 1], 1) is None
    assert plain_views(x[1:], [4, 6], [6, 1], 0) is None


@given(st.data())
def test_any_view_of_dense_memory(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    begin = data.draw(st.integers(0, 5))
    base = torch.arange(300.0)[begin : begin + torch.Size(shape).numel()].view(shape)
    base = base.permute(data.draw(st.permutations(range(len(shape)))))
    size, stride, room = [], [], base.numel() - 1
    offset = data.draw(st.integers(0, room))
    room -= offset
    for _ in range(data.draw(st.integers(0, 3))):
        stride.append(data.draw(st.integers(1, 9)))
        size.append(data.draw(st.integers(1, room // stride[-1] + 1)))
        room -= (size[-1] - 1) * stride[-1]
    assert _same(base, base.as_strided(size, stride, begin + offset))


@given(st.data())
def test_any_selects_and_slices(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    base = torch.arange(300.0)[data.draw(st.integers(0, 5)) :][: torch.Size(shape).numel()].view(shape)
    base = base.permute(data.draw(st.permutations(range(len(shape)))))
    view = base
    for dim in reversed(range(base.dim())):
        begin = data.draw(st.integers(0, base.shape[dim] - 1))
        if data.draw(st.booleans()):
            view = view.select(dim, begin)
        else:
            view = view.narrow(dim, begin, data.draw(st.integers(1, base.shape[dim] - begin)))
    # Where dimensions of size 1 make it ambiguous there may be none, but never a wrong one.
    found = _same(base, view)
    assert found or 1 in shape
