"""A third party adds a device by an entry point: here one for tensors without memory, in a package of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airgraph.errors import UnsupportedGraph
from airgraph.runtime.registry import device_types, runtime_for

_PACKAGE = '''
"""A toy device: torch's meta tensors, of which only the shapes are computed."""

from airgraph.errors import UnsupportedGraph
from airgraph.memory.footprint import Footprint
from airgraph.memory.pool import MemoryPool
from airgraph.runtime.problem import InputProblem, ProblemKind
from airgraph.runtime.protocol import Capabilities


class ToyGraph:
    streams = threads = 1
    threads_reason = ""
    first_outputs = None
    copied_nbytes = 0
    products = {}

    def packed(self):
        return {}

    def __init__(self, program, args, lease):
        self.footprint, self.lease = lease.footprint, lease
        self.program, self.shapes = program, [getattr(arg, "shape", None) for arg in args]
        self.nodes = sum(node.op == "call_function" for node in program.gm.graph.nodes)

    def captured_address(self, index):
        return 0

    def held_outputs(self):
        return 0

    def run(self, args):
        for index, (arg, shape) in enumerate(zip(args, self.shapes)):
            if getattr(arg, "shape", None) != shape:
                return InputProblem(ProblemKind.MISMATCHED, index)
        print("toy: run")
        return list(self.program.gm(*args))

    def blank(self, args):
        return list(self.program.gm(*args))

    def replay(self):
        print("toy: replay")

    def occupancy(self):
        return ()

    def describe(self):
        return ()

    def close(self):
        print("toy: close")


class ToyRuntime:
    device_type = "meta"
    capabilities = Capabilities(rng_in_graphs=False, max_streams=1)

    def open_pool(self, device=None):
        return MemoryPool(device)

    def adopt_pool(self, handle, device):
        return None

    def capturing_on(self, device):
        return lambda: False

    def record(self, program, inputs, pool, options, call=None):
        args = [each.arg for each in inputs]
        if any(arg.shape[0] == 13 for arg in args):
            raise UnsupportedGraph("thirteen rows bring bad luck")
        print("toy: record")
        return ToyGraph(program, args, pool.take(Footprint()))

    def stream(self, tag, priority=0):
        raise NotImplementedError

    def event(self, tag, *, external=False):
        raise NotImplementedError

    def synchronize(self):
        pass
'''

_PROGRAM = """
import torch, airgraph, warnings
from airgraph.runtime.registry import device_types
assert device_types() == ("cpu", "cuda", "npu", "meta", "mtia"), device_types()
compiled = torch.compile(lambda x: x @ x.t(), backend="airgraph", dynamic=False, fullgraph=True)
with torch.no_grad():
    for rows in (3, 3, 5):
        assert compiled(torch.empty(rows, 2, device="meta")).shape == (rows, rows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert compiled(torch.empty(13, 2, device="meta")).shape == (13, 13)
    messages = [str(w.message) for w in caught]
    assert sum("thirteen rows bring bad luck" in message for message in messages) == 1, messages
report = airgraph.explain().to_dict()
assert report["counters"] == {"captures": 2, "recaptures": 0, "replays": 3, "eager_calls": 1}, report
assert [pool["device"] for pool in report["pools"]] == ["meta", "meta"], report["pools"]
assert airgraph.graph_pool_handle("meta").device_type == "meta"
for name in ("phantom", "mtia"):
    try:
        airgraph.graph_pool_handle(name)
    except airgraph.errors.OptionError as error:
        print("refused:", error)
"""


def test_a_device_from_another_package(tmp_path: Path) -> None:
    (tmp_path / "toy_device.py").write_text(_PACKAGE)
    info = tmp_path / "toy_device-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-device\nVersion: 1.0\n")
    points = "[airgraph.devices]\nmeta = toy_device:ToyRuntime\nmtia = toy_device:NoSuchThing\n"
    (info / "entry_points.txt").write_text(points)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:-2] == ["toy: record", "toy: run", "toy: run", "toy: record", "toy: run"]
    assert "refused: device 'phantom'" in lines[-2]
    assert "refused: device 'mtia': the runtime toy_device:NoSuchThing" in lines[-1]


def test_an_unknown_device_is_refused_by_name() -> None:
    assert device_types()[:3] == ("cpu", "cuda", "npu")
    with pytest.raises(UnsupportedGraph, match=r"no runtime for device 'tpu'; known: cpu, cuda, npu"):
        runtime_for("tpu")
