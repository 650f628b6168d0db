"""What programs commonly do is cached: the second start of each reads its graph, and traces nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from cached_functions import cached, equal_to_eager
from starts import Starts, outcomes_of, write
from torch import Tensor, nn

from airgraph.errors import CacheError

# Each is called with x = torch.arange(-2.0, 3.0), by both starts.
_SCRIPT = """
import functools
from dataclasses import dataclass

import tables
from tables import ROW
from transformers.modeling_outputs import BaseModelOutput

SCALE = torch.full((5,), 3.0)


def asks_for_its_type(x):
    return x + 1 if type(x) is torch.Tensor else x


def model_output(x):
    return BaseModelOutput(last_hidden_state=x + 1)


def argument(x):
    return x, x + 1


def part(x):
    return x[:2], x + 1


def reshaped(x):
    return x.view(-1, 1), x + 1


def transposed(x):
    return x.view(5, 1).t(), x + 1


def split(x):
    first, second, third = x.split(2)
    return third, first, second.sum()


def only_views(x):
    return x[1:], x[:1] * 2


def written_and_returned(x):
    y = x.clone()
    y.add_(1)
    return y


def of_imported_module(x):
    return x * tables.ROW


def imported_by_name(x):
    return x + ROW.sum()


def of_this_module(x):
    return x * SCALE


def wraps(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)

    return inner


@wraps
def decorated(x, y):
    return x * 2 + y


for function in (
    asks_for_its_type, model_output, argument, part, reshaped, transposed, split, only_views, written_and_returned,
    of_imported_module, imported_by_name, of_this_module,
):
    compare(function.__name__, cached(function))
compare("decorated", cached(decorated), x + 1)
"""


def test_a_second_start_traces_nothing(starts: Starts, tmp_path: Path) -> None:
    tables = "import torch\n\nROW = torch.arange(5.0)\n"
    script = write(tmp_path, {"start": _SCRIPT, "tables": tables})
    first, second = (outcomes_of(starts, script, tmp_path / "cache") for _ in range(2))
    assert len(first) == 13
    assert {name: each.error for name, each in (first | second).items() if each.error} == {}
    assert [each.traced for each in first.values()] == [1] * len(first)
    assert {name: each.traced for name, each in second.items() if each.traced} == {}


def test_files_hold_no_address_of_the_process(tmp_path: Path) -> None:
    def typed(x: Tensor) -> Tensor:
        return x + 1 if type(x) is Tensor else x

    call = cached(typed, tmp_path)
    call(torch.ones(2))
    text = call.files[0].read_text()
    assert "__import_torch" in text and not re.search(r"_\d{9,}_c", text)


def test_views_of_arguments_are_of_the_callers_tensors(tmp_path: Path) -> None:
    def look(cache: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cache.add_(x)
        rows, _ = cache.split([1, cache.shape[0] - 1])
        return cache, cache[1:, ::2], rows.t(), x + 1

    for start in range(2):
        call = cached(look, tmp_path)
        for rows in (3, 4):
            whole = torch.zeros(rows + 2, 6)
            cache, x = whole[1:-1], torch.rand(rows, 6)
            twin = whole.clone()[1:-1]
            got, expected = call(cache, x), look(twin, x)
            torch.testing.assert_close(got, expected)
            assert got[0] is cache
            assert [each.stride() for each in got[:3]] == [each.stride() for each in expected[:3]]
            assert [each.data_ptr() - whole.data_ptr() for each in got[1:3]] == [
                each.data_ptr() - (twin.data_ptr() - 24) for each in expected[1:3]
            ]
            got[1].fill_(7.0)
            assert whole[2, 0] == 7.0, start
        assert len(call.files) == 1


def test_views_of_parameters_are_as_without_gradients(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4, 4))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.weight[:2], x + 1

    model = Model()
    view, _ = cached(model.forward, tmp_path)(torch.ones(2))
    with torch.no_grad():
        expected = model.weight[:2]
    assert view.data_ptr() == model.weight.data_ptr()
    assert (view.requires_grad, view.grad_fn) == (expected.requires_grad, expected.grad_fn)


def test_a_view_as_other_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="a view of an argument that is made by more than sizes and strides"):
        cached(lambda x: (x.view(torch.int32), x + 1), tmp_path)(torch.ones(2))


TABLE = torch.arange(4.0)


def test_a_global_tensor_is_the_one_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * TABLE

    call = cached(scaled, tmp_path)
    equal_to_eager(call, (torch.ones(4),))
    monkeypatch.setitem(globals(), "TABLE", torch.rand(4))
    equal_to_eager(call, (torch.ones(4),))
    TABLE.mul_(2)
    equal_to_eager(call, (torch.ones(4),))
    assert len(call.files) == 1
    # Sizes are read as well, and another kind of value is another graph.
    monkeypatch.setitem(globals(), "TABLE", torch.rand(3))
    equal_to_eager(call, (torch.ones(3),), (torch.ones(1),))
    monkeypatch.setitem(globals(), "TABLE", torch.arange(3))
    equal_to_eager(call, (torch.ones(3),))


def test_a_global_tensor_is_not_written(tmp_path: Path) -> None:
    def count(x: Tensor) -> Tensor:
        TABLE.add_(1)
        return x + TABLE

    before = TABLE.clone()
    with pytest.raises(CacheError, match="it writes .*TABLE.*, a tensor outside the function's arguments"):
        cached(count, tmp_path)(torch.ones(4))
    assert torch.equal(TABLE, before)


class Flag:
    is_set = False


def test_a_flag_of_the_first_call_is_a_condition_and_is_written(tmp_path: Path) -> None:
    def step(x: Tensor, flag: Flag) -> Tensor:
        if flag.is_set:
            return x + 1
        flag.is_set = True
        return x * 2

    for _ in range(2):
        call, flag = cached(step, tmp_path), Flag()
        assert [call(torch.ones(1), flag).item() for _ in range(3)] == [2.0, 2.0, 2.0]
        assert vars(flag) == {"is_set": True}
        assert call(torch.full((1,), 5.0), flag).item() == 6.0
        assert call(torch.full((1,), 5.0), Flag()).item() == 10.0
    assert len(call.files) == 2


def test_items_that_a_first_call_sets_are_written(tmp_path: Path) -> None:
    def step(x: Tensor, done: dict[int, bool]) -> Tensor:
        for layer in range(2):
            if not done.get(layer):
                x = x * 2
                done[layer] = True
        return x + 1

    for _ in range(2):
        call = cached(step, tmp_path)
        for done in ({}, {0: True}, {0: False, 1: False}):
            expected_done = dict(done)
            for _ in range(2):
                assert torch.equal(call(torch.ones(1), done), step(torch.ones(1), expected_done))
                assert done == expected_done and list(done) == list(expected_done)


def test_the_dict_of_a_calls_keywords_may_be_changed(tmp_path: Path) -> None:
    def outer(x: Tensor, **given: float) -> Tensor:
        scale = given.pop("scale", 1.0)
        given["more"] = given.get("more", 0.0) + 1.0
        return inner(x, **given) * scale

    def inner(x: Tensor, more: float) -> Tensor:
        return x + more

    for _ in range(2):
        call = cached(outer, tmp_path)
        for given in ({}, {"scale": 2.0}, {"more": 3.0}, {"scale": 2.0, "more": 3.0}):
            for _ in range(2):
                assert torch.equal(call(torch.ones(1), **given), outer(torch.ones(1), **given))

    def changed(x: Tensor, **given: int) -> tuple[Tensor, dict[str, int]]:
        given["more"] = 1
        return x + 1, given

    with pytest.raises(CacheError, match="the function changes L\\['given'\\] and returns it"):
        cached(changed, tmp_path)(torch.ones(1))
    _, kept = cached(changed, tmp_path, strict=False)(torch.ones(1), less=2)
    assert kept == {"less": 2, "more": 1}


def test_buffers_that_are_added_to_stay_the_same_objects(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.seen = torch.zeros(1)

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.seen *= 2
            self.seen += x.sum()
            return x + self.calls + self.seen

    for _ in range(2):
        model, twin = Counting(), Counting()
        held = model.calls, model.seen
        call = cached(model.forward, tmp_path)
        for _ in range(3):
            assert torch.equal(call(torch.ones(2)), twin(torch.ones(2)))
        assert model.calls is held[0] and model.seen is held[1]
        assert torch.equal(model.calls, twin.calls) and torch.equal(model.seen, twin.seen)


def test_items_that_are_no_constants_are_refused_and_left(tmp_path: Path) -> None:
    def keep(x: Tensor, held: dict[str, Tensor]) -> Tensor:
        held["x"] = x * 2
        return x + 1

    held: dict[str, Tensor] = {}
    with pytest.raises(CacheError, match="which gets something that is no constant"):
        cached(keep, tmp_path)(torch.ones(1), held)
    assert held == {}

    def remove(x: Tensor, held: dict[str, int]) -> Tensor:
        del held["a"]
        return x + 1

    given = {"a": 1, "b": 2}
    with pytest.raises(CacheError, match="the function changes"):
        cached(remove, tmp_path)(torch.ones(1), given)
    assert given == {"a": 1, "b": 2}


def test_sizes_that_happen_to_be_equal_are_not_one(tmp_path: Path) -> None:
    def product(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    call = cached(product, tmp_path)
    shapes = [((2, 2), (2, 2)), ((3, 2), (2, 5)), ((4, 4), (4, 4)), ((2, 7), (7, 3))]
    equal_to_eager(call, *((torch.rand(first), torch.rand(second)) for first, second in shapes))
    assert len(call.files) == 1


@torch.no_grad()
def test_a_zero_is_written_over_one_of_another_sign(tmp_path: Path) -> None:
    def step(x: Tensor, held: dict[str, float]) -> Tensor:
        held["zero"] = 0.0
        held["other"] = 1.0
        return x * 2

    for _ in range(2):
        call = cached(step, tmp_path)
        for before in (-0.0, 0.0, 1.0, -0.0):
            held = {"zero": before, "other": before}
            call(torch.ones(1), held)
            assert repr(held) == "{'zero': 0.0, 'other': 1.0}"


@torch.no_grad()
def test_keys_of_any_text_are_written(tmp_path: Path) -> None:
    def step(x: Tensor, held: dict[str, int]) -> Tensor:
        held["a\nb"] = 3
        return x * 2

    for _ in range(2):
        held: dict[str, int] = {}
        cached(step, tmp_path)(torch.ones(1), held)
        assert held == {"a\nb": 3}
