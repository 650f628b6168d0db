"""Conditions on sizes are worked out as sympy means them, and nothing else is."""

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod

from airgraph.cache.format.shape_guard import evaluate, symbols
from airgraph.errors import UnsupportedExpression

SYMBOLS = sympy.symbols("s0 s1 s2", integer=True, positive=True)


def expressions() -> st.SearchStrategy[sympy.Expr]:
    leaves = st.one_of(st.sampled_from(SYMBOLS), st.integers(1, 9).map(sympy.Integer))
    positive = lambda inner: st.tuples(inner, st.integers(1, 7).map(sympy.Integer))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
            st.tuples(inner, inner).map(lambda pair: Max(*pair)),
            st.tuples(inner, inner).map(lambda pair: Min(*pair)),
            positive(inner).map(lambda pair: FloorDiv(*pair)),
            positive(inner).map(lambda pair: Mod(*pair)),
            inner.map(lambda value: value**2),
        ),
        max_leaves=8,
    )


def conditions() -> st.SearchStrategy[sympy.Basic]:
    relation = st.sampled_from([sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge])
    compared = st.tuples(relation, expressions(), expressions()).map(lambda parts: parts[0](parts[1], parts[2]))
    joined = st.tuples(st.sampled_from([sympy.And, sympy.Or]), compared, compared)
    return st.one_of(compared, joined.map(lambda parts: parts[0](parts[1], parts[2])), compared.map(sympy.Not))


@settings(max_examples=150)
@given(conditions(), st.tuples(*[st.integers(1, 40)] * 3))
def test_it_means_what_sympy_means(condition: sympy.Basic, values: tuple[int, int, int]) -> None:
    given_sizes = dict(zip(map(str, SYMBOLS), values, strict=True))
    expected = bool(condition.subs(dict(zip(SYMBOLS, values, strict=True))))
    text = str(condition)
    if text in ("True", "False"):
        return
    assert bool(evaluate(text, given_sizes)) is expected, text
    assert symbols(text) == {str(symbol) for symbol in condition.free_symbols}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s0 +",
        "unknown > 1",
        "s0.real",
        "s0[0]",
        "__import__('os')",
        "s0(1)",
        "exec(s0)",
        "Eq(s0, b=1)",
        "lambda: 1",
        "'text'",
        "1.5j",
        "1e999 + 1",
        "CeilToInt(1e999)",
        "s0 ** s0",
        "2 ** 1000",
        "s0 // 0",
        "Mod(s0)",
        "s0 if s0 else s0",
    ],
)
def test_it_refuses(text: str) -> None:
    with pytest.raises(UnsupportedExpression):
        evaluate(text, {"s0": 4})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CeilToInt(IntTrueDiv(s0, 3))", 2),
        ("FloorToInt(IntTrueDiv(s0, 3))", 1),
        ("TruncToInt(0.5*s0)", 2),
        ("RoundToInt(IntTrueDiv(s0, 8))", 0),
    ],
)
def test_numbers_that_pass_through_floats(text: str, value: int) -> None:
    found = evaluate(text, {"s0": 4})
    assert (type(found), found) == (int, value)
