"""What an older state of a program has left in a cache is removed once a graph of the new one is there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cached_functions import cached
from starts import Starts, outcomes_of, write

from airgraph.cache.format.signed import FORMAT
from airgraph.cache.store import outdated
from airgraph.options import Options

_SCRIPT = """
def decode(x):
    return x + EDITED


compare("decode", cached(decode))
compare("other", cached(lambda x: x * 2))
"""


def _graphs(cache: Path, function: str = "") -> list[Path]:
    found = [path for path in cache.rglob("graph_*.airgraph") if function in str(path.relative_to(cache))]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def test_an_edited_function_leaves_its_newest_two_behind(starts: Starts, tmp_path: Path) -> None:
    cache, seen = tmp_path / "cache", []
    for edited in range(5):
        script = write(tmp_path, {"start": _SCRIPT.replace("EDITED", str(edited))})
        found = outcomes_of(starts, script, cache)
        assert not found["decode"].error and found["decode"].traced == 1
        seen.append(_graphs(cache, "decode")[-1])
    assert [path.exists() for path in seen] == [False, False, True, True, True]
    assert len(_graphs(cache, "decode")) == 3
    # Nothing of those that are gone is left.
    assert not seen[0].parent.exists()


def test_programs_keep_their_graphs_though_their_functions_have_one_name(starts: Starts, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    scripts = []
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        scripts.append(write(folder, {"start": _SCRIPT.replace("EDITED", str(number))}))
    for traced in (1, 0):
        for script in scripts:
            found = outcomes_of(starts, script, cache)
            assert not found["decode"].error and found["decode"].traced == traced
    assert len(_graphs(cache, "decode")) == len(scripts)


_OF_ONE_NAME = """
import functools


def times(number):
    def decorate(function):
        variants = []

        @functools.wraps(function)
        def call(x):
            return function(x) * 2
        variants.append(call)

        @functools.wraps(function)
        def call(x):
            return function(x) * 3
        variants.append(call)

        @functools.wraps(function)
        def call(x):
            return function(x) * 4
        variants.append(call)

        @functools.wraps(function)
        def call(x):
            return function(x) * 5
        variants.append(call)
        return variants[number]
    return decorate


def base(x):
    return x + 1


lines = [
    lambda x: x + 1,
    lambda x: x + 2,
    lambda x: x + 3,
    lambda x: x + 4,
]
line = [lambda x: x * 1.5, lambda x: x * 2.5, lambda x: x * 3.5, lambda x: x * 4.5]
decorated = [times(number)(base) for number in range(4)]
for number in range(4):
    for name, functions in (("lines", lines), ("line", line), ("decorated", decorated)):
        compare(f"{name} {number}", cached(functions[number]))
"""


def test_functions_of_one_name_in_a_file_keep_their_graphs(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path, {"start": _OF_ONE_NAME})
    for traced in (1, 0):
        found = outcomes_of(starts, script, tmp_path / "cache")
        assert len(found) == 12
        assert {name: (each.error, each.traced) for name, each in found.items()} == dict.fromkeys(found, ("", traced))


def test_an_older_format_is_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    cached(step, tmp_path)(torch.ones(2))
    (own,) = _graphs(tmp_path)
    for number in range(4):
        folder = own.parent.parent / f"{number:032x}"
        folder.mkdir()
        text = own.read_text().replace(f"airgraph cache {FORMAT}", f"airgraph cache {FORMAT - 1}", 1)
        (folder / own.name).write_text("damaged" if number == 0 else text)
    with caplog.at_level(logging.INFO, "airgraph"):
        cached(step, tmp_path, dynamic=False)(torch.ones(2))
    left = {path.parent.name for path in _graphs(tmp_path)}
    # What cannot be read is left to who made it, and two of the others, too.
    assert own.parent.name in left and f"{0:032x}" in left and len(left) == 5
    assert "is removed: made under" in caplog.text and f"format {FORMAT - 1}, expected {FORMAT}" in caplog.text


def test_other_options_are_not_outdated(tmp_path: Path) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    names = ("inplace_pass", "input_inplace_pass", "remove_noop_ops", "remove_cat_ops", "pattern_fusion_pass")
    for name in names:
        cached(step, tmp_path, options=Options(**{name: False}))(torch.ones(2))
    assert len(_graphs(tmp_path)) == len(names)


_PASSES = """
import functools
import os


def times(gm, example_inputs, options, gain):
    assert "EDITED"


held = functools.partial(times, gain=int(os.environ["GAIN"]))
"""

_USES = """
import passes


def decode(x):
    return x + 1


compare("decode", cached(decode, options=airgraph.Options(post_grad_custom_post_pass=passes.held)), eager=decode)
"""


def test_what_a_pass_holds_is_an_option_and_its_source_is_not(starts: Starts, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for edited, gain, graphs in [*(("one", gain, gain + 1) for gain in range(4)), ("one", 0, 4), ("two", 0, 3)]:
        script = write(tmp_path, {"start": _USES, "passes": _PASSES.replace("EDITED", edited)})
        assert not outcomes_of(starts, script, cache, GAIN=str(gain))["decode"].error
        assert len(_graphs(cache)) == graphs


_CLOSURES = """
def scaled(scale):
    def step(x, offset=scale):
        return x * scale + offset

    return step


for number in range(6):
    compare(str(number), cached(scaled(float(number))))
"""


def test_what_a_function_holds_is_in_use_beside_others(starts: Starts, tmp_path: Path) -> None:
    script = write(tmp_path, {"start": _CLOSURES})
    for traced in (1, 0):
        found = outcomes_of(starts, script, tmp_path / "cache")
        assert [(each.error, each.traced) for each in found.values()] == [("", traced)] * 6


def test_what_functions_hold_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * scale

    monkeypatch.setattr(outdated, "_MOST_STATES", 5)
    for number in range(9):
        cached(scaled(float(number)), tmp_path)(torch.ones(2))
    assert len(_graphs(tmp_path)) == 6
