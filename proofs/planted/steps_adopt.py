"""Faulty twins of the claims about adopting a hit."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import allocation, geometry
from kvproof.core import pool as pools
from kvproof.core.allocation import Wanted
from kvproof.core.work import Work
from kvproof.core.world import GroupState, World
from kvproof.proofs.planting import catalogued, planted

_adopt, _take_external, _demand = allocation.adopt, allocation.take_external, allocation.total_demand


def _everybody_adopts(work: Work, group: int, state: GroupState, blocks: tuple[int, ...], wanted: Wanted) -> GroupState:
    """Touch the blocks of a scratch group too, which puts them into no table."""
    if not work.config.groups[group].prefix_cacheable:
        work.pool = pools.touch(work.pool, blocks)
    return _adopt(work, group, state, blocks, wanted)


def _adopting_demand(world: World, work: Work, states: allocation.States, lists: allocation.Lists, wanted: Wanted) -> int:
    """Adopt the hit of each group once the demand is known, before it is compared."""
    need = _demand(world, work, states, lists, wanted)
    for group, state in enumerate(states):
        states[group] = _adopt(work, group, state, lists[group], wanted)
    return need


ONE = ("adopt_one_block_of_full_attention", "adopt_a_recurrent_state")
INSIDE = (*ONE, "adopt_two_blocks_of_full_attention", "adopt_a_recurrent_state_behind_a_null_entry")

PLANTED = (
    catalogued("M-COW-1", *INSIDE),
    catalogued("M-CACHE-1", *INSIDE),
    catalogued("M-POOL-2", *INSIDE, "adopt_a_window"),
    planted(
        "a window passes nothing",
        "adopt_a_window",
        at=geometry,
        skipped_tokens_window=lambda computed, window, extra=0: 0,
    ),
    planted("scratch blocks are touched", "adopt_nothing_in_a_scratch_group", at=allocation, adopt=_everybody_adopts),
    catalogued("M-2PH-1", "admit_two_groups_in_two_phases"),
    planted(
        "external tokens want four blocks too many",
        "admit_two_groups_in_two_phases",
        at=allocation,
        take_external=lambda work, group, state, wanted: _take_external(
            work, group, state, evolve(wanted, external=wanted.external + 4 * work.config.sizes[group])
        ),
    ),
    planted(
        "a refused request gets its nulled entries back",
        "a_refusal_shows_what_was_nulled_alone",
        at=allocation,
        refused=lambda world, request, work, states, lists: allocation.with_request(world, request, work.pool, world.plan),
    ),
    planted(
        "a refusal gives the pool back as it was",
        "a_refusal_shows_what_was_nulled_alone",
        at=allocation,
        refused=lambda world, request, work, states, lists: allocation.with_request(
            world, evolve(request, groups=tuple(states)), world.pool, world.plan
        ),
    ),
    catalogued("M-ATOM-1", "refuse_and_change_nothing"),
    catalogued("M-PUB-29", "refuse_and_change_nothing"),
    planted(
        "the hit is adopted before the demand is compared, in tables and pool",
        "refuse_and_change_nothing",
        at=allocation,
        total_demand=_adopting_demand,
    ),
)
