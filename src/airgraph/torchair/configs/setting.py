"""What one setting of TorchAir accepts, and what it comes to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airgraph.errors import OptionError

__all__ = ["ANYTHING", "COUNT", "FUNCTION", "PATH", "SWITCH", "Accepted", "Setting", "one_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The values of a setting. in_words: after "expected". holds: whether it is one. taken: what it is kept as.

    reasons: of values that TorchAir accepts and airgraph does not, why.
    """

    in_words: str
    holds: Callable[[Any], bool]
    taken: Callable[[Any], Any] = lambda value: value
    reasons: Mapping[str, str] = field(default_factory=dict)


def one_of(*values: Any, reasons: Mapping[str, str] | None = None) -> Accepted:
    """One of a few values."""
    return Accepted(
        in_words=" or ".join(map(repr, values)),
        holds=lambda value: any(type(value) is type(each) and value == each for each in values),
        reasons=reasons or {},
    )


ANYTHING = Accepted(in_words="anything", holds=lambda value: True)
# TorchAir takes 0 and 1 as well.
SWITCH = Accepted(
    in_words="True or False", holds=lambda value: type(value) in (bool, int) and value in (0, 1), taken=bool
)
COUNT = Accepted(in_words="an integer of at least 1", holds=lambda value: type(value) is int and value >= 1)
FUNCTION = Accepted(in_words="None or a function", holds=lambda value: value is None or callable(value))
PATH = Accepted(
    in_words="a path",
    holds=lambda value: isinstance(value, (str, os.PathLike)),
    # Where it was at this moment, wherever the process goes later.
    taken=os.path.realpath,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table.

    path: with dots, from the config object. option: of airgraph.Options, if it comes to one; value_of: which value that
    gets, from the setting's own and all of them by path. meaning: for docs/from_torchair.md, how the value is turned or
    what holds whatever it is. refusal: why another value than the default is an error.
    """

    path: str
    default: Any
    accepted: Accepted = ANYTHING
    option: str | None = None
    value_of: Callable[[Any, Mapping[str, Any]], Any] = lambda value, values: value
    meaning: str = ""
    refusal: str = ""

    def taken(self, value: Any) -> Any:
        """A value as it is kept. Raises OptionError for one that the setting does not take."""
        if self.refusal:
            # What asks for nothing is no reason to stop a program.
            if type(value) is type(self.default) and value == self.default:
                return value
            raise OptionError(
                f"setting {self.path!r}: expected its default, {self.default!r}, got {value!r}: {self.refusal}."
            )
        if not self.accepted.holds(value):
            reason = self.accepted.reasons.get(value) if isinstance(value, str) else None
            because = f": {reason}" if reason else ""
            raise OptionError(f"setting {self.path!r}: expected {self.accepted.in_words}, got {value!r}{because}.")
        return self.accepted.taken(value)
