"""Options are parsed once, and nothing is ignored."""

import dataclasses

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
    ],
)
def test_a_bad_value_names_the_option_and_the_value(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=name):
        airgraph.get_backend({name: value})


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
