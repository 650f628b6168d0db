"""Every number in the README comes from a committed result, and its example runs."""

import importlib.util
import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_the_results_are_those_of_the_newest_json() -> None:
    spec = importlib.util.spec_from_file_location("readme_table", _ROOT / "benchmarks" / "readme_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.render() in module.README.read_text(), "run: python benchmarks/readme_table.py"


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (_ROOT / "README.md").read_text(), re.DOTALL)
    assert len(example.splitlines()) <= 20
    exec(compile(example, "README.md", "exec"), {})


def test_links_lead_somewhere() -> None:
    for page in [_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
