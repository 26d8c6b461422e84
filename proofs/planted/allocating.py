"""Faulty twins of the claims about allocations."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import allocation, requests
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    planted(
        "the lookahead has no slots",
        "a_position_has_a_slot_if_it_is_wanted_and_in_the_model",
        at=allocation,
        slots_behind=lambda config, action: action.new_tokens,
    ),
    planted(
        "a load has slots for its lookahead",
        "a_position_has_a_slot_if_it_is_wanted_and_in_the_model",
        at=allocation,
        slots_behind=lambda config, action: action.new_tokens + action.lookahead,
    ),
    planted(
        "every placeholder is a draft",
        "a_position_has_a_slot_if_it_is_wanted_and_in_the_model",
        at=allocation,
        unsettled_drafts=lambda request: request.placeholders,
    ),
    planted(
        "reserved blocks are taken",
        "reserved_blocks_stay_free",
        "allocate_for_a_new_request",
        at=allocation,
        fits=lambda need, free, reserved: need <= free,
    ),
    catalogued("M-SPEC-1", "only_known_tokens_are_registered"),
    catalogued("M-EARLY-2", "only_known_tokens_are_registered"),
    catalogued("M-WIN-1", "windows_reach_back_from_the_oldest_step_in_flight"),
    planted(
        "everything may be cached everywhere",
        "what_may_be_cached_is_whole_or_fine",
        at=allocation,
        cacheable_prefix=lambda config, group, tokens: tokens,
    ),
    planted(
        "only hits are adopted",
        "something_is_adopted_if_something_was_hit",
        at=allocation,
        adopts=lambda wanted, lists: wanted.first and any(lists),
    ),
    catalogued("M-COW-1", "a_shared_block_inside_is_owed_a_copy"),
    catalogued("M-CACHE-1", "a_shared_block_inside_is_owed_a_copy"),
    planted(
        "every chunk samples",
        "a_share_computes_up_to_what_is_wanted",
        at=allocation,
        share=lambda request, wanted, share=allocation.share: evolve(share(request, wanted), samples=True),
    ),
    planted(
        "placeholders are not expected",
        "a_share_computes_up_to_what_is_wanted",
        at=requests,
        expected_tokens=lambda request: request.num_tokens,
    ),
    planted(
        "refused admissions count as well",
        "external_tokens_are_counted_once_for_an_admission",
        at=allocation,
        external_counts=lambda config, request, action, admitted: (request.num_tokens - action.local, action.external),
    ),
    catalogued("M-COW-6", "a_state_of_this_step_is_known_by_its_key"),
    planted(
        "copies of the plan are forgotten",
        "a_source_is_unwritten_if_the_plan_still_writes_it",
        at=allocation,
        unwritten_in_plan=lambda world, group, index, block, boundary, unwritten=allocation.unwritten_in_plan: unwritten(
            evolve(world, plan=evolve(world.plan, copies=())), group, index, block, boundary
        ),
    ),
    planted(
        "withdrawn keys stay",
        "a_withdrawn_registration_is_undone",
        at=requests,
        roll_back=lambda pool, plan, request: pool,
    ),
    planted(
        "every request is replaced",
        "one_request_is_replaced_and_no_other",
        at=allocation,
        with_request=lambda world, request, pool, plan: evolve(
            world, requests=(request,) * len(world.requests), pool=pool, plan=plan, hit=None
        ),
    ),
    planted(
        "scratch groups take external blocks",
        "external_tokens_get_blocks_of_their_own",
        at=allocation,
        take_external=lambda work, group, state, wanted, take=allocation.take_external: take(work, 0, state, wanted),
    ),
    catalogued("M-EVICT-1", "allocate_for_a_new_request"),
)
