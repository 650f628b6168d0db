"""Views by strides are found again as the views that a user wrote."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from airgraph.passes.strided_views import plain_views


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


def test_other_views_are_not_expressed() -> None:
    x = torch.arange(24.0).view(4, 6)
    for view in (x.view(24), x.diagonal(), x.expand(2, 4, 6)):
        assert not _same(x, view)
    assert plain_views(torch.zeros(1).expand(4), [2], [0], 0) is None


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
