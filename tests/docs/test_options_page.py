"""The options page is what the dataclass says."""

import importlib.util
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def test_the_options_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("generate_options", _DOCS / "generate_options.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.render(), "run: python docs/generate_options.py"
