"""What each rule of each pass does to a small program, and why it leaves others alone.

After a change that is meant: `pytest tests/passes/test_golden.py --snapshot-update`, and read the difference.
"""

import golden_cat
import golden_clean_up
import golden_custom_operators
import golden_in_place
import pytest
from golden import CASES, Case, rewritten
from syrupy.assertion import SnapshotAssertion

_FILES = (golden_clean_up, golden_cat, golden_in_place, golden_custom_operators)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_graph_is_rewritten_as_before(case: Case, snapshot: SnapshotAssertion) -> None:
    assert rewritten(case) == snapshot
