"""The pages that are generated say what the code declares."""

import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from airgraph import Options

_DOCS = Path(__file__).parents[2] / "docs"


def _pages() -> dict[Path, Callable[[], str]]:
    spec = importlib.util.spec_from_file_location("generate_pages", _DOCS / "generate_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[Path, Callable[[], str]] = module.PAGES
    return pages


def test_every_option_stands_in_the_options_page_once() -> None:
    page = (_DOCS / "options.md").read_text()
    assert [page.count(f"\n| `{option.name}` |") for option in dataclasses.fields(Options)] == [1] * len(
        dataclasses.fields(Options)
    )


@pytest.mark.parametrize("page", ["options.md", "environment.md", "from_torchair.md"])
def test_a_generated_page_is_current(page: str) -> None:
    assert (_DOCS / page).read_text() == _pages()[_DOCS / page](), "run: python docs/generate_pages.py"
