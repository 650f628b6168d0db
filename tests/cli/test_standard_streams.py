"""A command whose output cannot arrive ends quietly, with one line that says why, and not as if all were well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from process import run_program

from airgraph.cli import main as entry

_COMMANDS = [
    "--version",
    "--help",
    "doctor",
    "cache list --dir .",
    "generate hello --model tiny --max-new-tokens 2 --no-compare",
]
_NOWHERE = {
    ">&-": "airgraph: error: cannot write to standard output: Bad file descriptor",
    "> /dev/full": "airgraph: error: cannot write to standard output: No space left on device",
    "| true": "",
}


_FORKED = {
    "> /dev/full": "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)",
    "2> /dev/full": "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)",
    "> /dev/full 2> /dev/full": "os.dup2(os.open('/dev/full', os.O_WRONLY), 1); os.dup2(1, 2)",
    "| true": "reads, writes = os.pipe(); os.close(reads); os.dup2(writes, 1)",
}


def _run(command: str, redirected: str, folder: Path) -> tuple[int, list[str]]:
    """The exit code, and what airgraph wrote to standard error, progress excepted.

    Where a stream is closed Python itself is started anew, which finds it so; else it is forked.
    """
    if redirected in _FORKED:
        program = f"""
            import os, runpy, sys
            os.chdir({str(folder)!r})
            {_FORKED[redirected]}
            os.environ["AIRGRAPH_TRACEBACK"] = ""
            sys.argv[1:] = {command.split()}
            runpy.run_module("airgraph", run_name="__main__", alter_sys=True)
            """
        done = run_program(program)
        return done.returncode, _errors_in(done.stderr)
    line = f'"{sys.executable}" -m airgraph {command} {redirected}; exit ${{PIPESTATUS[0]}}'
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    settings.pop("AIRGRAPH_TRACEBACK", None)
    result = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=settings, capture_output=True, text=True, timeout=300, check=False
    )
    return result.returncode, _errors_in(result.stderr)


def _errors_in(said: str) -> list[str]:
    return [each for each in said.splitlines() if "error" in each.lower() or "Traceback" in each]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize(
    ("command", "redirected"),
    [
        # Each command once, and one of them with each: what writes is the same for all.
        pytest.param(command, redirected, marks=[pytest.mark.sweep] * (position % 3 != which and position > 0))
        for position, command in enumerate(_COMMANDS)
        for which, redirected in enumerate(_NOWHERE)
    ],
)
def test_output_that_does_not_arrive_fails_with_one_line(command: str, redirected: str, tmp_path: Path) -> None:
    expected = _NOWHERE[redirected]
    assert _run(command, redirected, tmp_path) == (1, [expected] if expected else [])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize(
    ("redirected", "exit_code"),
    [
        ("2>&-", 0),
        ("2> /dev/full", 0),
        (">&- 2>&-", 1),
        ("<&- >&- 2>&-", 1),
        ("> /dev/full 2> /dev/full", 1),
    ],
)
def test_without_standard_error_the_exit_code_tells(redirected: str, exit_code: int, tmp_path: Path) -> None:
    assert _run("--version", redirected, tmp_path) == (exit_code, [])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("redirected", ["2>&-", "2> /dev/full"])
def test_a_report_that_goes_to_standard_error_is_missed(redirected: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\nwith torch.no_grad():\n    torch.compile(lambda x: x + 1, backend='airgraph')(torch.ones(2))\n"
    )
    assert _run("explain script.py", redirected, tmp_path) == (1, [])


def test_a_failure_keeps_its_line_where_nothing_was_written(tmp_path: Path) -> None:
    for redirected in (">&-", "> /dev/full"):
        exit_code, said = _run("generate hello --model tinny", redirected, tmp_path)
        assert exit_code == 2 and len(said) == 1 and "'tinny'" in said[0]


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from airgraph.cli import main\n"
        "def command(words, **_):\n"
        "    with open('opened', 'w') as file:\n"
        "        os.write(2, b'said by a library')\n"
        "        file.write('content')\n"
        "main.app = command\n"
        "main.main([])\n"
    )
    (tmp_path / "program.py").write_text(program)
    line = f'"{sys.executable}" program.py <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path, timeout=300, check=False).returncode == 0
    assert (tmp_path / "opened").read_text() == "content"


def test_an_error_of_another_file_is_not_taken_for_one_of_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "weights.bin")

    monkeypatch.setattr(entry, "app", fail)
    with pytest.raises(SystemExit) as stop:
        entry.main([])
    assert stop.value.code == 70
    assert "weights.bin" in capsys.readouterr().err
