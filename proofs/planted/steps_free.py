"""Faulty twins of the claims about giving tables back."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import freeing
from kvproof.core import pool as pools
from kvproof.core.kinds import positional
from kvproof.core.world import Plan, Step, World
from kvproof.proofs.planting import catalogued, planted


def _opened_again(world: World, step: Step) -> World:
    """Count every output of a step as its first."""
    return _open_step(world, evolve(step, opened=False))


_open_step, _release_tables = freeing.open_step, freeing.release_tables
_free_ends, _hold_back = freeing.free_ends, freeing.hold_back

PLANTED = (
    catalogued("M-LRU-1", "free_a_table", "free_a_table_of_keyed_blocks", "null_the_entries_behind_a_window"),
    planted(
        "keyed blocks in the wrong order",
        "free_a_table_of_keyed_blocks",
        "null_keyed_entries_behind_a_window",
        at=pools,
        requeue=lambda free, unkeyed, keyed: unkeyed + free + keyed[::-1],
    ),
    catalogued("M-POOL-1", "free_a_table", "free_the_tables_of_two_groups"),
    catalogued("M-POOL-3", "free_a_table", "free_the_tables_of_two_groups"),
    catalogued("M-PUB-88", "free_behind_a_step_in_flight"),
    planted(
        "the last group's table is given back first",
        "free_the_tables_of_two_groups",
        "free_two_tables_of_keyed_blocks",
        at=freeing,
        release_tables=lambda pool, tables: _release_tables(pool, tables[::-1]),
    ),
    planted(
        "a deferred free forgets its last table",
        "open_a_step_with_two_frees_waiting",
        at=freeing,
        in_order=lambda order, tables: tables[:-1],
    ),
    planted("an opened step is opened again", "open_a_step_only_once", at=freeing, open_step=_opened_again),
    planted(
        "an entry that a window still reaches is nulled too",
        "null_the_entries_behind_a_window",
        at=positional,
        null_skipped=lambda work, group, state, skipped, null=positional.null_skipped: null(work, group, state, skipped + 1),
    ),
    catalogued("M-COW-5", "ends_of_a_copy_wait_for_their_step"),
    planted(
        "the ends of a copy wait for the steps before alone",
        "ends_of_a_copy_wait_for_their_step",
        at=freeing,
        free_ends=lambda world, ends: _free_ends(evolve(world, plan=Plan()), ends),
    ),
    planted(
        "only the first table is held back",
        "free_behind_a_step_in_flight",
        at=freeing,
        hold_back=lambda world, fence, tables: _hold_back(world, fence, tables[:1]),
    ),
)
