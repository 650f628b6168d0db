"""`airgraph generate --device npu` decodes through captured graphs, with the CPU's tokens."""

import re
import subprocess
import sys

import pytest
from devices import launched_with, why_missing

pytestmark = pytest.mark.skipif(why_missing("npu") is not None, reason=why_missing("npu") or "")


def test_the_tokens_are_those_of_eager_and_of_the_cpu() -> None:
    command = [*launched_with("npu"), "-m", "airgraph", "generate", "hello", "--max-new-tokens", "12"]
    done = subprocess.run(
        [sys.executable, *command, "--device", "npu", "--model", "tiny", "--compare"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = [re.split(r"\s*│\s*", line.strip("│ \n")) for line in done.stdout.splitlines()]
    found = {row[0]: row[-1] for row in rows if len(row) > 1}
    assert found["tokens equal"] == "yes" and found["tokens equal to the cpu's"] == "yes"
    assert found["graphs captured"] == "2"
