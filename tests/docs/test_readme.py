"""Every number in the README comes from a committed result, and its example runs."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import airgraph

_ROOT = Path(__file__).parents[2]


def _benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_results_are_those_of_the_newest_json() -> None:
    _benchmark("figures")
    module = _benchmark("result_tables")
    assert module.summary() in module.README.read_text(), "run: python benchmarks/result_tables.py"
    assert module.render() in module.PAGE.read_text(), "run: python benchmarks/result_tables.py"


def test_the_figures_of_the_memory_page_are_those_of_the_newest_json() -> None:
    _benchmark("figures")
    module = _benchmark("memory_figures")
    assert module.render() in module.PAGE.read_text(), "run: python benchmarks/memory_figures.py"


def test_the_figures_of_the_passes_page_are_those_of_the_newest_json() -> None:
    _benchmark("figures")
    module = _benchmark("passes_figures")
    assert module.render() in module.PAGE.read_text(), "run: python benchmarks/passes_figures.py"


@pytest.mark.parametrize(
    "name",
    [
        *("cache_figures", "door_figures", "architectures_figures", "llm_figures", "embeddings_figures"),
        *("small_kernels_figures", "products_figures", "streams_figures"),
    ],
)
def test_the_figures_of_other_pages_are_those_of_the_newest_json(name: str) -> None:
    _benchmark("figures")
    module = _benchmark(name)
    renders = [each for of, each in vars(module).items() if of == "render" or of.startswith("render_")]
    assert renders
    for render in renders:
        assert render() in module.PAGE.read_text(), f"run: python benchmarks/{name}.py"


@pytest.mark.parametrize(
    "page",
    ["README.md", *(f"docs/{name}.md" for name in ("cache", "kernels", "memory", "passes", "results", "streams"))],
)
def test_a_cell_of_a_table_of_figures_is_one_value(page: str) -> None:
    """A number alone, a name or a word or two, no sentence; its unit stands in the header, or in a column of units."""
    text = (_ROOT / page).read_text()
    blocks = re.findall(r"<!-- (?:figures|results): written by (.*?)<!-- end of ", text, re.DOTALL)
    tables = [table for block in blocks for table in re.findall(r"^\|---.*\n((?:\|.*\n)+)", block, re.MULTILINE)]
    # The first column says what the row is of.
    cells = [cell.strip() for table in tables for row in table.splitlines() for cell in row.split("|")[2:-1]]
    assert cells
    assert [cell for cell in cells if not re.fullmatch(r"-?[\d.]+|–|(`\w+`|[A-Za-z.+-]+( [A-Za-z.+-]+)?)?", cell)] == []


def test_the_example_of_the_cache_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRGRAPH_CACHE_DIR", str(tmp_path))
    (example,) = re.findall(r"```python\n(.*?)```", (_ROOT / "docs" / "cache.md").read_text(), re.DOTALL)
    (tmp_path / "cache_page.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        assert importlib.import_module("cache_page").out.shape == (64,)
        del sys.modules["cache_page"]
    assert len(list(tmp_path.rglob("*.airgraph"))) == 1


def _examples(page: str = "README.md") -> list[str]:
    return re.findall(r"```python\n(.*?)```", (_ROOT / page).read_text(), re.DOTALL)


@torch.no_grad()
def test_the_examples_of_the_page_of_streams_run() -> None:
    in_a_model, by_hand = _examples("docs/streams.md")
    names: dict[str, Any] = {}
    exec(compile(in_a_model, "streams.md", "exec"), names)
    a, b, c = (torch.randn(4, 4) for _ in range(3))
    torch.testing.assert_close(names["compiled"](a, b, c), ((a + b) @ c, (a + b) @ b))
    (row,) = airgraph.explain().to_dict()["graphs"]
    assert (row["state"], row["streams"]) == ("captured", 2)
    exec(compile(by_hand, "streams.md", "exec"), names)
    x = names["x"]
    torch.testing.assert_close(names["result"], (x + 1).sin() + (x * 2).exp())


def test_the_example_runs() -> None:
    example = _examples()[0]
    assert len(example.splitlines()) <= 20
    exec(compile(example, "README.md", "exec"), {})


def test_the_example_of_a_language_model_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a model of its kind, and texts of numbers: weights come from the network."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=None,
    )

    class Tokenizer:
        def __call__(self, text: str, return_tensors: str) -> dict[str, torch.Tensor]:
            ids = torch.tensor([[1, 2, 3, 4]])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

        def decode(self, tokens: torch.Tensor) -> str:
            return f"{len(tokens)} tokens"

    model = transformers.LlamaForCausalLM(config).eval()
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda name: model)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda name: Tokenizer())
    airgraph.reset()
    exec(compile(_examples()[1], "README.md", "exec"), {})
    assert "44 tokens" in capsys.readouterr().out
    rows = airgraph.explain().to_dict()["graphs"]
    assert [row["replays"] for row in rows] == [1, 39]
    # The report that the README shows is the one of this model.
    shown = re.findall(r"^│(.*)│$", (_ROOT / "README.md").read_text(), re.MULTILINE)
    columns, *cells = [[cell.strip() for cell in line.split("│")] for line in shown]
    assert len(columns) == 7
    assert cells == [[str(row[column]) for column in columns] for row in rows]


def test_links_lead_somewhere() -> None:
    for page in [_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
