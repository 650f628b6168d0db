"""What computes products of many rows is measured once, kept, and told."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from process import run_command
from told_products import Net, compiled, told, ways

import airgraph
from airgraph.runtime.cpu import assemble, beside
from airgraph.runtime.cpu import products as module
from airgraph.runtime.cpu.product_times import FILE, ProductTimes, _machine
from airgraph.runtime.engine.loading import engine

pytestmark = pytest.mark.skipif(not engine().CHOOSES_PRODUCTS, reason="the engine in Python takes PyTorch's kernels")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRGRAPH_CACHE_DIR", str(tmp_path))
    return tmp_path


@torch.no_grad()
def test_it_is_measured_once_and_kept(folder: Path) -> None:
    net, x = Net(), torch.randn(24, 128)
    torch.testing.assert_close(compiled(net)(x), net(x))
    rows = airgraph.explain().to_dict()["products"]
    assert [row["calls"] for row in rows] == [1, 1]
    assert [row["product"].split(",")[0] for row in rows] == [
        "24x128 @ 256 by columns + bias",
        "24x256 @ 128 by columns + bias",
    ]
    assert all(row["measured_us"].keys() == {"own", "aten"} for row in rows)
    (machine,) = json.loads((folder / FILE).read_text())["machines"].values()
    assert [us * 1e3 for row in rows for us in row["measured_us"].values()] == pytest.approx(
        [ns for times in machine.values() for ns in times.values()]
    )
    assert "products of many rows" in str(airgraph.explain())


@torch.no_grad()
def test_what_is_faster_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Net(), torch.randn(24, 128)
    told(monkeypatch, own=1000.0, aten=900.0)
    exact = compiled(net)(x)
    assert ways() == ["aten", "aten"]
    assert torch.equal(exact, net(x))


@torch.no_grad()
def test_ours_run_where_the_difference_is_noise(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, own=1000.0, aten=960.0)
    compiled(Net())(torch.randn(24, 128))
    assert ways() == ["own", "own"]


@torch.no_grad()
def test_nothing_is_measured_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = told(monkeypatch, own=1000.0, aten=2000.0, packed=500.0)
    net = Net()
    function = compiled(net)
    for rows in (17, 20, 24):  # of which all stand for 24
        function(torch.randn(rows, 128))
    assert asked == [1, 1]
    compiled(torch.nn.Sequential(*[Net() for _ in range(2)]))(torch.randn(24, 128))
    assert asked == [1, 1]
    # Another way to be measured, for all of that kind in the graph.
    torch._dynamo.reset()
    compiled(torch.nn.Sequential(*[Net() for _ in range(2)]), pack_weights=True)(torch.randn(24, 128))
    assert asked == [1, 1, 2, 2]


@torch.no_grad()
def test_small_products_and_exact_kernels_are_not_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = told(monkeypatch, own=1000.0, aten=500.0)
    compiled(torch.nn.Sequential(torch.nn.Linear(16, 16)))(torch.randn(24, 16))
    assert ways() == ["own"]
    compiled(Net(), kernels="exact")(torch.randn(24, 128))
    assert not asked and len(ways()) == 1


@torch.no_grad()
@pytest.mark.parametrize("pack_weights", [False, True])
def test_the_graphs_own_weights_are_measured_in_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pack_weights: bool
) -> None:
    """One weight again and again would stay in the cache, where every way is fast."""
    native, multiplied = engine(), list[int]()

    def recorded(**call: Any) -> Any:
        multiplied.append(call["args"][-1].data_ptr())
        return native.RecordedCall(**call)

    names = {name: getattr(native, name) for name in ("Tape", "PackedWeight", "distrust_packed_weights")}
    monkeypatch.setattr(module, "engine", lambda: SimpleNamespace(**names, RecordedCall=recorded))
    net, x = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(4))), torch.randn(24, 128)
    torch.testing.assert_close(compiled(net, pack_weights=pack_weights)(x), net(x))
    own = [layer.weight.data_ptr() for layer in net]
    assert multiplied == own * (3 if pack_weights else 2)


@torch.no_grad()
def test_times_of_another_machine_are_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = told(monkeypatch, own=1000.0, aten=500.0)
    compiled(Net())(torch.randn(24, 128))
    known = json.loads((folder / FILE).read_text())
    others = {"another processor, AVX512": known["machines"][_machine()]}
    monkeypatch.setenv("AIRGRAPH_CACHE_DIR", str(folder / "moved"))
    (folder / "moved").mkdir()
    (folder / "moved" / FILE).write_text(json.dumps({**known, "machines": others}))
    torch._dynamo.reset()
    compiled(Net())(torch.randn(24, 128))
    assert asked == [1, 1, 1, 1]
    # Where it is this folder that both machines have, each keeps its own.
    kept = json.loads((folder / "moved" / FILE).read_text())["machines"]
    assert kept == {**others, _machine(): known["machines"][_machine()]}


@torch.no_grad()
@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": 99, "machines": {}}',
        '{"format": 1, "machines": 3}',
        '{"format": 1, "machines": {"%s": {"24x128 @ 256 by columns + bias, 1 threads": {"own": "fast"}}}}',
        '{"format": 1, "machines": {"%s": {"24x128 @ 256 by columns + bias, 1 threads": {"own": -1, "aten": NaN}}}}',
        '{"format": 1, "machines": {"%s": 7}}',
        "\\udcff",
        '{"format": 1, "machines": {"%s": {"24x128 @ 256 by columns + bias, 1 threads": {"own": 1e300, "aten": 2}}}}',
        "[" * 100000,
    ],
)
def test_a_file_that_says_nothing_is_written_anew(folder: Path, content: str) -> None:
    (folder / FILE).write_bytes(content.replace("%s", _machine()).encode("utf-8", "surrogateescape"))
    net, x = Net(), torch.randn(24, 128)
    torch.testing.assert_close(compiled(net)(x), net(x))
    (machine,) = json.loads((folder / FILE).read_text())["machines"].values()
    assert [times.keys() for times in machine.values()] == [{"own", "aten"}] * 2


@torch.no_grad()
def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AIRGRAPH_CACHE_DIR", str(tmp_path / "file"))
    net, x = Net(), torch.randn(24, 128)
    torch.testing.assert_close(compiled(net)(x), net(x))
    assert all(row["measured_us"] for row in airgraph.explain().to_dict()["products"])


def test_processes_add_to_one_file(tmp_path: Path) -> None:
    file = tmp_path / "times" / FILE
    program = (
        "import sys; from pathlib import Path; from airgraph.runtime.cpu.product_times import ProductTimes\n"
        "times = ProductTimes(Path(sys.argv[1]))\n"
        "for i in range(20): times.add({f'{sys.argv[2]} {i}': {'own': 1.0}})"
    )
    script = tmp_path / "script.py"
    script.write_text(program)
    with ThreadPoolExecutor(1) as executor:
        other = executor.submit(run_command, str(script), str(file), "a")
        times = ProductTimes(file)
        while not file.exists() and not other.done():
            pass
        for i in range(20):
            times.add({f"b {i}": {"own": 1.0}})
    assert other.result().returncode == 0, other.result().stderr
    times = ProductTimes(file)
    assert all(times.get(f"{name} {i}") == {"own": 1.0} for name in "ab" for i in range(20))
    left = {each.name for each in file.parent.iterdir()}
    assert left in ({FILE}, {FILE, f"{FILE}.lock"})


@torch.no_grad()
def test_memory_of_the_graph_is_not_touched_by_measuring(folder: Path) -> None:
    """A pool may be replaying another graph, and its outputs may be with the caller."""
    net = Net()
    function = compiled(net)
    held = [function(torch.full((rows, 128), 1.0)) for rows in (24, 70)]
    expected = [each.clone() for each in held]
    function(torch.randn(130, 128))
    assert all(map(torch.equal, held, expected))


@torch.no_grad()
def test_large_products_are_blas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = told(monkeypatch, own=1000.0, aten=2000.0)
    compiled(torch.nn.Sequential(torch.nn.Linear(2048, 1024)))(torch.randn(300, 2048))
    assert ways() == ["aten"] and not asked


@torch.no_grad()
def test_of_a_large_matrix_some_columns_are_measured(folder: Path) -> None:
    net, x = torch.nn.Sequential(torch.nn.Linear(2048, 5000)), torch.randn(10, 2048)
    torch.testing.assert_close(compiled(net)(x), net(x))
    (row,) = airgraph.explain().to_dict()["products"]
    assert row["product"].startswith("12x2048 @ 5000") and row["measured_us"].keys() == {"own", "aten"}


@torch.no_grad()
def test_what_our_kernel_does_not_serve_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, own=1000.0, aten=2000.0)
    function = torch.compile(lambda b, x, w: torch.addmm(b, x, w), backend="airgraph")
    operands = torch.randn(24, 64), torch.randn(24, 128), torch.randn(128, 64)
    torch.testing.assert_close(function(*operands), torch.addmm(*operands))
    assert ways() == ["aten"]


class TwoNets(torch.nn.Module):
    """Large enough to run beside one another."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.side = (torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6))) for _ in range(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with airgraph.scope.stream("side"):
            beside = self.side(x)
        return self.main(x), beside


@torch.no_grad()
@pytest.mark.parametrize(("run_beside", "threads_of_each"), [(True, 1), (False, 2)])
def test_products_of_streams_are_measured_on_the_threads_that_they_have(
    run_beside: bool, threads_of_each: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_cores", lambda: 2)
    if not run_beside:
        monkeypatch.setattr(assemble, "beside_one_another", lambda *_: beside.OneAfterAnother("asked for"))
    told(monkeypatch, own=2000.0, aten=1000.0)
    net, x, before = TwoNets(), torch.randn(64, 256), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.testing.assert_close(compiled(net, max_streams=1)(x), net(x))
    finally:
        torch.set_num_threads(before)
    report = airgraph.explain().to_dict()
    assert [row["threads"] for row in report["graphs"]] == [2 if run_beside else 1]
    assert {row["product"].rpartition(", ")[2] for row in report["products"]} == {f"{threads_of_each} threads"}


@torch.no_grad()
def test_without_a_home_all_is_known_to_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("airgraph.environment.cache_folder", nowhere)
    net, x = Net(), torch.randn(24, 128)
    torch.testing.assert_close(compiled(net)(x), net(x))
    assert all(row["measured_us"] for row in airgraph.explain().to_dict()["products"])


@torch.no_grad()
def test_without_memory_nothing_is_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tape(*args: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(module, "_tape", tape)
    net, x = Net(), torch.randn(24, 128)
    torch.testing.assert_close(compiled(net)(x), net(x))
    assert ways() == ["aten", "aten"] and not (folder / FILE).exists()


@torch.no_grad()
def test_a_profile_is_of_the_same_kernels_and_measures_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = told(monkeypatch, own=1000.0, aten=500.0)
    compiled(Net())(torch.randn(24, 128))
    before = list(asked)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    airgraph.explain(profile=True)
    assert asked == before
