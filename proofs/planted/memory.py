"""Faulty twins of the claims about contents, columns of states and the order of freeing."""

from __future__ import annotations

from kvproof.core import contents, execute, freeing, worker
from kvproof.core import pool as pools
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-SLOT-2", "every_cell_of_a_block_holds_one_position"),
    planted(
        "a write begins at the front of its block",
        "a_write_changes_its_positions_alone",
        at=contents,
        write_positions=lambda content, group, cells, cell_of, first, nodes, write=contents.write_positions: write(
            content, group, cells, cell_of, 0, nodes
        ),
    ),
    planted(
        "bytes of another group are taken over",
        "a_write_changes_its_positions_alone",
        at=contents,
        as_group=lambda content, group, cells: [group, *content[1:]] if content else [group] + [-1] * cells,
    ),
    planted(
        "a state is right wherever it came from",
        "a_state_comes_from_the_right_state_alone",
        at=contents,
        advance_state=lambda before, expected, after: (after,) * len(before),
    ),
    catalogued("M-COW-10", "copies_of_a_step_see_the_memory_before_it"),
    planted(
        "only the state at a chunk's end is kept",
        "a_chunk_leaves_the_states_that_its_tables_have_columns_for",
        at=execute,
        state_boundaries=lambda config, group, start, end: (end,),
    ),
    catalogued("M-ZERO-2", "a_chunk_leaves_the_states_that_its_tables_have_columns_for"),
    catalogued("M-MAM-2", "a_state_stands_in_the_column_of_its_last_token"),
    catalogued("M-SPEC-3", "the_running_state_lies_behind_the_accepted_drafts"),
    planted(
        "a block belongs to every column in which it stands",
        "a_block_that_moved_on_belongs_to_its_last_column",
        at=worker,
        own_block=lambda config, rows, group, row, column: (*rows.rows[group][row], 0)[column],
    ),
    catalogued("M-CKPT-1", "the_worker_writes_the_checkpoint_that_was_reserved"),
    catalogued("M-MAM-7", "the_worker_writes_the_checkpoint_that_was_reserved"),
    catalogued("M-LRU-1", "the_tail_of_a_table_is_freed_before_its_head"),
    catalogued("M-POOL-1", "bare_blocks_are_reused_before_keyed_ones"),
    planted(
        "the null block is free at first",
        "a_new_pool_has_every_block_free_but_null",
        at=pools,
        new_pool=lambda count, events=False: pools.Pool(
            (0,) * count, (-1,) * count, (-1,) * count, (-1,) * count, tuple(range(count)), notes=() if events else None
        ),
    ),
    planted(
        "any block has every key of the map",
        "a_block_has_the_keys_that_the_map_says",
        at=pools,
        holds=lambda pool, node, group, block: any(entry[:2] == (node, group) for entry in pool.entries),
    ),
    planted(
        "opened steps hold blocks back as well",
        "blocks_wait_for_a_step_that_may_still_write_them",
        at=freeing,
        is_held_back=lambda world, request: (
            world.config.defer_block_free and any(request.request in step.due for step in world.steps)
        ),
    ),
)
