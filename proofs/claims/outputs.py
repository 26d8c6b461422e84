"""Claims about the output of a step, preemption, what late outputs do, and the end of a request (T31, T32, T36, T37)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import outputs, plans, recovery, requests
from kvproof.core.config import Group
from kvproof.core.offload import loads
from kvproof.core.offload.state import Load, PendingHit, Track
from kvproof.core.profiles import VLLM_0_33_0
from kvproof.core.world import GroupState, Hit, Phase, Plan, Scheduled, Status, Step
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import caches, holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, pick
from kvproof.proofs.refusing import refused

RANKS = configs.configure((Group("full_attention", 4), Group("mamba_align", 4)), num_blocks=4, dcp_size=2)
"""An entry of attention covers 8 tokens on both ranks."""
ASYNCHRONOUS = configs.configure((Group("full_attention", 4),), num_blocks=4, async_outputs=True)
DRAFTS = ((), (7,), (7, 8))


def share(amount: int, drafts: int = 0, *, samples: bool = True, pending: int = 0, start: int = 0) -> Scheduled:
    """Return the share of request 0 in a step, with up to two drafts."""
    return Scheduled(0, start, amount, False, start, pick(DRAFTS, drafts), samples, pending)


def landed(*entries: Scheduled) -> Step:
    """Return a dispatched step whose outputs are all due."""
    return Step(entries, (), (), 0, tuple(entry.request for entry in entries))


# --- outputs ------------------------------------------------------------------------------------------------------


@claim(
    outputs.lower_in_flight,
    outputs.is_stale,
    sizes="all",
    bounds="any late and other tokens in flight, an output of any of them",
    laws=("RQ-1", "RQ-2"),
)
def an_output_lands_once_and_the_late_ones_first(late: int, fresh: int, amount: int, dropping: bool) -> None:
    """An output takes its tokens out of those in flight, of the late ones while there are some. What is late is never more than
    what is in flight, and with the last late output nothing is left to drop (T36.3, RQ-1).
    """
    assert (late >= 0) & (fresh >= 0)
    assert amount >= 1
    assert amount <= (late if late > 0 else fresh)
    request = evolve(holders.request_of(), in_flight=late + fresh, stale=late, drop_stale=dropping)
    stale = outputs.is_stale(request)
    after = outputs.lower_in_flight(request, amount, stale)
    assert stale == (late > 0)
    assert after.in_flight == late + fresh - amount
    assert after.stale == (late - amount if late > 0 else 0)
    assert after.in_flight - after.stale == (fresh if late > 0 else fresh - amount)
    assert after.drop_stale == (dropping & (late > amount))


@claim(
    outputs.rejected_drafts,
    outputs.take_back,
    sizes="shape",
    bounds="up to two drafts, any number of them accepted; any computed tokens",
    laws=("RQ-3",),
)
def computed_tokens_are_those_that_were_kept(before: int, drafts: int, accepted: int, sampled: bool) -> None:
    """Behind an output the computed tokens are those before the drafts and the accepted ones: the others are taken back, and
    of an output without a token all of them (T36.5, RQ-3).
    """
    assert before >= 0
    assert 0 <= accepted <= drafts <= 2
    assert sampled or accepted == 0
    tokens = (*pick(DRAFTS, accepted), 9) if sampled else ()
    entry = share(4, drafts)
    rejected = outputs.rejected_drafts(entry, tokens)
    after = outputs.take_back(evolve(holders.request_of(), computed=before + drafts), rejected)
    assert rejected == drafts - accepted
    assert after.computed == before + accepted


@claim(outputs.settle_placeholders, sizes="shape", bounds="up to two drafts; any placeholders", laws=("RQ-1",))
def an_output_takes_its_placeholders_with_it(later: int, drafts: int, none: bool) -> None:
    """The placeholders of an output go with it, one for each draft and one for the sampled token, and those of a later step
    stay; a request without any keeps none (T36.6, RQ-1).
    """
    assert later >= 0
    assert 0 <= drafts <= 2
    request = evolve(holders.request_of(), placeholders=0 if none else later + 1 + drafts)
    after = outputs.settle_placeholders(request, share(4, drafts))
    assert after.placeholders == (0 if none else later)


@claim(outputs.confirmed_tokens, sizes="all", bounds="any start and amounts of two steps in flight", laws=("HB-14",))
def confirmed_tokens_are_those_before_the_steps_in_flight(start: int, first: int, second: int) -> None:
    """Confirmed are the tokens before the chunk of the oldest step whose output is not there yet (T36.7, HB-14)."""
    assert (start >= 0) & (first >= 0) & (second >= 0)
    request = evolve(holders.request_of(), computed=start + first + second, in_flight=first + second)
    confirmed = outputs.confirmed_tokens(request)
    assert confirmed == start


@claim(
    outputs.check_delivery,
    sizes="shape",
    bounds="up to two drafts, up to three delivered tokens that agree with them or not; 0 to 3 tokens below the model length",
    laws=("LV-9", "RQ-4"),
    deep=True,
)
def drafts_are_delivered_in_order_and_then_one_token(drafts: int, count: int, same: bool, samples: bool, room: int) -> None:
    """Delivered are the accepted drafts in their order and one sampled token, no more than the model length takes; of a chunk
    inside a prompt nothing (T36.6).
    """
    assert 0 <= drafts <= 2
    assert 0 <= count <= 3
    assert 0 <= room <= 3
    config = evolve(tiers.FULL, max_model_len=20)
    request = evolve(holders.request_of(), num_tokens=20 - pick((0, 1, 2, 3), room))
    tokens = pick(((), (9,), (7, 9), (7, 8, 9)) if same else ((), (9,), (5, 9), (7, 5, 9)), count)
    entry = share(4, drafts, samples=samples)
    no = refused(outputs.check_delivery, evolve(tiers.FULL_WORLD, config=config), request, entry, tokens)
    least, most = (1 if samples and room > 0 else 0), (min(1 + drafts, room) if samples else 0)
    right = same or count < 2
    assert no == (not least <= count <= most or not right)


@claim(outputs.without_due, sizes="shape", bounds="one or two steps in flight; one or two outputs due", laws=("RQ-1",))
def a_step_is_processed_with_its_last_output(two: bool, both: bool) -> None:
    """An output is due once; the step leaves with the last of its outputs, and later steps stay as they are (T36)."""
    assert isinstance(two, bool)
    step = evolve(landed(share(4)), due=(0, 1) if both else (0,))
    later = (landed(share(2)),) if two else ()
    after = outputs.without_due(evolve(tiers.FULL_WORLD, steps=(step, *later)), 0)
    assert after.steps == (*((evolve(step, due=(1,)),) if both else ()), *later)


@claim(outputs.lost_tokens, sizes="all", bounds="any tokens of a load and any of them valid", laws=("CN-3",))
def lost_tokens_are_those_that_did_not_arrive(local: int, valid: int, lost: int) -> None:
    """Of a failed load those external tokens are counted back that did not arrive, once, however many groups (CN-3)."""
    assert (local >= 0) & (valid >= 0) & (lost >= 1)
    entry = evolve(share(4, start=local + valid + lost), loaded_from=local)
    back = outputs.lost_tokens(tiers.MIXED, entry, local + valid)
    assert back == lost


@claim(
    outputs.resolve_later,
    requests.chunk_tip,
    sizes="shape",
    bounds="a chunk planned over the placeholders of an output with up to two drafts, any of them rejected; any start",
    laws=("RQ-3", "CC-2"),
)
def a_later_chunk_starts_behind_what_was_kept(start: int, drafts: int, rejected: int, mine: bool) -> None:
    """A chunk that was planned over an output's placeholders starts as many tokens earlier as drafts were rejected, and ends
    at the node of the tokens that are known now; chunks of others stay. Drafts of a chunk follow what is known, unless a token
    between is still to come (T36, C-85).
    """
    assert start >= 4
    assert 0 <= rejected <= drafts <= 2
    request = evolve(holders.request_of(), tip=8)
    entry = share(2, drafts)
    later = evolve(share(1, 0, pending=1 + drafts, start=start), request=0 if mine else 1)
    world = evolve(tiers.FULL_WORLD, steps=(landed(later),))
    after = outputs.resolve_later(world, request, entry, rejected)
    (found,) = after.steps[0].scheduled
    _, behind = requests.chunk_tip(tiers.CHAIN, 6, evolve(entry, drafts=(6, 7)[: len(entry.drafts)]))
    early = requests.chunk_tip(tiers.CHAIN, 6, evolve(entry, pending=1))
    assert (behind == 6 + drafts) & (early == (tiers.CHAIN, 6))
    assert mine or found == later
    assert not mine or (found.start == start - rejected) & (found.loaded_from == found.start) & (found.pending == 0)
    assert not mine or found.tip == 8
    assert found.amount == 1


# --- preemption ---------------------------------------------------------------------------------------------------


@claim(
    requests.stale_share,
    requests.drops_stale,
    requests.owes_late_output,
    sizes="all",
    bounds="any tokens in flight, some of them late already",
    laws=("RQ-1", "RQ-2", "RQ-4"),
)
def what_is_in_flight_comes_late(late: int, fresh: int, dropping: bool, wanted: bool) -> None:
    """All that is in flight at a preemption comes late. It is dropped if the caller says so or what was late before is, and
    until it is delivered the request may not be resumed (T31.3, T37.1).
    """
    assert (late >= 0) & (fresh >= 0)
    request = evolve(holders.request_of(), in_flight=late + fresh, stale=late, drop_stale=dropping)
    stale = requests.stale_share(request)
    drops = requests.drops_stale(request, wanted)
    owes = requests.owes_late_output(evolve(request, stale=stale, drop_stale=drops))
    assert stale == late + fresh
    assert drops == ((late + fresh > 0) & (wanted | (dropping & (late > 0))))
    assert owes == ((late + fresh > 0) & (not drops))


@claim(
    requests.preempt,
    requests.forget_handoffs,
    sizes="shape",
    bounds="four blocks without keys; a running request with a table of one entry, handoffs of two requests; any tokens",
    laws=("PC-3", "RQ-1", "RQ-2", "HO-7"),
    deep=True,
)
def a_preempted_request_waits_with_nothing(
    draft: Draft, first: int, computed: int, flight: int, idle: bool, dropping: bool
) -> None:
    """A preempted request gives its blocks back, computes from the start, and what is in flight comes late; its handoffs
    that were not handed out vanish, and no other's (T31, HO-7, PC-3).
    """
    assert four.legal(draft) & holders.held(draft, first) & (computed >= 0) & (flight >= 0)
    old = four.pool_of(draft)
    table = holders.table_of(first)
    request = evolve(holders.request_of(GroupState(table)), computed=computed, in_flight=flight, placeholders=1)
    plan = Plan(handoffs=((0, 0, 2, 4), (1, 0, 3, 4), (0, 0, 1, 8)))
    world = evolve(
        holders.world_of(tiers.FULL_WORLD, old, request), plan=plan, phase=Phase.IDLE if idle else Phase.PLAN_RUNNING
    )
    after, _ = requests.preempt(world, request, dropping)
    (again,) = after.requests
    assert four.sound(after.pool)
    assert holders.accounted(after.pool, holders.others(old, table))
    assert (again.computed == 0) & (again.placeholders == 0) & (again.groups == (GroupState(),))
    assert (again.in_flight == flight) & (again.stale == flight) & (again.drop_stale == (dropping & (flight > 0)))
    assert (again.status is Status.PREEMPTED) & (again.num_preemptions == 1)
    assert after.plan.handoffs == ((1, 0, 3, 4),)
    assert (after.plan.preempted, after.plan.preempted_before) == (((), (0,)) if idle else ((0,), ()))


@claim(
    requests.is_late,
    requests.is_dropped,
    requests.waits_for_output,
    requests.alive,
    requests.share_of,
    sizes="shape",
    bounds="two steps in flight with any amounts, any of whose tokens come late; a request that is there or gone",
    laws=("RQ-2", "RQ-4", "CC-2"),
)
def the_oldest_steps_are_the_late_ones(first: int, second: int, late: int, dropping: bool, there: bool) -> None:
    """Late are the steps that were dispatched before the preemption, the oldest. A later one waits for tokens of an earlier
    output unless nobody takes its own: the request is gone, or drops what is late (T31.3, T36).
    """
    assert (first >= 1) & (second >= 1)
    assert 0 <= late <= 2
    stale = pick((0, first, first + second), late)
    request = evolve(holders.request_of(), stale=stale, in_flight=first + second, drop_stale=dropping)
    one, two = landed(share(first)), landed(share(second, pending=1))
    world = evolve(tiers.FULL_WORLD, steps=(one, two), requests=(request,) if there else ())
    lateness = [requests.is_late(world, step, request) for step in (one, two)]
    waits = requests.waits_for_output(world, two)
    never = requests.waits_for_output(world, one)
    assert lateness == [late >= 1, late == 2]
    assert waits == (there and not (dropping and late == 2))
    assert not never


# --- the end of a request -----------------------------------------------------------------------------------------


@claim(
    requests.offered_tables,
    requests.offered_unit,
    sizes="grid",
    bounds="two ranks, attention entries of 8 tokens and states of 4; tables of three entries, any computed tokens",
    laws=("DS-1", "DS-9"),
)
def connectors_get_the_entries_that_hold_something(blocks: int, rest: int, release: bool) -> None:
    """A connector is given the entries of attention in which some computed token lies, counted in entries of all ranks, and
    the states whole; the release counts in blocks of one rank and offers more (T32.3, DS-9).
    """
    assert 0 <= blocks <= 3
    assert 0 <= rest < 8
    assert blocks < 3 or rest == 0
    computed = 8 * blocks + rest
    config = evolve(RANKS, profile=VLLM_0_33_0) if release else RANKS
    request = evolve(holders.request_of(GroupState((1, 2, 3)), GroupState((0, 4, 5))), computed=computed)
    attention, states = requests.offered_tables(config, request)
    held = [block for at, block in enumerate((1, 2, 3)) if 8 * at < computed]
    some = [block for at, block in enumerate((1, 2, 3)) if 4 * at < computed]
    assert list(attention) == (some if release else held)
    assert states == (0, 4, 5)


@claim(requests.producer_tails, sizes="shape", bounds="two groups, any blocks, boundaries and tokens", laws=("HO-1", "CC-3"))
def a_producers_tail_is_taken_where_nothing_came_behind_it(
    block: int, boundary: int, other: int, computed: int, flight: int
) -> None:
    """A state inside its block is taken over at the end of a request if it is the last that was computed and nothing is in
    flight (T32.1).
    """
    assert (block >= 1) & (boundary >= 1) & (other >= 1) & (computed >= 0) & (flight >= 0)
    states = (GroupState(tail_block=block, tail_boundary=boundary), GroupState(tail_boundary=other))
    found = requests.producer_tails(evolve(holders.request_of(*states), computed=computed, in_flight=flight))
    assert found == (((0, block, boundary),) if (boundary == computed) & (flight == 0) else ())


@claim(
    requests.mentioned,
    requests.alive,
    loads.mentions,
    sizes="shape",
    bounds="a live request, one in a step in flight, one with a load, running or abandoned, one with a store, and others",
)
def an_id_stands_for_one_request_at_a_time(
    number: int, live: bool, flying: bool, loading: bool, abandoned: bool, storing: bool
) -> None:
    """An id is taken while its request lives or a step in flight or a transfer of either direction still mentions it (T37)."""
    assert 0 <= number <= 4
    asked = pick((0, 1, 2, 3, 4), number)
    load = (Load(2, (1,), (1,), event=4),) if loading else ()
    host = tiers.host_of(tiers.EMPTY.pool, *((Track(3, (0,), events=(5,), finished=True),) if storing else ()))
    world = evolve(
        tiers.FULL_WORLD,
        requests=(holders.request_of(),) if live else (),
        steps=(landed(evolve(share(4), request=1)),) if flying else (),
        host=evolve(host, loads=() if abandoned else load, abandoned_loads=load if abandoned else ()),
    )
    taken = requests.mentioned(world, asked)
    found = requests.alive(world, asked)
    assert taken == (live, flying, loading, storing, False)[asked]
    assert (found is not None) == (asked == 0 and live)


# --- a plan and its step ------------------------------------------------------------------------------------------


@claim(
    plans.drain,
    plans.fresh_plan,
    plans.left_over_handoffs,
    plans.zero_list,
    sizes="shape",
    bounds="four blocks without keys; a handoff of an output and one of the plan, a copy and two blocks to be zeroed, of any "
    "groups",
    laws=("COW-3", "PC-3"),
    settles=("HO-2",),
    deep=True,
)
def a_drain_hands_everything_out_once(draft: Draft, first: int, second: int, group: int, copies: bool) -> None:
    """A drain hands out every handoff of the plan and those that outputs published before the plan began, and neither is left
    for the next plan; it gives back the references of the copies' ends and lists the blocks to be zeroed group by group (T23,
    HO-2, COW-3). The last lookup can be used no more.
    """
    assert four.legal(draft) & four.within(1, first, 3) & four.within(1, second, 3) & holders.held(draft, first, second)
    assert holders.own(first, second) & four.within(0, group, 1)
    old = four.pool_of(draft)
    ends = holders.table_of(first, second)
    of = pick((0, 1), group)
    begun = plans.fresh_plan(Plan(handoffs=((0, of, 1, 4),)))
    plan = evolve(
        begun,
        handoffs=(*begun.handoffs, (1, 1 - of, 2, 8)),
        copies=((0, ends[0], ends[1]),) if copies else (),
        zero=((of, 3), (1 - of, 1)),
        scheduled=(),
    )
    hit = Hit(0, 4, ((1,), ()), 0, False)
    after, record = plans.drain(evolve(holders.world_of(tiers.MIXED_WORLD, old), plan=plan, hit=hit))
    next_ = plans.fresh_plan(after.plan)
    assert sorted(record.handoffs) == [(0, of, 1, 4), (1, 1 - of, 2, 8)]
    assert [handoff[1] for handoff in record.handoffs] == [0, 1]
    assert (after.plan.handoffs == ()) & (next_.handoffs == ()) & (after.hit is None)
    assert record.zeroed == ((3, 1) if of == 0 else (1, 3))
    assert four.sound(after.pool)
    assert holders.accounted(after.pool, holders.others(old, ends if copies else ()))
    assert after.plan.copies == plan.copies


@claim(
    plans.fresh_plan,
    sizes="shape",
    bounds="a plan with handoffs, preempted requests and registered keys, any numbers",
    laws=("LV-1", "COW-4"),
)
def a_new_plan_forgets_what_was_registered(node: int, group: int, request: int, block: int) -> None:
    """A new plan forgets which states were registered in the last one, and keeps the handoffs and preemptions since (T0(1),
    LV-1).
    """
    assert (node >= 0) & (group >= 0) & (request >= 0) & (block >= 1)
    handoff = (request, group, block, 4)
    old = Plan(cached=((node, group, request),), handoffs=(handoff,), preempted=(request + 1,), preempted_before=(request,))
    new = plans.fresh_plan(old)
    assert new.cached == ()
    assert (new.handoffs == (handoff,)) & (new.preempted_before == (request,)) & (new.preempted == ())


@claim(
    plans.advance,
    sizes="all",
    bounds="any start, amount, tokens in flight and placeholders; up to two drafts, with asynchronous outputs and without",
    laws=("RQ-1",),
)
def a_dispatched_chunk_is_computed_and_in_flight(
    start: int, amount: int, flight: int, placeholders: int, drafts: int, samples: bool, later: bool
) -> None:
    """A dispatched chunk counts as computed and in flight, drafts included; with asynchronous outputs placeholders stand for
    what it will sample, one for each draft and one more (T0(7), RQ-1).
    """
    assert (start >= 0) & (amount >= 1) & (flight >= 0) & (placeholders >= 0)
    assert 0 <= drafts <= 2
    request = evolve(holders.request_of(), in_flight=flight, placeholders=placeholders)
    entry = share(amount, drafts, samples=samples, start=start)
    after = plans.advance(ASYNCHRONOUS if later else tiers.FULL, request, (entry,))
    other = plans.advance(tiers.FULL, evolve(request, request=5), (entry,))
    assert (after.computed == start + amount) & (after.in_flight == flight + amount)
    assert after.placeholders == placeholders + (1 + drafts if later and samples else 0)
    assert (other.computed == 0) & (other.in_flight == flight)


@claim(plans.local_lengths, sizes="grid", bounds="two ranks; any chunk", laws=("DS-4",))
def a_rank_is_told_its_share_of_a_chunks_end(start: int, amount: int) -> None:
    """A dispatch says of each request its end and how many tokens below it each rank holds, together all of them (2.6)."""
    assert start >= 0
    assert amount >= 1
    world = evolve(tiers.FULL_WORLD, config=RANKS)
    ((request, end, one, two),) = plans.local_lengths(world, (share(amount, start=start),))
    assert (request == 0) & (end == start + amount)
    assert one + two == end
    assert 0 <= one - two <= 1


# --- failed loads -------------------------------------------------------------------------------------------------


@claim(
    recovery.goes_on,
    recovery.concerned,
    recovery.holds,
    sizes="shape",
    bounds="a prefix of two tokens with a branch behind the first; any tokens",
    laws=("CC-1", "CC-3"),
)
def what_goes_on_behind_a_missing_token_is_wrong(one: int, two: int, other: int, computed: int, valid: int) -> None:
    """Wrong are the prefixes that contain the missing token behind the same tokens, and no others; a request holds some of
    it if more is computed than is valid (T36.2, C-48).
    """
    assert (one >= 0) & (two >= 0) & (other >= 0) & (computed >= 0) & (valid >= 0)
    assert two != other
    table = tiers.branched(one, two, other)
    wrong = [recovery.goes_on(table, node, 2) for node in (0, 1, 2, 3)]
    world = evolve(
        tiers.FULL_WORLD, prefixes=table, requests=tuple(evolve(holders.request_of(number=n), tip=n) for n in (1, 2, 3))
    )
    found = recovery.concerned(world, share(4), 2)
    holds = recovery.holds(evolve(holders.request_of(), computed=computed), valid)
    assert wrong == [False, False, True, False]
    assert [request.request for request in found] == [2]
    assert holds == (computed > valid)


@claim(
    recovery.without_wrong_pins,
    sizes="shape",
    bounds="a pending hit of one block, any start and length of whole blocks, any valid tokens",
    laws=("CP-4", "CP-1"),
)
def a_pinned_hit_behind_a_missing_token_is_given_back(start: int, length: int, valid: int, mine: bool) -> None:
    """A failed load takes the pins of a hit that reaches behind its valid tokens, and leaves those of one that does not and
    of other requests (CP-4, C-76).
    """
    assert (start >= 0) & (length >= 1) & (valid >= 0)
    pool = holders.referenced(four.pool_of(Draft(3, (1, 1, 1), (1, 1, 1), 0)), (2,))
    host = evolve(tiers.host_of(pool), pending=(PendingHit(0, start, length, ((2,),)),))
    after = recovery.without_wrong_pins(host, 0 if mine else 1, valid)
    gone = mine & (start + length > valid)
    assert (after.pending == ()) == gone
    assert after.pool.ref == (0, 0, 0 if gone else 1, 0)


@claim(
    recovery.without_keys,
    sizes="shape",
    bounds="full attention with any keys of three boundaries, whose blocks have them as primaries; any valid tokens up to 8",
    laws=("CC-3", "PC-13"),
)
def keys_behind_a_missing_token_go(a: bool, b: bool, c: bool, valid: int) -> None:
    """No key is left whose prefix goes on behind the valid tokens, and every other key stays (T4, C-48, CC-3)."""
    assert 0 <= valid <= 8
    tokens = pick(tuple(range(9)), valid)
    old = caches.keyed(caches.pool_with((a, b, c)))
    table = tiers.chain(12)
    new = recovery.without_keys(table, old, tokens + 1)
    assert new.entries == tuple(entry for entry in old.entries if entry[0] <= tokens)
    assert [new.key_node[block] for block in (1, 2, 3)] == [
        4 * block if had and 4 * block <= tokens else -1 for block, had in ((1, a), (2, b), (3, c))
    ]
