"""Claims about what a request gets from outside: external hits beside local ones, and loads (T14, T20, T29, T30)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import reconciliation
from kvproof.core import world as worlds
from kvproof.core.config import Config, Group, Offload
from kvproof.core.contents import GARBAGE, Cells
from kvproof.core.offload import external, loads
from kvproof.core.offload.state import Load, PendingHit, Stage
from kvproof.core.world import GroupState, Hit, Status
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import caches, holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, pick
from kvproof.proofs.refusing import refused


def tier(*groups: Group, mode: str = "eager", hash_block: int | None = None) -> Config:
    """Return the configuration of groups with a host tier."""
    return configs.configure(
        groups, num_blocks=4, hash_block_size=hash_block, offload=Offload(mode="lazy" if mode == "lazy" else "eager")
    )


SIZES = (1, 2, 3, 4, 8, 48)
BLOCKS = tuple(tier(Group("full_attention", size)) for size in SIZES)
"""A single group of full attention, whose blocks are S."""
FINE = tier(Group("full_attention", 8), Group("mamba_align", 8), hash_block=4)
LAZY = tier(Group("full_attention", 8), Group("mamba_align", 8), mode="lazy", hash_block=4)
"""Blocks of 8 tokens and H of 4: hits end at multiples of 4, but of 8 where the host stores lazily."""
LOCAL = tier(Group("full_attention", 4), Group("chunked_local", 4, window=12))
TWO_SIZES = tier(Group("full_attention", 4), Group("full_attention", 8))
"""Full attention in blocks of 4 and of 8 tokens, S of 8 and H of 4."""
SCRATCHED = tier(Group("scratch", 4), Group("full_attention", 4), Group("mamba_align", 4))
BOUNDS = "scheduler blocks of 1, 2, 3, 4, 8 and 48 tokens"

# --- local and external tokens ------------------------------------------------------------------------------------


@claim(reconciliation.asked_behind, sizes="grid", bounds=BOUNDS + "; any local hit", laws=("CP-6",))
def a_connector_is_asked_behind_whole_blocks(blocks: int, tail: int, size: int) -> None:
    """A connector is asked behind the whole scheduler blocks of a local hit, so that it may copy whole blocks (T14.1, CP-6)."""
    assert blocks >= 0
    assert 0 <= size < 6
    assert 0 <= tail < pick(SIZES, size)
    unit = pick(SIZES, size)
    asked = reconciliation.asked_behind(pick(BLOCKS, size), Hit(0, unit * blocks + tail, (), 0, False))
    assert asked == unit * blocks


@claim(
    reconciliation.accept,
    sizes="grid",
    bounds=BOUNDS + "; any local hit and any number of offered tokens",
    laws=("CA-3",),
    settles=("CA-7",),
)
def a_local_tail_goes_only_for_tokens_that_reach_further(
    blocks: int, tail: int, size: int, offered: int, diverged: bool
) -> None:
    """External tokens are taken exactly if with them the request has more than its local hit, of which they replace the tail
    inside a scheduler block. Without them a hit that diverged is looked up anew, any other is kept (T14, CA-7, CA-3).
    """
    assert blocks >= 0
    assert offered >= 0
    assert 0 <= size < 6
    assert 0 <= tail < pick(SIZES, size)
    whole = pick(SIZES, size) * blocks
    got = reconciliation.accept(pick(BLOCKS, size), Hit(0, whole + tail, (), 0, diverged), offered)
    better = whole + offered > whole + tail
    assert (got.external > 0) == better
    assert not better or (got.local == whole) & (got.external == offered)
    assert not better or got.branch == ("tail replaced" if tail > 0 else "behind the hit")
    assert better or got.external == 0
    assert better or diverged or (got.local == whole + tail) & (got.branch == ("tail kept" if offered > 0 else "no external"))
    assert better or not diverged or (got.local == 0) & (got.branch == "looked up anew")


# --- external hits ------------------------------------------------------------------------------------------------


@claim(
    external.look_up,
    external.starts_aligned,
    external.noticed,
    sizes="shape",
    bounds="full attention and states in blocks of 4 and of 8 tokens, all of whose keys the host has; any local prefix",
    laws=("CN-6",),
    settles=("CP-6",),
)
def a_misaligned_prefix_hits_and_pins_nothing(start: int, rest: int, known: bool) -> None:
    """Behind a local prefix that ends inside a scheduler block nothing is hit, nothing is pinned and no hit is pending; the
    notice of it is given once (T20.2, CP-6, CN-6).
    """
    assert start >= 0
    assert 1 <= rest < 8
    old = tiers.host_of(caches.pool_with((True, True), (True, True)))
    host = evolve(old, notices=(external.MISALIGNED,) if known else ())
    request = evolve(holders.request_of(GroupState(), GroupState()), tip=8, num_tokens=9)
    world = evolve(tiers.MIXED_WORLD, host=host, requests=(request,))
    after, record = external.look_up(world, host, request, 8 * start + rest)
    assert (record.external == 0) & (record.lists == ((), ()))
    assert (tiers.of(after).pool == old.pool) & (tiers.of(after).pending == ())
    assert record.notices == (() if known else (external.MISALIGNED,))
    assert tiers.of(after).notices == (external.MISALIGNED,)
    assert after.pool == world.pool


@claim(
    external.look_up,
    external.find_suffix,
    external.pending_hit,
    external.pinned_blocks,
    external.no_lists,
    sizes="shape",
    bounds="full attention in blocks of 4 tokens; a prompt of 9 tokens, 0, 4 or 8 of them local; any keys of two boundaries",
    laws=("CP-4", "HB-8", "HB-9"),
)
def an_external_hit_goes_on_behind_the_local_one(a: bool, b: bool, local: int) -> None:
    """An external hit is the longest run of the host's blocks behind the local prefix; what is hit is pinned once each, and
    is pending with its start (T20, HB-8, CP-4).
    """
    assert 0 <= local < 3
    start = pick((0, 4, 8), local)
    old = tiers.host_of(caches.pool_with((a, b)))
    request = evolve(holders.request_of(GroupState()), tip=8, num_tokens=9)
    world = evolve(tiers.FULL_WORLD, host=old, requests=(request,))
    after, record = external.look_up(world, old, request, start)
    run = ((1, 2) if b else (1,)) if start == 0 and a else (2,) if start == 4 and b else ()
    pending = external.pending_hit(tiers.of(after), 0)
    assert record.external == 4 * len(run)
    assert record.lists == (run,)
    assert tiers.of(after).pool.ref == tuple(int(block in run) for block in range(3))
    assert pending == (PendingHit(0, start, 4 * len(run), (run,)) if run else None)
    assert pending is None or external.pinned_blocks(pending) == run


@claim(external.chunks_agree, sizes="grid", bounds="with a group of local chunks of 12 tokens, and without; any local prefix")
def local_chunks_begin_where_the_prefix_ends(chunks: int, rest: int) -> None:
    """Behind a local prefix chunks of local attention are those of the request only if one begins there (T20.3)."""
    assert chunks >= 0
    assert 0 <= rest < 12
    agree = external.chunks_agree(LOCAL, 12 * chunks + rest)
    without = external.chunks_agree(TWO_SIZES, 12 * chunks + rest)
    assert agree == (rest == 0)
    assert without


@claim(external.host_view, sizes="shape", bounds="eager and lazy storing with fine hits on the device", laws=("HB-8",))
def lazy_stores_give_no_hits_inside_a_block(lazy: bool) -> None:
    """The host is looked up as the device is, but in lazy mode hits end at scheduler blocks: nobody stores prompt tails there
    (T33, HB-8).
    """
    assert isinstance(lazy, bool)
    view = external.host_view(LAZY if lazy else FINE)
    assert view.alignment == (8 if lazy else 4)
    assert view.fine_grained != lazy
    assert view.sizes == (8, 8)


# --- what a load takes --------------------------------------------------------------------------------------------


@claim(
    loads.first_column,
    loads.blocks_taken,
    sizes="all",
    bounds="any local blocks, any tokens and block size",
    laws=("LD-1",),
)
def a_load_takes_the_blocks_that_hold_its_tokens(blocks: int, accepted: int, size: int) -> None:
    """A load fills the columns from that of its first token on, one for each block that holds some token of it (T29, LD-1)."""
    assert blocks >= 0
    assert accepted >= 1
    assert size >= 1
    first = loads.first_column(size, blocks * size)
    taken = loads.blocks_taken(size, accepted)
    last = blocks * size + accepted - 1
    assert first * size <= blocks * size < (first + 1) * size
    assert (first + taken - 1) * size <= last < (first + taken) * size


@claim(
    loads.may_take,
    loads.prefix_closed,
    sizes="grid",
    bounds="full attention alone, in one and in two sizes, and with states; hits end at multiples of 4 and 8; any numbers",
    laws=("LD-5", "HB-10"),
)
def only_a_hit_of_full_attention_can_be_cut(taken: int, found: int, rest: int, kind: int) -> None:
    """A load takes its whole hit. It may take less only where every cached group is full attention, and then a multiple of
    the hit alignment: a window or a state stands for nothing earlier (T29, LD-5).
    """
    assert taken >= 0
    assert found >= 1
    assert 0 <= kind < 3
    assert 0 <= rest < pick((4, 8, 4), kind)
    config = pick((tiers.FULL, TWO_SIZES, tiers.MIXED), kind)
    unit = pick((4, 8, 4), kind)
    accepted = unit * taken + rest
    may = loads.may_take(config, accepted, found)
    closed = loads.prefix_closed(config)
    assert closed == (kind != 2)
    assert may == ((accepted == found) | ((kind != 2) & (rest == 0) & (taken >= 1) & (accepted < found)))


@claim(
    loads.valid_prefix,
    sizes="grid",
    bounds="scheduler blocks of 1, 2, 3, 4, 8 and 48 tokens; any valid tokens and local prefix of whole blocks",
    laws=("HB-10",),
)
def a_failed_load_leaves_whole_valid_blocks(local: int, whole: int, rest: int, size: int) -> None:
    """Of a failed load full attention keeps the whole valid blocks, and never less than the local prefix (T30, C-45)."""
    assert local >= 0
    assert whole >= 0
    assert 0 <= size < 6
    assert 0 <= rest < pick(SIZES, size)
    unit = pick(SIZES, size)
    kept = loads.valid_prefix(pick(BLOCKS, size), unit * local, unit * whole + rest)
    assert kept == unit * (whole if whole > local else local)


@claim(loads.valid_prefix, sizes="all", bounds="any local prefix and valid tokens; attention with states", laws=("HB-10",))
def a_failed_load_of_states_leaves_nothing(local: int, valid: int) -> None:
    """Where a group has states nothing is kept of a failed load: none stands at a shorter prefix (T30, C-45, HB-10)."""
    assert local >= 0
    assert valid >= 0
    kept = loads.valid_prefix(tiers.MIXED, local, valid)
    assert kept == 0


@claim(loads.loaded_groups, loads.is_copied, sizes="shape", bounds="a scratch group, attention and states", laws=("LD-4",))
def scratch_groups_and_null_entries_are_not_loaded(block: int) -> None:
    """Loads fill the groups that are cached, a scratch group has no keys; a null entry of a hit is not copied (T29, LD-4)."""
    assert block >= 0
    groups = loads.loaded_groups(SCRATCHED)
    copied = loads.is_copied(block)
    assert groups == (1, 2)
    assert copied == (block > 0)


# --- when a load runs ---------------------------------------------------------------------------------------------

HELD = configs.configure(
    (Group("full_attention", 4),), num_blocks=4, defer_block_free=True, max_steps_in_flight=2, offload=Offload(hold_loads=True)
)
HELD_WORLD = worlds.new_world(HELD)


@claim(loads.fence, loads.may_start, sizes="all", bounds="any numbers of steps", laws=("COW-3",))
def a_held_load_waits_for_the_steps_before_it(issued: int, processed: int, more: int, built: bool) -> None:
    """A load that is held starts when all steps are processed that were dispatched when it was asked for, any other at once;
    none starts twice (T36.1, COW-3).
    """
    assert 0 <= processed <= issued
    assert more >= 0
    then = evolve(HELD_WORLD, issued=issued, processed=processed)
    fence = loads.fence(then)
    free = loads.fence(evolve(tiers.FULL_WORLD, issued=issued, processed=processed))
    load = Load(0, (1,), (1,), fence=fence, stage=Stage.BUILT if built else Stage.WAITING)
    starts = loads.may_start(evolve(then, issued=issued + more, processed=processed + more), load)
    assert free == 0
    assert starts == ((not built) & (processed + more >= issued))


@claim(loads.destinations, sizes="shape", bounds="no, one and two loads of up to two blocks", laws=("LD-8",))
def destinations_are_the_blocks_of_the_loads(count: int, first: int, second: int) -> None:
    """The blocks that nobody may zero are those that some load will fill (T0 b, LD-8)."""
    assert 0 <= count < 3
    assert 1 <= first <= 3
    assert 1 <= second <= 3
    one, two = four.block_of(first), four.block_of(second)
    running = pick(((), (Load(0, (one,), (1,)),), (Load(0, (one,), (1,)), Load(1, (two, one), (2, 3)))), count)
    found = loads.destinations(evolve(tiers.FULL_WORLD, host=evolve(tiers.EMPTY, loads=running)))
    none = loads.destinations(evolve(tiers.FULL_WORLD, host=None))
    assert not none
    assert all((block in found) == any(block in load.device for load in running) for block in (1, 2, 3))


@claim(loads.find, loads.without, loads.mentions, sizes="shape", bounds="a running and an abandoned load of two requests")
def a_load_stands_for_its_request_until_it_ends(request: int, waiting: bool) -> None:
    """A request has at most one load, running, waiting or abandoned; when that ends nothing mentions the request (T30, 3.5)."""
    assert 0 <= request < 3
    number = pick((0, 1, 2), request)
    one, other = Load(0, (1,), (1,), event=-1 if waiting else 3), Load(1, (2,), (2,), event=2)
    host = evolve(tiers.EMPTY, loads=(one,), abandoned_loads=(other,))
    found = loads.find(host, number)
    known = loads.mentions(host, number)
    left = host if found is None else loads.without(host, found)
    assert found == (one, other, None)[number]
    assert known == (number < 2)
    assert not loads.mentions(left, number)
    assert (left.loads == (() if number == 0 else (one,))) & (left.abandoned_loads == (() if number == 1 else (other,)))


@claim(
    loads.reported,
    loads.is_reportable,
    loads.must_wait,
    sizes="shape",
    bounds="a load in each of its stages, or none",
    laws=("LD-7",),
)
def only_a_copied_load_is_reported(stage: int, there: bool) -> None:
    """A worker reports a load once its bytes have moved; until a step named it the worker knows nothing of it (T30, LD-7)."""
    assert 0 <= stage < 4
    load = Load(0, (1,), (1,), event=-1 if stage == 0 else 5, stage=pick(tuple(Stage), stage))
    host = evolve(tiers.EMPTY, loads=(load,) if there else ())
    no = refused(loads.reported, host, 0)
    waits = loads.must_wait(load)
    assert no == (not there or stage < 3)
    assert waits == (stage > 0)


@claim(loads.waiting_status, sizes="all", bounds="any number of preemptions", laws=("LV-3",))
def who_ran_before_waits_as_preempted(preemptions: int) -> None:
    """A request that waits is PREEMPTED if it ran before and WAITING if not (T30, LV-3)."""
    assert preemptions >= 0
    status = loads.waiting_status(evolve(holders.request_of(), num_preemptions=preemptions))
    assert status is (Status.PREEMPTED if preemptions > 0 else Status.WAITING)


@claim(
    loads.start_again,
    sizes="shape",
    bounds="four blocks without keys; a loading request with a table of one entry",
    laws=("LV-3", "PC-3"),
)
def a_load_that_brought_nothing_starts_its_request_again(draft: Draft, first: int, ran: bool) -> None:
    """A request whose load brought nothing gives all its blocks back and waits with empty tables (T30, C-45, LV-3)."""
    assert four.legal(draft) & holders.held(draft, first)
    old = four.pool_of(draft)
    table = holders.table_of(first)
    request = evolve(
        holders.request_of(GroupState(table)), status=Status.LOADING, computed=8, loaded=True, num_preemptions=int(ran)
    )
    after = loads.start_again(holders.world_of(tiers.FULL_WORLD, old, request), request)
    (again,) = after.requests
    assert four.sound(after.pool)
    assert holders.accounted(after.pool, holders.others(old, table))
    assert (again.computed == 0) & (again.groups == (GroupState(),)) & (not again.loaded)
    assert again.status is (Status.PREEMPTED if ran else Status.WAITING)


# --- a load that fails or is told something -----------------------------------------------------------------------


@claim(
    loads.fail,
    loads.spoiled,
    sizes="shape",
    bounds="three blocks of 4 tokens with any contents, of which a load fills the last two; any valid tokens from 4 to 12",
    laws=("CC-3", "LV-3", "PC-3", "LD-6"),
)
def a_failed_load_spoils_what_did_not_arrive(one: int, two: int, valid: int, condemned: bool, ran: bool) -> None:
    """The blocks of a failed load that are not whole hold garbage, and no other block. The request keeps the valid ones; of a
    load of which nothing may be kept it gives everything back and waits again (T30, C-45, C-48).
    """
    assert (one >= 0) & (two >= 0)
    assert 4 <= valid <= 12
    arrived = pick((4, 5, 6, 7, 8, 9, 10, 11, 12), valid - 4)
    memory: tuple[Cells, ...] = ((), (0, one, two, one, two), (0, two, two, one, one), (0, one, one, one, one))
    table = (1, 2, 3)
    pool = holders.referenced(four.pool_of(Draft(3, (1, 1, 1), (1, 1, 1), 0)), table)
    load = Load(0, (2, 3), (1, 2), event=5, stage=Stage.COPIED, start=4, condemned=condemned)
    request = evolve(
        holders.request_of(GroupState(table)), status=Status.LOADING, computed=12, loaded=True, num_preemptions=int(ran)
    )
    world = evolve(holders.world_of(tiers.FULL_WORLD, pool, request), contents=memory)
    after = loads.fail(world, load, request, arrived)
    (again,) = after.requests
    waits = evolve(
        request, status=Status.PREEMPTED if ran else Status.WAITING, computed=0, groups=(GroupState(),), loaded=False
    )
    kept = 0 if condemned else arrived // 4 * 4
    garbage = (0, GARBAGE, GARBAGE, GARBAGE, GARBAGE)
    assert after.contents == (*memory[:2], memory[2] if kept >= 8 else garbage, memory[3] if kept == 12 else garbage)
    assert again == (waits if condemned else evolve(request, computed=kept))
    assert after.pool.ref == ((0, 0, 0, 0) if condemned else (0, 1, 1, 1))


@claim(
    loads.give_back,
    loads.condemned,
    loads.marked,
    loads.replaced,
    loads.counted_when_asked,
    loads.counted_when_complete,
    sizes="shape",
    bounds="a running and an abandoned load of two requests, any tables",
    laws=("LD-7", "CN-4", "PC-3", "CP-1"),
)
def what_happens_to_a_load_happens_to_it_alone(first: int, second: int, abandoned: bool) -> None:
    """A load of which nothing may be kept is noted as such, one whose request finishes keeps its tables, and one that ends is
    forgotten with its references on both sides; another load stays as it is. Its blocks count when it is complete (T30, C-48,
    LD-7, CN-4).
    """
    assert (first >= 0) & (second >= 0)
    one, other = Load(0, (1,), (2,), event=3), Load(1, (2, 3), (3, 1), event=2)
    pool = holders.referenced(four.pool_of(Draft(3, (1, 1, 1), (1, 1, 1), 0)), (1, 2, 3))
    host = evolve(tiers.host_of(pool), loads=(one,), abandoned_loads=(other,))
    load = other if abandoned else one
    request = holders.request_of(GroupState((first, second)), GroupState((second,)))
    lost = loads.condemned(host, load)
    kept = loads.marked(host, load, request)
    ended = loads.give_back(evolve(tiers.FULL_WORLD, pool=pool, host=host), host, load)
    counted = (loads.counted_when_asked(load), loads.counted_when_complete(load))
    both, held = (evolve(load, condemned=True), evolve(load, finished=True, held=((first, second), (second,)))), (one, other)
    left = tuple((known.loads, known.abandoned_loads) for known in (lost, kept, tiers.of(ended)))
    assert left[:2] == tuple(((held[0],), (by,)) if abandoned else ((by,), (held[1],)) for by in both)
    assert left[2] == (((one,), ()) if abandoned else ((), (other,)))
    assert (ended.pool.ref, tiers.of(ended).pool.ref) == (
        ((0, 1, 0, 0), (0, 0, 1, 0)) if abandoned else ((0, 0, 1, 1), (0, 1, 0, 1))
    )
    assert counted == (0, 2 if abandoned else 1)
