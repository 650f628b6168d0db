"""Options are parsed once, and nothing is ignored."""

import dataclasses

import numpy as np
import pytest
import torch

import airgraph
from airgraph import Options
from airgraph.errors import OptionError

_PROMISED = {
    "use_graph_pool", "reuse_graph_pool_in_same_fx", "clone_input", "clone_output", "live_outputs", "on_input_move",
    "capture_limit", "memory_budget", "inplace_pass", "input_inplace_pass", "remove_noop_ops", "remove_cat_ops",
    "pattern_fusion_pass", "post_grad_custom_pre_pass", "post_grad_custom_post_pass", "frozen_parameter",
    "kernels", "pack_weights", "force_eager", "force_recapture", "capture_error_mode", "stream_check", "max_streams",
    "verify_every",
}  # fmt: skip


def test_all_promised_names_exist() -> None:
    assert {field.name for field in dataclasses.fields(Options)} == _PROMISED | {"dump_dir"}


def test_every_option_has_a_doc() -> None:
    assert all(field.metadata["doc"] for field in dataclasses.fields(Options))


def test_an_unknown_name_lists_close_matches() -> None:
    with pytest.raises(OptionError, match="unknown option 'clone_outputs'. Did you mean 'clone_output'"):
        airgraph.get_backend({"clone_outputs": True})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("live_outputs", "keep"),
        ("clone_output", "yes"),
        ("clone_output", [-1]),
        ("capture_limit", 0),
        ("capture_limit", True),
        ("force_eager", 1),
        ("on_input_move", None),
        ("on_input_move", "copy"),
        ("memory_budget", -1),
        ("memory_budget", True),
        ("memory_budget", "2GB"),
        ("use_graph_pool", 3),
        ("use_graph_pool", "pool"),
        ("use_graph_pool", ("a", "b")),
        ("capture_error_mode", "Global"),
        ("max_streams", -1),
        ("max_streams", 1.5),
        ("dump_dir", ""),
        ("dump_dir", b"x"),
    ],
)
def test_a_bad_value_names_the_option_and_the_value(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=name):
        airgraph.get_backend({name: value})


@pytest.mark.parametrize("name", sorted(field.name for field in dataclasses.fields(Options)))
@pytest.mark.parametrize(
    "value", [np.ones(2), torch.ones(2), np.ones((50, 50))], ids=["array", "tensor", "large array"]
)
def test_an_array_is_refused_in_one_line_that_names_the_option(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"^option '{name}': expected .+") as raised:
        Options(**{name: value})
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("capture_limit", np.int64(3), 3),
        ("verify_every", np.int32(0), 0),
        ("max_streams", np.uint8(2), 2),
        ("memory_budget", torch.tensor(5), 5),
        ("clone_output", [np.int64(0), 1], (0, 1)),
    ],
)
def test_an_integer_of_any_kind_is_the_number(name: str, value: object, expected: object) -> None:
    found = getattr(Options(**{name: value}), name)
    assert found == expected and type(found) is type(expected)
    assert hash(Options(**{name: value})) == hash(Options(**{name: expected}))


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("max_streams", "an integer of at least 0 or None"),
        ("capture_limit", "an integer of at least 1"),
        ("verify_every", "an integer of at least 0"),
    ],
)
def test_the_message_says_all_that_is_allowed(name: str, allowed: str) -> None:
    with pytest.raises(OptionError, match=rf"^option '{name}': expected {allowed}, got 'x'\.$"):
        Options(**{name: "x"})


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().clone_output = True  # type: ignore[misc]


def test_a_wrong_type_of_options_is_refused() -> None:
    with pytest.raises(OptionError, match="expected None, a dict or airgraph.Options, got int"):
        airgraph.get_backend(3)  # type: ignore[arg-type]


def test_torch_compile_hands_options_over() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="airgraph", options={"clone_outputs": True})
    with torch.no_grad(), pytest.raises(Exception, match="unknown option 'clone_outputs'"):
        compiled(torch.ones(2))


def test_mode_is_refused_with_a_hint() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="airgraph", mode="reduce-overhead")
    with torch.no_grad(), pytest.raises(Exception, match="airgraph has no modes"):
        compiled(torch.ones(2))
