"""Every test begins with nothing compiled and nothing counted."""

import atexit
import faulthandler
import gc
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Generator, Iterator
from typing import TextIO

import hypothesis
import pytest

if importlib.util.find_spec("simcann") and importlib.util.find_spec("torch_npu"):
    # The environment of `make test-npu`, where torch can be imported only on the simulated runtime.
    import simcann

    simcann.enable()
elif getattr(importlib.util.find_spec("simcuda"), "origin", None):
    # The environment of `make test-cuda`: the CUDA build of torch on the simulated runtime.
    import simcuda

    simcuda.enable()

import torch
from sampling import sampled
from unmeasured_guards import measure_no_guards

import airgraph
from airgraph.capture.ledger import ledger

# Nothing is gated on time: an example that a busy machine holds up is none that fails.
hypothesis.settings.register_profile("airgraph", deadline=None)
hypothesis.settings.load_profile("airgraph")

if "PYTEST_XDIST_WORKER" not in os.environ:
    # What tests and the programs that they start measure and write is not the user's, and goes with them. pytest keeps
    # the folders of failed tests where it always does.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="airgraph-tests-")
    os.environ.setdefault("AIRGRAPH_CACHE_DIR", tempfile.tempdir)
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

# pytest gives a handler to each logger that does not propagate, and torch writes all graphs as text to a handler of
# this one: a tenth of the time of a trace.
logging.getLogger("torch.__trace").propagate = True
logging.getLogger("torch.__trace").handlers.clear()

measure_no_guards()

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores already.
    torch.set_num_threads(1)


# As this process was started.
_writes_no_bytecode = sys.dont_write_bytecode
# Pools whose graphs outlived a test.
_reported: set[int] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", action="append", help="run the conformance tests on this device only; may be repeated")
    parser.addoption("--full-sweep", action="store_true", help="take all cases and samples, not a few of each")
    parser.addoption("--wheel", action="store_true", help="install the wheel of `make wheel` and run it")
    parser.addoption("--forged", type=int, default=150, help="damaged cache files, 20000 if in doubt")
    parser.addoption("--edits", type=int, default=6, help="starts of a project edited at random, 10000 if in doubt")


_terminal = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", default=None):
        # Programs of tests are edited: compiled ones are told from others by their size and second alone.
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # Before output is captured.
    config.stash[_terminal] = os.fdopen(os.dup(sys.__stderr__.fileno()), "w")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that its timeout cannot end, for it waits in C or takes SIGALRM, ends its process and says where."""
    marker = item.get_closest_marker("timeout")
    given = item.config.getoption("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout") if given is None else given)
    if limit and not item.config.getoption("usepdb"):
        faulthandler.dump_traceback_later(limit + 60, exit=True, file=item.config.stash[_terminal])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full-sweep"):
        return
    kept = sampled([item for item in items if not item.get_closest_marker("sweep")])
    left_out = set(items) - set(kept)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure holds no graph, which later tests would count."""
    report = yield
    if call.excinfo is not None:
        traceback.clear_frames(call.excinfo.tb)
        for frame, _ in traceback.walk_tb(call.excinfo.tb):
            # What was read for the message is kept by the frame until it is read again.
            frame.f_locals
    return report


@pytest.fixture(autouse=True)
def fresh_state(request: pytest.FixtureRequest) -> Iterator[None]:
    # The same of modules that tests write.
    writes_modules = not {"tmp_path", "tmp_path_factory"}.isdisjoint(request.fixturenames)
    sys.dont_write_bytecode = _writes_no_bytecode or writes_modules
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
    gc.collect()
    # Collects again where pools are left.
    airgraph.reset()
    # Of the test that keeps a graph alive, not of a later one that counts them.
    alive = [pool for pool in ledger.pools_alive() if pool.graphs and pool.id not in _reported]
    _reported.update(pool.id for pool in alive)
    # What lives on is passed over by later collections, which took half of the time of all tests.
    gc.freeze()
    assert not alive, f"graphs outlive the test, in {alive}: what holds them?"
