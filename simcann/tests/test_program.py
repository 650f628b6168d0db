# SPDX-License-Identifier: Apache-2.0
"""What `python -m simcann` promises about whole programs."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
import torch
from programs import output_of, run_module, run_program, said_by, start_program

import simcann

START = "import torch, torch_npu\nx = torch.ones(4, device='npu')\ntorch.npu.synchronize()\n"


def test_touching_device_memory_on_the_host_ends_the_process(tmp_path: Path) -> None:
    result = run_program(tmp_path, START + "import ctypes\nctypes.string_at(x.data_ptr(), 4)\n")
    assert result.returncode == -signal.SIGSEGV


def test_processes_in_a_row_end(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    # Work is still queued on several streams, and a capture is open, when the program ends.
    source = START + (
        "for _ in range(3):\n"
        "    with torch.npu.stream(torch.npu.Stream()):\n"
        "        for _ in range(20): y = torch.ones(300, 300, device='npu') @ torch.ones(300, 300, device='npu')\n"
        "stream = torch.npu.Stream()\n"
        "torch.npu.set_stream(stream)\n"
        "graph = torch.npu.NPUGraph()\n"
        "graph.capture_begin()\n"
        "z = x + 1\n"
    )
    for _ in range(request.config.getoption("--processes")):
        said_by(start_program(tmp_path, source))


def test_arguments_and_status_are_the_program_s_own(tmp_path: Path) -> None:
    result = run_program(tmp_path, "import sys\nprint(sys.argv[1:], __name__)\nsys.exit(7)\n")
    assert result.returncode == 7
    assert "[] __main__" in result.stdout
    (tmp_path / "neighbour.py").write_text("value = 5\n")
    assert "5" in output_of(tmp_path, "import neighbour\nprint(neighbour.value)\n")


def test_a_module_can_be_run() -> None:
    result = run_module("-m", "json.tool", "--help")
    assert result.returncode == 0
    assert "usage" in result.stdout


def test_usage_is_shown_without_a_program() -> None:
    result = run_module()
    assert result.returncode == 1
    assert "usage: python -m simcann" in result.stderr


def test_kernels_off_runs_nothing(tmp_path: Path) -> None:
    source = START + (
        "import threading, os\n"
        "graph = torch.npu.NPUGraph()\n"
        "with torch.npu.graph(graph):\n"
        "    y = x + 1\n"
        "graph.replay()\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    threads_off = int(said_by(start_program(tmp_path, source, "--null")).split()[-1])
    threads_on = int(output_of(tmp_path, source).split()[-1])
    assert threads_off < threads_on


def test_trace_has_a_line_for_each_call(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    output_of(tmp_path, START + "print((x + 1).cpu())\n", SIMCANN_TRACE=str(trace))
    text = trace.read_text()
    for call in ("aclInit", "aclrtMalloc", "launch aclnnAdds", "aclrtMemcpy", "aclrtSynchronize"):
        assert call in text


def test_soc_and_version_can_be_chosen(tmp_path: Path) -> None:
    source = (
        "import torch, torch_npu\n"
        "from torch_npu.npu.utils import get_cann_version\n"
        "print(torch.npu.get_device_name(), get_cann_version())\n"
    )
    text = said_by(start_program(tmp_path, source, SIMCANN_SOC="Ascend910B4", SIMCANN_CANN_VERSION="8.3.RC1"))
    assert "Ascend910B4" in text
    assert "8.3.RC1" in text


@pytest.mark.parametrize(
    ("name", "value"), [("SIMCANN_MEMORY", "lots"), ("SIMCANN_KERNELS", "maybe"), ("SIMCANN_SCHEDULE", "best")]
)
def test_a_variable_that_is_not_understood_is_named(tmp_path: Path, name: str, value: str) -> None:
    result = run_program(tmp_path, START, **{name: value})
    assert result.returncode != 0
    assert f"{name}={value}" in result.stderr


def test_memory_limit_raises_torch_s_own_error(tmp_path: Path) -> None:
    source = START + (
        "try:\n"
        "    torch.empty(100 << 20, dtype=torch.uint8, device='npu')\n"
        "except torch.OutOfMemoryError:\n"
        "    print('out of memory')\n"
        "print(torch.npu.mem_get_info()[1] >> 20, (x + 1).cpu().tolist())\n"
    )
    text = output_of(tmp_path, source, SIMCANN_MEMORY="64MiB")
    assert "out of memory" in text
    assert "64 [2.0, 2.0, 2.0, 2.0]" in text


def test_stream_limit_is_an_error_with_its_code(tmp_path: Path) -> None:
    source = "import torch, torch_npu\ntry:\n    torch.npu.Stream()\nexcept RuntimeError as error:\n    print(error)\n"
    text = output_of(tmp_path, source, SIMCANN_STREAMS="3")
    assert "207008" in text
    assert "SIMCANN_STREAMS" in text


def test_a_forked_child_is_told_instead_of_hanging(tmp_path: Path) -> None:
    source = START + (
        "import os\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    torch.npu.current_stream().synchronize()\n"
        "print('status', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "print(x.cpu().tolist())\n"
    )
    result = run_program(tmp_path, source)
    assert "spawn" in result.stderr
    assert "status 1" in result.stdout
    assert "[1.0, 1.0, 1.0, 1.0]" in result.stdout


def test_expandable_segments_work(tmp_path: Path) -> None:
    source = START + (
        "parts = [torch.full((1 << 20,), float(i), device='npu') for i in range(40)]\n"
        "print([int(part[-1]) for part in parts] == list(range(40)))\n"
        "del parts\n"
        "torch.npu.empty_cache()\n"
        "free, total = torch.npu.mem_get_info()\n"
        "print('left', (total - free) >> 20)\n"
    )
    text = said_by(start_program(tmp_path, source, PYTORCH_NPU_ALLOC_CONF="expandable_segments:True"))
    assert "True" in text
    assert int(text.split("left ")[1].split()[0]) <= 20


@pytest.mark.parametrize("schedule", ["adversarial", "seed:1"])
def test_a_missing_wait_shows_in_a_replay(tmp_path: Path, schedule: str) -> None:
    source = START + (
        "def stale_replays(wait):\n"
        "    side, graph = torch.npu.Stream(), torch.npu.NPUGraph()\n"
        "    source = torch.zeros(4, device='npu')\n"
        "    middle = torch.zeros(4, device='npu')\n"
        "    with torch.npu.graph(graph):\n"
        "        origin = torch.npu.current_stream()\n"
        "        if not wait: side.wait_stream(origin)\n"
        "        middle.copy_(source + 1)\n"
        "        if wait: side.wait_stream(origin)\n"
        "        with torch.npu.stream(side):\n"
        "            result = middle * 1\n"
        "        origin.wait_stream(side)\n"
        "    stale = 0\n"
        "    for i in range(20):\n"
        "        source.fill_(i)\n"
        "        graph.replay()\n"
        "        torch.npu.synchronize()\n"
        "        stale += int(result[0].item()) != i + 1\n"
        "    return stale\n"
        "print('stale', stale_replays(wait=True), stale_replays(wait=False))\n"
    )
    with_wait, without_wait = output_of(tmp_path, source, SIMCANN_SCHEDULE=schedule).split("stale ")[1].split()
    assert int(with_wait) == 0
    assert int(without_wait) > 0


def test_enable_after_torch_npu_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simcann, "_loaded", [])
    with pytest.raises(simcann.NotAvailable, match=r"call simcann\.enable\(\) before importing torch"):
        simcann.enable()


def test_enable_without_libraries_names_the_build_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(simcann, "_loaded", [])
    monkeypatch.setattr(simcann, "_library_folder", lambda: tmp_path)
    monkeypatch.delitem(sys.modules, "torch_npu")
    with pytest.raises(simcann.NotAvailable, match="cmake --build simcann/build"):
        simcann.enable()


def test_enable_without_torch_npu_names_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simcann, "_loaded", [])
    monkeypatch.delitem(sys.modules, "torch_npu")
    monkeypatch.setattr(simcann.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(simcann.NotAvailable, match=r"simcann/make_env\.sh"):
        simcann.enable()


def test_debug_dump_can_be_read_by_torch_npu_s_tools(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    source = START + (
        "side, graph = torch.npu.Stream(), torch.npu.NPUGraph()\n"
        "with torch.npu.graph(graph):\n"
        "    origin = torch.npu.current_stream()\n"
        "    y = x * 3\n"
        "    side.wait_stream(origin)\n"
        "    with torch.npu.stream(side): z = y + 1\n"
        "    origin.wait_stream(side)\n"
        f"graph.debug_dump({str(path)!r})\n"
    )
    output_of(tmp_path, source)
    tasks = json.loads(path.read_text())
    assert [task["name"] for task in tasks] == [
        "aclnnMuls",
        "EVENT_RECORD_1",
        "EVENT_WAIT_1",
        "aclnnAdds",
        "EVENT_RECORD_4",
        "EVENT_WAIT_4",
    ]
    assert tasks[2]["args"]["Waits For"] == [1]
    assert len({task["tid"] for task in tasks}) == 2
    assert (tmp_path / "graph.aligned.json").exists()


def test_settings_are_not_read_again_once_the_device_is_in_use() -> None:
    torch.ones(1, device="npu")
    with pytest.raises(RuntimeError, match="the device is in use, with the settings that were read before"):
        simcann.read_settings()
