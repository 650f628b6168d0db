"""Registered replacements are applied where they match, and can be checked, switched off and taken back."""

from collections.abc import Iterator

import pytest
import torch
from golden import SWITCHES, Case, rewritten
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn
from torch.fx import Graph

import airgraph
from airgraph import scope
from airgraph.errors import OptionError
from airgraph.passes import pattern_fusion
from airgraph.passes.fingerprint import fingerprint
from airgraph.program.streams import stream_of


@pytest.fixture(autouse=True)
def no_rules() -> Iterator[None]:
    yield
    pattern_fusion._rules.clear()


def _scaled_sum(a: Tensor, b: Tensor) -> Tensor:
    return (a + b) * 3


def _as_difference(a: Tensor, b: Tensor) -> Tensor:
    return a - b


def _program(x: Tensor, y: Tensor) -> Tensor:
    return ((x.exp() + y) * 3).relu() + 1


def _run(dynamic: bool = False, **options: object) -> tuple[Tensor, int | None]:
    torch._dynamo.reset()
    airgraph.reset()
    with torch.no_grad():
        out = torch.compile(_program, backend="airgraph", dynamic=dynamic, options=options)(
            torch.zeros(4), torch.full((4,), 0.25)
        )
    return out, airgraph.explain().to_dict()["passes"].get("pattern_fusion_pass")


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_match_is_replaced(dynamic: bool) -> None:
    undo = airgraph.register_replacement(_scaled_sum, _as_difference, (torch.ones(2), torch.ones(2)))
    out, replaced = _run(dynamic)
    assert replaced == 1 and out.tolist() == [1.75] * 4
    undo()
    undo()
    out, replaced = _run(dynamic)
    assert replaced == 0 and out.tolist() == [4.75] * 4


def test_the_option_switches_it() -> None:
    airgraph.register_replacement(_scaled_sum, _as_difference, (torch.ones(2), torch.ones(2)))
    out, replaced = _run(pattern_fusion_pass=False)
    assert replaced is None and out.tolist() == [4.75] * 4


def test_an_extra_check_decides() -> None:
    seen = []

    def never(match: object) -> bool:
        seen.append(match)
        return False

    airgraph.register_replacement(_scaled_sum, _as_difference, (torch.ones(2), torch.ones(2)), extra_check=never)
    out, replaced = _run()
    assert replaced == 0 and out.tolist() == [4.75] * 4 and seen


@pytest.mark.parametrize("allowed", [True, False])
def test_the_graph_is_rewritten_as_before(allowed: bool, snapshot: SnapshotAssertion) -> None:
    airgraph.register_replacement(
        _scaled_sum, _as_difference, (torch.ones(2), torch.ones(2)), extra_check=lambda match: allowed
    )
    options = {name: name == "pattern_fusion_pass" for name in SWITCHES}
    assert rewritten(Case("pattern", _program, options, dynamic=False, direct=False, version=None)) == snapshot


def test_what_cannot_be_a_rule_is_refused() -> None:
    with pytest.raises(OptionError, match="pattern: expected a function, got 3"):
        airgraph.register_replacement(3, _as_difference, ())
    with pytest.raises(OptionError, match="cannot be traced"):
        airgraph.register_replacement(_scaled_sum, _as_difference, (torch.ones(2), torch.ones(3)))


class _Streams(nn.Module):
    """The pattern on one stream or two, and within a block of a stream of its own."""

    def __init__(self, across: bool) -> None:
        super().__init__()
        self.across = across
        self.added, self.done = airgraph.Event("added"), airgraph.Event("done")

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        with scope.stream("default" if self.across else "side"):
            added = x + y
            self.added.record()
        with scope.stream("side"):
            self.added.wait()
            beside = added * 3
            self.done.record()
        self.done.wait()
        return beside.exp()


@torch.no_grad()
@pytest.mark.parametrize("across", [True, False])
def test_a_match_lies_on_one_stream_and_stays_there(across: bool, recwarn: pytest.WarningsRecorder) -> None:
    graphs: list[Graph] = []
    # In two steps, so that there is more than the result to be put on the stream.
    airgraph.register_replacement(_scaled_sum, lambda a, b: (a - b).neg(), (torch.ones(2), torch.ones(2)))
    options = {
        "post_grad_custom_post_pass": lambda gm, example_inputs, options: graphs.append(gm.graph),
        "kernels": "exact",
    }
    call = torch.compile(_Streams(across), backend="airgraph", fullgraph=True, options=options)
    call(torch.ones(2), torch.ones(2))
    found = {str(node.target).split(".")[1]: stream_of(node) for node in graphs[0].nodes if node.op == "call_function"}
    arithmetic = {"add": None, "mul": "side"} if across else {"sub": "side", "neg": "side"}
    assert {name: stream for name, stream in found.items() if name in ("add", "mul", "sub", "neg")} == arithmetic
    assert not [each for each in recwarn if "orders the two" in str(each.message)]


def _both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    made = a.sin()
    return made, made * b


def _both_otherwise(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    made = a.sin()
    return made, b * made


class _Awaited(nn.Module):
    """The second result of the pattern needs what the first does not wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.made = airgraph.Event("made")

    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with scope.stream("side"):
            y = w @ w
            self.made.record()
        first = x.sin()
        self.made.wait()
        return first + 1, first * y


@torch.no_grad()
def test_no_result_of_several_moves_ahead_of_a_wait(recwarn: pytest.WarningsRecorder) -> None:
    airgraph.register_replacement(_both, _both_otherwise, (torch.ones(2, 2), torch.ones(2, 2)))
    call = torch.compile(_Awaited(), backend="airgraph", fullgraph=True, options={"stream_check": "error"})
    given = torch.randn(4, 4), torch.randn(4, 4)
    torch.testing.assert_close(call(*given), _Awaited()(*given))
    assert not [each for each in recwarn if "orders the two" in str(each.message)]


class _Written(nn.Module):
    """What the pattern reads is written on another stream, as soon as it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = airgraph.Event("read")

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        with scope.stream("side"):
            added = x + y
            self.read.record()
            made = added * 3
        self.read.wait()
        x.add_(1)
        return made


@torch.no_grad()
def test_no_read_moves_behind_an_event(recwarn: pytest.WarningsRecorder) -> None:
    airgraph.register_replacement(_scaled_sum, _as_difference, (torch.ones(2), torch.ones(2)))
    model = _Written()
    call = torch.compile(model, backend="airgraph", fullgraph=True, options={"stream_check": "error"})
    given, expected = [[torch.ones(4), torch.arange(4.0)] for _ in range(2)]
    torch.testing.assert_close(call(*given), model(*expected))
    torch.testing.assert_close(given, expected)
    assert not [each for each in recwarn if "orders the two" in str(each.message)]


def _thrice(a: Tensor, factor: float) -> Tensor:
    return a * factor


def test_numbers_count_in_the_fingerprint() -> None:
    digests = set()
    for value in (0.125, 0.25):
        undo = airgraph.register_replacement(_thrice, _thrice, (torch.ones(2),), numbers={"factor": value})
        digests.add(fingerprint(airgraph.Options()))
        undo()
    assert len(digests) == 2


def test_a_rule_of_the_same_functions_is_skipped_where_that_is_asked() -> None:
    example = (torch.ones(2), torch.ones(2))
    for _ in range(2):
        undo = airgraph.register_replacement(_scaled_sum, _as_difference, example, skip_duplicates=True)
    assert len(pattern_fusion._rules) == 1
    undo()
    assert not pattern_fusion._rules
