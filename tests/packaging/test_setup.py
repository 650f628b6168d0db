"""Installing where something is missing that it takes: one line says what, and what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
# As a build does it, after the named change.
_BUILD = """
import sys, sysconfig
{change}
sys.argv = ["setup.py", "build_ext", "--build-lib", sys.argv[1]]
exec(compile(open("setup.py").read(), "setup.py", "exec"), {{"__name__": "__main__", "__file__": "setup.py"}})
"""


@pytest.mark.parametrize(
    ("change", "compiler", "said"),
    [
        pytest.param("", "ccache-of-nowhere g++", "no C++ compiler `ccache-of-nowhere g++`", id="compiler"),
        pytest.param(
            "sysconfig.get_path = lambda name: '/nowhere'", "sh", "there is no /nowhere/Python.h", id="headers"
        ),
    ],
)
def test_what_compiling_takes_is_asked_for_first(change: str, compiler: str, said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BUILD.format(change=change), tmp_path],
        cwd=_ROOT,
        env=os.environ | {"CXX": compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert line.startswith("airgraph: ") and said in line and line.endswith("then install airgraph again."), line
    assert not list(tmp_path.iterdir())
