"""A cached graph is taken on the kind of device that it was traced for, and on no other."""

from pathlib import Path
from subprocess import CompletedProcess

from process import run_command

_PROGRAM = """
import os, sys, torch, airgraph

# As often as it is said to, in processes of their own: before the device is in use it can be forked.
for _ in range(1, int(sys.argv[2])):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        break

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x) + 1

for kind in sys.argv[3:]:
    getattr(torch.backends.cuda, f"enable_{kind}_sdp")(False)
model = Model()
call = airgraph.inference.cache_compile(model.forward, cache_dir=sys.argv[1])
with torch.no_grad():
    x = torch.randn(1, 2, 8, 16, device="cuda")
    torch.testing.assert_close(call(x), model(x))
(row,) = airgraph.explain().to_dict()["cached"]
print("traced" if row["traces"] else "from a file")
"""


def test_another_compute_capability_traces_anew(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)

    def said(ran: CompletedProcess[str]) -> list[str]:
        assert ran.returncode == 0, ran.stderr
        return [line for line in ran.stdout.splitlines() if line in ("traced", "from a file")]

    arguments = [str(program), str(tmp_path / "cache")]
    # Where nothing is said, 9.0 is simulated.
    assert said(run_command(*arguments, "1", device="cuda")) == ["traced"]
    other = run_command(*arguments, "2", device="cuda", SIMCUDA_CAPABILITY="8.0")
    assert said(other) == ["traced", "from a file"]
    assert said(run_command(*arguments, "1", device="cuda")) == ["from a file"]


def test_another_choice_of_attention_traces_anew(tmp_path: Path) -> None:
    """Which one is called is part of what was traced."""
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    said = []
    for without in ([], ["flash"], [], ["flash"], ["flash", "cudnn"]):
        ran = run_command(str(program), str(tmp_path / "cache"), "1", *without, device="cuda")
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout.strip().splitlines()[-1])
    assert said == ["traced", "traced", "from a file", "from a file", "traced"]


_OTHER_CARD = """
import sys, torch, airgraph

capability = {0: (9, 0), 1: tuple(map(int, sys.argv[2].split(".")))}
torch.cuda.get_device_capability = lambda device=None: capability[torch.cuda._utils._get_device_index(device, True)]
call = airgraph.inference.cache_compile(lambda x: x.relu() + 1, cache_dir=sys.argv[1])
x = torch.ones(4, device="cuda:1")
with torch.no_grad():
    assert call(x).tolist() == [2.0] * 4
(row,) = airgraph.explain().to_dict()["cached"]
print("traced" if row["traces"] else "from a file")
"""


def test_the_capability_is_that_of_the_graphs_card_and_not_of_the_current_one(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_OTHER_CARD)
    said = []
    for capability in ("9.0", "8.0", "9.0"):
        ran = run_command(str(program), str(tmp_path / "cache"), capability, device="cuda")
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout.strip().splitlines()[-1])
    assert said == ["traced", "traced", "from a file"]
