"""Ctrl-C while a command is importing is one line and 130, whatever the import makes of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from process import run_command

import airgraph_command

_SAID = "airgraph: interrupted\n"


@pytest.mark.parametrize("swallows", [False, True], ids=["raises", "swallows"])
def test_an_interrupted_import_is_one_line(swallows: bool, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt:\n"
        f"    if not {swallows}:\n"
        "        raise\n"
    )
    (tmp_path / "command.py").write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from airgraph_command import main\n"
        "sys.argv[1:] = ['doctor']\n"
        "main()\n"
    )
    ended = run_command("command.py", folder=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", _SAID)


def test_a_command_that_runs_is_interrupted_as_before(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), 2)\nexcept KeyboardInterrupt:\n    print('seen')\n"
    )
    (tmp_path / "command.py").write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from airgraph_command import main\n"
        "sys.argv[1:] = ['run', '--device', 'cpu', 'script.py']\n"
        "main()\n"
    )
    ended = run_command("command.py", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "seen\n")


def test_a_thread_that_gets_no_signals_runs_the_command_too() -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            with airgraph_command._ends_at_once_by_ctrl_c():
                pass
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not raised
