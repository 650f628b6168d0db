"""The prolog of latent attention is its four products, two norms and two rotations."""

from functools import partial

import pytest
import torch
from agreement import assert_agrees
from latent_attention import prolog_arguments, prolog_reference
from torch import Tensor

from airgraph.errors import UnsupportedArgument

_npu = torch.ops.npu


def _prolog(*arguments: Tensor, **settings: object) -> tuple[Tensor, ...]:
    *positional, index = arguments
    return _npu.npu_mla_prolog_v3(*positional, cache_index=index, **settings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [(5,), (2, 3)], ids=["together", "by batch"])
def test_prolog(tokens: tuple[int, ...], dtype: torch.dtype) -> None:
    assert_agrees(_prolog, prolog_reference, *prolog_arguments(tokens, dtype), slack=4)


def test_prolog_with_scales() -> None:
    call = partial(_prolog, qc_qr_scale=3.0, kc_scale=0.5)
    assert_agrees(call, partial(prolog_reference, query_scale=3.0, key_scale=0.5), *prolog_arguments((2, 3)), slack=4)


def test_prolog_that_gives_its_norm() -> None:
    call = partial(_prolog, query_norm_flag=True)
    assert_agrees(call, partial(prolog_reference, query_norm=True), *prolog_arguments((5,)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache_mode": "PA_NZ"}, "cache_mode must be 'PA_BSND', got 'PA_NZ'"),
        ({"weight_quant_mode": 2}, "weight_quant_mode must be 0, all that is done here, got 2"),
        ({"dequant_scale_x": torch.ones(5, 1)}, "dequant_scale_x must be None, all that is done here"),
        ({"query_norm_flag": True, "qc_qr_scale": 2.0}, "query_norm_flag must be False where qc_qr_scale is not 1"),
        ({"cache_index": None}, r"cache_index must be of shape \(5,\) with cache_mode='PA_BSND', got None"),
    ],
)
def test_settings_that_are_not_done_are_named(settings: dict, message: str) -> None:
    *positional, index = prolog_arguments((5,))
    with pytest.raises(UnsupportedArgument, match=f"npu_mla_prolog_v3: {message}"):
        _npu.npu_mla_prolog_v3(*positional, **{"cache_index": index, **settings})


@pytest.mark.parametrize(
    ("position", "name"), [(1, "weight_dq"), (4, "weight_dkv_kr"), (8, "rope_cos"), (9, "kv_cache"), (10, "kr_cache")]
)
def test_an_argument_of_another_shape_is_named(position: int, name: str) -> None:
    arguments = list(prolog_arguments((5,)))
    arguments[position] = arguments[position][..., :-1]
    with pytest.raises(UnsupportedArgument, match=f"npu_mla_prolog_v3: {name} must be"):
        _prolog(*arguments)


def test_quantised_tokens_are_refused_by_their_type() -> None:
    arguments = list(prolog_arguments((5,)))
    arguments[0] = arguments[0].to(torch.int8)
    with pytest.raises(UnsupportedArgument, match=r"token_x must be of a floating type.* got torch.int8"):
        _prolog(*arguments)
