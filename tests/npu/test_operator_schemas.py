"""airgraph's operators of torch_npu's have torch_npu's schemas."""

from __future__ import annotations

import pytest
import torch

from airgraph import npu_operators
from airgraph.errors import OperatorsExist

pytest.importorskip("torch_npu")


@pytest.mark.parametrize("operator", npu_operators.OPERATORS, ids=lambda operator: operator.qualified_name)
def test_schema_is_torch_npus(operator: npu_operators.Operator) -> None:
    own = torch.library.Library("airgraph_schemas", "FRAGMENT")
    own.define(operator.schema)
    packet = getattr(torch.ops.airgraph_schemas, operator.name)
    ours = getattr(packet, operator.overload._overloadname)._schema
    assert str(ours).partition("::")[2] == str(operator.overload._schema).partition("::")[2]


def test_where_torch_npu_is_nothing_is_registered() -> None:
    before = torch.ops.npu.npu_rms_norm.default
    with pytest.raises(OperatorsExist, match="torch_npu's operators are registered in this process"):
        npu_operators.register()
    assert torch.ops.npu.npu_rms_norm.default is before
