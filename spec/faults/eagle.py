"""Faults in the EAGLE drop of a lookup (semantics T11, T35)."""

from __future__ import annotations

from kvproof.core import geometry, lookup
from kvproof.core.config import Config
from kvproof.core.kinds import recurrent
from kvproof.core.pool import Pool
from kvproof.spec.faults.base import Fault

_find_hit = recurrent.find_hit

Lists = tuple[tuple[int, ...], ...]


def _state_taken_back(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, Lists]:
    """Give up one unit of a recurrent hit: the block that is left holds the state behind it."""
    hit, lists = _find_hit(config, pool, nodes, members, limit, drop)
    if not drop or not hit:
        return hit, lists
    size = config.sizes[members[0]]
    dropped = hit - geometry.eagle_unit(size, config.alignment)
    dropped -= dropped % config.alignment
    entries = geometry.ceil_div(dropped, size)
    return dropped, tuple((*blocks[: entries - 1], blocks[-1]) if entries else () for blocks in lists)


def _dropped_in_every_pass(config: Config, members: tuple[int, ...], verified: bool) -> bool:
    del verified
    return config.eagle[members[0]]


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-HIT-3",
        "recurrent groups give up a unit of their hit too, although a state cannot be taken back",
        "#43559, #47861",
        ("HB-10", "CC-2"),
        ((recurrent, "find_hit", _state_taken_back),),
        scopes=("fa8-m8-h2-eagle-ckpt", "fa8-m8-h2-eagle-pins"),
    ),
    Fault(
        "M-HIT-4",
        "a class gives up a unit in every pass of the lookup, and the hit shrinks from pass to pass",
        "#32802",
        ("HB-15",),
        ((lookup, "owes_drop", _dropped_in_every_pass),),
        scopes=("w2-w2-eagle", "w4-fa4-w8-eagle-async"),
    ),
)
