"""The examples run, as somebody who has just cloned the repository runs them."""

import re
import subprocess
import sys
from pathlib import Path

from process import run_command

_EXAMPLES = Path(__file__).parents[2] / "examples"


def _run(name: str, *args: str, **environment: str) -> str:
    done = run_command(str(_EXAMPLES / name), *args, **environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_cached_start_reads_what_the_first_has_traced(tmp_path: Path) -> None:
    assert "traced 1 graphs, read 0 from files" in _run("cached_start.py", str(tmp_path))
    assert "traced 0 graphs, read 1 from files" in _run("cached_start.py", str(tmp_path))


def test_a_model_of_hugging_face_generates_from_files_at_the_second_start(tmp_path: Path) -> None:
    for traces, read in ((2, 0), (0, 2)):
        said = _run("hugging_face.py", AIRGRAPH_CACHE_DIR=str(tmp_path))
        assert said.count("as in eager: True") == 2
        assert f"files_read={read}, traces={traces}, refusals=Counter()" in said


def test_shapes_of_an_embedding_server_share_a_pool() -> None:
    said = _run("embedding_server.py")
    captures, pool_mb, apart_mb = re.search(
        r"(\d+) shapes captured, 200 replays\none pool of ([\d.]+) MB; .* take ([\d.]+) MB", said
    ).groups()  # type: ignore[union-attr]
    assert int(captures) > 10 and float(pool_mb) * 3 < float(apart_mb)


def test_two_streams_are_in_the_report() -> None:
    # Started anew, as all are by hand; the others are forked where torch is imported.
    command = [sys.executable, str(_EXAMPLES / "two_streams.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    said = done.stdout
    assert "on one stream:" in said and "side by side:" in said and "eager_calls: 0" in said
