"""Faulty twins of the claims about outputs, preemption and the end of a request."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import outputs, plans, prefixes, recovery, requests
from kvproof.core.offload import loads
from kvproof.core.world import Plan
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-INF-1", "an_output_lands_once_and_the_late_ones_first"),
    catalogued("M-LATE-1", "an_output_lands_once_and_the_late_ones_first"),
    catalogued("M-SPEC-2", "computed_tokens_are_those_that_were_kept"),
    planted(
        "the sampled token counts as a draft",
        "computed_tokens_are_those_that_were_kept",
        at=outputs,
        rejected_drafts=lambda entry, tokens: len(entry.drafts) - len(tokens),
    ),
    planted(
        "all placeholders go with an output",
        "an_output_takes_its_placeholders_with_it",
        at=outputs,
        settle_placeholders=lambda request, entry: evolve(request, placeholders=0),
    ),
    planted(
        "what is computed is confirmed",
        "confirmed_tokens_are_those_before_the_steps_in_flight",
        at=outputs,
        confirmed_tokens=lambda request: request.computed,
    ),
    planted(
        "any tokens are delivered",
        "drafts_are_delivered_in_order_and_then_one_token",
        at=outputs,
        check_delivery=lambda world, request, entry, tokens: None,
    ),
    planted(
        "a step leaves with its first output",
        "a_step_is_processed_with_its_last_output",
        at=outputs,
        without_due=lambda world, request: evolve(world, steps=world.steps[1:]),
    ),
    catalogued("M-PUB-137", "lost_tokens_are_those_that_did_not_arrive"),
    planted(
        "a later chunk keeps its start",
        "a_later_chunk_starts_behind_what_was_kept",
        at=outputs,
        resolve_later=lambda world, request, entry, rejected, resolve=outputs.resolve_later: resolve(world, request, entry, 0),
    ),
    planted(
        "drafts follow tokens that are still to come",
        "a_later_chunk_starts_behind_what_was_kept",
        at=requests,
        chunk_tip=lambda table, tip, entry: prefixes.extend(table, tip, entry.drafts),
    ),
    catalogued("M-LATE-2", "what_is_in_flight_comes_late"),
    planted(
        "only the last step's tokens come late",
        "what_is_in_flight_comes_late",
        "a_preempted_request_waits_with_nothing",
        at=requests,
        stale_share=lambda request: request.in_flight - request.stale - 1,
    ),
    catalogued("M-HO-5", "a_preempted_request_waits_with_nothing"),
    planted(
        "the newest step is the late one",
        "the_oldest_steps_are_the_late_ones",
        at=requests,
        is_late=lambda world, step, request: request.stale > 0 and step is world.steps[-1],
    ),
    planted(
        "every table is offered whole",
        "connectors_get_the_entries_that_hold_something",
        at=requests,
        offered_tables=lambda config, request: tuple(state.table for state in request.groups),
    ),
    planted(
        "tails are taken whatever came behind",
        "a_producers_tail_is_taken_where_nothing_came_behind_it",
        at=requests,
        producer_tails=lambda request: tuple(
            (group, state.tail_block, state.tail_boundary) for group, state in enumerate(request.groups)
        ),
    ),
    planted(
        "an id is free when its request ends",
        "an_id_stands_for_one_request_at_a_time",
        at=requests,
        mentioned=lambda world, request: requests.alive(world, request) is not None,
    ),
    planted(
        "an id is free when its transfers run",
        "an_id_stands_for_one_request_at_a_time",
        at=loads,
        mentions=lambda host, request: False,
    ),
    planted(
        "an id is free when a store of its blocks runs",
        "an_id_stands_for_one_request_at_a_time",
        at=loads,
        mentions=lambda host, request: loads.find(host, request) is not None,
    ),
    catalogued("M-HO-2", "a_drain_hands_everything_out_once"),
    planted(
        "a new plan has no handoffs of outputs",
        "a_drain_hands_everything_out_once",
        at=plans,
        fresh_plan=lambda previous, fresh=plans.fresh_plan: evolve(fresh(previous), handoffs=()),
    ),
    catalogued("M-COW-5", "a_drain_hands_everything_out_once"),
    catalogued("M-LV-1", "a_new_plan_forgets_what_was_registered"),
    planted(
        "early preemptions are forgotten",
        "a_new_plan_forgets_what_was_registered",
        at=plans,
        fresh_plan=lambda previous: Plan(handoffs=previous.handoffs),
    ),
    planted(
        "drafts are not in flight",
        "a_dispatched_chunk_is_computed_and_in_flight",
        at=plans,
        advance=lambda config, request, entries, advance=plans.advance: advance(
            config, request, tuple(evolve(entry, amount=entry.amount - len(entry.drafts)) for entry in entries)
        ),
    ),
    catalogued("M-SLOT-3", "a_rank_is_told_its_share_of_a_chunks_end"),
    planted(
        "every longer prefix is wrong",
        "what_goes_on_behind_a_missing_token_is_wrong",
        "keys_behind_a_missing_token_go",
        at=recovery,
        goes_on=lambda table, node, missing: table.depth[node] > table.depth[missing],
    ),
    catalogued("M-PUB-134", "what_goes_on_behind_a_missing_token_is_wrong"),
    planted(
        "pins stay behind a failed load",
        "a_pinned_hit_behind_a_missing_token_is_given_back",
        at=recovery,
        without_wrong_pins=lambda host, request, valid: host,
    ),
)
