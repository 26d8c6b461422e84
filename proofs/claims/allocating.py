"""Claims about the numbers of an allocation, what it registers and counts, and what a plan knows of it (T16 to T18, T39)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import allocation, requests
from kvproof.core import config as configs
from kvproof.core import pool as pools
from kvproof.core.allocation import Wanted
from kvproof.core.config import Group
from kvproof.core.world import GroupState, Hit, Plan, Scheduled, Status
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key, pick

GROUPS = (Group("full_attention", 8), Group("sliding_window", 4, window=5))
COARSE = configs.configure(GROUPS, num_blocks=4)
EAGLE = configs.configure(GROUPS, num_blocks=4, use_eagle=True)
FINE = configs.configure((Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=4, use_eagle=True)
"""S of 8; where hits are coarse whole scheduler blocks may be cached, where they are fine every token."""
CONNECTED = configs.configure((Group("full_attention", 4),), num_blocks=4, connectors=(True,))
SCRATCHED = configs.configure((Group("full_attention", 4), Group("scratch", 4)), num_blocks=4)


def wanted(main: int, drafts: tuple[int, ...] = (), *, local: int = 0, external: int = 0, load: bool = False) -> Wanted:
    """Return what a first allocation wants that comes to ``main`` tokens."""
    return Wanted(first=True, local=local, external=external, slots=main, main=main, drafts=drafts, load=load)


# --- numbers ------------------------------------------------------------------------------------------------------


@claim(
    allocation.wanted_tokens,
    allocation.slots_behind,
    allocation.unsettled_drafts,
    sizes="all",
    bounds="any tokens computed, hit, new and looked ahead, any model length; any position",
    laws=("LD-1", "TB-4"),
)
def a_position_has_a_slot_if_it_is_wanted_and_in_the_model(
    computed: int, local: int, external: int, new: int, ahead: int, length: int, position: int, placeholders: int, load: bool
) -> None:
    """A position is computed behind an allocation exactly if it lies among the tokens that were computed, hit or asked for
    and below the model length. It has a slot also if it lies in the lookahead; a load has slots for what was computed, hit and
    is loaded alone (T16.1, T16.6).
    """
    assert (computed >= 0) & (local >= 0) & (external >= 0) & (new >= 0) & (ahead >= 0) & (placeholders >= 0)
    assert (length >= 1) & (position >= 0)
    config = evolve(tiers.FULL, max_model_len=length)
    request = evolve(holders.request_of(), computed=computed, placeholders=placeholders)
    asked = act.Allocate(0, new_tokens=new, local=local, external=external, lookahead=ahead, load=load)
    found = allocation.wanted_tokens(config, request, asked)
    end = computed + local + external + new
    inside = position < length
    assert (position < found.main) == (inside & (position < end))
    assert (position < found.slots) == (inside & (position < (computed + local + external if load else end + ahead)))
    assert found.local == computed + local
    assert found.main - found.settled == (placeholders - 1 if placeholders > 0 else 0)


@claim(allocation.fits, sizes="all", bounds="any numbers of blocks", laws=("PC-7",))
def reserved_blocks_stay_free(need: int, free: int, reserved: int) -> None:
    """An allocation fits exactly if behind it the reserved blocks are still free (T16.4, PC-7)."""
    assert (need >= 0) & (free >= 0) & (reserved >= 0)
    fits = allocation.fits(need, free, reserved)
    assert fits == (free - need >= reserved)


@claim(
    allocation.registrable_tokens,
    allocation.registrable_nodes,
    allocation.registers_now,
    sizes="all",
    bounds="any number of known and of wanted tokens; a request of 8 tokens with hash boundaries at 4 and 8",
    laws=("HB-2", "HB-14", "LD-6"),
)
def only_known_tokens_are_registered(known: int, more: int, back: int, load: bool) -> None:
    """What an allocation registers are tokens that are computed and known, never drafts or placeholders, and only boundaries
    of known tokens; a load registers nothing, its bytes are still to come (T16.7, HB-14, LD-6).
    """
    assert known >= 1
    assert more >= 2
    assert 0 <= back <= known
    request = evolve(holders.request_of(GroupState()), num_tokens=known, tip=8)
    behind = allocation.registrable_tokens(request, wanted(known + more, (5, 6)))
    inside = allocation.registrable_tokens(request, wanted(known - back))
    nodes = allocation.registrable_nodes(tiers.FULL_WORLD, request, wanted(known + more))
    now = allocation.registers_now(wanted(known, load=load))
    assert behind == known
    assert inside == known - back
    assert nodes == [4, 8]
    assert now != load


@claim(allocation.processed_tokens, sizes="all", bounds="any start and amounts of two steps in flight", laws=("TB-5",))
def windows_reach_back_from_the_oldest_step_in_flight(start: int, first: int, second: int, external: int) -> None:
    """What is nulled lies before the windows of the oldest step in flight: the tokens that no step still computes are those
    before its chunk (T16.3, TB-5).
    """
    assert (start >= 0) & (first >= 0) & (second >= 0) & (external >= 0)
    request = evolve(holders.request_of(), in_flight=first + second)
    running = allocation.processed_tokens(request, wanted(0, local=start + first + second))
    fresh = allocation.processed_tokens(evolve(request, in_flight=0), wanted(0, local=start, external=external))
    assert running == start
    assert fresh == start + external


@claim(
    allocation.cacheable_prefix,
    sizes="grid",
    bounds="S of 8, coarse and fine hits, with and without EAGLE; entries of 8 and 4 tokens; any tokens",
    laws=("HB-14",),
)
def what_may_be_cached_is_whole_or_fine(blocks: int, rest: int, kind: int, group: int) -> None:
    """A caching call covers every token where hits are fine and whole scheduler blocks where they are coarse; a class of the
    EAGLE set one entry more, as far as there are tokens, if it covers anything (2.8, HB-14).
    """
    assert blocks >= 0
    assert 0 <= rest < 8
    assert 0 <= kind < 3
    assert 0 <= group < 2
    tokens, of = 8 * blocks + rest, pick((0, 1), group)
    covered = allocation.cacheable_prefix(pick((COARSE, EAGLE, FINE), kind), of, tokens)
    whole = tokens if kind == 2 else 8 * blocks
    more = 0 if kind != 1 or blocks == 0 else (rest if group == 0 or rest < 4 else 4)
    assert covered == whole + more


@claim(allocation.adopts, sizes="shape", bounds="two groups with and without a hit; any external tokens", laws=("TB-14",))
def something_is_adopted_if_something_was_hit(external: int, one: bool, two: bool, first: bool) -> None:
    """Adoption runs for a first allocation with a hit of some group or with external tokens, and for no other (T18)."""
    assert external >= 0
    asked = evolve(wanted(8, external=external), first=first)
    runs = allocation.adopts(asked, ((1,) if one else (), (2,) if two else ()))
    assert runs == (first & (one | two | (external > 0)))


@claim(allocation.owe_private_copy, sizes="all", bounds="any entry and block", laws=("TB-14", "COW-1", "COW-2"))
def a_shared_block_inside_is_owed_a_copy(index: int, block: int, cached: int) -> None:
    """The entry inside which a hit ends owes a copy of its block and does not count as registered: the copy is registered
    when it is full (T18, COW-1, TB-14).
    """
    assert (index >= 0) & (block >= 1) & (cached >= 0)
    state = allocation.owe_private_copy(GroupState((block,), num_cached=cached), index, block)
    assert (state.partial_index == index) & (state.partial_source == block)
    assert state.num_cached == index
    assert state.table == (block,)


# --- what the plan knows ------------------------------------------------------------------------------------------


@claim(
    allocation.share,
    requests.expected_tokens,
    sizes="all",
    bounds="any known tokens, placeholders and start; a chunk with up to two drafts",
    laws=("RQ-1", "RQ-3"),
)
def a_share_computes_up_to_what_is_wanted(
    known: int, placeholders: int, start: int, length: int, local: int, drafts: int
) -> None:
    """A request's share of a plan computes from its start to what is wanted, drafts last. It samples exactly if without them
    it reaches the end of what is known or awaited, and as many tokens of it are still to come as lie behind the known
    ones (T36).
    """
    assert (known >= 1) & (placeholders >= 0) & (length >= 1)
    assert 0 <= local <= start
    assert 0 <= drafts <= 2
    assert start + length <= known + placeholders
    guessed = pick(((), (5,), (5, 6)), drafts)
    request = evolve(holders.request_of(), num_tokens=known, placeholders=placeholders)
    main = start + length + len(guessed)
    entry = allocation.share(request, wanted(main, guessed, local=local, external=start - local))
    expected = requests.expected_tokens(request)
    assert (entry.start == start) & (entry.start + entry.amount == main)
    assert (entry.loaded_from == local) & (entry.drafts == guessed)
    assert entry.samples == (start + length == expected)
    assert entry.pending == (start + length - known if start + length > known else 0)


@claim(
    allocation.external_counts,
    sizes="all",
    bounds="any tokens hit and accepted; with and without a connector, admitted or not, loaded or not",
    laws=("CN-3",),
)
def external_tokens_are_counted_once_for_an_admission(
    local: int, external: int, rest: int, connected: bool, admitted: bool, loaded: bool
) -> None:
    """An admission with a connector asks for all tokens that were not hit locally and counts those it accepts, which are no
    more; a refused one counts nothing, nor does a request that goes on behind its load (CN-3).
    """
    assert (local >= 0) & (external >= 0) & (rest >= 0)
    tokens = local + external + rest
    request = evolve(holders.request_of(), num_tokens=tokens, loaded=loaded)
    config = CONNECTED if connected else COARSE
    queries, hits = allocation.external_counts(config, request, act.Allocate(0, 1, local=local, external=external), admitted)
    counts = connected & admitted & (not loaded)
    assert queries == (external + rest if counts else 0)
    assert hits == (external if counts else 0)
    assert hits <= queries


@claim(
    allocation.registered_this_step, sizes="shape", bounds="two keys of the step, any nodes and groups", laws=("COW-4", "LV-1")
)
def a_state_of_this_step_is_known_by_its_key(node: int, group: int, other: int, second: int, asked: int, of: int) -> None:
    """A recurrent key is one of this step exactly if some request registered that node for that group since it began (T17)."""
    assert (node >= 0) & (group >= 0) & (other >= 0) & (second >= 0) & (asked >= 0) & (of >= 0)
    plan = Plan(cached=((node, group, 0), (other, second, 1)))
    found = allocation.registered_this_step(plan, asked, of)
    none = allocation.registered_this_step(Plan(), asked, of)
    assert found == (((asked == node) & (of == group)) | ((asked == other) & (of == second)))
    assert not none


@claim(
    allocation.unwritten_in_plan,
    sizes="shape",
    bounds="a request that computes in this plan, with a table of two blocks, and a queued copy; any starts and boundaries",
    laws=("COW-4",),
)
def a_source_is_unwritten_if_the_plan_still_writes_it(
    first: int, second: int, copy: int, block: int, start: int, boundary: int, index: int, queued: bool
) -> None:
    """A block has bytes still to come below a boundary if a queued copy ends in it, or if some request computes or loads from
    below the boundary with the block in that column (T17, COW-4).
    """
    assert (first >= 1) & (second >= 1) & (copy >= 1) & (block >= 1)
    assert (start >= 0) & (boundary >= 1)
    assert 0 <= index <= 1
    request = holders.request_of(GroupState((first, second)))
    plan = Plan(
        scheduled=(Scheduled(0, start + 4, 4, fresh=True, loaded_from=start),),
        copies=((0, 9, copy),) if queued else (),
    )
    world = evolve(tiers.FULL_WORLD, requests=(request,), plan=plan)
    at = pick((0, 1), index)
    still = allocation.unwritten_in_plan(world, 0, at, block, boundary)
    assert still == ((queued & (block == copy)) | ((start < boundary) & (block == (first, second)[at])))


@claim(
    allocation.undo_records,
    requests.roll_back,
    sizes="shape",
    bounds="four blocks with one key; a key more on any of them",
    laws=("PC-5", "HB-5", "HO-11"),
    deep=True,
)
def a_withdrawn_registration_is_undone(draft: Draft, key: Key, number: int, node: int, tokens: int, other: int) -> None:
    """What a plan notes of a registration gives every block the keys back that it had, and says nothing of blocks whose keys
    did not change; of another request nothing is rolled back (T39.2).
    """
    assert four.legal(draft, key) & four.within(1, number, 3) & (node >= 0) & (tokens >= 1) & four.within(0, other, 1)
    old = four.pool_of(draft, key)
    block, request = four.block_of(number), pick((0, 1), other)
    new = pools.insert(old, node, 0, block, tokens)
    undo = allocation.undo_records(Plan(), 0, old, new)
    back = requests.roll_back(new, Plan(undo=undo), request)
    changed = new.entries != old.entries
    assert [record.block for _, records in undo for record in records] == ([block] if changed else [])
    assert four.sound(back)
    assert request == 1 or four.keys_kept(old, back)
    assert request == 0 or back == new
    assert four.holdings_kept(old, back)


@claim(allocation.with_request, sizes="shape", bounds="two requests; any computed tokens")
def one_request_is_replaced_and_no_other(one: int, two: int, new: int, second: bool) -> None:
    """A transition of a request replaces that request alone, and uses the lookup's result up (T16)."""
    assert (one >= 0) & (two >= 0) & (new >= 0)
    both = tuple(evolve(holders.request_of(number=at), computed=(one, two)[at]) for at in (0, 1))
    world = evolve(tiers.FULL_WORLD, requests=both, hit=Hit(0, 4, ((1,),), 0, False))
    changed = evolve(both[1 if second else 0], computed=new)
    after = allocation.with_request(world, changed, world.pool, Plan(store=3))
    assert after.requests == ((both[0], changed) if second else (changed, both[1]))
    assert after.hit is None
    assert (after.plan == Plan(store=3)) & (after.config is world.config)


# --- blocks -------------------------------------------------------------------------------------------------------


@claim(
    allocation.take_external,
    sizes="shape",
    bounds="four blocks without keys; a table of one entry of 4 tokens or none, 0 to 8 external tokens; a scratch group",
    laws=("TB-4", "PC-3", "TB-15"),
)
def external_tokens_get_blocks_of_their_own(draft: Draft, first: int, there: bool, external: int, spare: bool) -> None:
    """Behind the local blocks as many are taken as the external tokens need to be covered, new ones; a scratch group and an
    admission without external tokens take none (T18).
    """
    assert four.legal(draft, free=2) & four.within(1, first, 3) & holders.held(draft, first) & four.within(0, external, 2)
    old = four.pool_of(draft)
    table = holders.table_of(first) if there else ()
    tokens = 4 * pick((0, 1, 2), external)
    work = holders.work_on(SCRATCHED, old)
    asked = wanted(16, local=4 * len(table), external=tokens)
    state, taken = allocation.take_external(work, 1 if spare else 0, GroupState(table), asked)
    assert four.sound(work.pool)
    assert len(taken) == (0 if spare else tokens // 4)
    assert state.table == table + taken
    assert holders.unshared(state.table)
    assert holders.accounted(work.pool, holders.others(old, table), state.table)


@claim(
    allocation.allocate,
    allocation.total_demand,
    allocation.admitted,
    allocation.register,
    sizes="shape",
    bounds="four blocks of 4 tokens with one key; a waiting request of 8 tokens without a hit, 1 to 8 wanted, any reserve",
    laws=("PC-3", "PC-5", "PC-7", "PC-9", "TB-1", "TB-4", "TB-8", "HB-14", "HB-18"),
    deep=True,
)
def allocate_for_a_new_request(draft: Draft, key: Key, new: int, reserved: int) -> None:
    """An allocation is refused, and nothing changes, exactly if behind it fewer blocks were free than are reserved; else the
    table covers the tokens with blocks from the front of the queue, and each full one is named by its end (T16, PC-7, PC-9).
    """
    assert four.legal(draft, key) & four.within(1, new, 8) & four.within(0, reserved, 3)
    assert (key[0] != 4) & (key[0] != 8)
    old = four.pool_of(draft, key)
    tokens, kept = pick((1, 2, 3, 4, 5, 6, 7, 8), new - 1), pick((0, 1, 2, 3), reserved)
    request = evolve(holders.request_of(GroupState()), status=Status.WAITING, tip=8, num_tokens=8, num_prompt=8)
    world = holders.world_of(tiers.FULL_WORLD, old, request)
    after, record = allocation.allocate(world, request, wanted(tokens), ((),), False, kept)
    need = (tokens + 3) // 4
    (state,) = after.requests[0].groups
    assert record.admitted == (need + kept <= len(old.free))
    assert four.sound(after.pool)
    assert record.admitted or (after.pool == old) & (after.requests == world.requests) & (after.plan == world.plan)
    assert not record.admitted or state.table == old.free[:need]
    assert holders.accounted(after.pool, holders.others(old), state.table)
    assert four.every(
        four.standing(after.pool, block) == (4 * at + 4, 0, 4 * at + 4)
        if 4 * at + 4 <= tokens
        else four.unkeyed(after.pool, block)
        for at, block in enumerate(state.table)
    )
