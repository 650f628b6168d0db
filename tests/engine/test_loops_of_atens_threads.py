"""Where ATen divides a call of a graph among its threads, these share the loops of our kernels as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from own_calls import append
from process import output_of
from torch import Tensor

from airgraph.runtime.engine.loading import engine, engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def product(tape: Any, rows: int = 8) -> tuple[Tensor, Tensor]:
    """A call of a kernel of ours, large enough for two threads: its result, and eager's."""
    left, right = torch.randn(rows, 576), torch.randn(1536, 576).t()
    out = torch.empty(rows, 1536)
    assert append(tape, "aten::mm", left, right, out=out) == "own"
    return out, left @ right


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    tape = engine().Tape()
    out, eagers = product(tape)
    x = torch.randn(200, 400)
    normed = torch.empty(200, 400)
    assert append(tape, "aten::_softmax", x, -1, False, out=normed) == "typed"
    assert tape.is_divided_by_aten
    tape.replay()
    found = out.clone()
    torch.testing.assert_close(found, eagers, rtol=1e-4, atol=1e-4)
    for threads in (1, 2, 2, 2):
        torch.set_num_threads(threads)
        for _ in range(50):
            out.zero_()
            tape.replay()
            assert torch.equal(out, found)
    assert torch.equal(normed, x.softmax(-1))


@pytest.mark.parametrize(
    ("name", "args", "out"),
    [
        ("aten::mm", (torch.randn(64, 64, dtype=torch.float64),) * 2, torch.empty(64, 64, dtype=torch.float64)),
        ("aten::exp", (torch.randn(40_000),), torch.empty(40_000)),
        ("aten::_softmax", (torch.randn(20, 400), -1, False), torch.empty(20, 400)),
    ],
)
def test_what_is_large_is_divided_by_aten(name: str, args: tuple[Any, ...], out: Tensor) -> None:
    tape = engine().Tape()
    append(tape, name, *args, out=out)
    assert tape.is_divided_by_aten


def test_steps_of_a_decoding_model_are_not() -> None:
    """The cache is long, and what is written of it is short."""
    tape = engine().Tape()
    product(tape, rows=1)
    x = torch.randn(1, 576)
    append(tape, "aten::exp", x, out=torch.empty(1, 576))
    cache, key = torch.zeros(1, 9, 1000, 64), torch.randn(1, 9, 1, 64)
    append(tape, "aten::index_copy_", cache, 2, torch.tensor([3]), key, out=())
    assert not tape.is_divided_by_aten
    tape.replay()
    assert torch.equal(cache[:, :, 3:4], key)


def test_on_one_thread_nothing_is_divided() -> None:
    torch.set_num_threads(1)
    tape = engine().Tape()
    append(tape, "aten::exp", torch.randn(40_000), out=torch.empty(40_000))
    assert not tape.is_divided_by_aten


def test_a_child_of_a_fork_does_not_wait_for_threads_that_it_has_not() -> None:
    """Of a graph whose other calls turn out to need none: in a child OpenMP would wait for ever."""
    program = """
        import os
        from own_calls import append
        from airgraph.runtime.engine.loading import engine
        torch.set_num_threads(2)
        tape = engine().Tape()
        left, right, out = torch.randn(8, 576), torch.randn(1536, 576).t(), torch.empty(8, 1536)
        append(tape, "aten::mm", left, right, out=out)
        append(tape, "aten::cumsum", torch.ones(40_000), 0, out=torch.empty(40_000))
        assert tape.is_divided_by_aten
        for _ in range(3):
            tape.replay()
        found = out.clone()
        child = os.fork()
        if child == 0:
            out.zero_()
            tape.replay()
            os._exit(0 if torch.equal(out, found) else 1)
        assert os.waitpid(child, 0)[1] == 0
        print("as before")
    """
    path = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})"
    assert output_of(path, program, timeout_s=60) == "as before\n"
