"""What a front door is given is looked at at once: the error names the argument, what it may be, what came."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import airgraph
from airgraph import torchair
from airgraph.errors import CacheError, OptionError, StreamError

_RELU = torch.ops.aten.relu.default


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class _WithoutText(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"x"


_NO_RANKS = ("/../../../escaped", "x", "0", -1, 1.5, True, np.ones(2), torch.tensor(True))
_NO_PATHS = ("", "\0", "a\0b", "\ud800", b"x", 3, True, _WithoutText())
_CACHE_COMPILE = (airgraph.inference.cache_compile, torchair.inference.cache_compile)
_DOORS_WITH_DECOMPOSITIONS: tuple[Callable[..., Any], ...] = (
    airgraph.get_backend,
    torchair.get_npu_backend,
    lambda **given: airgraph.inference.cache_compile(_double, **given),
    lambda **given: torchair.inference.cache_compile(_double, **given),
)


@pytest.mark.parametrize("cache_compile", _CACHE_COMPILE, ids=["airgraph", "torchair"])
@pytest.mark.parametrize("name", ["global_rank", "tp_rank", "pp_rank"])
@pytest.mark.parametrize("rank", _NO_RANKS, ids=repr)
def test_a_rank_is_a_number_from_zero_on(cache_compile: Callable[..., Any], name: str, rank: object) -> None:
    with pytest.raises(OptionError, match=rf"^{name}: expected an integer of at least 0 or None, got .+\.$"):
        cache_compile(_double, **{name: rank})


@torch.no_grad()
def test_a_rank_of_numpys_is_the_number(tmp_path: Path) -> None:
    call = airgraph.inference.cache_compile(_double, cache_dir=tmp_path, tp_rank=np.int64(3))
    call(torch.ones(2))
    (file,) = call.files
    assert file.parent.name == "tp3"


@pytest.mark.parametrize("cache_compile", _CACHE_COMPILE, ids=["airgraph", "torchair"])
@pytest.mark.parametrize("given", _NO_PATHS, ids=lambda v: ascii(v)[:20])
def test_a_folder_of_the_cache_is_a_path(cache_compile: Callable[..., Any], given: object) -> None:
    with pytest.raises(OptionError, match="^cache_dir: expected a path as a text that is not empty, got"):
        cache_compile(_double, cache_dir=given)


@pytest.mark.parametrize("cache_compile", _CACHE_COMPILE, ids=["airgraph", "torchair"])
@pytest.mark.parametrize("given", ["x", 1, 0])
def test_dynamic_is_true_false_or_none(cache_compile: Callable[..., Any], given: object) -> None:
    with pytest.raises(OptionError, match="^dynamic: expected True, False or None, got"):
        cache_compile(_double, dynamic=given)


@pytest.mark.parametrize("given", ["x", None, 1])
def test_strict_is_true_or_false(given: Any) -> None:
    with pytest.raises(OptionError, match="^strict: expected True or False, got"):
        airgraph.inference.cache_compile(_double, strict=given)


@torch.no_grad()
def test_config_may_be_what_options_may_be(tmp_path: Path) -> None:
    for number, config in enumerate((airgraph.Options(force_eager=True), {"force_eager": True})):
        call = airgraph.inference.cache_compile(_double, config=config, cache_dir=tmp_path / str(number))
        assert call(torch.ones(2)).tolist() == [2.0, 2.0]
        assert airgraph.explain().counters["replays"] == 0


@pytest.mark.parametrize("door", _DOORS_WITH_DECOMPOSITIONS, ids=["backend", "npu", "cache", "npu cache"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, "None or a dict of operators to functions, got 3"),
        ([_RELU], "None or a dict of operators to functions, got"),
        ({"a": 1}, "operators such as torch.ops.aten.silu.default as keys, got 'a'"),
        ({torch.ops.aten.relu: _double}, "operators such as torch.ops.aten.silu.default as keys, got"),
        ({_RELU: 1}, "a function for aten.relu.default, got 1"),
    ],
    ids=["number", "list", "name", "without overload", "no function"],
)
def test_decompositions_are_operators_to_functions(door: Callable[..., Any], given: object, expected: str) -> None:
    with pytest.raises(OptionError, match=f"^custom_decompositions: expected {expected}"):
        door(custom_decompositions=given)


def _compiled() -> Callable[..., Any]:
    return torch.compile(_double, backend="airgraph", dynamic=True)


@torch.no_grad()
@pytest.mark.parametrize("calls", [None, 3, torch.ones(4, 64), "ab", {"a": 1}], ids=lambda value: type(value).__name__)
def test_what_is_warmed_up_for_is_a_list_of_calls(calls: Any) -> None:
    with pytest.raises(OptionError, match="^warmup: calls: expected a list of calls, each a tuple of"):
        airgraph.warmup(_compiled(), calls, progress=False)


def _in_a_block(priority: Any) -> None:
    with airgraph.scope.stream("1", priority=priority):
        pass


@pytest.mark.parametrize("given", [None, "1", 1.5, True, 1 << 31, -(1 << 31) - 1, np.ones(2)], ids=repr)
@pytest.mark.parametrize("make", [airgraph.cpu.Stream, _in_a_block], ids=["stream", "block"])
def test_a_priority_fits_in_32_bits(make: Callable[[Any], Any], given: object) -> None:
    with pytest.raises(StreamError, match="^priority: expected an integer of Python's that fits in 32 bits, got"):
        make(given)


@torch.no_grad()
def test_the_ends_of_32_bits_are_priorities() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with airgraph.scope.stream("1", priority=-(1 << 31)):
            return x * 2

    assert airgraph.cpu.Stream((1 << 31) - 1).priority == (1 << 31) - 1
    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["enable_timing", "blocking", "interprocess"])
@pytest.mark.parametrize("given", ["66", 1, 0, None, np.ones(2)], ids=repr)
def test_what_an_event_of_the_cpu_knows_is_true_or_false(name: str, given: Any) -> None:
    with pytest.raises(StreamError, match=f"^{name}: expected True or False, got"):
        airgraph.cpu.Event(**{name: given})


@pytest.mark.parametrize("given", [None, "66", 3, airgraph.Event("66")], ids=lambda value: type(value).__name__)
def test_time_passes_until_an_event_of_the_cpu(given: Any) -> None:
    with pytest.raises(StreamError, match="^elapsed_time: expected an airgraph.cpu.Event, got"):
        airgraph.cpu.Event(enable_timing=True).elapsed_time(given)


def test_an_event_of_the_cpu_says_where_tags_belong() -> None:
    with pytest.raises(StreamError, match=r"got '66'\. Events with a tag are airgraph\.Event's\."):
        airgraph.cpu.Event("66")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [True, False, 1.5, b"cpu", ["cpu"], np.ones(2), torch.ones(1)], ids=repr)
def test_a_pool_is_on_what_names_a_device(given: Any) -> None:
    with pytest.raises(OptionError, match=r"^device: expected a device such as 'cpu' or torch.device\('cuda', 0\)"):
        airgraph.graph_pool_handle(given)


@pytest.mark.parametrize("given", ["cpu:1", torch.device("cpu", 3)], ids=str)
def test_a_pool_is_on_the_one_cpu(given: Any) -> None:
    with pytest.raises(OptionError, match="^device .*cpu.*: there is one CPU, the device 'cpu'"):
        airgraph.graph_pool_handle(given)
    assert airgraph.graph_pool_handle("cpu:0").device == torch.device("cpu")


@pytest.mark.parametrize("given", [None, 3, *_NO_PATHS], ids=lambda value: ascii(value)[:20])
def test_what_is_read_from_a_cache_has_a_path(given: Any) -> None:
    with pytest.raises(OptionError, match="^path: expected a path as a text that is not empty, got"):
        airgraph.inference.readable_cache(given)


@pytest.mark.parametrize("given", [None, 3, *_NO_PATHS], ids=lambda value: ascii(value)[:20])
def test_a_report_is_saved_to_a_path(given: Any) -> None:
    with pytest.raises(OptionError, match="^path: expected a path as a text that is not empty, got"):
        airgraph.explain().save(given)


@pytest.mark.parametrize("given", [3, True, ["text"]], ids=repr)
def test_a_readable_cache_is_written_to_a_path_or_a_file(given: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="^file: expected a path or an open text file, got"):
        airgraph.inference.readable_cache(tmp_path, file=given)
    with pytest.raises(OptionError, match="^file: expected a path as a text that is not empty, got"):
        airgraph.inference.readable_cache(tmp_path, file="")


def test_what_is_no_cache_file_is_called_so_before_its_folder_is_asked_for_a_key(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import torch\n")
    with pytest.raises(CacheError, match="script.py: not a cache file: it begins with 'import torch'"):
        airgraph.inference.readable_cache(tmp_path / "script.py")
    with pytest.raises(CacheError, match="null: not a cache file: it is no ordinary file"):
        airgraph.inference.readable_cache(os.devnull)


@torch.no_grad()
def test_a_readable_cache_makes_no_folder(tmp_path: Path) -> None:
    call = airgraph.inference.cache_compile(_double, cache_dir=tmp_path / "cache")
    call(torch.ones(2))
    with pytest.raises(FileNotFoundError):
        airgraph.inference.readable_cache(call.files[0], print_output=False, file=tmp_path / "missing" / "text")
    assert not (tmp_path / "missing").exists()
