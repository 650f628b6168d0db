"""What ranks say of a key through a store: none waits for another, and none asks for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch import distributed

from airgraph.capture import votes as module
from airgraph.capture.key import GraphKey
from airgraph.capture.votes import Votes

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="this torch has no torch.distributed")

KEY, OTHER_KEY = GraphKey.of([3]), GraphKey.of([4])


class Ranks:
    """Ranks in one process: which one speaks, the members of groups, and the store that all have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store: object = distributed.HashStore()
        self.speaking = 0
        self.members = {"0": [0, 1]}
        monkeypatch.setattr(module, "default_store", lambda: self.store)
        monkeypatch.setattr(module, "ranks_of", lambda group: self.members[group])
        monkeypatch.setattr(module, "_own_rank", lambda: self.speaking)

    def cast(self, rank: int, votes: Votes, key: GraphKey, *, can_capture: bool) -> None:
        self.speaking = rank
        votes.cast(key, can_capture=can_capture)
        self.speaking = 0


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    return Ranks(monkeypatch)


def test_a_key_is_refused_by_whoever_cannot_capture_it(ranks: Ranks) -> None:
    first, second = Votes("graph #1", ["0"]), Votes("graph #1", ["0"])
    ranks.cast(0, first, KEY, can_capture=True)
    ranks.cast(0, first, OTHER_KEY, can_capture=True)
    assert not first.is_refused(KEY) and first.is_open(KEY)
    ranks.cast(1, second, KEY, can_capture=False)
    ranks.cast(1, second, OTHER_KEY, can_capture=True)
    assert first.is_refused(KEY) and not first.is_open(KEY)
    # For as long as the groups are there.
    assert first.is_refused(KEY)
    assert not first.is_refused(OTHER_KEY) and not first.is_open(OTHER_KEY)
    first.forget()
    assert first.is_open(KEY) and not first.is_refused(KEY)


def test_another_program_says_nothing_of_it(ranks: Ranks) -> None:
    own = Votes("graph #1", ["0"])
    ranks.cast(0, own, KEY, can_capture=True)
    ranks.cast(1, Votes("graph #2", ["0"]), KEY, can_capture=False)
    assert not own.is_refused(KEY)


def test_ranks_of_a_mesh_hear_of_each_other_and_pass_it_on(ranks: Ranks) -> None:
    """They have one group in common, and each another one; the third rank knows the first alone."""
    ranks.members = {"1": [0, 1], "3": [0, 2], "4": [1, 3]}
    first, second, third = (Votes("graph #1", groups) for groups in (["1", "3"], ["1", "4"], ["3"]))
    for rank, votes in enumerate((first, second, third)):
        ranks.cast(rank, votes, KEY, can_capture=votes is not second)
    assert first.is_refused(KEY)
    ranks.speaking = 2
    assert third.is_refused(KEY)


def test_a_program_that_a_rank_captures_nothing_of(ranks: Ranks) -> None:
    first, second = Votes("graph #1", ["0"]), Votes("graph #1", ["0"])
    ranks.cast(0, first, KEY, can_capture=True)
    ranks.speaking = 1
    second.refuse_all()
    ranks.speaking = 0
    assert first.is_refused(KEY)


def test_what_was_said_before_the_groups_ended_is_not_heard(ranks: Ranks) -> None:
    first, second = Votes("graph #1", ["0"]), Votes("graph #1", ["0"])
    ranks.cast(1, second, KEY, can_capture=False)
    first.forget()
    ranks.cast(0, first, KEY, can_capture=True)
    assert not first.is_refused(KEY)


def test_a_rank_that_never_has_the_key_is_not_asked_for_ever(ranks: Ranks) -> None:
    votes = Votes("graph #1", ["0"])
    ranks.cast(0, votes, KEY, can_capture=True)
    looks = 0
    while votes.is_open(KEY):
        assert not votes.is_refused(KEY)
        looks += 1
    assert looks == 8


@pytest.mark.parametrize("store", ["none", "keeps nothing"])
def test_without_a_store_each_rank_is_by_itself(ranks: Ranks, store: str) -> None:
    ranks.store = None if store == "none" else distributed.Store()
    votes = Votes("graph #1", ["0"])
    ranks.cast(0, votes, KEY, can_capture=True)
    for _ in range(8):
        assert not votes.is_refused(KEY)
    assert not votes.is_open(KEY)
