"""A cached graph is taken on the kind of device that it was traced for, and on no other."""

from pathlib import Path

from process import start_command

_PROGRAM = """
import sys, torch, airgraph

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x) + 1

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

    def start(capability: str) -> str:
        ran = start_command(str(program), str(tmp_path / "cache"), device="cuda", SIMCUDA_CAPABILITY=capability)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip().splitlines()[-1]

    assert start("9.0") == "traced"
    assert start("8.0") == "traced"
    assert start("9.0") == "from a file"
    assert start("8.0") == "from a file"


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
        ran = start_command(str(program), str(tmp_path / "cache"), capability, device="cuda")
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout.strip().splitlines()[-1])
    assert said == ["traced", "traced", "from a file"]
