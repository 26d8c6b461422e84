"""Claims about the store side's books: counters, records of requests, events of transfers, promotion and reset (T26 to T34)."""

from __future__ import annotations

from attrs import astuple, evolve

from kvproof.core import config as configs
from kvproof.core.config import Group, Offload
from kvproof.core.offload import (
    completion,
    counters,
    loads,
    metadata,
    reset,
    tracks,
    transfers,
)
from kvproof.core.offload.state import Counters, Host, Load, Queued, Stage, Store, Track
from kvproof.core.world import Plan
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import pick
from kvproof.proofs.refusing import refused

OUTCOMES = counters.FIELDS[1:]
LAZY = configs.configure((Group("full_attention", 4),), num_blocks=4, offload=Offload(mode="lazy"))


def stores(count: int, first: int) -> tuple[Store, ...]:
    """Return so many running stores with ``first`` host blocks, the second with one."""
    blocks = (1, 2, 3)[:first]
    return (Store(0, blocks, blocks, None), Store(1, (3,), (3,), None))[:count]


# --- counters -----------------------------------------------------------------------------------------------------


@claim(counters.count, counters.counted, sizes="all", bounds="any counts; each outcome; any amount", laws=("HO-5",))
def every_published_handoff_has_one_outcome(
    stored: int, full: int, gone: int, cached: int, flight: int, null: int, bare: int, amount: int, outcome: int
) -> None:
    """A handoff that is counted is published and has its one outcome, so that the outcomes add up to what was published
    before and afterwards (HO-5).
    """
    assert four.every(number >= 0 for number in (stored, full, gone, cached, flight, null, bare))
    assert amount >= 1
    assert 0 <= outcome < 7
    name = pick(OUTCOMES, outcome)
    total = stored + full + gone + cached + flight + null + bare
    old = Counters(total, stored, full, gone, cached, flight, null, bare)
    new = counters.count(old, name, amount)
    grown = [now - then for now, then in zip(astuple(new), astuple(old), strict=True)]
    assert new.published == sum(astuple(new)[1:])
    assert grown == [amount, *(amount if other == name else 0 for other in OUTCOMES)]


@claim(
    counters.read,
    counters.undrained,
    counters.gauge,
    counters.pending,
    counters.queued,
    sizes="shape",
    bounds="any counts; up to two running, one queued and one abandoned store of up to three blocks",
    laws=("CN-1",),
    settles=("CN-5",),
)
def the_gauge_counts_what_stores_still_have_to_fill(
    published: int, before: int, running: int, blocks: int, waiting: bool, abandoned: bool
) -> None:
    """The gauge is the host blocks of all running, queued and abandoned stores. What is read are the counts since the last
    reading, and together they are all that was counted (CN-1, CN-5).
    """
    assert 0 <= before <= published
    assert 0 <= running <= 2
    assert 1 <= blocks <= 3
    number, size = pick((0, 1, 2), running), pick((1, 2, 3), blocks - 1)
    host = evolve(
        tiers.EMPTY,
        stores=stores(number, size),
        queued=(Queued((1, 2), (1, 2), None),) if waiting else (),
        abandoned_stores=(Store(7, (1,), (2,), None),) if abandoned else (),
        counters=Counters(published=published, stored=published),
        drained=Counters(published=before, stored=before),
    )
    after, record = counters.read(tiers.FULL_WORLD, host)
    left = counters.undrained(tiers.of(after))
    still = (size if number > 0 else 0) + (1 if number > 1 else 0) + (2 if waiting else 0) + (1 if abandoned else 0)
    assert record.gauge == still
    assert record.counters is not None
    assert record.counters[:2] == (published - before, published - before)
    assert left == Counters()


@claim(counters.notice, counters.given, sizes="shape", bounds="two kinds of notice, each given before or not", laws=("CN-6",))
def a_notice_is_given_once(one: bool, other: bool, second: bool) -> None:
    """A notice of a kind is given exactly if none was, and is remembered (CN-6)."""
    assert isinstance(one, bool)
    kinds = (*(("full",) if one else ()), *(("late",) if other else ()))
    kind = "late" if second else "full"
    host, said = counters.notice(evolve(tiers.EMPTY, notices=kinds), kind)
    again, nothing = counters.notice(host, kind)
    assert said == (() if kind in kinds else (kind,))
    assert host.notices == (*kinds, *said)
    assert (again == host) & (nothing == ())


@claim(
    counters.pending_work,
    counters.awaits_step,
    sizes="shape",
    bounds="with and without a running, a queued and an abandoned store",
    laws=("LV-7",),
)
def a_step_is_needed_while_a_store_is_not_complete(running: bool, waiting: bool, abandoned: bool) -> None:
    """There is work while a store runs, waits for a step, or was abandoned and not reported (LV-7)."""
    assert isinstance(running, bool)
    host = evolve(
        tiers.EMPTY,
        stores=stores(1 if running else 0, 1),
        queued=(Queued((1,), (1,), None),) if waiting else (),
        abandoned_stores=(Store(7, (1,), (2,), None),) if abandoned else (),
    )
    work = counters.pending_work(host)
    assert work == (running or waiting or abandoned)


# --- records of requests ------------------------------------------------------------------------------------------


def known(first: bool, second: bool, finished: bool) -> Host:
    """Return a host tier that knows two requests, each held by event 5 or not; the first may have finished."""
    return tiers.host_of(
        four.pool_of(tiers.draft_of(3)),
        Track(0, (2,), events=(5,) if first else (), finished=finished),
        Track(1, (3,), events=(5, 6) if second else (6,)),
    )


@claim(
    tracks.begin, tracks.find, sizes="shape", bounds="eager and lazy storing; a request that is known or not", laws=("CP-10",)
)
def a_record_begins_with_the_first_admission(lazy: bool, request: int) -> None:
    """A request has one record from its first admission on, with cursors at the beginning; in lazy mode none (T29, CP-10)."""
    assert 0 <= request <= 2
    number = pick((0, 1, 2), request)
    old = known(True, True, False)
    host = tracks.begin(LAZY if lazy else tiers.FULL, old, number)
    found = tracks.find(host, number)
    assert (found is None) == (lazy and number == 2)
    assert host.tracks[:2] == old.tracks
    assert host.tracks[2:] == ((Track(2, (0,)),) if number == 2 and not lazy else ())


@claim(
    tracks.unlink,
    tracks.end,
    tracks.is_done,
    tracks.link,
    sizes="shape",
    bounds="two requests, each held by an event or not, one of them finished or not",
    laws=("LV-4",),
)
def a_finished_request_is_forgotten_with_its_last_event(first: bool, second: bool, finished: bool, leaves: bool) -> None:
    """A request is remembered while an event holds blocks of it or it lives: it goes when it finishes without one, or with the
    last event that held some (T27, T28, LV-4).
    """
    assert first or not finished
    old = known(first, second, finished)
    host = tracks.end(old, 0) if leaves else old
    after = tracks.unlink(host, 5)
    linked = tracks.link(old, (1, 1), 8)
    ends = finished or leaves
    assert (tracks.find(host, 0) is None) == (leaves and not first)
    assert (tracks.find(after, 0) is None) == ends
    assert tracks.find(after, 1) == Track(1, (3,), events=(6,))
    assert [track.events for track in linked.tracks] == [old.tracks[0].events, (*old.tracks[1].events, 8)]


@claim(tracks.clear_cursors, tracks.replace, sizes="shape", bounds="two requests with any cursors; none, one or both preempted")
def the_scan_of_a_preempted_request_starts_anew(cursor: int, other: int, one: bool, two: bool) -> None:
    """The cursors of a preempted request go back to the start and what steps told of its tables is forgotten; of others both
    stay, and no event is forgotten (T26, T31).
    """
    assert cursor >= 0
    assert other >= 0
    old = known(True, True, False)
    first, second = (
        evolve(track, cursors=(at,), told=((at + 1,),)) for track, at in zip(old.tracks, (cursor, other), strict=True)
    )
    old = tracks.replace(tracks.replace(old, first), second)
    host = tracks.clear_cursors(old, (*((0,) if one else ()), *((1,) if two else ())))
    assert host.tracks[0].cursors == ((0,) if one else (cursor,))
    assert host.tracks[1].cursors == ((0,) if two else (other,))
    assert host.tracks[0].told == (() if one else ((cursor + 1,),))
    assert host.tracks[1].told == (() if two else ((other + 1,),))
    assert [track.events for track in host.tracks] == [track.events for track in old.tracks]


# --- events of transfers ------------------------------------------------------------------------------------------


@claim(completion.is_complete, sizes="all", bounds="any number of workers and reports", laws=("CP-9",))
def a_store_is_complete_with_all_reports(acks: int, workers: int) -> None:
    """A store is complete exactly if every worker has reported (T28, CP-9)."""
    assert workers >= 1
    assert 0 <= acks <= workers
    config = evolve(tiers.FULL, offload=Offload(workers=workers))
    done = completion.is_complete(config, Store(0, (1,), (1,), None, acks=acks))
    assert done == (acks == workers)


@claim(
    completion.check,
    sizes="grid",
    bounds="three workers; a store in each of its stages with up to three reports, 0 to 4 more",
    laws=("CP-9", "LV-9"),
)
def reports_come_once_from_each_worker_behind_the_copy(stage: int, had: int, more: int) -> None:
    """Reports are refused before the store is handed over, beyond one of each worker, without one, and the last one before
    the bytes moved; no others are (T28, CP-9).
    """
    assert 1 <= stage < 4
    assert 0 <= had <= 3
    assert 0 <= more <= 4
    acks, new = pick((0, 1, 2, 3), had), pick((0, 1, 2, 3, 4), more)
    config = evolve(tiers.FULL, offload=Offload(workers=3))
    no = refused(completion.check, config, Store(0, (1,), (1,), None, stage=pick(tuple(Stage), stage), acks=acks), new)
    assert no == (new < 1 or acks + new > 3 or stage < 2 or (acks + new == 3 and stage < 3))


@claim(
    completion.complete,
    completion.find,
    metadata.issue,
    reset.reset,
    reset.next_event,
    tracks.link,
    sizes="shape",
    bounds="one running and one abandoned store, any numbers; a store of a chosen and a queued block",
    settles=("CP-11",),
)
def event_numbers_rise_and_unknown_ones_change_nothing(next_: int, event: int, one: int, two: int) -> None:
    """A new store gets the next number, after a reset too, and no number comes again; a store is found by its number, also
    one from before a reset, and the report of an unknown number changes nothing (CP-11).
    """
    assert (one >= 0) & (two >= 0) & (one != two)
    assert (one < next_) & (two < next_)
    assert (event >= 0) & (event != one) & (event != two)
    old = evolve(
        tiers.host_of(four.pool_of(tiers.draft_of(0))),
        stores=(Store(one, (1,), (1,), None, stage=Stage.COPIED),),
        abandoned_stores=(Store(two, (2,), (2,), None, stage=Stage.COPIED),),
        next_store=next_,
        queued=(Queued((3,), (3,), None),),
    )
    world = evolve(tiers.FULL_WORLD, host=old, pool=four.pool_of(tiers.draft_of(0)))
    known = [completion.find(old, number) for number in (one, two, event)]
    same, _ = completion.complete(world, old, event, 1)
    behind, _ = reset.reset(world, old)
    choice = tiers.choice_of(world.pool, old.pool)
    choice.meta = None
    host, store = metadata.issue(old, choice)
    assert same == world
    assert known == [(old.stores[0], False), (old.abandoned_stores[0], True), (None, False)]
    assert tiers.of(behind).next_store == next_
    assert store is not None
    assert (store.event == next_) & (host.next_store == next_ + 1)
    assert (store.device == (3,)) & (store.host == (3,)) & (host.queued == ())
    assert host.stores == (*old.stores, store)


@claim(
    metadata.issue,
    sizes="shape",
    bounds="up to two chosen blocks and one or no queued one; with and without what events say",
    laws=("IP-1", "IP-3", "CP-11"),
)
def a_step_has_one_store_of_all_its_blocks(count: int, waiting: bool, said: bool, owner: int) -> None:
    """What a step chose and what finished requests left become one store, the lists parallel and in this order, which its
    requests are linked to; with nothing to store no number is used (T0(6), IP-1, IP-3).
    """
    assert 0 <= count <= 2
    assert 0 <= owner <= 1
    number, blocks = pick((0, 1), owner), (1, 2)[: pick((0, 1, 2), count)]
    left = Queued((3,), (1,), (((9, 4),),) if said else None)
    old = evolve(known(False, False, False), queued=(left,) if waiting else (), next_store=4)
    choice = tiers.choice_of(four.pool_of(tiers.draft_of(0)), old.pool)
    choice.blocks, choice.hosts, choice.owners = list(blocks), [3, 2][: len(blocks)], [number] * len(blocks)
    choice.meta = [((block, 4),) for block in blocks] if said else None
    host, store = metadata.issue(old, choice)
    some = bool(blocks) or waiting
    assert (store is not None) == some
    assert host.next_store == 4 + some
    assert store is None or store.device == (*blocks, *((3,) if waiting else ()))
    assert store is None or store.host == (*(3, 2)[: len(blocks)], *((1,) if waiting else ()))
    assert store is None or (store.meta is None) == (not said)
    assert store is None or store.meta is None or len(store.meta) == len(store.device)
    assert [4 in track.events for track in host.tracks] == [bool(blocks) and at == number for at in (0, 1)]


@claim(
    metadata.issue_loads,
    loads.may_start,
    sizes="shape",
    bounds="two loads, each waiting or not, with any fences; any number of processed steps",
    laws=("LD-1", "COW-3"),
)
def waiting_loads_are_named_once_and_in_their_order(one: int, two: int, processed: int, first: bool, second: bool) -> None:
    """The loads that wait and whose steps are processed are named together, in the order in which they were asked for, and
    never again (T36.1, LD-1).
    """
    assert (one >= 0) & (two >= 0) & (processed >= 0)
    asked = (
        Load(0, (1,), (2,), fence=one, stage=Stage.WAITING if first else Stage.SUBMITTED),
        Load(1, (2, 3), (3, 1), fence=two, stage=Stage.WAITING if second else Stage.COPIED),
    )
    old = evolve(tiers.EMPTY, loads=asked, next_load=7)
    world = evolve(tiers.FULL_WORLD, host=old, processed=processed)
    host, record = metadata.issue_loads(world, old)
    due = [load for load, free in zip(asked, (first and one <= processed, second and two <= processed), strict=True) if free]
    _, again = metadata.issue_loads(world, host)
    assert record.load_requests == tuple(load.request for load in due)
    assert record.load_device == tuple(block for load in due for block in load.device)
    assert record.load_host == tuple(block for load in due for block in load.host)
    assert host.next_load == (8 if due else 7)
    assert [load.event for load in host.loads] == [7 if load in due else -1 for load in asked]
    assert again.load_requests == ()


@claim(metadata.gave_up, metadata.flushes, metadata.is_lazy, sizes="shape", bounds="preempted in the step, before it, or not")
def a_step_that_preempted_waits_for_the_transfers(now: bool, before: bool, lazy: bool) -> None:
    """A step waits for running transfers exactly if some request gave its blocks up in it or since the last one (T0 a, T26)."""
    assert isinstance(now, bool)
    plan = Plan(preempted=(1,) if now else (), preempted_before=(0,) if before else ())
    gone = metadata.gave_up(plan)
    waits = metadata.flushes(plan)
    alone = metadata.is_lazy(LAZY if lazy else tiers.FULL)
    assert set(gone) == {*((1,) if now else ()), *((0,) if before else ())}
    assert waits == (now or before)
    assert alone == lazy


@claim(
    transfers.hand_over_stores,
    transfers.hand_over_loads,
    sizes="shape",
    bounds="a running and an abandoned transfer of each direction in each of its stages; due or not",
    laws=("CC-5",),
)
def only_what_is_built_is_handed_over(stage: int, other: int, event: int, old_event: int, wanted: int) -> None:
    """A transfer is handed over once, when its event is due and a step was built with it; all others stay as they are (T0 g,
    h).
    """
    assert 0 <= stage < 4
    assert 0 <= other < 4
    assert four.every(four.within(3, at, 4) for at in (event, old_event, wanted))
    first, second = pick(tuple(Stage), stage), pick(tuple(Stage), other)
    one, two, due = (pick((3, 4), at - 3) for at in (event, old_event, wanted))
    host = evolve(
        tiers.EMPTY,
        stores=(Store(one, (1,), (1,), None, stage=first),),
        abandoned_stores=(Store(two, (2,), (2,), None, stage=second),),
        loads=(Load(0, (1,), (1,), event=one, stage=first),),
        abandoned_loads=(Load(1, (2,), (2,), event=two, stage=second),),
    )
    after = transfers.hand_over_loads(transfers.hand_over_stores(host, frozenset({due})), due)
    mine = Stage.SUBMITTED if first is Stage.BUILT and one == due else first
    its = Stage.SUBMITTED if second is Stage.BUILT and two == due else second
    assert (after.stores[0].stage is mine) & (after.loads[0].stage is mine)
    assert (after.abandoned_stores[0].stage is its) & (after.abandoned_loads[0].stage is its)


@claim(
    transfers.due_stores,
    transfers.store_part,
    transfers.load_part,
    sizes="shape",
    bounds="three stores: of a step that has run, of one in flight and of the open plan; both ways to submit",
    laws=("CC-5", "LV-9"),
)
def stores_begin_behind_the_step_that_wrote_their_blocks(later: bool, finished: bool) -> None:
    """A store begins behind the forward of its step, or with the next step if that is how they are submitted: then those of
    all steps that have run, and none that is still to be computed (T0 h, CC-5).
    """
    assert isinstance(later, bool)
    offload = Offload(store_submission="next_step" if later else "same_step")
    config = evolve(tiers.FULL, offload=offload)
    parts = len(config.parts)
    one, two = holders.step_of(4, parts), holders.step_of(5, parts if finished else 0)
    host = evolve(tiers.EMPTY, stores=tuple(Store(event, (1,), (1,), None) for event in (4, 5, 6)))
    world = evolve(tiers.FULL_WORLD, config=config, host=host, steps=(two,), plan=Plan(store=6))
    found = transfers.due_stores(world, offload, one)
    where = transfers.store_part(offload)
    assert found == (frozenset({4, 5} if later and finished else {4}))
    assert where == ("flush" if later else "submit")
    assert transfers.load_part() == "submit"


@claim(
    transfers.check_order,
    sizes="shape",
    bounds="three events in each of their stages; any of them or another",
    laws=("LV-9", "CC-5"),
)
def copies_run_in_the_order_in_which_they_were_handed_over(first: int, second: int, asked: int) -> None:
    """Of a direction only the oldest event that has not run may run, and only once a step has handed it over (T0)."""
    assert 0 <= first < 4
    assert 0 <= second < 4
    assert 0 <= asked < 3
    one, two = pick(tuple(Stage), first), pick(tuple(Stage), second)
    event = pick((4, 5, 6), asked)
    no = refused(transfers.check_order, "store", {4: one, 5: two}, event)
    wanted = (one, two, None)[event - 4]
    assert no == (wanted is not Stage.SUBMITTED or (event == 5 and one is not Stage.COPIED))


@claim(
    transfers.moved,
    sizes="shape",
    bounds="two tiers of three blocks with any contents; up to two copies",
    laws=("CC-4", "CC-5"),
)
def a_transfer_moves_whole_blocks_and_nothing_else(one: int, two: int, three: int, count: int) -> None:
    """After a transfer each destination has what its source has, and every other block what it had (CC-4, CC-5)."""
    assert (one >= 0) & (two >= 0) & (three >= 0)
    assert 0 <= count <= 2
    source, target = ((), (0, one), (0, two)), ((), (1, three), (1, one))
    rows = [((1,), (2,)), ((2,), (1,))][: pick((0, 1, 2), count)]
    after = transfers.moved(source, target, rows)
    assert after[0] == ()
    assert after[2] == (source[1] if rows else target[2])
    assert after[1] == (source[2] if len(rows) > 1 else target[1])
