"""What tracing took for granted in ways that are easy to miss: each change of it is seen at the next call."""

from __future__ import annotations

import enum
import functools
import pickle
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import airgraph
from airgraph.cache.door import CachedFunction
from airgraph.errors import CacheError


def cached(function: Callable[..., Any], folder: Path, **given: Any) -> CachedFunction:
    return airgraph.inference.cache_compile(function, cache_dir=folder, **{"strict": True, **given})


def equal_to_eager(call: CachedFunction, *calls: tuple[Any, ...]) -> None:
    for args in calls:
        torch.testing.assert_close(call(*args), call.__wrapped__(*args))


class Mode(enum.Enum):
    A = 1
    B = 2


class Text(str, enum.Enum):
    A = "a"
    B = "b"


def test_sizes_of_tensors_that_are_not_computed_with(tmp_path: Path) -> None:
    def by_size(x: Tensor, y: Tensor) -> Tensor:
        return x * y.shape[0]

    five, seven = torch.ones(5), torch.ones(7)
    equal_to_eager(cached(by_size, tmp_path), (five, five.clone()), (five, seven), (seven, five), (five, five.clone()))

    def by_form(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 if y.is_contiguous() else x * 3

    square = torch.randn(4, 4)
    equal_to_eager(cached(by_form, tmp_path), (five, square), (five, square.t()), (five, square))


def test_numbers_that_equal_a_size(tmp_path: Path) -> None:
    def compare(x: Tensor, n: int) -> Tensor:
        return x * 2 if x.shape[0] == n else x * 3

    x, y = torch.ones(5), torch.ones(7)
    equal_to_eager(cached(compare, tmp_path), (x, 5), (x, 7), (y, 7), (y, 5), (x, 5))


def test_constants_that_are_only_returned(tmp_path: Path) -> None:
    def hand_back(x: Tensor, name: str, count: int) -> Any:
        return x * 2, name, count

    call = cached(hand_back, tmp_path)
    x = torch.ones(2)
    for name, count in (("a", 3), ("b", 3), ("a", 4), ("a", 3)):
        assert call(x, name, count)[1:] == (name, count)


def test_containers_of_the_model_that_are_returned(tmp_path: Path) -> None:
    class Labelled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.labels = ["a", "b"]
            self.name = "first"

        def forward(self, x: Tensor) -> Any:
            return x * 2, self.labels, self.name

    model = Labelled()
    call = cached(model.forward, tmp_path)
    x = torch.ones(2)
    assert call(x)[1] is model.labels
    model.labels.append("c")
    assert call(x)[1] is model.labels
    model.labels, model.name = ["d"], "second"
    assert call(x)[1] is model.labels and call(x)[2] == "second"


def test_members_of_enums(tmp_path: Path) -> None:
    def by_mode(x: Tensor, mode: Any) -> Tensor:
        return x * 2 if mode is Mode.A else x * 3

    x = torch.ones(2)
    equal_to_eager(cached(by_mode, tmp_path), (x, Mode.A), (x, Mode.B), (x, Mode.A))

    class Moded(nn.Module):
        mode: Any = Mode.A

        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if self.mode == Mode.A else x * 3

    model = Moded()
    call = cached(model.forward, tmp_path)
    for mode in (Mode.A, Mode.B, Mode.A):
        model.mode = mode
        equal_to_eager(call, (x,))

    def returned(x: Tensor, text: Text) -> Any:
        return x * 2, text

    call = cached(returned, tmp_path, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [call(x, text)[1] for text in (Text.A, Text.B)] == [Text.A, Text.B]
        assert type(call(x, Text.A)[1]) is Text


class Scaled:
    factor = 2.0

    def step(self, x: Tensor) -> Tensor:
        return x * self.factor


def test_attributes_of_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = cached(Scaled().step, tmp_path)
    x = torch.ones(2)
    for factor in (2.0, 3.0, 2.0):
        monkeypatch.setattr(Scaled, "factor", factor)
        equal_to_eager(call, (x,))


ACT: Callable[..., Any] = torch.relu
ENABLED = {"fast"}


def test_globals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(x: Tensor) -> Tensor:
        return ACT(x) * (2 if "fast" in ENABLED else 3)

    x = torch.randn(4)
    call = cached(act, tmp_path)
    equal_to_eager(call, (x,))
    monkeypatch.setitem(globals(), "ACT", torch.tanh)
    equal_to_eager(call, (x,))
    monkeypatch.setitem(globals(), "ENABLED", set())
    equal_to_eager(call, (x,))
    # As another process would, that has other values from the start.
    equal_to_eager(cached(act, tmp_path), (x,))
    monkeypatch.undo()
    equal_to_eager(call, (x,))
    equal_to_eager(cached(act, tmp_path), (x,))


def test_functions_of_one_name(tmp_path: Path) -> None:
    def make(number: float) -> Callable[[Tensor], Tensor]:
        return lambda x: x * number

    def loud(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(x: Tensor) -> Any:
            return function(x) + 100

        return wrapped

    class Acting(nn.Module):
        act: Any

        def forward(self, x: Tensor) -> Tensor:
            return self.act(x)

    model = Acting()
    model.act = make(2.0)
    call = cached(model.forward, tmp_path)
    x = torch.ones(2)
    for act in (make(2.0), make(3.0), loud(make(2.0)), make(2.0)):
        model.act = act
        equal_to_eager(call, (x,))
        equal_to_eager(cached(model.forward, tmp_path), (x,))

    def apply(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(x)

    call = cached(apply, tmp_path)
    for _ in range(12):
        # A new function object for each call, of the same code.
        equal_to_eager(call, (x, lambda x: x * 5))
    assert len(call.files) == 1


def test_strides_of_what_is_copied(tmp_path: Path) -> None:
    def by_strides(x: Tensor) -> Tensor:
        return x * 2 if x.is_contiguous() else x * 3

    x = torch.randn(6, 6)
    equal_to_eager(cached(by_strides, tmp_path), (x,), (x.t(),), (x,))

    def turn(c: Tensor) -> Tensor:
        c.mul_(2j)
        return c + 0

    call = cached(turn, tmp_path, strict=False)
    base = torch.randn(3, dtype=torch.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for view in (base, base.conj(), base):
            expected = view.clone()
            torch.testing.assert_close(call(view), turn(expected))
            torch.testing.assert_close(view, expected)


def test_tensors_of_the_model_in_another_form_at_the_same_address(tmp_path: Path) -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)
            self.full = torch.zeros(8, 4)
            self.cache = self.full[:4]

        def forward(self, x: Tensor) -> Tensor:
            self.cache.add_(1)
            return x @ self.weight + self.cache.sum() * self.cache.shape[0]

    model = Held()
    call = cached(model.forward, tmp_path)
    x = torch.randn(2, 4)

    def check() -> None:
        before = model.full.clone()
        ours = call(x)
        model.full.copy_(before)
        torch.testing.assert_close(ours, model(x))

    check()
    model.weight.data = model.weight.data.t()
    check()
    for rows in (6, 4, 8):
        model.cache.data = model.full[:rows]
        check()


def test_a_tensor_of_the_model_that_becomes_none(tmp_path: Path) -> None:
    model = nn.Linear(4, 4).requires_grad_(False)

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    call = cached(Around().forward, tmp_path)
    x = torch.randn(2, 4)
    equal_to_eager(call, (x,))
    bias, model.bias = model.bias, None
    equal_to_eager(call, (x,))
    model.bias = bias
    equal_to_eager(call, (x,))


def test_arguments_that_are_the_model_s_or_one_another_s(tmp_path: Path) -> None:
    class Added(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3), requires_grad=False)

        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return x * self.weight + w

    model = Added()
    x, other = torch.randn(3), torch.randn(3)
    for order in ((model.weight, other), (other, model.weight)):
        call = cached(model.forward, tmp_path)
        equal_to_eager(call, *((x, w) for w in order), (x, order[0]))

    def same(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 if x is y else x * 3

    for calls in ([(x, other), (x, x), (other, x)], [(x, x), (x, other)]):
        equal_to_eager(cached(same, tmp_path), *calls)


def test_what_a_module_gets_later(tmp_path: Path) -> None:
    class Adapted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.adapter(x) if hasattr(self, "adapter") else x * 2

    model = Adapted()
    call = cached(model.forward, tmp_path)
    x = torch.randn(2, 4)
    equal_to_eager(call, (x,))
    model.adapter = nn.Linear(4, 4).requires_grad_(False)
    equal_to_eager(call, (x,))
    del model.adapter
    equal_to_eager(call, (x,))


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Other(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 3


def test_an_object_that_changes_its_class(tmp_path: Path) -> None:
    model = nn.Sequential(Plain())

    def run(x: Tensor) -> Tensor:
        return model(x)

    call = cached(run, tmp_path)
    x = torch.ones(2)
    for class_ in (Plain, Other, Plain):
        model[0].__class__ = class_
        equal_to_eager(call, (x,))


def test_the_order_of_an_ordered_dict(tmp_path: Path) -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = OrderedDict(double=2.0, more=3.0)

        def forward(self, x: Tensor) -> Tensor:
            for number in self.steps.values():
                x = x * number + 1
            return x

    model = Steps()
    call = cached(model.forward, tmp_path, strict=False)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    model.steps.move_to_end("double")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        equal_to_eager(call, (x,))


@pytest.mark.parametrize(
    "effect",
    [
        lambda self, x: setattr(self, "rows", x.shape[0]),
        lambda self, x: self.seen.append(x * 2),
        lambda self, x: self.named.update(x=x * 2),
        lambda self, x: self.ordered.__setitem__("x", x * 2),
        lambda self, x: self.elements.add(x.shape[0]),
    ],
)
def test_side_effects_of_any_kind_happen_at_each_call(tmp_path: Path, effect: Callable[..., Any]) -> None:
    class Affected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = 0
            self.seen: list[Tensor] = []
            self.named: dict[str, Tensor] = {}
            self.ordered: OrderedDict[str, Tensor] = OrderedDict()
            self.elements: set[int] = set()

        def forward(self, x: Tensor) -> Tensor:
            effect(self, x)
            return x + 1

    ours, theirs = Affected(), Affected()
    call = cached(ours.forward, tmp_path, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in (4, 4, 7, 4):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(call(x), theirs(x))
            assert (ours.rows, ours.elements) == (theirs.rows, theirs.elements)
            torch.testing.assert_close(ours.seen, theirs.seen)
            torch.testing.assert_close(dict(ours.named), dict(theirs.named))
            torch.testing.assert_close(dict(ours.ordered), dict(theirs.ordered))


def test_a_flag_that_was_set_already_is_set_again(tmp_path: Path) -> None:
    class Ready(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ready = True

        def forward(self, x: Tensor) -> Tensor:
            self.ready = True
            return x + 1

    model = Ready()
    call = cached(model.forward, tmp_path, strict=False)
    x = torch.ones(2)
    call(x)
    model.ready = False
    with pytest.warns(UserWarning, match=r"the function changes L\['self'\].ready"):
        call(x)
    assert model.ready is True


@dataclass
class Doubling:
    value: Tensor

    def __post_init__(self) -> None:
        self.value = self.value * 2


def test_a_class_with_code_of_its_own_is_not_made_twice(tmp_path: Path) -> None:
    def make(x: Tensor) -> Doubling:
        return Doubling(x)

    call = cached(make, tmp_path, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert call(torch.ones(1)).value.item() == 2.0


def test_transforms_and_modes_are_not_bypassed(tmp_path: Path) -> None:
    def double(x: Tensor) -> Tensor:
        return x * 2

    call = cached(double, tmp_path, strict=False)
    x = torch.randn(3, 4)
    call(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.vmap(call)(x), x * 2)
    torch.testing.assert_close(call(x), x * 2)


def test_functions_are_traced_in_several_threads_at_once(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + 1

    models = [Counting() for _ in range(4)]
    quiet = [cached(lambda x, n=n: x * n, tmp_path / str(n), strict=False) for n in range(4)]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            call = cached(models[index].forward, tmp_path / "models", strict=False)
            for _ in range(3):
                assert call(torch.ones(2)).tolist() == [2.0, 2.0]
                assert quiet[index](torch.ones(2)).tolist() == [float(index)] * 2
        except BaseException as error:
            failures.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert [model.calls for model in models] == [3] * 4


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.step_cached: Any = None

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_methods_under_no_grad_and_models_that_are_pickled(tmp_path: Path) -> None:
    model = Decorated()
    model.step_cached = cached(model.step, tmp_path)
    x = torch.randn(2, 4)
    torch.testing.assert_close(model.step_cached(x), model.step(x))
    other = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        other.inner.weight.mul_(2)
    torch.testing.assert_close(other.step_cached(x), other.step(x))
    torch.testing.assert_close(model.step_cached(x), model.step(x))


def test_what_must_not_move_may_come_in_another_form(tmp_path: Path) -> None:
    def add(cache: Tensor, x: Tensor) -> Tensor:
        cache.add_(x)
        return cache * 2

    call = cached(add, tmp_path, options={"on_input_move": "error"})
    for cache in (torch.zeros(4), torch.zeros(4, dtype=torch.float64), torch.zeros(4, 2)):
        call(cache, torch.ones((), dtype=cache.dtype))
        assert cache.unique().tolist() == [1.0]


def test_an_uncacheable_call_is_made_without_holding_locks(tmp_path: Path) -> None:
    inside = threading.Event()
    go_on = threading.Event()

    @torch.compiler.disable
    def hold() -> None:
        inside.set()
        go_on.wait(30)

    def wait(x: Tensor) -> Tensor:
        hold()
        return x + 1

    first, second = (cached(wait, tmp_path, strict=False) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thread = threading.Thread(target=first, args=(torch.ones(2),))
        thread.start()
        assert inside.wait(60)
        # Another process would get the folder's lock while the first is being called.
        free = threading.Event()

        def take_the_lock() -> None:
            with second._opened().locked():
                free.set()

        other = threading.Thread(target=take_the_lock)
        other.start()
        was_free = free.wait(20)
        go_on.set()
        thread.join()
        other.join()
        assert was_free
        assert second(torch.ones(2)).tolist() == [2.0, 2.0]


def test_nothing_runs_where_torch_compile_is_switched_off_and_caching_is_demanded(tmp_path: Path) -> None:
    cache = torch.zeros(2)

    def add(cache: Tensor) -> Tensor:
        cache.add_(1)
        return cache * 2

    with torch.compiler.set_stance("force_eager"), pytest.raises(CacheError, match="switched off"):
        cached(add, tmp_path)(cache)
    assert not cache.any()


def _twice(self: Any, x: Tensor) -> Tensor:
    return x * 2


def _thrice(self: Any, x: Tensor) -> Tensor:
    return x * 3


def test_a_forward_that_is_replaced_in_its_class(tmp_path: Path) -> None:
    def make(forward: Callable[..., Any]) -> nn.Module:
        class Act(nn.Module):
            pass

        Act.forward = forward
        return Act()

    model = nn.Sequential(make(_twice))

    def run(x: Tensor) -> Tensor:
        return model(x)

    call = cached(run, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    # Another class of the same name.
    model[0] = make(_thrice)
    equal_to_eager(call, (x,))
    equal_to_eager(cached(run, tmp_path), (x,))
    type(model[0]).forward = _twice
    equal_to_eager(call, (x,))


def test_a_returned_object_is_the_one_it_was_not_one_that_was_the_same(tmp_path: Path) -> None:
    def first(a: Tensor, b: Tensor, x: Tensor) -> Any:
        return x + 1, a

    call = cached(first, tmp_path)
    x, t, u = torch.ones(1), torch.ones(2), torch.zeros(2)
    assert call(t, t, x)[1] is t and call(t, u, x)[1] is t and call(u, t, x)[1] is u

    def empty(x: Tensor, other: Any) -> Any:
        return x * 2, ()

    call = cached(empty, tmp_path)
    assert call(x, ())[1] == () and call(x, (5,))[1] == ()

    model = nn.Module()
    model.labels = ["a"]

    def labelled(x: Tensor) -> Any:
        return Labelled(x * 2, model.labels)

    call = cached(labelled, tmp_path)
    for _ in range(2):
        assert call(x).labels is model.labels
        model.labels[0] = "z"


@dataclass
class Labelled:
    y: Tensor
    labels: list[str]


def test_settings_of_other_devices(tmp_path: Path) -> None:
    def by_setting(x: Tensor) -> Tensor:
        return x * 2 if torch.is_autocast_enabled("cuda") else x * 3

    call = cached(by_setting, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    torch.set_autocast_enabled("cuda", True)
    try:
        equal_to_eager(call, (x,))
    finally:
        torch.set_autocast_enabled("cuda", False)
    equal_to_eager(call, (x,))


def test_decompositions_that_close_over_different_numbers(tmp_path: Path) -> None:
    def decomposition(number: float) -> Callable[..., Tensor]:
        def silu(x: Tensor) -> Tensor:
            return x * number

        return silu

    def act(x: Tensor) -> Tensor:
        return torch.nn.functional.silu(x)

    x = torch.ones(2)
    for number in (2.0, 3.0):
        for made in (decomposition(number), functools.partial(_scaled, number=number)):
            call = cached(act, tmp_path, custom_decompositions={torch.ops.aten.silu.default: made})
            assert call(x).tolist() == [number] * 2


def _scaled(x: Tensor, number: float) -> Tensor:
    return x * number


def test_a_method_that_takes_its_object_among_its_arguments(tmp_path: Path) -> None:
    class Odd:
        def step(*args: Any) -> Tensor:
            return args[1] * 2

    call = cached(Odd().step, tmp_path, strict=False)
    with pytest.warns(UserWarning, match=r"takes its object among \*args"):
        assert call(torch.ones(1), torch.zeros(1)).item() == 2.0


def test_attributes_that_are_only_asked_for(tmp_path: Path) -> None:
    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if hasattr(self, "fast") else x * 3

    model = Asking()
    call = cached(model.forward, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    model.fast = True
    equal_to_eager(call, (x,))
    del model.fast
    equal_to_eager(call, (x,))
    Asking.fast = True
    equal_to_eager(call, (x,))
    del Asking.fast
    equal_to_eager(call, (x,))


__SCALE = 2.0


def test_globals_with_two_underscores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scale(x: Tensor) -> Tensor:
        return x * __SCALE

    call = cached(scale, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    monkeypatch.setitem(globals(), "__SCALE", 3.0)
    equal_to_eager(call, (x,))


def test_a_size_that_others_are_divided_by(tmp_path: Path) -> None:
    def divide(x: Tensor, y: Tensor) -> Tensor:
        if y.shape[0] == 0:
            return x + 1
        return (x * 2 if x.shape[0] % y.shape[0] == 0 else x * 3) + y.sum()

    call = cached(divide, tmp_path)
    x = torch.ones(12)
    equal_to_eager(call, (x, torch.ones(3)), (x, torch.ones(0)), (x, torch.ones(5)), (x, torch.ones(3)))


def test_sparse_tensors_are_not_dense_ones(tmp_path: Path) -> None:
    def multiply(a: Tensor, x: Tensor) -> Tensor:
        return torch.mm(a, x)

    call = cached(multiply, tmp_path, strict=False)
    a, x = torch.eye(3), torch.randn(3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in (a, a.to_sparse(), a):
            torch.testing.assert_close(call(given, x), x)


def test_code_that_was_edited_after_it_was_imported_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    source = tmp_path / "edited_later.py"
    source.write_text("def half(x):\n    return x / 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("edited_later").half
    source.write_text("def half(x):\n    return x / 4\n")
    with pytest.raises(CacheError, match="edited_later.py was edited after it was imported"):
        cached(function, tmp_path / "cache")(torch.ones(2))


def test_results_with_more_than_their_fields(tmp_path: Path) -> None:
    def noted(x: Tensor) -> Any:
        made = Labelled(x * 2, ["a"])
        made.note = "more"
        return made

    call = cached(noted, tmp_path, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert call(torch.ones(1)).note == "more"
