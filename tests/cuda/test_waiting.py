"""The device goes on by itself while the interpreter waits for it."""

from pathlib import Path

from process import run_command

_PROGRAM = """
import torch

matrix, x = torch.ones(1000, 1000, device="cuda"), torch.ones(4, device="cuda")
for _ in range(3):
    torch.mm(matrix, matrix)
doubled = x * 2
# torch copies a storage without letting go of the GIL.
x.untyped_storage().cpu()
print(doubled.tolist())
"""


def test_a_kernel_that_was_given_a_number_needs_no_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(_PROGRAM)
    ran = run_command(str(script), device="cuda", timeout_s=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[2.0, 2.0, 2.0, 2.0]"
