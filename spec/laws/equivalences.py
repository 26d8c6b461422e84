"""Laws that compare a run with its twin under another configuration: DS-8 and DS-9 (semantics 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from kvproof.core.actions import Action
from kvproof.core.config import Config, Group
from kvproof.core.errors import ConfigError
from kvproof.spec import ground, naive_hits
from kvproof.spec.engines import players, twins
from kvproof.spec.laws.base import Evidence, Findings, Law
from kvproof.spec.laws.scaling import divisors


def _same_as(
    config: Config, actions: Sequence[Action], start: players.Start, twin: tuple[tuple[Group, ...], int, int], why: str
) -> list[Evidence]:
    """Compare a run with its twin of other (groups, N, I)."""
    groups, dcp_size, interleave = twin
    try:
        other = twins.reconfigured(config, groups=groups, dcp_size=dcp_size, interleave=interleave)
    except ConfigError as error:
        return [Evidence.of(f"{why}: the twin is not accepted", dcp_size=dcp_size, interleave=interleave, reason=str(error))]
    difference = twins.first_difference(config, other, actions, start)
    if difference is None:
        return []
    twin_values = (("twin_dcp_size", dcp_size), ("twin_interleave", interleave), *difference.values)
    return [Evidence(f"{why}: {difference.message}", twin_values)]


def _interleave_decides_nothing(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Findings:
    """DS-8: the run under every other legal interleave is the same for the scheduler."""
    sharded = [group.block_size for group in config.groups if group.sharded]
    if config.dcp_size == 1 or not sharded or not actions:
        return None
    others = [
        interleave
        for interleave in divisors(min(sharded))
        if interleave != config.interleave and all(size % interleave == 0 for size in sharded)
    ]
    if not others:
        return None
    found = []
    for interleave in sorted({others[0], others[-1]}):
        found += _same_as(config, actions, start, (config.groups, config.dcp_size, interleave), "another interleave")
    return found


def on_one_rank(config: Config) -> tuple[Group, ...] | None:
    """Return the groups with which one rank decides like these ranks: sharded blocks of bs*N; None without such a twin.

    The gate must give the same answer for both (DS-9b).
    """
    if config.dcp_size == 1:
        return None
    merged = tuple(
        evolve(group, block_size=group.block_size * config.dcp_size) if group.sharded else group for group in config.groups
    )
    unit = config.hash_block_size
    here = naive_hits.gate(config.groups, caching=config.caching, dcp_size=config.dcp_size, hash_block=unit)
    there = naive_hits.gate(merged, caching=config.caching, dcp_size=1, hash_block=unit)
    return None if merged == config.groups or here != there else merged


def _ranks_are_block_size(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Findings:
    """DS-9: (a) on one rank the sharded flag decides nothing; (b) N ranks with blocks of bs are one rank with bs*N."""
    if not actions:
        return None
    if config.dcp_size == 1:
        flipped = tuple(
            evolve(group, sharded=not group.sharded) if ground.has_positions(group) else group for group in config.groups
        )
        if flipped == config.groups:
            return None
        return _same_as(config, actions, start, (flipped, 1, 1), "the sharded flag on one rank")
    merged = on_one_rank(config)
    if merged is None:
        return None
    return _same_as(config, actions, start, (merged, 1, 1), "one rank with larger blocks")


LAWS: tuple[Law, ...] = (
    Law(
        id="DS-8",
        mark="D",
        sentence="The interleave changes no decision of the scheduler: hits, tables, keys.",
        source="#50493",
        faults=("M-SLOT-4",),
        check_run=_interleave_decides_nothing,
    ),
    Law(
        id="DS-9",
        mark="D",
        sentence="On one rank the sharded flag decides nothing, and N ranks with attention blocks of bs decide like one "
        "rank with bs*N where the gate gives the same answer.",
        source="#50493",
        faults=("M-GATE-1", "M-GEO-5", "M-PUB-36", "M-GEO-7"),
        check_run=_ranks_are_block_size,
        bent_by=(("offered_blocks", "rank_block"),),
    ),
)
