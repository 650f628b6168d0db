"""PyTorch's operator samples: a capture equals eager, or is refused with a message that names the operator.

A few samples of each operator; all of them with `pytest tests/ops --full-sweep`.
"""

from __future__ import annotations

import pytest
from samples import Kind, Outcome
from sweep import ALL_SAMPLES, failures, sweep
from table import table

# For two processors.
CHUNKS = 2


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_operator_samples_equal_eager_or_fall_back_by_name(chunk: int, request: pytest.FixtureRequest) -> None:
    full = request.config.getoption("--full-sweep")
    found = list(sweep(slice(chunk, None, CHUNKS), ALL_SAMPLES if full else 2))
    assert not failures(found), "\n".join(failures(found))
    assert sum(o.kind is Kind.EQUAL for o in found) > 0.9 * len(found)


def test_operator_whose_process_dies_is_named() -> None:
    found = list(sweep(["abs", "add"], 1, dtypes=["float32"], dies_at="abs"))
    assert [o.operator for o in found if o.kind is Kind.CRASH] == ["abs"]
    assert "died" in failures(found)[0]
    assert [o.kind for o in found if o.operator == "add"] == [Kind.EQUAL]


def test_refused_capture_is_a_fallback() -> None:
    found = list(sweep(["nonzero"], 1, dtypes=["float32"]))
    assert found and all(o.kind is Kind.FALLBACK and "aten::nonzero" in o.detail for o in found)


def test_table_counts_outcomes_and_names_fallbacks() -> None:
    refused = Outcome("nonzero", "int64", 0, Kind.FALLBACK, "aten::nonzero at f.py:3: its shape depends on data")
    text = table([Outcome("abs", "float32", 0, Kind.EQUAL), refused])
    assert "| equal | 1 | 0 | 1 |" in text
    assert "| its shape depends on data | 1 | `nonzero` |" in text
