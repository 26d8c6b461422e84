"""Claims about what is stored by index and at a finish, the order of a step's parts, promotion, and reset (T26 to T34)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core.config import Group, Offload
from kvproof.core.offload import (
    choosing,
    finishing,
    handoffs,
    loads,
    positional,
    promotion,
    reset,
    settings,
    tails,
)
from kvproof.core.offload.state import Counters, Load, PendingHit, Queued, Store, Track
from kvproof.core.profiles import VLLM_0_33_0
from kvproof.core.world import GroupState, Plan, Scheduled, Status
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key, pick

LAZY = configs.configure((Group("full_attention", 4),), num_blocks=4, offload=Offload(mode="lazy"))
TWO = configs.configure(
    (Group("full_attention", 8), Group("full_attention", 16), Group("mamba_align", 8)), hash_block_size=4, num_blocks=4
)
"""H of 4 and fine hits: two sizes of full attention, and states."""
EVERY = configs.configure(
    (Group("full_attention", 8), Group("sliding_window", 4, window=5), Group("mamba_align", 8), Group("scratch", 4)),
    hash_block_size=4,
    num_blocks=4,
    offload=Offload(),
)
RANKS = configs.configure((Group("full_attention", 4), Group("mamba_align", 4)), num_blocks=4, dcp_size=2, offload=Offload())
"""An entry of attention covers 8 tokens on both ranks, one of states 4."""


# --- what is scanned and stored -----------------------------------------------------------------------------------


@claim(positional.is_scanned, sizes="shape", bounds="attention, a window, states and scratch", laws=("HO-8", "IP-5"))
def states_are_never_stored_by_index(group: int) -> None:
    """The scan by index stores groups whose entries never change their meaning and that have keys: attention and windows,
    no states of Mamba align, which come by handoffs, and no scratch group (T26, HO-8, IP-5).
    """
    assert 0 <= group < 4
    scans = positional.is_scanned(EVERY, pick((0, 1, 2, 3), group))
    assert scans == (group < 2)


@claim(
    positional.ready_entries,
    positional.entry_size,
    positional.confirmed_tokens,
    sizes="grid",
    bounds="two ranks, entries of 8 tokens of attention and 4 of states; tables of up to three entries; any tokens",
    laws=("DS-1", "LV-5"),
)
def confirmed_entries_are_full_on_all_ranks(computed: int, placeholders: int, length: int, states: bool) -> None:
    """As many leading entries are ready as the tokens that are computed and known fill on all ranks, no more than the table
    has (T26, DS-1).
    """
    assert 0 <= placeholders <= computed
    assert 0 <= length <= 3
    table = pick(((), (1,), (1, 2), (1, 2, 3)), length)
    request = evolve(holders.request_of(GroupState(), GroupState()), computed=computed, placeholders=placeholders)
    ready = positional.ready_entries(evolve(tiers.MIXED_WORLD, config=RANKS), request, 1 if states else 0, table)
    tokens, size = computed - placeholders, 4 if states else 8
    assert 0 <= ready <= len(table)
    assert ready * size <= tokens
    assert ready == len(table) or tokens < (ready + 1) * size


@claim(
    positional.tables_told, positional.scanned, positional.tables_of, sizes="shape", bounds="a table of two entries, any blocks"
)
def the_scan_reads_the_table_of_now(first: int, second: int, then: int, fresh: bool, told: bool, release: bool) -> None:
    """The scan reads a request's own table. In the release it reads what the steps reported: a new table whole, of one that
    goes on what was appended, behind entries that may have been nulled since (T26, HO-10, field ``positional_ids``).
    """
    assert (first >= 0) & (second >= 0) & (then >= 1)
    request = holders.request_of(GroupState((first, second)))
    track = Track(0, (0,), told=((then,),) if told else ())
    reported = positional.tables_told(track, request, fresh=fresh)
    config = evolve(tiers.FULL, profile=VLLM_0_33_0) if release else tiers.FULL
    read = positional.scanned(config, reported, request)
    assert reported == (((then, second),) if told and not fresh else ((first, second),))
    assert read == (reported if release else ((first, second),))


@claim(
    positional.in_order,
    positional.resumed_last,
    sizes="shape",
    bounds="a continuing, a resumed and a new request, scheduled in any order; both settings",
)
def new_requests_are_scanned_first(order: int, last: bool) -> None:
    """Blocks of new requests are stored first, then those of resumed and of continuing ones, or of these two the other way
    round if that is set (T26, C-78).
    """
    assert 0 <= order < 6
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    planned = tuple(Scheduled(at, 0, 4, fresh=at != 0, loaded_from=0) for at in pick(orders, order))
    asked = [evolve(holders.request_of(GroupState(), number=at), num_preemptions=int(at == 1)) for at in (0, 1, 2)]
    config = evolve(tiers.FULL, offload=Offload(resumed="last" if last else "first"))
    world = evolve(tiers.FULL_WORLD, config=config, requests=tuple(asked), plan=Plan(scheduled=planned))
    found = [entry.request for entry in positional.in_order(world)]
    assert found == ([2, 0, 1] if last else [2, 1, 0])


@claim(
    tails.groups,
    tails.tail_boundary,
    sizes="grid",
    bounds="full attention of 8 and 16 tokens and states with fine hits, H of 4; a prompt of 1 to 20 tokens, all hashed",
    laws=("LV-6",),
)
def the_tail_of_every_attention_group_is_stored(prompt: int, release: bool) -> None:
    """With fine hits the tail of each full-attention group is stored: the last hash boundary that leaves a token of the
    prompt. The release stores that of the first group alone, and of a whole prompt the boundary at its end (T27, C-40).
    """
    assert 1 <= prompt <= 20
    length = pick(tuple(range(1, 21)), prompt - 1)
    config = evolve(TWO, profile=VLLM_0_33_0) if release else TWO
    request = evolve(holders.request_of(), num_prompt=length, num_tokens=length)
    chosen = tails.groups(config)
    coarse = tails.groups(tiers.FULL)
    boundary = tails.tail_boundary(evolve(tiers.MIXED_WORLD, config=config), request, 0)
    assert chosen == ((0,) if release else (0, 1))
    assert coarse == ()
    assert boundary == max(at for at in range(0, 21, 4) if at < length or (release and at == length) or at == 0)


@claim(
    tails.metas, handoffs.metas, tails.joins_scan, sizes="all", bounds="any block, boundary and group", laws=("IP-4", "HO-11")
)
def handoffs_and_tails_say_nothing_in_events(block: int, boundary: int, group: int) -> None:
    """A stored handoff and a stored tail each have one empty entry in what the events say; a tail is not stored while its
    block is still written (T24, T27, IP-4, HO-11).
    """
    assert (block >= 1) & (boundary >= 1) & (group >= 0)
    tail = tails.metas(tiers.MIXED_WORLD, holders.request_of(), group)
    state = handoffs.metas((0, group, block, boundary))
    early = tails.joins_scan()
    assert tail == ((),)
    assert state == ((),)
    assert not early


@claim(
    choosing.begin,
    choosing.end,
    choosing.tracks_meta,
    finishing.queued,
    sizes="shape",
    bounds="up to three blocks in flight; with and without events, eager and lazy",
    laws=("IP-3", "HO-6", "CP-10"),
)
def a_choice_ends_with_each_block_in_flight_once(count: int, twice: bool, said: bool, lazy: bool) -> None:
    """A choice begins with what is in flight and ends with each such block once, in order; what a finished request leaves has
    parallel lists. What events say is captured with events in eager mode alone (T26, T33, HO-6).
    """
    assert 0 <= count <= 3
    flying = (1, 2, 3)[: pick((0, 1, 2, 3), count)]
    host = evolve(tiers.EMPTY, in_flight=flying)
    config = evolve(LAZY if lazy else tiers.FULL, events=said)
    world = evolve(tiers.FULL_WORLD, config=config, host=host)
    choice = choosing.begin(world, host)
    choice.in_flight.extend((3, 1) if twice else (3,))
    choice.blocks, choice.hosts = [1, 3], [2, 1]
    left = finishing.queued(choice)
    _, after = choosing.end(world, host, choice)
    assert after.in_flight == tuple(sorted({*flying, 3, *((1,) if twice else ())}))
    assert (choice.meta is None) == (lazy or not said)
    assert (left.device == (1, 3)) & (left.host == (2, 1)) & ((left.meta is None) == (choice.meta is None))


@claim(settings.parts, sizes="shape", bounds="without a host tier and with both places of waiting", laws=("CC-5", "COW-3"))
def bytes_move_in_the_order_of_a_step(host: bool, early: bool) -> None:
    """A step zeroes before it copies, copies before it loads, loads before states move, and these before the forward. With a
    host tier it waits for transfers before anything else or right before the forward, and hands over behind it (T0).
    """
    assert isinstance(host, bool)
    found = settings.parts(Offload(flush="first" if early else "before_forward") if host else None)
    at = {part: index for index, part in enumerate(found)}
    assert len(at) == len(found) == (7 if host else 5)
    assert at["zero"] < at["copy"] < at["load"] < at["precopy"] < at["forward"]
    assert not host or (at["flush"] == 0 if early else at["flush"] == at["forward"] - 1)
    assert not host or at["submit"] == len(found) - 1


# --- promotion and reset ------------------------------------------------------------------------------------------


@claim(
    promotion.promote,
    promotion.made_now,
    sizes="shape",
    bounds="four blocks of 4 tokens without keys; a loaded request of one block, 4 or 5 known tokens",
    laws=("LD-6", "LV-3", "HB-9"),
)
def what_was_loaded_gets_its_key_now(draft: Draft, first: int, whole: bool, ran: bool) -> None:
    """A loaded request gets the keys of its tokens when it is considered again, and waits with its blocks; if everything was
    hit its last token is computed again (T30, LD-6, LV-3).
    """
    assert four.legal(draft) & four.within(1, first, 3) & holders.held(draft, first)
    old = four.pool_of(draft)
    table = holders.table_of(first)
    request = evolve(
        holders.request_of(GroupState(table)),
        status=Status.LOADING,
        computed=4,
        tip=4 if whole else 5,
        num_tokens=4 if whole else 5,
        num_preemptions=1 if ran else 0,
    )
    after, record = promotion.promote(holders.world_of(tiers.FULL_WORLD, old, request), request)
    (again,) = after.requests
    assert four.sound(after.pool)
    assert four.standing(after.pool, table[0]) == (4, 0, 4)
    assert four.holdings_kept(old, after.pool) & four.keys_kept(old, after.pool, *table)
    assert (again.computed == (3 if whole else 4)) & (record.computed == again.computed)
    assert again.loaded & (again.groups[0].table == table)
    assert again.status is (Status.PREEMPTED if ran else Status.WAITING)


@claim(
    reset.reset,
    reset.drop_pins,
    reset.drop_queued,
    reset.may_clear,
    reset.restarted,
    loads.at_reset,
    sizes="shape",
    bounds="four host blocks with one key: one pinned by a hit or of a load that waits, runs or was abandoned, one of a queued "
    "store, one of a running or abandoned store, each or none; a device block for each store and load; any counts",
    laws=("CN-1", "CP-4", "PC-3", "LV-3"),
    settles=("CP-12",),
    deep=True,
)
def a_reset_that_is_done_leaves_an_empty_host(
    key: Key, pinned: bool, waiting: bool, running: bool, abandoned: bool, loading: int, published: int, before: int
) -> None:
    """A reset gives back the pins of lookups, of queued stores and of loads that no step named, whose requests wait again. It
    is done, and the host empty, exactly if no store and no load runs; those that do are abandoned and keep their blocks. What
    was counted and not read stays counted (T34, CP-12, CN-1).
    """
    assert four.legal(Draft(3, (1, 1, 1), (1, 1, 1), 1), key)
    assert 0 <= before <= published
    assert not (running & abandoned)
    assert 0 <= loading <= 3
    assert not (pinned & (loading > 0))
    phase = pick(("none", "waits", "runs", "abandoned"), loading)
    held = ((2,) if waiting else ()) + ((3,) if running or abandoned else ())
    pools = [
        holders.referenced(four.pool_of(Draft(3, (1, 1, 1), (1, 1, 1), 1), *keys), (*((1,) if first else ()), *held))
        for keys, first in (((key,), pinned or phase != "none"), ((), phase != "none"))
    ]
    store, load = (Store(0, (3,), (3,), None),), Load(0, (1,), (1,), event=-1 if phase == "waits" else 4)
    request = evolve(holders.request_of(GroupState()), status=Status.LOADING, computed=4, loaded=True)
    host = evolve(
        tiers.host_of(pools[0]),
        pending=(PendingHit(0, 0, 4, ((1,),)),) if pinned else (),
        queued=(Queued((2,), (2,), None),) if waiting else (),
        stores=store if running else (),
        abandoned_stores=store if abandoned else (),
        loads=(load,) if phase in ("waits", "runs") else (),
        abandoned_loads=(load,) if phase == "abandoned" else (),
        counters=Counters(published=published, stored=published),
        drained=Counters(published=before, stored=before),
    )
    after, record = reset.reset(evolve(tiers.FULL_WORLD, pool=pools[1], host=host, requests=(request,)), host)
    now, (asked,) = tiers.of(after), after.requests
    stores, arrives = running or abandoned, phase in ("runs", "abandoned")
    assert record.done == (not stores and not arrives)
    assert not record.done or ((now.pool.entries == ()) & (now.pool.ref == (0, 0, 0, 0)))
    assert record.done or (four.keys_kept(pools[0], now.pool) & (now.pool.ref == (0, int(arrives), 0, int(stores))))
    assert (now.pending == ()) & (now.queued == ()) & (now.stores == ()) & (now.loads == ())
    assert (now.abandoned_stores == (store if stores else ())) & (now.abandoned_loads == ((load,) if arrives else ()))
    assert asked == (evolve(request, status=Status.WAITING, computed=0, loaded=False) if phase == "waits" else request)
    assert now.counters == Counters(published=published - before, stored=published - before)
    assert after.pool.ref == (0, int(arrives), 0, int(stores))
