"""`airgraph bench` compares each way of running a model with eager, then times them side by side."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from process import run_program
from torch import Tensor, nn

from airgraph.cli.bench import agreement, target
from airgraph.cli.bench.timing import Timed, Timing, interleave
from airgraph.cli.bench.user_code import called
from airgraph.cli.bench.ways import AIRGRAPH, EAGER, Checked, Maker
from airgraph.cli.bench.workload import Workload
from airgraph.cli.failure import UsageProblem

_SCRIPT = """
import torch
from torch import nn

print("the script's own")

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("rows", torch.zeros(8, 4))

    def forward(self, x, *, scale):
        self.rows.index_copy_(0, self.position, self.linear(x)[:1])
        self.position.add_(1)
        return {"rows": self.rows * scale}

def bench():
    # Eight calls are all that it has room for.
    return Counter().eval(), (torch.ones(2, 4),), {"scale": 2.0}

def compiled_otherwise(x):
    return x + 1 if torch.compiler.is_compiling() else x

def differs():
    return compiled_otherwise, (torch.ones(3),)

def random():
    return lambda x: x + torch.rand(3).sum().item() + next(numbers), (torch.ones(3),)

numbers = iter(range(1000))

def broken(x):
    return torch.nn.functional.linear(x, torch.ones(3, 3))

def fails():
    return broken, torch.ones(2)
"""


def _bench(*words: str, folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(_SCRIPT)
    return run_program(
        f"import os; os.chdir({str(folder)!r})",
        before,
        f"from airgraph.cli.main import main; main({['bench', *words]})",
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    words = ("script.py", "--calls", "4", "--threads", "1", "--json", "-")
    ended = _bench(*words, folder=tmp_path_factory.mktemp("measured"))
    assert ended.returncode == 0, ended.stderr
    return ended


def test_all_four_ways_are_timed_and_the_numbers_have_their_units(
    measured: subprocess.CompletedProcess[str],
) -> None:
    result = json.loads(measured.stdout)
    assert set(result) >= {"date", "machine", "versions", "threads", "workloads"} and result["threads"] == [1]
    contenders = result["workloads"]["1"]["script.py"]["contenders"]
    assert list(contenders) == ["eager", "Inductor", "airgraph", "airgraph, cached"]
    for row in contenders.values():
        assert 0 < row["min_us"] <= row["p10_us"] <= row["median_us"] <= row["p90_us"]
        assert row["calls"] == row["blocks"] == 4
        assert row["max_abs_difference"] < 1e-5 and row["first_call_s"] > 0
    assert contenders["eager"]["speedup_over_eager"] == 1
    cached = contenders["airgraph, cached"]
    assert 0 < cached["first_call_from_files_s"] < cached["first_call_s"]


def test_the_table_goes_to_standard_error_when_json_goes_to_standard_output(
    measured: subprocess.CompletedProcess[str],
) -> None:
    assert "airgraph, cached" in measured.stderr and "× eager" in measured.stderr
    assert "the script's own" in measured.stderr


def test_a_way_whose_results_differ_is_not_timed_and_fails_the_command(tmp_path: Path) -> None:
    ended = _bench("script.py:differs", "--calls", "1", "--no-inductor", "--json", "numbers.json", folder=tmp_path)
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    assert said.startswith("airgraph: error: airgraph: results differ from eager's in call 1: value 1 of 2 differs by")
    assert "airgraph, cached: results differ" in said
    result = json.loads((tmp_path / "numbers.json").read_text())
    assert list(result["failed"]) == ["airgraph", "airgraph, cached"]
    assert list(result["workloads"].popitem()[1]["script.py:differs"]["contenders"]) == ["eager"]
    assert "eager" in ended.stdout


def test_inductor_is_left_out_with_the_reason_where_there_is_no_compiler(tmp_path: Path) -> None:
    # Nor what one has made before.
    without = f"os.environ['TORCHINDUCTOR_CACHE_DIR'] = {str(tmp_path / 'inductor')!r}\n"
    without += "import torch._inductor.config as config; config.cpp.cxx = ('/nowhere/c++',)"
    ended = _bench("script.py", "--calls", "1", folder=tmp_path, before=without)
    assert ended.returncode == 0, ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if "left out" in line)
    assert line.startswith("airgraph: Inductor is left out: ") and "compiler" in line


def test_a_language_model_decodes_over_its_cache(tmp_path: Path) -> None:
    words = ("tiny", "--calls", "300", "--threads", "1", "--no-inductor", "--tokens", "5", "--json", "-")
    ended = _bench(*words, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    ((of_target,),) = (each.values() for each in json.loads(ended.stdout)["workloads"].values())
    assert of_target["description"] == "tiny (random weights), one token after 5"
    # More steps than the cache has room for.
    assert [row["calls"] for row in of_target["contenders"].values()] == [300] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("script.py:fails",), "script.py:fails fails: RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        (("script.py:random",), "does not give the same results twice in eager"),
        (("script.py", "--calls", "0"), "--calls must be at least 1, got 0"),
        (("script.py", "--seconds", "0"), "--seconds must be more than 0 and finite, got 0.0"),
        (("script.py", "--seconds", "inf"), "--seconds must be more than 0 and finite, got inf"),
        (("script.py:foo",), "script.py has no 'foo': it has "),
        (("script.py", "--dtype", "float31"), "unknown dtype 'float31': give one of float64"),
        (("script.py", "--device", "tpu"), "unknown device 'tpu': give one of cpu, cuda, npu"),
        (("script.py", "--json", "nowhere/x.json"), "there is no folder"),
        (("no.such_module",), "unknown target 'no.such_module': give a Python file"),
    ],
)
def test_what_cannot_be_timed_is_told_in_one_sentence(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    ended = _bench(*words, folder=tmp_path)
    assert ended.returncode == 2
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("airgraph: error: ") and message in last


def test_a_model_that_is_not_here_and_cannot_be_fetched_is_told(tmp_path: Path) -> None:
    ended = _bench("nobody/no-such-model", folder=tmp_path, before="os.environ['HF_HUB_OFFLINE'] = '1'")
    assert ended.returncode == 1
    assert "nobody/no-such-model is neither in the cache of Hugging Face here nor could it be fetched" in ended.stderr
    assert "Traceback" not in ended.stderr


def _find(place: str) -> Workload:
    return target.find(place, device=None, dtype=None, tokens=1)


@pytest.mark.parametrize(
    ("text", "attribute", "message"),
    [
        ("", "", "does not say what to time: let it have a function bench() that returns"),
        ("model = len", "", "does not say what to time"),
        ("def make(): pass", ":mke", "has no 'mke': did you mean 'make'?"),
        ("def make(x, y=1): pass", ":make", "asks for x: name a function without arguments"),
        ("def bench(): return 3", "", "must return (module or function, arguments[, keyword arguments]), got int"),
        ("def bench(): return len, 3", "", "the arguments must be a tuple, a list or one tensor, got int"),
        ("def bench(): return 1, (2,)", "", "got (int, tuple)"),
        ("def bench(): return len, (), 1", "", "must return keyword arguments as a dict, got int"),
        ("made = 3", ":made", "made is no function that returns (module or function"),
        ("from torch import nn\nnet = nn.ReLU()", ":net", "names a model and has no inputs"),
        ("def bench(): return undefined", "", "fails: NameError: name 'undefined' is not defined"),
        ("import nothing_of_this_name", "", "fails: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("import sys; sys.exit(3)", "", "ends the process by sys.exit(3): let it do its work under"),
    ],
)
def test_a_script_that_does_not_say_what_to_time_is_told_what_is_expected(
    text: str, attribute: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [])
    (tmp_path / "unclear.py").write_text(text)
    with pytest.raises(UsageProblem) as raised:
        _find(f"{tmp_path}/unclear.py{attribute}")
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "attribute", "args", "kwargs"),
    [
        ("def bench(): return f, (1, 2)\n", "", (1, 2), {}),
        ("def make(): return f, [1], {'k': 2}\n", ":make", (1,), {"k": 2}),
        ("class Made:\n    @staticmethod\n    def some(n=3): return f, (n,)\n", ":Made.some", (3,), {}),
        ("model, inputs = f, (1,)\n", "", (1,), {}),
        ("model, inputs = f, {'k': 1}\n", "", (), {"k": 1}),
    ],
)
def test_a_script_says_in_its_own_way_what_to_time(
    text: str,
    attribute: str,
    args: tuple[int, ...],
    kwargs: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "says.py").write_text("from beside_it import f\n" + text)
    (tmp_path / "beside_it.py").write_text("def f(*args): return args\n")
    found = _find(f"{tmp_path}/says.py{attribute}")
    assert found.function.__name__ == "f" and (found.args, found.kwargs) == (args, kwargs)  # type: ignore[attr-defined]


def test_errors_show_only_lines_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    def mine() -> None:
        nn.Sequential(nn.Linear(2, 2))(torch.ones(3))

    with pytest.raises(UsageProblem, match="mine fails: RuntimeError"):
        called("mine", mine)
    said = capsys.readouterr().err
    assert said.count("File ") == 1 and "in mine" in said


def test_each_way_gets_arguments_of_its_own_and_shares_the_model() -> None:
    model = nn.Linear(2, 2)
    own = Workload("w", model, (torch.ones(2), model.weight), {"k": [torch.zeros(1)]}).with_own_arguments()
    assert own.function is model and own.args[1] is model.weight
    own.args[0].add_(1)
    own.kwargs["k"][0].add_(1)
    state = own.state()
    own.args[0].fill_(math.nan)
    model.weight.data.add_(0)
    changed = state.changed()
    assert [tensor is own.args[0] for tensor in changed.tensors] == [True]
    changed.restore()
    assert own.args[0].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        (torch.neg, torch.ones(1, 4).expand(3, 4)),
        (torch.neg, torch.ones(3, requires_grad=True) * 2),
        (torch.neg, torch.ones(3, 3).to_sparse()),
        (lambda x: x.add_(1), torch.ones(3)),
        (lambda x: (y for y in [x]), torch.ones(3)),
    ],
    ids=["overlapping", "with gradients", "sparse", "written", "no tensors"],
)
def test_arguments_of_every_kind_are_copied_and_compared(
    function: Callable[[Tensor], object], argument: Tensor, tmp_path: Path
) -> None:
    made = Maker(Workload("w", function, (argument,)), dynamic=False, folder=tmp_path).make(EAGER)
    assert isinstance(made, Checked) and made.max_abs_difference == 0


@pytest.mark.filterwarnings("ignore:airgraph. .* runs eagerly")
@pytest.mark.parametrize(
    ("function", "argument", "note"),
    [
        (lambda x: x * 2, torch.ones(3, 3).to_sparse(), "nothing is captured"),
        (lambda x: torch.ops.aten.unique_dim(x, 0), torch.ones(3), "runs eagerly: "),
        (lambda x: x * 2, torch.ones(3), None),
    ],
    ids=["no graph", "refused", "captured"],
)
def test_a_way_that_is_not_captured_says_so(
    function: Callable[[Tensor], object], argument: Tensor, note: str | None, tmp_path: Path
) -> None:
    maker = Maker(Workload("w", function, (argument,)), dynamic=False, folder=tmp_path)
    maker.make(EAGER)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        made = maker.make(AIRGRAPH)
    assert isinstance(made, Checked)
    assert len(made.notes) == (note is not None) and (note is None or note in made.notes[0])


def test_numbers_and_modules_are_moved_to_a_type() -> None:
    moved = Workload("w", nn.Linear(2, 2), ([torch.ones(2)], torch.ones(2, dtype=torch.int64))).placed(
        None, torch.float64
    )
    assert moved.args[0][0].dtype is torch.float64 and moved.args[1].dtype is torch.int64
    assert next(moved.function.parameters()).dtype is torch.float64  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("found", "expected", "problem"),
    [
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan]), None),
        (torch.tensor([1000.1]), torch.tensor([1000.0]), None),
        (torch.tensor([1.1, 0.0]), torch.tensor([1.0, 0.0]), "differs by up to 0.1"),
        (torch.tensor([math.nan]), torch.tensor([1.0]), "differs by up to nan"),
        (torch.tensor([math.inf]), torch.tensor([1.0]), "differs by up to inf"),
        (torch.tensor([1]), torch.tensor([2]), "differs in 1 of 1 numbers"),
        (torch.ones(2), torch.ones(3), "is float32[2] instead of float32[3]"),
        (torch.ones(2).double(), torch.ones(2), "is float64[2] instead of float32[2]"),
        (3, 4, "is 3 instead of 4"),
        (math.nan, math.nan, None),
        (torch.ones(0), torch.ones(0), None),
    ],
)
def test_a_difference_is_told_where_there_is_one(found: object, expected: object, problem: str | None) -> None:
    _, said = agreement.largest_difference([found], [expected])
    assert (said is None) == (problem is None)
    assert problem is None or (said is not None and problem in said)


def _timed(name: str, done: list[str], at_most: int | None = None) -> Timed:
    return Timed(name, lambda: done.append(name), (), {}, lambda: done.append(f"before {name}"), lambda: None, at_most)


def test_blocks_alternate_and_each_begins_with_what_a_call_has_changed() -> None:
    done: list[str] = []
    timings = interleave([_timed("a", done), _timed("b", done)], calls=40, seconds=0)
    assert {name: (timing.blocks, timing.calls) for name, timing in timings.items()} == {"a": (20, 40), "b": (20, 40)}
    blocks = [name for name in done if name.startswith("before")][2:]
    assert sorted(blocks) == ["before a"] * 20 + ["before b"] * 20
    assert all(set(blocks[at : at + 2]) == {"before a", "before b"} for at in range(0, 40, 2))
    assert {blocks[at] for at in range(0, 40, 2)} == {"before a", "before b"}


@pytest.mark.parametrize("calls", [1, 19, 21, 1000])
def test_no_more_calls_follow_one_another_than_a_workload_allows(calls: int) -> None:
    done: list[str] = []
    timings = interleave([_timed("a", done, at_most=16)], calls=calls, seconds=0)
    assert timings["a"].calls == calls
    assert max(len(block.split()) for block in " ".join(done).split("before a")) <= 16


def test_a_timing_has_its_quantiles() -> None:
    timing = Timing.of([float(number) for number in range(11)], 22)
    assert timing.to_dict() == {
        "median_us": 5, "p10_us": 1, "p90_us": 9, "q1_us": 2.5, "q3_us": 7.5, "iqr_us": 5, "min_us": 0,
        "blocks": 11, "calls": 22,
    }  # fmt: skip
    assert Timing.of([3.0], 1).p90_us == 3 and Timing.of([3.0], 1).blocks == 1


def test_a_block_is_in_inference_mode() -> None:
    modes: list[bool] = []
    call = Timed("a", lambda: modes.append(torch.is_inference_mode_enabled()), (), {}, lambda: None, lambda: None)
    interleave([call], calls=2, seconds=0)
    assert modes and all(modes)


def test_values_are_copies() -> None:
    tensor = torch.ones(2)
    (returned, written) = agreement.values({"a": tensor}, [tensor])
    tensor.add_(1)
    assert isinstance(returned, Tensor) and returned.tolist() == written.tolist() == [1, 1]
