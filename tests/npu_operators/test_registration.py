"""Registering is asked for, done once, and never beside torch_npu's own operators."""

from pathlib import Path

import pytest
import torch
from process import output_of

from airgraph import npu_operators
from airgraph.errors import OperatorsExist


def test_import_registers_nothing_and_then_torch_npu_is_kept_out(tmp_path: Path) -> None:
    (tmp_path / "torch_npu.py").write_text("")
    said = output_of(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})",
        """
        import airgraph.inference
        from airgraph import npu_operators
        assert not hasattr(torch.ops.npu, "npu_rms_norm")
        npu_operators.register()
        npu_operators.register()
        torch.ops.npu.npu_rms_norm(torch.ones(2, 4), torch.ones(4))
        import importlib.util
        try:
            import torch_npu
        except ImportError as refused:
            print(refused)
    """,
    )
    assert said.startswith("torch_npu cannot be imported any more: airgraph's operators of the same names")


def test_a_module_of_that_name_that_is_there_is_imported() -> None:
    output_of("""
        import sys, types
        from airgraph import npu_operators
        npu_operators.register()
        sys.modules["torch_npu"] = stand_in = types.ModuleType("torch_npu")
        import torch_npu
        assert torch_npu is stand_in
    """)


def test_operators_that_are_there_are_left_alone() -> None:
    said = output_of("""
        from airgraph import npu_operators
        theirs = torch.library.Library("npu", "FRAGMENT")
        theirs.define("npu_swiglu(Tensor input) -> Tensor")
        try:
            npu_operators.register()
        except OperatorsExist as refused:
            print(refused)
        assert not hasattr(torch.ops.npu, "npu_rms_norm")
    """)
    assert said.startswith("torch_npu's operators are registered in this process, npu_swiglu among them: use those.")
    assert issubclass(OperatorsExist, RuntimeError)


def test_callables_are_what_scripts_find_in_torch_npu() -> None:
    found = npu_operators.callables()
    assert found["npu_rms_norm"] is torch.ops.npu.npu_rms_norm
    assert set(found) == {operator.name for operator in npu_operators.OPERATORS}


@pytest.mark.parametrize("operator", npu_operators.OPERATORS, ids=lambda operator: operator.qualified_name)
def test_declarations_name_arguments_of_their_schemas(operator: npu_operators.Operator) -> None:
    schema = operator.overload._schema
    assert {*operator.refused, *operator.hints} <= {each.name for each in schema.arguments}
    assert not set(operator.refused) & set(operator.hints)
    several = sum(each.is_write for each in schema.arguments) > 1
    assert (operator.fake is not None) is several, "an operator that writes several arguments stays whole"


def test_hints_change_nothing() -> None:
    query = torch.randn(1, 2, 3, 8)
    plain = torch.ops.npu.npu_fusion_attention(query, query, query, 2, "BNSD")
    hinted = torch.ops.npu.npu_fusion_attention(query, query, query, 2, "BNSD", inner_precise=2, sync=True)
    torch.testing.assert_close(plain, hinted, rtol=0, atol=0)


def test_a_format_that_only_a_card_has_is_named() -> None:
    x = torch.ones(2, 3)
    assert torch.equal(torch.ops.npu.npu_format_cast(x, 2), x)
    assert torch.ops.npu.npu_format_cast_(x, 2) is x
    for name in ("npu_format_cast", "npu_format_cast_"):
        with pytest.raises(ValueError, match=rf"{name}: acl_format must be 2 \(ND\).* got 29"):
            getattr(torch.ops.npu, name)(x, 29)
