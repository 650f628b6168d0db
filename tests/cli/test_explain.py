"""`airgraph explain` runs a script as it is, then reports on all that was captured in it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from process import run_program

from airgraph.cli.result_files import check_writable

_SCRIPT = """
import sys, torch
def main():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    compiled = torch.compile(model, backend="airgraph", dynamic=False)
    with torch.no_grad():
        for rows in (2, 3, 3):
            compiled(torch.ones(rows, 4))
    print("the script's own", *sys.argv[1:])
main()
if "exit" in sys.argv:
    sys.exit(5)
if "raise" in sys.argv:
    raise ValueError("of the script")
"""


def _explain(*words: str, folder: Path, script: str = _SCRIPT) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    return run_program(
        f"import os; os.chdir({str(folder)!r}); from airgraph.cli.main import main; main({['explain', *words]})"
    )


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("drawn")
    words = ("script.py", "--html", "memory.html", "--json=report.json", "--profile", "exit", "--json", "its own")
    return folder, _explain(*words, folder=folder)


def test_output_and_exit_code_are_those_of_the_script(
    drawn: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, ended = drawn
    assert (ended.returncode, ended.stdout) == (5, "the script's own exit --json its own\n")
    assert "airgraph explain" in ended.stderr and "Sequential.forward" in ended.stderr


def test_graphs_of_a_function_that_has_returned_are_still_there(
    drawn: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = drawn
    report = json.loads((folder / "report.json").read_text())
    assert [(row["state"], row["replays"]) for row in report["graphs"]] == [("captured", 1), ("captured", 2)]
    assert "Sequential.forward #1" in (folder / "memory.html").read_text()
    assert "Sequential.forward #1" in (folder / "streams.html").read_text()
    assert {event["pid"] for event in json.loads((folder / "trace.json").read_text())["traceEvents"]} == {0, 1}


def test_a_script_that_raises_shows_its_traceback_and_gets_its_report(tmp_path: Path) -> None:
    ended = _explain("--json", "-", "script.py", "raise", folder=tmp_path)
    assert ended.returncode == 1
    trace, _, report = ended.stderr.partition("ValueError: of the script\n")
    assert trace.count("File ") == 1 and f'{tmp_path / "script.py"}", line 14' in trace
    assert "Sequential.forward" in report
    said, _, written = ended.stdout.partition("\n")
    assert said == "the script's own raise"
    assert json.loads(written)["counters"]["captures"] == 2


def test_a_script_without_airgraph_is_told_how_to_use_it(tmp_path: Path) -> None:
    ended = _explain("--", "script.py", "--html", "-m", folder=tmp_path, script="import sys\nprint(sys.argv)")
    assert (ended.returncode, ended.stdout) == (0, "['script.py', '--html', '-m']\n")
    assert 'nothing is captured at the end of this script. Let it call torch.compile(model, backend="airgraph")' in (
        " ".join(ended.stderr.split())
    )


def test_a_module_is_run_by_its_name(tmp_path: Path) -> None:
    ended = _explain("-m", "script", "-m", folder=tmp_path, script="import sys\nprint(__spec__.name, sys.argv[1:])")
    assert ended.stdout == "script ['-m']\n"


def test_a_fork_of_the_script_makes_no_report(tmp_path: Path) -> None:
    script = (
        "import os\nchild = os.fork()\nif child:\n    print(os.waitpid(child, 0)[1])\nelse:\n    raise SystemExit(3)"
    )
    ended = _explain("script.py", folder=tmp_path, script=script)
    assert (ended.returncode, ended.stdout) == (0, f"{3 << 8}\n")
    assert ended.stderr.count("airgraph explain") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.py",), "there is no script nowhere.py"),
        (("script.py", "--html", "memory.json"), "--html: expected a name that ends in .html"),
        (("script.py", "--html", "streams.html"), "and is not streams.html, got streams.html"),
        (("script.py", "--json", "nowhere/report.json"), "there is no folder"),
        (("script.py", "--json", "/proc/report.json"), "/proc/report.json cannot be written: "),
        (("script.py", "--html", "/proc/memory.html"), "/proc/memory.html cannot be written: "),
        (("script.py", "--json", "."), ". cannot be written: is a directory"),
        (("--jsn", "script.py"), "No such option: --jsn"),
        ((), "Missing argument 'SCRIPT'"),
    ],
)
def test_wrong_arguments_are_one_line_before_the_script_runs(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    ended = _explain(*words, folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message.lower() in ended.stderr.lower() and ended.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_file_that_turns_out_to_be_full_is_named_after_the_report(tmp_path: Path) -> None:
    ended = _explain("script.py", "--json", "/dev/full", folder=tmp_path)
    assert ended.returncode == 1
    said = "airgraph: error: /dev/full cannot be written: No space left on device"
    assert ended.stderr.splitlines()[-1] == said and "Sequential.forward" in ended.stderr


def test_to_ask_for_a_file_changes_and_leaves_nothing(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("kept")
    for path in (there, tmp_path / "absent"):
        check_writable(path)
    assert there.read_text() == "kept" and list(tmp_path.iterdir()) == [there]
