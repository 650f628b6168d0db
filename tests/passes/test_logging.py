"""The passes tell what they do through loggers that TORCH_LOGS switches as it does torch's own."""

from process import run_program

_CODE = """
import torch, airgraph
def step(kv, x):
    kv.mul_(kv.t())
    return torch.cat([x.exp(), x.neg()])
with torch.no_grad():
    torch.compile(step, backend="airgraph")(torch.ones(3, 3), torch.ones(3))
"""


def test_torch_logs_shows_what_passes_do_and_why_not() -> None:
    """As it is read when torch is imported."""
    done = run_program(_CODE, TORCH_LOGS="+airgraph.passes")
    assert done.returncode == 0, done.stderr
    text = done.stderr
    assert "remove_cat_ops: 1 changes" in text
    assert "stays: t, another argument of mul, may share the input's memory" in text
    assert "captured " not in text


def test_torch_logs_shows_captures() -> None:
    """Read again, as the import of torch does, in a process that has imported it."""
    again = "import os; os.environ['TORCH_LOGS'] = 'airgraph.capture'; torch._logging._internal._init_logs()"
    done = run_program(again, _CODE)
    assert done.returncode == 0, done.stderr
    text = done.stderr
    assert "#1 key (): " in text
    assert "remove_cat_ops" not in text
