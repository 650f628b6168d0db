"""docs/index.md leads to every page, and its links into pages meet a heading."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_PAGES = sorted(_DOCS.glob("*.md"))


def test_every_page_is_in_the_index_once() -> None:
    rows = re.findall(r"^\| \[[^\]]+\]\((\w+\.md)\) \|", (_DOCS / "index.md").read_text(), re.MULTILINE)
    assert sorted(rows) == [page.name for page in _PAGES if page.name != "index.md"]


def test_the_readme_leads_to_the_index() -> None:
    assert "(docs/index.md)" in (_ROOT / "README.md").read_text()


def _anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


_TEXTS = [*_ROOT.glob("*.md"), *(_ROOT / folder / "README.md" for folder in ("src/airgraph", "csrc", "tests")), *_PAGES]


@pytest.mark.parametrize("page", _TEXTS, ids=lambda page: str(page.relative_to(_ROOT)))
def test_links_lead_to_what_is_there(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^):#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("folder", ["src/airgraph", "csrc", "tests"])
def test_the_index_leads_to_the_maps(folder: str) -> None:
    assert f"(../{folder}/README.md)" in (_DOCS / "index.md").read_text()


@pytest.mark.parametrize("page", _TEXTS, ids=lambda page: str(page.relative_to(_ROOT)))
def test_links_into_a_page_meet_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^):#]*)#([^)]+)\)", page.read_text()):
        assert anchor in _anchors(page.parent / target if target else page), f"{target}#{anchor}"


@pytest.mark.parametrize("place", ["src/airgraph", "csrc", "tests"])
def test_every_folder_has_a_row_on_its_map(place: str) -> None:
    rows = re.findall(r"^\|([^|]*)\|", (_ROOT / place / "README.md").read_text(), re.MULTILINE)
    named = {name.rstrip("/") for row in rows for name in re.findall(r"`([^`]*)`", row)}
    depth = "**/*" if place == "csrc" else "*"
    # A folder that git knows nothing of holds caches only.
    folders = [each for each in (_ROOT / place).glob(depth) if each.is_dir() and any(each.glob("[!.]*.*"))]
    found = {each.relative_to(_ROOT / place).as_posix() for each in folders if each.name != "__pycache__"}
    assert len(found) >= 7
    assert found <= named
