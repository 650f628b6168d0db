"""The page of the operators lists each with what it refuses, as it is declared."""

import re
from pathlib import Path

from airgraph.npu_operators import OPERATORS

_PAGE = Path(__file__).parents[2] / "docs" / "npu_operators.md"


def test_each_operator_has_a_row_with_what_it_refuses() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in _PAGE.read_text().splitlines()]
    found = {
        row[0].strip("` |"): (re.findall(r"`(\w+)`", row[2]), re.findall(r"`(\w+)`", row[3]))
        for row in rows
        if len(row) == 4 and "`" in row[0]
    }
    assert found == {each.qualified_name: (list(each.refused), list(each.hints)) for each in OPERATORS}
