"""The fingerprint of the passes changes with whatever changes how graphs are rewritten."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

import airgraph
from airgraph.options import Options
from airgraph.passes import fingerprint as module
from airgraph.passes.fingerprint import fingerprint


def _mine(gm: GraphModule, example_inputs: Any, options: Any) -> None:
    pass


def _other(gm: GraphModule, example_inputs: Any, options: Any) -> None:
    gm.graph.lint()


class _WithId:
    def __init__(self, version: int) -> None:
        self._version = version

    def __call__(self, gm: GraphModule, example_inputs: Any, options: Any) -> None:
        pass

    def uuid(self) -> str:
        return f"version {self._version}"


def test_it_is_the_same_for_the_same() -> None:
    assert fingerprint(Options()) == fingerprint(Options(inplace_pass=False))
    assert len(fingerprint(Options())) == 32
    mine = Options(post_grad_custom_pre_pass=_mine)
    assert fingerprint(mine) == fingerprint(Options(post_grad_custom_pre_pass=_mine))


def test_passes_of_the_user_count() -> None:
    every = [
        Options(),
        Options(post_grad_custom_pre_pass=_mine),
        Options(post_grad_custom_post_pass=_mine),
        Options(post_grad_custom_pre_pass=_other),
        Options(post_grad_custom_pre_pass=_WithId(1)),
        Options(post_grad_custom_pre_pass=_WithId(2)),
        Options(post_grad_custom_pre_pass=eval("lambda gm, example_inputs, options: None")),
        Options(post_grad_custom_pre_pass=eval("lambda gm, example_inputs, options: 3")),
    ]
    assert len({fingerprint(options) for options in every}) == len(every)


def test_registered_replacements_count() -> None:
    before = fingerprint(Options())
    undo = airgraph.register_replacement(lambda x: x + 1, lambda x: x + 2, (torch.ones(2),))
    assert fingerprint(Options()) != before
    undo()
    assert fingerprint(Options()) == before


def test_the_sources_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for content in ("x = 1\n", "x = 2\n"):
        (tmp_path / "a_pass.py").write_text(content)
        monkeypatch.setattr(module, "__file__", str(tmp_path / "fingerprint.py"))
        module.own_sources.cache_clear()
        found.add(fingerprint(Options()))
    monkeypatch.undo()
    module.own_sources.cache_clear()
    assert len({*found, fingerprint(Options())}) == 3
