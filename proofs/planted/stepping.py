"""Faulty twins of the claims about submitting, rows, what is written, and outputs."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import execute, outputs, plans, requests, worker
from kvproof.core import work as works
from kvproof.core.kinds import copying
from kvproof.core.offload import transfers
from kvproof.proofs.planting import catalogued, planted

_write_tokens, _advance, _write_rows = execute.write_tokens, plans.advance, plans.write_rows

PLANTED = (
    catalogued("M-KEY-2", "equal_prompts_have_one_prefix"),
    planted(
        "ids are not looked at",
        "a_submission_is_refused_for_a_taken_id_and_an_impossible_prompt",
        at=requests,
        mentioned=lambda world, request: False,
    ),
    planted(
        "rows of steps in flight are given away",
        "a_row_that_is_read_is_given_to_nobody",
        at=plans,
        busy_rows=lambda world: frozenset(),
    ),
    catalogued("M-MAM-2", "a_new_row_begins_at_the_state_of_its_chunk"),
    planted(
        "a dispatched chunk is computed by every request",
        "a_dispatch_hands_the_plan_over",
        at=plans,
        advance=lambda config, request, entries: _advance(
            config, request, tuple(evolve(entry, request=request.request) for entry in entries)
        ),
    ),
    planted(
        "a dispatch leaves the rows as they are",
        "a_dispatch_hands_the_plan_over",
        at=plans,
        write_rows=lambda world, live: (world.worker, _write_rows(world, live)[1]),
    ),
    planted(
        "a chunk ends where its request began",
        "a_dispatch_hands_the_plan_over",
        at=plans,
        chunk_tips=lambda world, live: (world.prefixes, [0 for _ in world.plan.scheduled]),
    ),
    catalogued("M-CAP-2", "a_row_takes_the_kernel_blocks_behind_its_entries"),
    planted(
        "blocks stand in rows as they are",
        "a_row_takes_the_kernel_blocks_behind_its_entries",
        at=worker,
        expand=lambda config, blocks: blocks,
    ),
    planted(
        "a forward leaves its last token to the next",
        "a_forward_writes_each_position_once_where_it_is_read",
        at=execute,
        write_tokens=lambda world, memory, group, entry, start, stop: _write_tokens(
            world, memory, group, entry, start, stop - 1
        ),
    ),
    planted(
        "a transfer moves one block",
        "a_copy_brings_what_is_there_when_it_runs",
        at=transfers,
        moved=lambda source, destination, rows: destination,
    ),
    planted(
        "the last load is copied, whichever was to run",
        "a_copy_brings_what_is_there_when_it_runs",
        at=transfers,
        copy_load=lambda world, event, copy=transfers.copy_load: copy(world, 7),
    ),
    planted("every block is zeroed", "attention_blocks_are_zeroed_beside_states", at=works, zeroes=lambda config, group: True),
    catalogued("M-COW-3", "a_private_copy_takes_the_place_of_one_entry"),
    planted(
        "sources are copied whenever they are hit",
        "a_source_that_this_step_writes_is_not_copied",
        at=copying,
        copies_too_early=lambda work, group, adopted, wanted, step: False,
    ),
    catalogued("M-SPEC-2", "an_output_is_delivered_once"),
    planted(
        "late outputs count as any",
        "an_output_is_delivered_once",
        at=outputs,
        is_stale=lambda request: False,
    ),
    catalogued("M-HO-5", "a_finished_request_leaves_nothing"),
    catalogued("M-POOL-3", "a_finished_request_leaves_nothing"),
    planted(
        "withdrawn keys stay in the map",
        "a_withdrawn_request_leaves_no_key_of_the_plan",
        at=requests,
        roll_back=lambda pool, plan, request: pool,
    ),
)
