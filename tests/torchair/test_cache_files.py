"""TorchAir's cache lies where its users look for it, and says what it saves and loads in the words they know."""

import logging
import os
import re
from pathlib import Path

import pytest
import torch
from process import run_command
from ranks import on_two_ranks
from torch import Tensor, nn

from airgraph import torchair
from airgraph.cache.format.signed import FORMAT

_STATE = r"Model_{}_aclgraphcache_[0-9a-f]{{32}}"
_META = r"Cache ModelCacheMeta\(name='Model.{}\(x: .*', date='\d{{4}}-\d\d-\d\d .*\+00:00', version='\S+', fx=None\)"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def prefill(self, x: Tensor) -> Tensor:
        return self.inner(x)

    def decode(self, x: Tensor) -> Tensor:
        return x[:, -1:] * 2


@torch.no_grad()
def test_files_lie_in_folders_of_object_and_function(
    device: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchair.logger, "propagate", True)
    said = []
    for _ in range(2):
        model = Model().to(device)
        calls = [
            torchair.inference.cache_compile(function, cache_dir=str(tmp_path))
            for function in (model.prefill, model.decode)
        ]
        with caplog.at_level(logging.INFO, "torchair"):
            for call in calls:
                call(torch.ones(2, 3, device=device))
        said.append([record.getMessage() for record in caplog.records if record.name == "torchair"])
        caplog.clear()
        paths = [call.files[0].relative_to(tmp_path) for call in calls]
        assert [path.parts[1:] for path in paths] == [("prefill", "compiled_module"), ("decode", "compiled_module")]
        assert len({path.parts[0] for path in paths}) == 1
        assert re.fullmatch(_STATE.format("dynamic"), paths[0].parts[0])
    for lines, what in zip(said, ("saved to", "loaded from"), strict=True):
        assert len(lines) == 2
        for line, call, name in zip(lines, calls, ("prefill", "decode"), strict=True):
            assert re.fullmatch(f"{_META.format(name)} {what} {re.escape(str(call.files[0]))}", line)


@torch.no_grad()
def test_each_graph_of_a_function_has_a_file(device: str, tmp_path: Path) -> None:
    call = torchair.inference.cache_compile(Model().decode, cache_dir=str(tmp_path), dynamic=False)
    for rows in (2, 3, 4):
        call(torch.ones(rows, 3, device=device))
    assert sorted(path.name for path in call.files) == ["compiled_module", "compiled_module_1", "compiled_module_2"]
    assert re.fullmatch(_STATE.format("static"), call.files[0].parents[1].name)
    text = torchair.inference.readable_cache(str(call.files[0]), print_output=False, file=str(tmp_path / "prompt.py"))
    assert "aten.mul" in text and (tmp_path / "prompt.py").read_text() == text + "\n"


@torch.no_grad()
def test_other_settings_and_sizes_are_apart(device: str, tmp_path: Path) -> None:
    config = torchair.CompilerConfig()
    config.debug.aclgraph.disable_reinplace_inplaceable_ops_pass = True
    large = Model()
    large.inner = nn.Linear(3, 5)
    folders = set()
    for model, settings in ((Model(), None), (Model(), config), (large, None)):
        call = torchair.inference.cache_compile(model.to(device).prefill, config=settings, cache_dir=str(tmp_path))
        call(torch.ones(2, 3, device=device))
        folders.add(call.files[0].parents[1])
    assert len(folders) == 3


_EDITED = """
import sys, torch, airgraph
from airgraph import torchair
class Model:
    def decode(self, x):
        return x * EDITED
with torch.no_grad():
    call = torchair.inference.cache_compile(Model().decode, cache_dir=sys.argv[1])
    assert call(torch.ones(2)).tolist() == [EDITED] * 2
print(call.files[0], call.counts().traces)
"""


def test_an_edited_function_takes_the_place_of_what_it_was(tmp_path: Path) -> None:
    said = []
    for edited in ("2.0", "2.0", "3.0"):
        script = tmp_path / "script.py"
        script.write_text(_EDITED.replace("EDITED", edited))
        done = run_command(str(script), str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(done.stdout.split())
    assert [traces for _, traces in said] == ["1", "0", "1"]
    assert len({file for file, _ in said}) == 1
    assert len(list((tmp_path / "cache").rglob("compiled_module*"))) == 1


@torch.no_grad()
def test_files_of_other_fingerprints_are_removed_but_for_the_newest_two(
    device: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    call = torchair.inference.cache_compile(Model().decode, cache_dir=str(tmp_path))
    call(torch.ones(2, 3, device=device))
    (own,) = call.files
    for number in range(4):
        other = tmp_path / f"Model_dynamic_aclgraphcache_{number:032x}" / "decode" / own.name
        other.parent.mkdir(parents=True)
        other.write_text(own.read_text().replace(f"airgraph cache {FORMAT}", f"airgraph cache {FORMAT - 1}", 1))
        os.utime(other, (number, number))
    with caplog.at_level(logging.INFO, "airgraph"):
        call(torch.ones(2, 3, device=device, dtype=torch.float64))
    left = {path.parents[1].name[-32:] for path in tmp_path.rglob("compiled_module*")}
    assert left == {own.parents[1].name[-32:], f"{2:032x}", f"{3:032x}"}
    assert len(call.files) == 2
    assert "is removed: made under" in caplog.text and f"format {FORMAT - 1}, expected {FORMAT}" in caplog.text


_RANKS = """
import logging, sys, torch
import torch.distributed as dist
from airgraph import torchair
torchair.logger.setLevel(logging.INFO)
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
dist.init_process_group("gloo")
with torch.no_grad():
    call = torchair.inference.cache_compile(Model().forward, cache_dir=sys.argv[1])
    call(torch.ones(2))
    rank = dist.get_rank()
    told = {"global_rank": rank + 4, "tp_rank": rank, "pp_rank": 3}
    torchair.inference.cache_compile(Model().forward, cache_dir=sys.argv[1], **told)(torch.ones(2))
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_ranks_have_folders_of_their_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_RANKS)
    for what in ("saved to", "loaded from"):
        said = on_two_ranks(script, str(tmp_path / "cache"))
        found = re.findall(rf"ModelCacheMeta.* {what} .*/(world2\w+)/forward/compiled_module", said)
        asked = ["world2global_rank0", "world2global_rank1"]
        told = ["world2global_rank4_tp_rank0_pp_rank3", "world2global_rank5_tp_rank1_pp_rank3"]
        assert sorted(found) == [*asked, *told], said
