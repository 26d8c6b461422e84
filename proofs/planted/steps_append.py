"""Faulty twins of the claims about appending."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import work as works
from kvproof.core import worker
from kvproof.core.config import Config
from kvproof.core.kinds import positional
from kvproof.core.world import Worker, World
from kvproof.proofs.planting import catalogued, planted


def _staged(world: World, rows: Worker, row: int, blocks: worker.Ids) -> Worker:
    """Append under the guard of a release that stages group by group."""
    profile = evolve(world.config.profile, append_guard="per_group")
    return _append(evolve(world, config=evolve(world.config, profile=profile)), rows, row, blocks)


def _one_short(config: Config, group: int, row: int, start: int, blocks: tuple[int, ...]) -> None:
    """Compare without the entries that the row has already."""
    _check(config, group, row, 0, blocks)


_append, _check = worker.append, worker.check_capacity
GROWN = ("grow_an_empty_table", "grow_a_table_of_one", "grow_a_table_of_two")

PLANTED = (
    catalogued("M-EVICT-1", "take_a_block_beside_a_table", "grow_an_empty_table"),
    planted("nothing is zeroed", "take_a_block_beside_a_table", at=works, zeroes=lambda config, group: False),
    planted(
        "the demand leaves out a block",
        *GROWN,
        at=positional,
        demand=lambda *of, demand=positional.demand, **how: max(demand(*of, **how) - 1, 0),
    ),
    planted(
        "a table grows by whole blocks only",
        *GROWN,
        at=positional,
        grow=lambda work, group, state, tokens, grow=positional.grow: grow(work, group, state, tokens // 4 * 4),
    ),
    catalogued("M-COW-8", "demand_of_a_hit_covers_its_growth"),
    catalogued("M-PUB-170", "demand_of_a_hit_covers_its_growth"),
    catalogued("M-CAP-1", "append_a_block_to_each_group", "append_two_blocks_to_one_group", "append_expanded_blocks"),
    catalogued("M-CAP-2", "append_expanded_blocks"),
    planted("the guard looks at one group after the other", "append_a_block_to_each_group", at=worker, append=_staged),
    planted("the guard forgets what the row has", "append_a_block_to_each_group", at=worker, check_capacity=_one_short),
    planted(
        "an append to a lower row repeats the rows before it",
        "append_a_block_to_each_group",
        at=worker,
        write_row=lambda rows, row, ids: (*rows[:row], rows[row] + ids, *rows[1:]),
    ),
    planted(
        "the first row is cleared, whichever it is",
        "clear_one_row_only",
        at=worker,
        clear_row=lambda rows, row, owner, clear=worker.clear_row: clear(rows, 0, owner),
    ),
    planted(
        "the number of kept tokens stays with the row",
        "clear_one_row_only",
        at=worker,
        set_accepted=lambda rows, row, accepted: rows,
    ),
)
