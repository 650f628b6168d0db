"""Every number in the README comes from a committed result, and its example runs."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

_ROOT = Path(__file__).parents[2]


def _benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_results_are_those_of_the_newest_json() -> None:
    module = _benchmark("readme_table")
    assert module.render() in module.README.read_text(), "run: python benchmarks/readme_table.py"


def test_the_figures_of_the_memory_page_are_those_of_the_newest_json() -> None:
    _benchmark("readme_table")
    _benchmark("figures")
    module = _benchmark("memory_figures")
    assert module.render() in module.PAGE.read_text(), "run: python benchmarks/memory_figures.py"


def test_the_figures_of_the_passes_page_are_those_of_the_newest_json() -> None:
    _benchmark("readme_table")
    _benchmark("figures")
    module = _benchmark("passes_figures")
    assert module.render() in module.PAGE.read_text(), "run: python benchmarks/passes_figures.py"


@pytest.mark.parametrize("name", ["cache_figures", "door_figures", "architectures_figures"])
def test_the_figures_of_the_cache_page_are_those_of_the_newest_json(name: str) -> None:
    _benchmark("readme_table")
    _benchmark("figures")
    module = _benchmark(name)
    assert module.render() in module.PAGE.read_text(), f"run: python benchmarks/{name}.py"


def test_the_example_of_the_cache_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRGRAPH_CACHE_DIR", str(tmp_path))
    (example,) = re.findall(r"```python\n(.*?)```", (_ROOT / "docs" / "cache.md").read_text(), re.DOTALL)
    (tmp_path / "cache_page.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        assert importlib.import_module("cache_page").out.shape == (64,)
        del sys.modules["cache_page"]
    assert len(list(tmp_path.rglob("*.airgraph"))) == 1


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (_ROOT / "README.md").read_text(), re.DOTALL)
    assert len(example.splitlines()) <= 20
    exec(compile(example, "README.md", "exec"), {})


def test_links_lead_somewhere() -> None:
    for page in [_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
