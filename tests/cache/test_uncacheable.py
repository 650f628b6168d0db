"""What cannot be cached says why, and does what the function does, once."""

from __future__ import annotations

import importlib
import os
import re
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import Mlp, cached
from torch import Tensor, nn

from airgraph.errors import CacheError


def test_a_function_has_so_many_graphs(tmp_path: Path) -> None:
    def scale(x: Tensor, factor: float) -> Tensor:
        return x.clamp(max=factor)

    call = cached(scale, tmp_path)
    x = torch.full((2,), 100.0)
    for factor in range(8):
        call(x, float(factor))
    with pytest.raises(
        CacheError, match=r"8 graphs are cached, and none is right for this call \(graph_\d.airgraph: equals"
    ):
        call(x, 99.0)
    assert call(x, 3.0).tolist() == [3.0, 3.0]


def printed(x: Tensor) -> Tensor:
    print("hi")
    return x * 2


def broken(x: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return x * 2


def calls_what_prints(x: Tensor) -> Tensor:
    return printed(x) + 1


def raises(x: Tensor) -> Tensor:
    raise KeyError("absent")


@pytest.mark.parametrize(
    ("function", "named", "at"),
    [
        (printed, "`print`", printed),
        (calls_what_prints, "`print`", printed),
        (broken, "graph_break", broken),
        (raises, "KeyError.'absent'", raises),
    ],
    ids=["builtin", "inlined", "break", "error"],
)
def test_a_failed_trace_names_what_failed_and_the_line(
    tmp_path: Path, function: Callable[[Tensor], Any], named: str, at: Callable[[Tensor], Any]
) -> None:
    line = at.__code__.co_firstlineno + 1
    with pytest.raises(CacheError) as refused:
        cached(function, tmp_path)(torch.ones(3))
    assert re.search(
        rf"tracing failed: Unsupported: .*{named}.*, at \S*{Path(__file__).name}:{line}$", str(refused.value)
    )


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.view(torch.int32), "an output is a view of an argument"),
        (lambda x: x[x > 0], "cannot be captured"),
        (lambda x: x + 1 if x.sum() > 0 else x, "tracing failed: Unsupported"),
        (lambda x: Opaque(x + 1), "the result holds an object of type .*Opaque"),
        (lambda x: 3, "computes nothing with tensors"),
        (eval("lambda x: x + 1"), "the code of <lambda> is in no file"),
        (lambda x: x * len(os.environ), "it looks at the environment as a whole"),
        (lambda x: x * len(dict(os.environ)), "it looks at the environment as a whole"),
        (lambda x: x * len({**os.environ}), "it looks at the environment as a whole"),
        (lambda x: x * len(os.environ.copy()), "it looks at the environment as a whole"),
        (lambda x: x * len([v for v in os.environ.values() if v]), "it looks at the environment as a whole"),
        (lambda x: x * len([k for k in os.environ if k]), "it looks at the environment as a whole"),
        (lambda x: x * (2 if os.environ == {} else 3), "it looks at the environment as a whole"),
    ],
)
def test_what_cannot_be_cached_says_why_and_is_compiled(
    tmp_path: Path, function: Callable[[Tensor], Any], reason: str
) -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    with pytest.raises(CacheError, match=reason):
        cached(function, tmp_path)(x)
    call = cached(function, tmp_path, strict=False)
    with pytest.warns(UserWarning, match=reason):
        got = call(x)
    expected = function(x)
    if isinstance(expected, Opaque):
        got, expected = got.held, expected.held
    torch.testing.assert_close(got, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        call(x)
    assert not list(tmp_path.rglob("*.airgraph"))


class Plain:
    pass


PLAIN = Plain()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x * (id(PLAIN) % 7 + 1), r"takes id\(\) of an object"),
        (lambda x: x * (id(Plain) % 7 + 1), r"takes id\(\) of an object"),
        (lambda x: x * (hash(Plain) % 7 + 1), r"takes hash\(\) of an object"),
        (lambda x: x * (hash(PLAIN) % 7 + 1), r"takes hash\(\) of an object"),
        (lambda x: x * (hash(len) % 7 + 1), r"takes hash\(\) of an object"),
        (lambda x: x * (len(str(PLAIN)) + 1), r"takes str\(\) of an object"),
        (lambda x: x * (len(object.__repr__(PLAIN)) + 1), "text of an object's address"),
        (lambda x: x * (sys.getrecursionlimit() % 7 + 1), "asks getrecursionlimit of its process"),
    ],
)
def test_addresses_and_the_process_are_no_constants(
    function: Callable[[Tensor], Tensor], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(CacheError, match=reason):
        cached(function, tmp_path)(torch.ones(2))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (hash(3) + hash("text") % 3),
        lambda x: x * len(str(3) + repr((1, "text")) + str([2.5]) + f"{1.5}"),
        lambda x: x * (hash((1, 2.5)) % 5),
    ],
)
def test_hashes_and_texts_of_constants_are_taken(function: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    torch.testing.assert_close(cached(function, tmp_path)(torch.ones(2)), function(torch.ones(2)))


class Opaque:
    def __init__(self, held: Tensor) -> None:
        self.held = held


def test_side_effects_are_refused_and_happen_once(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.seen: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.seen.append(x * 2)
            return x + 1

    model = Counting()
    with pytest.raises(CacheError, match="the function changes L\\['self'\\]"):
        cached(model.forward, tmp_path)(torch.ones(2))
    assert model.calls == 0 and model.seen == []
    call = cached(model.forward, tmp_path, strict=False)
    with pytest.warns(UserWarning, match="changes"):
        call(torch.ones(2))
    assert model.calls == 1
    torch.testing.assert_close(model.seen, [torch.full((2,), 2.0)])


def test_a_flag_that_is_set_and_set_back_is_no_side_effect(tmp_path: Path) -> None:
    class Flagged(nn.Module):
        busy = False

        def __init__(self) -> None:
            super().__init__()
            self.busy = False

        def forward(self, x: Tensor) -> Tensor:
            self.busy = True
            y = self.inner(x)
            self.busy = False
            return y

        def inner(self, x: Tensor) -> Tensor:
            return x * 2 if self.busy else x

    model = Flagged()
    assert cached(model.forward, tmp_path)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert model.busy is False


def test_the_function_s_own_errors_come_through_and_leave_it_usable(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        # Dynamo's word about 3.13.0 itself; to be removed with the support of 3.13.0.
        warnings.filterwarnings("ignore", message=r"Guards may run slower on Python 3\.13\.0")
        with pytest.raises((RuntimeError, torch._dynamo.exc.TorchDynamoException), match="8"):
            call(torch.randn(4, 9))
        with pytest.raises(TypeError, match="missing"):
            call()
        with pytest.raises(TypeError, match="unexpected"):
            call(torch.randn(4, 8), other=1)
        x = torch.randn(4, 8)
        torch.testing.assert_close(call(x), model(x).detach())
    assert len(call.files) == 1


def test_with_torch_compile_switched_off_the_function_runs_once(tmp_path: Path) -> None:
    cache = torch.zeros(2)

    def add(cache: Tensor) -> Tensor:
        cache.add_(1)
        return cache * 2

    call = cached(add, tmp_path, strict=False)
    with torch.compiler.set_stance("force_eager"), pytest.warns(UserWarning, match="switched off"):
        assert call(cache).tolist() == [2.0, 2.0]
    assert cache.tolist() == [1.0, 1.0]


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
    call(x)
    assert model.ready is True


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


def test_a_method_that_takes_its_object_among_its_arguments(tmp_path: Path) -> None:
    class Odd:
        def step(*args: Any) -> Tensor:
            return args[1] * 2

    call = cached(Odd().step, tmp_path)
    assert call(torch.ones(1), torch.zeros(1)).item() == 2.0
    assert call(torch.full((1,), 2.0), torch.zeros(1)).item() == 4.0 and len(call.files) == 1


def test_code_that_was_edited_after_it_was_imported_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    source = tmp_path / "edited_later.py"
    source.write_text("def half(x):\n    return x / 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("edited_later").half
    source.write_text("def half(x):\n    return x / 4\n")
    with pytest.raises(CacheError, match="edited_later.py was edited after it was imported"):
        cached(function, tmp_path / "cache")(torch.ones(2))
