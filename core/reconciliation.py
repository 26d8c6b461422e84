"""How many local and external tokens a request gets, from its local hit and what a connector offers (T14).

The door refuses every other choice; whoever drives the model asks here which one it is.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from kvproof.core import lookup
from kvproof.core.config import Config
from kvproof.core.world import Hit

Branch = Literal["no external", "behind the hit", "tail replaced", "tail kept", "looked up anew"]
"""The branches of T14: nothing offered; no tail inside a scheduler block; a tail given up for more tokens, or kept; the common
hit in place of a divergent one."""


@frozen(slots=True)
class Accepted:
    """What T14 makes of an offer, in tokens. ``looked up anew``: ask for the common hit and take that, nothing external."""

    branch: Branch
    local: int
    external: int


def asked_behind(config: Config, hit: Hit) -> int:
    """Return the local tokens behind which a connector is asked: the hit rounded down to S (T14.1)."""
    return hit.local - hit.local % config.scheduler_block_size


def accept(config: Config, hit: Hit, offered: int) -> Accepted:
    """Return which of the local and the offered tokens a request gets (T14.3, T14.4, CA-7)."""
    aligned = asked_behind(config, hit)
    tail = hit.local - aligned
    if offered and (not tail or lookup.replaces_tail(tail, offered)):
        return Accepted("tail replaced" if tail else "behind the hit", aligned, offered)
    if hit.diverged:
        return Accepted("looked up anew", 0, 0)
    return Accepted("tail kept" if offered else "no external", hit.local, 0)
