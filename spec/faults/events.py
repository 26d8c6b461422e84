"""Faults in what the key map announces: payloads, parents, removals, the clearing (semantics 3.7)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import events
from kvproof.core import pool as pools
from kvproof.core.config import Config
from kvproof.core.pool import Pool
from kvproof.spec.faults.base import Fault

_payload_size = events.payload_size
_insert_partial = pools.insert_partial
_reset = pools.reset


def _scaled_for_recurrent_groups(config: Config, group: int, what: int, boundary: int) -> int:
    size = _payload_size(config, group, what, boundary)
    return size * config.dcp_size if group in config.recurrent else size


def _announced_although_known(pool: Pool, node: int, group: int, block: int, tokens: int) -> Pool:
    after = _insert_partial(pool, node, group, block, tokens)
    return pools.noted(after, (pools.PARTIAL, node, group)) if after is pool else after


def _by_hash_index(config: Config, group: int, boundary: int, size: int) -> int:
    del group
    return (boundary // size - 1) * config.hash_block_size


def _removed_in_silence(pool: Pool, block: int) -> Pool:
    return pools.remove_all(pool, block)


def _cleared_in_silence(pool: Pool) -> tuple[Pool, bool]:
    after, done = _reset(pool)
    return evolve(after, notes=pool.notes), done


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-EVT-1",
        "the payload of a recurrent group is scaled by the DCP size although the group is replicated",
        "#49962",
        ("EV-1", "EV-2"),
        ((events, "payload_size", _scaled_for_recurrent_groups),),
        scopes=("fa4-m4-n2-events",),
    ),
    Fault(
        "M-EVT-2",
        "a partial entry is announced again at every caching call although its block has the key",
        "src",
        ("EV-6",),
        ((pools, "insert_partial", _announced_although_known),),
        scopes=("fa4-m4-n2-events", "fa8-m4-events"),
    ),
    Fault(
        "M-EVT-3",
        "the parent is taken by the block's index in the list of hashes instead of by its boundary",
        "src",
        ("EV-3",),
        ((events, "parent_boundary", _by_hash_index),),
        scopes=("fa4-m4-n2-events", "fa8-m4-events"),
    ),
    Fault(
        "M-EVT-5",
        "keys that give way to another one of their block are not announced as removed",
        "src",
        ("EV-4", "EV-5"),
        ((pools, "clear_for_promotion", _removed_in_silence),),
        scopes=("fa8-m4-events", "fa4-m4-n2-events"),
    ),
    Fault(
        "M-EVT-6",
        "a reset clears the key map and does not announce it",
        "src",
        ("EV-5",),
        ((pools, "reset", _cleared_in_silence),),
        scopes=("fa4-m4-n2-events", "fa8-m4-events"),
    ),
)
