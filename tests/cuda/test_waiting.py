"""The device goes on by itself while the interpreter waits for it."""

import subprocess
import sys

_PROGRAM = """
import simcuda
simcuda.enable()
import torch

matrix, x = torch.ones(1000, 1000, device="cuda"), torch.ones(4, device="cuda")
for _ in range(3):
    torch.mm(matrix, matrix)
doubled = x * 2
# torch copies a storage without letting go of the GIL.
x.untyped_storage().cpu()
print(doubled.tolist())
"""


def test_a_kernel_that_was_given_a_number_needs_no_interpreter() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "[2.0, 2.0, 2.0, 2.0]"
