"""What `stream_check` does about the races of a graph."""

from __future__ import annotations

import logging

from torch.fx import GraphModule

from airgraph.errors import StreamError
from airgraph.passes.races import insert_waits, races_in
from airgraph.user_warning import warn_user

__all__ = ["check_streams"]

log = logging.getLogger(__name__)

_REMEDY = "Record an airgraph.Event after the first and wait for it before the second."


def check_streams(gm: GraphModule, policy: str, name: str) -> int:
    """Find the races of a graph; returns how many waits were inserted.

    policy: of the option `stream_check`. "fix" inserts waits and "warn" does not, both with one warning; "off" does not
    look. name: of the program. Raises StreamError for "error".
    """
    races = [] if policy == "off" else races_in(gm.graph)
    if not races:
        return 0
    for race in races:
        log.info("%s: %s, and nothing orders the two", name, race)
    others = f", and so for {len(races) - 1} more pairs, which are logged" if len(races) > 1 else ""
    found = f"{name}: {races[0]}, and nothing orders the two{others}."
    if policy == "error":
        raise StreamError(f"{found} {_REMEDY}")
    if policy == "warn":
        warn_user(f"{found} Results may differ from call to call. {_REMEDY}")
        return 0
    insert_waits(gm, races)
    gm.recompile()
    warn_user(f"{found} The second now waits for the first, so results are right. {_REMEDY}")
    return len(races)
