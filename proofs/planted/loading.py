"""Faulty twins of the claims about what a request gets from outside."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import reconciliation
from kvproof.core.offload import external, loads
from kvproof.core.offload.state import Host, PendingHit
from kvproof.core.world import Status
from kvproof.proofs.planting import catalogued, planted


def _remembered(host: Host, pending: PendingHit) -> Host:
    """Remember a hit without pinning its blocks."""
    return evolve(host, pending=(*host.pending, pending))


PLANTED = (
    planted(
        "a connector is asked behind the tail",
        "a_connector_is_asked_behind_whole_blocks",
        "a_local_tail_goes_only_for_tokens_that_reach_further",
        at=reconciliation,
        asked_behind=lambda config, hit: hit.local,
    ),
    catalogued("M-TAIL-1", "a_local_tail_goes_only_for_tokens_that_reach_further"),
    catalogued("M-MIS-1", "a_misaligned_prefix_hits_and_pins_nothing"),
    planted(
        "every misaligned lookup gives its notice",
        "a_misaligned_prefix_hits_and_pins_nothing",
        at=external,
        noticed=lambda host, kind: (evolve(host, notices=(kind,)), (kind,)),
    ),
    planted(
        "hits are not pinned",
        "an_external_hit_goes_on_behind_the_local_one",
        at=external,
        pin=_remembered,
    ),
    catalogued("M-PUB-52", "an_external_hit_goes_on_behind_the_local_one"),
    planted(
        "chunks are not looked at",
        "local_chunks_begin_where_the_prefix_ends",
        at=external,
        chunks_agree=lambda config, start: True,
    ),
    catalogued("M-LAZY-1", "lazy_stores_give_no_hits_inside_a_block"),
    catalogued("M-LOAD-1", "a_load_takes_the_blocks_that_hold_its_tokens"),
    planted(
        "columns begin behind one block too many",
        "a_load_takes_the_blocks_that_hold_its_tokens",
        at=loads,
        first_column=lambda size, start: start // size + 1,
    ),
    catalogued("M-LOAD-4", "only_a_hit_of_full_attention_can_be_cut"),
    planted(
        "a hit is cut anywhere",
        "only_a_hit_of_full_attention_can_be_cut",
        at=loads,
        may_take=lambda config, accepted, found: 0 < accepted <= found,
    ),
    catalogued("M-PUB-136", "a_failed_load_of_states_leaves_nothing"),
    planted(
        "every valid token is kept",
        "a_failed_load_leaves_whole_valid_blocks",
        at=loads,
        valid_prefix=lambda config, start, valid: max(start, valid),
    ),
    catalogued("M-LOAD-7", "scratch_groups_and_null_entries_are_not_loaded"),
    planted(
        "scratch groups are loaded",
        "scratch_groups_and_null_entries_are_not_loaded",
        at=loads,
        loaded_groups=lambda config: tuple(range(len(config.groups))),
    ),
    planted("no load is held", "a_held_load_waits_for_the_steps_before_it", at=loads, fence=lambda world: 0),
    catalogued("M-ZERO-1", "destinations_are_the_blocks_of_the_loads"),
    planted(
        "abandoned loads are forgotten at once",
        "a_load_stands_for_its_request_until_it_ends",
        at=loads,
        find=lambda host, request: next((load for load in host.loads if load.request == request), None),
    ),
    planted("any load is reported", "only_a_copied_load_is_reported", at=loads, is_reportable=lambda load: True),
    catalogued("M-LOAD-5", "only_a_copied_load_is_reported"),
    planted(
        "who ran before waits as if new",
        "who_ran_before_waits_as_preempted",
        "a_load_that_brought_nothing_starts_its_request_again",
        at=loads,
        waiting_status=lambda request: Status.WAITING,
    ),
    planted(
        "a failed load spoils its valid blocks as well",
        "a_failed_load_spoils_what_did_not_arrive",
        at=loads,
        spoiled=lambda world, load, request, kept, spoiled=loads.spoiled: spoiled(world, load, request, 0),
    ),
    planted(
        "what did not arrive of a failed load is kept",
        "a_failed_load_spoils_what_did_not_arrive",
        at=loads,
        spoiled=lambda world, load, request, kept: world.contents,
    ),
    planted(
        "a condemned load is kept as far as it arrived",
        "a_failed_load_spoils_what_did_not_arrive",
        at=loads,
        fail=lambda world, load, request, valid, fail=loads.fail: fail(world, evolve(load, condemned=False), request, valid),
    ),
    planted(
        "every load is told",
        "what_happens_to_a_load_happens_to_it_alone",
        at=loads,
        replaced=lambda host, load, by: evolve(
            host, loads=(by,) * len(host.loads), abandoned_loads=(by,) * len(host.abandoned_loads)
        ),
    ),
    planted(
        "the end of a load keeps the host's references",
        "what_happens_to_a_load_happens_to_it_alone",
        at=loads,
        give_back=lambda world, host, load, end=loads.give_back: end(world, host, evolve(load, host=())),
    ),
    planted(
        "loads count when they are asked for",
        "what_happens_to_a_load_happens_to_it_alone",
        at=loads,
        counted_when_asked=lambda load: len(load.device),
    ),
)
