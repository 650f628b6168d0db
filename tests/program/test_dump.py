"""What is dumped of a graph can be read, and runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from process import run_command
from torch import nn

import airgraph
from airgraph import scope
from airgraph.errors import OptionError


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("cache", torch.zeros(4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.add_(x)
        return (self.linear(x) * 1).relu() + self.cache + torch.tensor([1.0, 2, 3, 4, 5, 6])


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_is_dumped_pass_by_pass(tmp_path: Path, dynamic: bool) -> None:
    compiled = torch.compile(
        Model().eval(), backend="airgraph", fullgraph=True, dynamic=dynamic, options={"dump_dir": str(tmp_path)}
    )
    compiled(torch.randn(4, 6))
    (folder,) = tmp_path.iterdir()
    name = airgraph.explain().to_dict()["graphs"][0]["name"]
    assert name.startswith("Model.forward #") and folder.name == re.sub(r"\W+", "_", name)
    names = sorted(path.name for path in folder.iterdir())
    assert names[0] == "00_before.py" and "01_remove_noop_ops.py" in names
    assert any(name.endswith("_input_inplace_pass.py") for name in names)
    assert "add_.Tensor" not in (folder / "00_before.py").read_text()
    program = (folder / "program.py").read_text()
    for word in ("float32[4, 6] strides [6, 1]", "mutated self.cache", "static self.linear.weight", "user x"):
        assert word in program or dynamic, word
    assert "test_dump.py:" in program and "aten.add_.Tensor" in program and "aten.mul" not in program
    (tape,) = (path.read_text().splitlines() for path in folder.glob("tape_*.txt"))
    assert len(tape) == 1 + airgraph.explain().to_dict()["graphs"][0]["nodes"]
    assert tape[0].split() == ["operator", "tier", "result", "at", "bytes", "stream", "line"]
    rows = {row.split()[0]: row.split() for row in tape[1:]}
    # The linear layer gives the output's memory, which all later operators write; the constant lies in the arena.
    assert rows["airgraph::row_program_"][1:5] == ["own", "made", "96", "default"]
    assert rows["aten::lift_fresh_copy"][1:5] == ["functional", "0", "24", "default"]
    assert (
        rows["airgraph::row_program_"][5].startswith(str(Path(__file__)))
        and rows["airgraph::row_program_"][5].rpartition(":")[2].isdigit()
    )
    assert {"made", "external"} >= {row[2] for row in rows.values() if not row[2].isdigit()}
    for path in sorted(folder.glob("*.py")):
        done = run_command(str(path))
        assert done.returncode == 0 and "tensor(" in done.stdout, f"{path.name}: {done.stderr}"


def _awkward(x: torch.Tensor, pred: torch.Tensor) -> tuple[torch.Tensor, ...]:
    masked = x.masked_fill(x > 0, float("-inf")).softmax(-1) + float("nan")
    padded = torch.nn.functional.pad(x, (0, 0, 0, max(x.shape[0], 7) - x.shape[0]))
    chosen = torch.cond(pred, lambda y: y.sin() + 1, lambda y: y.cos() * 2, (x,))
    return masked, padded, chosen, torch.full((2,), -0.0), x.to(torch.float8_e4m3fn)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:airgraph")
@pytest.mark.parametrize("dynamic", [False, True])
def test_awkward_programs_run_as_well(tmp_path: Path, dynamic: bool) -> None:
    options = {"dump_dir": str(tmp_path)}
    compiled = torch.compile(_awkward, backend="airgraph", fullgraph=True, dynamic=dynamic, options=options)
    compiled(torch.randn(4, 6), torch.tensor(True))
    for path in sorted(tmp_path.glob("*/*.py")):
        done = run_command(str(path))
        assert done.returncode == 0 and "tensor(" in done.stdout, f"{path.name}: {done.stderr}"


@torch.no_grad()
def test_streams_stand_in_comments(tmp_path: Path) -> None:
    def on_a_stream(gm: torch.fx.GraphModule, example_inputs: object, options: object) -> None:
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default):
            node.meta["stream"] = "7"

    options = {"dump_dir": str(tmp_path), "post_grad_custom_pre_pass": on_a_stream}
    torch.compile(lambda x: x.exp() + 1, backend="airgraph", options=options)(torch.ones(3))
    (program,) = tmp_path.glob("*/program.py")
    assert "float32[3] strides [1], stream 7, " in program.read_text()


@torch.no_grad()
def test_a_tag_of_two_lines_stays_in_its_comment(tmp_path: Path) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with scope.stream("two\nlines"):
            return x.exp()

    torch.compile(program, backend="airgraph", options={"dump_dir": str(tmp_path)})(torch.ones(3))
    (dumped,) = tmp_path.glob("*/program.py")
    compile(dumped.read_text(), dumped, "exec")
    assert r"stream 'two\nlines'" in dumped.read_text()


@torch.no_grad()
def test_the_dump_says_why_a_copy_stays(tmp_path: Path) -> None:
    def step(kv: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        kv.mul_(kv.t())
        return x.exp()

    torch.compile(step, backend="airgraph", options={"dump_dir": str(tmp_path)})(torch.ones(3, 3), torch.ones(3))
    (program,) = tmp_path.glob("*/program.py")
    assert "another argument of mul, may share the input's memory" in program.read_text()
    assert re.fullmatch(r"step_\d+", program.parent.name)
    assert re.match(r"# step #\d+, passes ", program.read_text())


def test_torch_compile_debug_dumps_into_torchs_folder(tmp_path: Path) -> None:
    code = (
        "import torch, airgraph\n"
        "with torch.no_grad(): torch.compile(lambda x: (x * 2).exp(), backend='airgraph')(torch.ones(3))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TORCH_COMPILE_DEBUG": "1", "TORCH_COMPILE_DEBUG_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.rglob("airgraph/lambda_1/*")} >= {"00_before.py", "program.py"}


@torch.no_grad()
def test_nothing_is_written_without_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.compile(lambda x: x + 1, backend="airgraph")(torch.ones(2))
    assert list(tmp_path.iterdir()) == []


@torch.no_grad()
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = {"dump_dir": str(tmp_path / "file" / "dumps")}
    with pytest.raises(OptionError, match=r"option 'dump_dir': cannot write .*/file/dumps/lambda_\d+/00_before.py"):
        torch.compile(lambda x: x + 1, backend="airgraph", options=options)(torch.ones(2))
