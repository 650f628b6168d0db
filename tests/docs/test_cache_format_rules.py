"""Each rule of docs/cache_format.md is kept: what breaks it is refused or a miss, and nothing of it is run."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from format_page import PAGE
from format_rules import FILES, MISSES, REFUSED, more
from written_cache import Cache, Counter, cached, data_of, step

from airgraph.cache import cached_function
from airgraph.errors import CacheError, Unwritable


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "cache"
    cached(step, folder)(torch.ones(4, 3), torch.zeros(3), Counter(), 2)
    return folder


@pytest.fixture
def cache(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    def trace(request: Any) -> Any:
        raise Unwritable("it would be traced anew")

    monkeypatch.setattr(cached_function, "trace", trace)
    shutil.copytree(written, tmp_path / "cache")
    loaded = set(sys.modules)
    yield Cache(tmp_path / "cache")
    assert "antigravity" not in set(sys.modules) - loaded


def _ids(rows: list[Any]) -> list[str]:
    return [f"{row[0]}-{number}" for number, row in enumerate(rows)]


def test_each_rule_is_tested() -> None:
    tested = {row[0] for row in (*FILES, *REFUSED, *MISSES)} | {"I1"}
    assert set(re.findall(r"\b[A-Z]\d{1,2}\b", PAGE)) == tested


def test_what_was_written_is_served(cache: Cache) -> None:
    cache.change(lambda data: None)
    cache.call()


@pytest.mark.parametrize(("rule", "damage", "message"), FILES, ids=_ids(FILES))
def test_such_a_file_is_refused(
    rule: str, damage: Callable[..., Any], message: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(*(cache, monkeypatch)[: len(inspect.signature(damage).parameters)])
    with pytest.raises(CacheError, match=message):
        cache.call()


@pytest.mark.parametrize(("rule", "change", "message"), REFUSED, ids=_ids(REFUSED))
def test_such_content_is_refused(rule: str, change: Callable[..., Any], message: str, cache: Cache) -> None:
    cache.change(change)
    with pytest.raises(CacheError, match=message) as raised:
        cache.call()
    assert str(cache.file) in str(raised.value)


@pytest.mark.parametrize(("rule", "change"), MISSES, ids=_ids(MISSES))
def test_such_content_is_a_miss(rule: str, change: Callable[..., Any], cache: Cache) -> None:
    cache.change(change)
    with pytest.raises(CacheError, match="is not cached: it would be traced anew"):
        cache.call()


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_text("{}"), lambda path: path.chmod(0o666)]
)
def test_an_index_is_passed_over(damage: Callable[[Path], Any], cache: Cache) -> None:
    """I1; another file beside it makes it be asked."""
    shutil.copy(cache.file, cache.file.with_name("graph_1.airgraph"))
    damage(cache.file.parent / ".index")
    cache.call()


def test_tensors_that_share_memory_with_what_is_written(cache: Cache) -> None:
    call, both = cached(step, cache.root), torch.ones(3)
    with pytest.raises(CacheError, match="it would be traced anew"):
        call(both.expand(4, 3), both, Counter(), 2)
    assert torch.equal(both, torch.ones(3))


def test_a_refused_file_is_made_anew(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path / "cache")
    cache = Cache(tmp_path / "cache")
    whole = data_of(cache.file)
    cache.change(more("guards", ["runs", "L['x']", 1]))
    call = cached(step, cache.root, strict=False)
    with pytest.warns(UserWarning, match="a cached graph is not used and made anew"):
        call(torch.ones(4, 3), torch.zeros(3), Counter(), 2)
    # What else ran meanwhile is part of the codes, such as what is imported at the first trace.
    assert {**data_of(cache.file), "codes": 0} == {**whole, "codes": 0}
