"""Faulty twins of the claims about the store side's books."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.offload import completion, counters, loads, metadata, tracks, transfers
from kvproof.core.offload.state import Stage
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-CNT-1", "every_published_handoff_has_one_outcome"),
    catalogued("M-CNT-6", "the_gauge_counts_what_stores_still_have_to_fill"),
    planted(
        "everything is read every time",
        "the_gauge_counts_what_stores_still_have_to_fill",
        at=counters,
        undrained=lambda host: host.counters,
    ),
    catalogued("M-CNT-7", "a_notice_is_given_once"),
    catalogued("M-FLUSH-2", "a_step_is_needed_while_a_store_is_not_complete"),
    planted(
        "every admission begins a record",
        "a_record_begins_with_the_first_admission",
        at=tracks,
        find=lambda host, request: None,
    ),
    catalogued("M-LEAK-3", "a_finished_request_is_forgotten_with_its_last_event"),
    planted(
        "a request is forgotten when it finishes",
        "a_finished_request_is_forgotten_with_its_last_event",
        at=tracks,
        end=lambda host, request: evolve(host, tracks=tuple(one for one in host.tracks if one.request != request)),
    ),
    planted(
        "every cursor goes back to the start",
        "the_scan_of_a_preempted_request_starts_anew",
        at=tracks,
        clear_cursors=lambda host, requests: evolve(
            host, tracks=tuple(evolve(track, cursors=(0,) * len(track.cursors)) for track in host.tracks)
        ),
    ),
    planted(
        "what steps told of a preempted request stays",
        "the_scan_of_a_preempted_request_starts_anew",
        at=tracks,
        clear_cursors=lambda host, requests: evolve(
            host,
            tracks=tuple(
                evolve(track, cursors=(0,) * len(track.cursors)) if track.request in set(requests) else track
                for track in host.tracks
            ),
        ),
    ),
    catalogued("M-ACK-1", "a_store_is_complete_with_all_reports"),
    planted(
        "reports are counted without looking",
        "reports_come_once_from_each_worker_behind_the_copy",
        at=completion,
        check=lambda config, store, acks: None,
    ),
    catalogued("M-RST-1", "event_numbers_rise_and_unknown_ones_change_nothing"),
    planted(
        "an unknown report ends the oldest store",
        "event_numbers_rise_and_unknown_ones_change_nothing",
        at=completion,
        find=lambda host, event: (host.stores[0], False),
    ),
    planted(
        "stores that run are not found",
        "event_numbers_rise_and_unknown_ones_change_nothing",
        at=completion,
        find=lambda host, event, find=completion.find: find(evolve(host, stores=()), event),
    ),
    planted(
        "what events say of the first block is lost",
        "a_step_has_one_store_of_all_its_blocks",
        at=metadata,
        merged=lambda chosen, queued: (*(meta for left in queued for meta in left.meta or ()), *chosen)[1:],
    ),
    planted(
        "owners are not linked",
        "a_step_has_one_store_of_all_its_blocks",
        at=tracks,
        link=lambda host, requests, event: host,
    ),
    planted(
        "loads wait for no step",
        "waiting_loads_are_named_once_and_in_their_order",
        at=loads,
        may_start=lambda world, load: load.stage is Stage.WAITING,
    ),
    planted(
        "only preemptions of the step itself count",
        "a_step_that_preempted_waits_for_the_transfers",
        at=metadata,
        gave_up=lambda plan: plan.preempted,
    ),
    catalogued("M-LAZY-2", "a_step_that_preempted_waits_for_the_transfers"),
    planted(
        "everything that waits is handed over",
        "only_what_is_built_is_handed_over",
        at=transfers,
        hand_over_stores=lambda host, events: evolve(
            host, stores=tuple(evolve(store, stage=Stage.SUBMITTED) for store in host.stores)
        ),
    ),
    catalogued("M-ORD-1", "stores_begin_behind_the_step_that_wrote_their_blocks"),
    planted(
        "a step hands over every store that there is",
        "stores_begin_behind_the_step_that_wrote_their_blocks",
        at=transfers,
        due_stores=lambda world, offload, step: frozenset(store.event for store in world.host.stores),
    ),
    planted(
        "copies run in any order",
        "copies_run_in_the_order_in_which_they_were_handed_over",
        at=transfers,
        check_order=lambda what, stages, event: None,
    ),
    planted(
        "a transfer moves one block",
        "a_transfer_moves_whole_blocks_and_nothing_else",
        at=transfers,
        moved=lambda source, destination, rows, moved=transfers.moved: moved(source, destination, rows[:1]),
    ),
)
