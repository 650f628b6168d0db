"""The passes tell what they do through loggers that TORCH_LOGS switches as it does torch's own."""

import os
import subprocess
import sys

_CODE = """
import torch, airgraph
def step(kv, x):
    kv.mul_(kv.t())
    return torch.cat([x.exp(), x.neg()])
with torch.no_grad():
    torch.compile(step, backend="airgraph")(torch.ones(3, 3), torch.ones(3))
"""


def _logged(setting: str) -> str:
    environment = {**os.environ, "TORCH_LOGS": setting}
    done = subprocess.run([sys.executable, "-c", _CODE], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_torch_logs_shows_what_passes_do_and_why_not() -> None:
    text = _logged("+airgraph.passes")
    assert "remove_cat_ops: 1 changes" in text
    assert "stays: t, another argument of mul, may share the input's memory" in text
    assert "captured " not in text


def test_torch_logs_shows_captures() -> None:
    text = _logged("airgraph.capture")
    assert "#1 key (): " in text
    assert "remove_cat_ops" not in text
