"""Ranks that communicate within a program run each of its keys alike: how a call comes to that."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import torch

from airgraph.capture.captures import CapturedGraph, Captures, Made
from airgraph.capture.fallback import Fallback, Mode
from airgraph.capture.key import GraphKey
from airgraph.capture.ranks import OTHERS_CANNOT, Ranks, Vote
from airgraph.capture.votes import Votes
from airgraph.errors import NotAdmitted, UnsupportedGraph
from airgraph.program.program import CaptureProgram
from airgraph.runtime.protocol import Capabilities

__all__ = ["Agreement"]

# One more capture of a new key; whether it may run the call.
Capture = Callable[[GraphKey, list[Any], bool], Made]
Drop = Callable[[CapturedGraph], None]


class Agreement:
    """Of one program's callables, one a rank.

    By a collective where a rank may replay only what the others do, too; else by votes, for which no rank waits.
    """

    def __init__(
        self, ranks: Ranks, votes: Votes | None, fallback: Fallback, captures: Captures, *, runs_to_capture: bool
    ) -> None:
        self._ranks = ranks
        self._votes = votes
        self._fallback = fallback
        self._captures = captures
        self._runs_to_capture = runs_to_capture

    @classmethod
    def of(
        cls, program: CaptureProgram, capabilities: Capabilities, fallback: Fallback, captures: Captures
    ) -> Agreement | None:
        """None for a program that communicates with nobody."""
        ranks = Ranks.of(program)
        if ranks is None:
            return None
        votes = None
        if not capabilities.ranks_run_alike:
            votes = Votes(f"{program.name} of {_forms_of(program)}", ranks.groups)
        return cls(ranks, votes, fallback, captures, runs_to_capture=capabilities.runs_to_capture)

    def before_a_call(
        self, key: GraphKey, args: list[Any], *, runs: bool, capture: Capture, drop: Drop
    ) -> list[Any] | None:
        """Do with a key as the other ranks do. The outputs of the call, if it was run for that.

        runs: whether it may be run.
        """
        if not self._ranks.is_settled(key):
            if not self._ranks.are_there():
                # Raises what torch says of a group that is not there; a graph would keep one that is about to end.
                return self._fallback.run(args)
            if self._votes is not None:
                self._heed(self._votes, key, drop)
            else:
                outputs = self._capture_in_step(key, args, runs=runs, capture=capture, drop=drop)
                if outputs is not None:
                    return outputs
        self._take_what_ranks_refuse(key)
        return None

    def tell(self, key: GraphKey, *, can_capture: bool) -> None:
        """This rank has tried. Nothing where the others ask for it."""
        if self._votes is not None:
            self._votes.cast(key, can_capture=can_capture)

    def is_open(self, key: GraphKey) -> bool:
        """Whether a later call may hear that another rank cannot capture what this one has."""
        return self._votes is not None and self._votes.is_open(key)

    def is_about(self, group: str) -> bool:
        """Whether the ranks communicate in a group of this name."""
        return self._ranks.have(group)

    def forget(self) -> None:
        """A group ends: nothing is agreed any more."""
        self._ranks.forget()
        if self._votes is not None:
            self._votes.forget()

    def _capture_in_step(
        self, key: GraphKey, args: list[Any], *, runs: bool, capture: Capture, drop: Drop
    ) -> list[Any] | None:
        """Capture a new key if all ranks can; else none of them does. The outputs of the call, if it was run.

        Where a capture runs the call, ranks that cannot capture run it too before they say so: all collectives of the
        program come before those of the agreement, on every rank. So it is where a warm-up runs it, to no other end.
        """
        self._ranks.expect_all()
        try:
            vote, outputs = self._vote(key, args, runs=runs, capture=capture)
        except Exception:
            # The others are not in the agreement yet where this one has not come to it: nothing of it may be in the way
            # of what the call raises.
            if not self._runs_to_capture or self._ranks.have_all_begun():
                # What the call raised says more than that nobody answers.
                with contextlib.suppress(RuntimeError):
                    self._settle(key, Vote.NOT_NOW, drop)
            raise
        if self._settle(key, vote, drop) is Vote.NOT_NOW and outputs is None:
            return self._fallback.run(args) if runs else self._fallback.placeholders(args)
        return outputs

    def _vote(self, key: GraphKey, args: list[Any], *, runs: bool, capture: Capture) -> tuple[Vote, list[Any] | None]:
        """What this rank says of a key, and the outputs of the call, if it was run."""
        runs_first = runs and self._runs_to_capture
        has_run = False
        outputs: list[Any] | None = None
        vote = Vote.NEVER
        try:
            if not self._fallback.serves(key):
                vote = Vote.NOT_NOW
                made = capture(key, args, runs)
                outputs, has_run = made.outputs, made.has_run
                if made.graph is not None:
                    vote = Vote.CAPTURED
                elif self._fallback.serves(key):
                    vote = Vote.NEVER
            if runs_first and outputs is None:
                outputs = self._fallback.run(args, counted=True)
            elif self._runs_to_capture and not runs and not has_run:
                self._fallback.rehearse(args)
        except NotAdmitted as refusal:
            # Else the call meets it again.
            if runs_first:
                outputs = self._fallback.on_refused(args, refusal)
        return vote, outputs

    def _settle(self, key: GraphKey, vote: Vote, drop: Drop) -> Vote:
        agreed = self._ranks.settle(key, vote)
        if agreed is not Vote.CAPTURED and not self._fallback.serves(key):
            for graph in self._captures.of(key):
                drop(graph)
            self._take_what_ranks_refuse(key)
        return agreed

    def _heed(self, votes: Votes, key: GraphKey, drop: Drop) -> None:
        """Run a key eagerly that another rank cannot capture, and say so of one that this rank cannot."""
        if self._fallback.mode is Mode.EAGER:
            votes.refuse_all()
        elif self._fallback.serves(key):
            votes.cast(key, can_capture=False)
        elif votes.is_refused(key):
            for graph in self._captures.of(key):
                drop(graph)
            self._fallback.take(key, UnsupportedGraph(OTHERS_CANNOT))

    def _take_what_ranks_refuse(self, key: GraphKey) -> None:
        if self._ranks.refuse(key) and not self._fallback.serves(key):
            self._fallback.take(key, UnsupportedGraph(self._ranks.why_not(key)))


def _forms_of(program: CaptureProgram) -> str:
    """A digest of the sizes and types of a program's arguments, as it was traced with them."""
    values = (node.meta.get("val") for node in program.gm.graph.find_nodes(op="placeholder"))
    forms = [(str(tuple(each.shape)), str(each.dtype)) if isinstance(each, torch.Tensor) else "" for each in values]
    return hashlib.sha256(repr(forms).encode()).hexdigest()[:16]
