"""Faulty twins of the claims about what is stored, promotion and reset."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.offload import choosing, finishing, handoffs, loads, positional, promotion, reset, settings, tails
from kvproof.core.offload.state import Host, Queued
from kvproof.core.records import Record
from kvproof.core.world import World
from kvproof.proofs.planting import catalogued, planted


def _forgets(world: World, host: Host) -> tuple[World, Record]:
    """Reset the host tier and let nobody know of the stores that ran."""
    world, record = _reset(world, host)
    if world.host is None:
        raise ValueError("a reset leaves a host tier")
    return evolve(world, host=evolve(world.host, abandoned_stores=host.abandoned_stores)), record


_reset = reset.reset

PLANTED = (
    catalogued("M-STAB-1", "states_are_never_stored_by_index"),
    catalogued("M-GEO-1", "confirmed_entries_are_full_on_all_ranks"),
    planted(
        "placeholders count as computed",
        "confirmed_entries_are_full_on_all_ranks",
        at=positional,
        confirmed_tokens=lambda request: request.computed,
    ),
    planted(
        "tables are taken as they were told",
        "the_scan_reads_the_table_of_now",
        at=positional,
        trusts_told=lambda config: True,
    ),
    planted(
        "resumed requests are scanned first always",
        "new_requests_are_scanned_first",
        at=positional,
        resumed_last=lambda config: False,
    ),
    catalogued("M-TAIL-3", "the_tail_of_every_attention_group_is_stored"),
    catalogued("M-PUB-45", "the_tail_of_every_attention_group_is_stored"),
    catalogued("M-REPLAY-1", "handoffs_and_tails_say_nothing_in_events"),
    catalogued("M-META-1", "handoffs_and_tails_say_nothing_in_events"),
    planted(
        "a block in flight is remembered as often as it was chosen",
        "a_choice_ends_with_each_block_in_flight_once",
        at=choosing,
        end=lambda world, host, choice: (world, evolve(host, in_flight=tuple(sorted(choice.in_flight)))),
    ),
    planted(
        "what finished requests leave has no host blocks",
        "a_choice_ends_with_each_block_in_flight_once",
        at=finishing,
        queued=lambda choice: Queued(tuple(choice.blocks), (), None),
    ),
    planted(
        "loads begin before the copies",
        "bytes_move_in_the_order_of_a_step",
        at=settings,
        parts=lambda offload: ("zero", "load", "copy", "precopy", "forward"),
    ),
    planted(
        "everything that was loaded counts as computed",
        "what_was_loaded_gets_its_key_now",
        at=promotion,
        promote=lambda world, request, promote=promotion.promote: promote(
            world, evolve(request, num_tokens=request.num_tokens + 1)
        ),
    ),
    catalogued("M-RST-2", "a_reset_that_is_done_leaves_an_empty_host"),
    catalogued("M-CNT-2", "a_reset_that_is_done_leaves_an_empty_host"),
    planted(
        "pins stay behind a reset",
        "a_reset_that_is_done_leaves_an_empty_host",
        at=reset,
        drop_pins=lambda host: host.pool,
    ),
    planted(
        "loads go on behind a reset as if none had been",
        "a_reset_that_is_done_leaves_an_empty_host",
        at=loads,
        at_reset=lambda world, host: (world, host),
    ),
    planted(
        "a load that waits is abandoned by a reset",
        "a_reset_that_is_done_leaves_an_empty_host",
        at=loads,
        must_wait=lambda load: True,
    ),
    planted("stores that run are forgotten by a reset", "a_reset_that_is_done_leaves_an_empty_host", at=reset, reset=_forgets),
    planted(
        "a handoff has a payload",
        "handoffs_and_tails_say_nothing_in_events",
        at=handoffs,
        metas=lambda handoff: (((handoff[2], 4),),),
    ),
    planted(
        "a tail has a payload",
        "handoffs_and_tails_say_nothing_in_events",
        at=tails,
        metas=lambda world, request, group: (((1, 4),),),
    ),
)
