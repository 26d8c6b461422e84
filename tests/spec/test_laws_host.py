"""The laws of what the host tier stores: moments of real runs that keep them, and the same moments tampered with.

A prompt of 11 tokens on two ranks: attention blocks span 8 tokens, states stand at 8 and 10, hash blocks have 2 tokens. Stored
are, in this order, the state at 8 and the one at 10 (handoffs), the attention block to 8 (scan), and the prompt tail at 10.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload
from kvproof.core.errors import ContractBroken
from kvproof.core.offload import lazy as lazy_walks
from kvproof.core.offload.state import Counters, PendingHit, Queued, Track
from kvproof.core.records import Record
from kvproof.core.world import World
from kvproof.spec.laws.base import Moment
from tests.spec import stories
from tests.spec.host_stories import (
    FULL,
    MAMBA,
    HostRun,
    host,
    hosted,
    with_host,
    with_host_pool,
    with_store,
)
from tests.spec.stories import Moments, Tamper, acted, after, before, crashed, emptied, put, recorded, with_plan, with_pool

TOKENS = 11


def plain(run: HostRun) -> None:
    """One prompt, computed in chunks of 8, 2 and 1, finished, and stored to the end."""
    run.send(0, TOKENS)
    run.compute(0, 8, 2, 1)
    run.do(act.ReadCounters(), "early reading")
    run.do(act.Finish(0), "finish")
    run.quiet("quiet")
    run.do(act.ReadCounters(), "reading")


@cache
def stored() -> Moments:
    """The plain story, then the same prompt loaded, and a reset of the host while nothing runs."""
    run = HostRun(hosted())
    plain(run)
    assert stories.answer(run.do(act.ResetCache())).done
    run.send(1, TOKENS)
    run.do(act.BeginStep())
    run.do(act.Lookup(1))
    run.do(act.LookupExternal(1, 0), "lookup")
    run.do(act.LookupExternal(1, 4), "misaligned")
    run.do(act.LookupExternal(1, 4), "misaligned again")
    run.do(act.LookupExternal(1, 0), "lookup again")
    run.do(act.Allocate(1, 0, external=10, load=True), "load")
    run.step()
    run.do(act.RunLoad(0))
    run.do(act.CompleteLoad(1), "load complete")
    run.do(act.Finish(1), "finish behind load")
    run.quiet()
    run.do(act.ResetHost(), "reset")
    run.do(act.CompleteStore(0), "unknown")
    return run.named


@cache
def abandoned() -> Moments:
    """A reset while the first store runs, an accepted handoff is not read out yet, and a hit is pinned by another prompt."""
    run = HostRun(hosted())
    run.send(0, TOKENS)
    run.begin(0, 8)
    run.do(act.ResetHost(), "reset")
    run.do(act.ReadCounters(), "reading")
    run.copy_and_complete("late")
    return run.named


@cache
def full() -> Moments:
    """A host with one usable block: the second and the third handoff are dropped, the scan waits."""
    run = HostRun(hosted(offload=Offload(num_blocks=2)))
    run.send(0, 24)
    run.begin(0, 8, 4, 4, 4)
    return run.named


@cache
def lazy() -> Moments:
    """The same prompt with a lazy host: what is free and keyed is stored by the next steps."""
    run = HostRun(hosted(offload=Offload("lazy", num_blocks=16)))
    run.send(0, TOKENS)
    run.compute(0, 8, 2, 1)
    run.do(act.Finish(0), "finish")
    run.empty_step("walk")
    run.copy_and_complete("walk")
    return run.named


@cache
def missing() -> Moments:
    """Another connector brings 8 tokens, of which 4 arrive; the host has all of them, and another request's hit is pinned."""
    run = HostRun(hosted(connectors=(False,)))
    plain(run)
    assert stories.answer(run.do(act.ResetCache())).done
    run.send(1, TOKENS)
    run.send(2, TOKENS)
    run.do(act.BeginStep())
    run.do(act.Lookup(2))
    run.do(act.LookupExternal(2, 0))
    run.do(act.Lookup(1))
    run.do(act.Allocate(1, 2, external=8))
    run.step()
    assert [hit.request for hit in run.host.pending] == [2]
    run.do(act.Output(1, failed=True, valid=4), "reported")
    return run.named


@cache
def resumed() -> Moments:
    """A request preempted between plans and admitted again by the next one: its fresh handoff is lost (PM-1)."""
    run = HostRun(hosted())
    run.send(0, TOKENS)
    run.begin(0, 8)
    run.do(act.EvictBlocks(tuple(range(1, 24))))
    run.do(act.Preempt(0))
    run.do(act.BeginStep())
    run.do(act.Lookup(0))
    run.do(act.Allocate(0, 8))
    run.step("again", act.Output(0))
    return run.named


@cache
def evicted() -> Moments:
    """Keys are evicted by block id: of a full block, whose tail's key comes back inside it (C-60, C-62), and of blocks that are
    being stored, one of which is keyed anew by a chunk that is withdrawn (C-61).
    """
    run = HostRun(hosted())
    run.send(0, 7)
    run.compute(0, 4, 2, 1)
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1))
    run.step("full", act.Output(0, (1,)))
    run.do(act.EvictBlocks((1,)))
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1), "tail again")
    run.step("tail again", act.Output(0, (1,)))
    run.do(act.EvictBlocks((1,)), "while stored")
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1), "keyed anew")
    run.do(act.Withdraw(0), "withdrawn")
    run.dispatch("rest")
    run.execute("rest")
    run.copy_and_complete("late")
    return run.named


STORIES = {
    "evicted": evicted,
    "stored": stored,
    "abandoned": abandoned,
    "full": full,
    "lazy": lazy,
    "resumed": resumed,
    "missing": missing,
}


def moment(name: str) -> Moment:
    """A moment by story and name."""
    story, _, rest = name.partition(": ")
    return STORIES[story]()[rest]


# --- tampering ----------------------------------------------------------------------------------------------------------


def counted(**changes: int) -> Tamper:
    """Other counters behind a moment."""
    return after(lambda world: with_host(world, counters=evolve(host(world).counters, **changes)))


def unpinned(block: int) -> Tamper:
    """A device block with one reference less behind a moment."""
    return after(lambda world: with_pool(world, ref=put(world.pool.ref, block, world.pool.ref[block] - 1)))


def rekeyed(block: int, *entries: tuple[int, int]) -> Tamper:
    """A device block with these keys (node, group) and no others behind a moment."""

    def change(world: World) -> World:
        kept = [entry for entry in world.pool.entries if entry[3] != block]
        new = [(node, group, 900 + at, block) for at, (node, group) in enumerate(entries)]
        return with_pool(world, entries=tuple(sorted(kept + new)))

    return after(change)


def host_keyed(block: int, node: int = 8, group: int = 0) -> Tamper:
    """A host block with a key behind a moment."""

    def change(world: World) -> World:
        pool = host(world).pool
        return with_host_pool(world, entries=tuple(sorted((*pool.entries, (node, group, pool.next_seq, block)))))

    return after(change)


def host_refs(block: int, change: int) -> Tamper:
    """A host block with more or fewer references behind a moment."""
    return after(
        lambda world: with_host_pool(world, ref=put(host(world).pool.ref, block, host(world).pool.ref[block] + change))
    )


def meta(*said: tuple[tuple[int, int], ...]) -> Tamper:
    """Other metadata in the record."""
    return recorded(store_meta=said)


def told(change: Any) -> Tamper:
    """The record changed by what it says."""
    return lambda m: recorded(**change(stories.answer(m)))(m)


def without_tokens_gone(record: Record) -> dict[str, Any]:
    return {"events": tuple(evolve(event, tokens=(5, 6, 7, 8), size=4, parent=4) for event in record.events)}


WHOLE = ((2, 2), (4, 2), (6, 2), (8, 8))
"""What the metadata of the attention block to 8 says: node n is the one after n tokens."""

CASES: list[tuple[str, str, str, Tamper]] = [
    ("HO-3", "an unknown request", "stored: 0 0 BuildMetadata", before(lambda w: with_host(w, tracks=()))),
    (
        "HO-3",
        "a finished one",
        "stored: 0 0 BuildMetadata",
        before(lambda w: with_host(w, tracks=(Track(0, (0, 0), (), True),))),
    ),
    ("HO-3", "a preempted one", "stored: 0 0 BuildMetadata", before(lambda w: with_plan(w, preempted=(0,)))),
    ("HO-3", "one preempted before", "stored: 0 0 BuildMetadata", before(lambda w: with_plan(w, preempted_before=(0,)))),
    ("HO-3", "a dead one", "stored: 0 2 BuildMetadata", before(lambda w: evolve(w, requests=()))),
    ("HO-4", "no pin", "stored: 0 0 BuildMetadata", unpinned(2)),
    ("HO-4", "a free source", "stored: 0 1 BuildMetadata", after(lambda w: with_pool(w, free=(*w.pool.free, 2)))),
    ("HO-4", "an event forgotten", "stored: 0 1 BuildMetadata", after(lambda w: with_host(w, stores=host(w).stores[1:]))),
    ("HO-4", "other blocks", "stored: quiet RunStore 0", after(lambda w: with_store(w, 0, host=(9,)))),
    ("HO-5", "a handoff uncounted", "stored: 0 0 BuildMetadata", counted(stored=0)),
    ("HO-5", "a scanned block counted", "stored: 0 1 BuildMetadata", counted(stored=2)),
    ("HO-5", "counted as something else", "stored: 0 2 BuildMetadata", counted(stored=1, skipped_in_flight=1)),
    ("HO-5", "a drop uncounted", "full: 0 1 BuildMetadata", counted(dropped_cpu_full=0)),
    ("HO-6", "queued and running", "stored: finish", after(lambda w: with_host(w, queued=(Queued((1,), (4,), ((),)),)))),
    ("HO-6", "running twice", "stored: 0 1 BuildMetadata", after(lambda w: with_store(w, device=(2,)))),
    (
        "HO-8",
        "a state scanned",
        "stored: 0 1 BuildMetadata",
        before(lambda w: with_pool(w, key_group=put(w.pool.key_group, 1, 1))),
    ),
    (
        "HO-8",
        "attention handed over",
        "stored: 0 0 BuildMetadata",
        before(lambda w: with_pool(w, key_group=put(w.pool.key_group, 2, 0))),
    ),
    (
        "HO-10",
        "another table",
        "stored: 0 1 BuildMetadata",
        before(lambda w: stories.with_state(w, 0, 0, table=(9, 3))),
    ),
    (
        "HO-10",
        "another key",
        "stored: 0 1 BuildMetadata",
        before(lambda w: with_pool(w, key_node=put(w.pool.key_node, 1, 4), key_group=put(w.pool.key_group, 1, 1))),
    ),
    ("HO-10", "a place not passed", "stored: 0 1 BuildMetadata", after(lambda w: with_host(w, tracks=(Track(0, (0, 0)),)))),
    ("HO-10", "no tail", "stored: finish", before(lambda w: stories.with_state(w, 0, 0, table=(1, 9)))),
    ("HO-11", "another key", "stored: allocate 0 2", rekeyed(1, (9, 0))),
    ("HO-11", "no key", "stored: allocate 0 2", rekeyed(1)),
    ("HO-11", "a key beyond its bytes", "stored: allocate 0 2", rekeyed(1, (8, 0), (10, 0))),
    ("HO-11", "a state with two keys", "stored: allocate 0 2", rekeyed(2, (8, 1), (6, 1))),
    ("IP-1", "meta left out", "stored: 0 0 BuildMetadata", meta()),
    ("IP-1", "one host block more", "stored: 0 1 BuildMetadata", after(lambda w: with_store(w, host=(2, 9)))),
    ("IP-1", "no meta with events", "stored: 0 1 BuildMetadata", after(lambda w: with_store(w, meta=None))),
    ("IP-1", "another event runs", "stored: 0 1 BuildMetadata", after(lambda w: with_store(w, host=(9,)))),
    ("IP-2", "without the primary", "stored: 0 1 BuildMetadata", meta(((2, 2), (4, 2), (6, 2)))),
    ("IP-2", "another size at the edge", "stored: 0 1 BuildMetadata", meta(((2, 2), (4, 2), (6, 2), (8, 2)))),
    ("IP-2", "a boundary left out", "stored: 0 1 BuildMetadata", meta(((2, 2), (6, 2), (8, 8)))),
    ("IP-2", "the next entry's", "stored: 0 1 BuildMetadata", meta((*WHOLE, (10, 2)))),
    ("IP-3", "meta left out", "stored: finish", after(lambda w: with_host(w, queued=(Queued((3,), (4,), ()),)))),
    ("IP-3", "no meta with events", "stored: finish", after(lambda w: with_host(w, queued=(Queued((3,), (4,), None),)))),
    ("IP-3", "lost in the merge", "stored: quiet empty BuildMetadata", recorded(store_device=(), store_host=(), store_meta=())),
    ("IP-3", "another host block", "stored: quiet empty BuildMetadata", recorded(store_host=(9,))),
    (
        "IP-3",
        "queued still",
        "stored: quiet empty BuildMetadata",
        after(lambda w: with_host(w, queued=(Queued((3,), (4,), ((),)),))),
    ),
    ("IP-4", "a handoff described", "stored: 0 0 BuildMetadata", meta(((8, 4),))),
    ("IP-4", "a tail described", "stored: finish", meta(((10, 2),))),
    ("IP-4", "a scanned block not described", "stored: 0 1 BuildMetadata", meta(())),
    ("IP-5", "a handoff described", "stored: 0 0 BuildMetadata", meta(((8, 4),))),
    ("IP-5", "a state's event with tokens", "stored: quiet CompleteStore 0.1", told(without_tokens_gone)),
    ("CP-1", "a pin too many", "stored: 0 0 BuildMetadata", host_refs(1, 1)),
    ("CP-1", "a pin too few", "stored: lookup", host_refs(2, -1)),
    ("CP-1", "a lost block", "stored: quiet CompleteStore 0.1", after(lambda w: with_host_pool(w, free=host(w).pool.free[1:]))),
    (
        "CP-1",
        "handed out while held",
        "stored: 0 1 BuildMetadata",
        before(lambda w: with_host_pool(w, ref=put(host(w).pool.ref, 2, 1))),
    ),
    ("CP-2", "at selection", "stored: 0 0 BuildMetadata", host_keyed(1)),
    ("CP-2", "at the copy", "stored: quiet RunStore 0", host_keyed(1)),
    ("CP-2", "with the first report", "stored: quiet CompleteStore 0.0", host_keyed(1)),
    ("CP-2", "of another block", "stored: quiet CompleteStore 0.1", host_keyed(3)),
    ("CP-3", "keyed", "stored: 0 0 BuildMetadata", host_keyed(1)),
    ("CP-3", "unpinned", "stored: quiet RunStore 0", host_refs(1, -1)),
    ("CP-3", "of two stores", "stored: 0 1 BuildMetadata", after(lambda w: with_store(w, host=(1,)))),
    (
        "CP-4",
        "kept behind the allocation",
        "stored: load",
        lambda m: after(lambda w: with_host(w, pending=host(m.before).pending))(m),
    ),
    ("CP-4", "two hits", "stored: lookup", after(lambda w: with_host(w, pending=host(w).pending * 2))),
    ("CP-4", "not released", "stored: misaligned", host_refs(2, 1)),
    ("CP-4", "released twice", "stored: load", host_refs(2, -1)),
    (
        "CP-4",
        "gone unasked",
        "stored: lookup again",
        lambda m: acted(request=7)(before(lambda w: with_host(w, pending=(PendingHit(1, 0, 8, ((2,), (1,))),)))(m)),
    ),
    (
        "CP-4",
        "kept although its tokens are in doubt",
        "missing: reported",
        lambda m: after(lambda w: with_host(w, pending=host(m.before).pending))(m),
    ),
    (
        "CP-4",
        "gone although nobody doubts it",
        "missing: reported",
        before(lambda w: with_host(w, pending=(*host(w).pending, PendingHit(7, 0, 8, ((2,), (1,)))))),
    ),
    ("CN-3", "more taken back than was missing", "missing: reported", recorded(lost=8)),
    ("CN-3", "nothing taken back", "missing: reported", recorded(lost=0)),
    ("CP-5", "nobody held it", "stored: load", before(lambda w: with_host_pool(w, ref=put(host(w).pool.ref, 2, 0)))),
    ("CP-5", "an assertion", "stored: load", lambda m: evolve(crashed(m), refusal=broken_pin())),
    ("CP-6", "an offer", "stored: misaligned", recorded(external=4)),
    (
        "CP-6",
        "a pin",
        "stored: misaligned",
        after(lambda w: with_host(w, pending=(PendingHit(1, 4, 4, ((2,), ())),))),
    ),
    ("CP-7", "a block that is not free", "stored: 0 1 BuildMetadata", recorded(store_host=(1,))),
    ("CP-7", "an empty pool", "stored: finish", emptied),
    (
        "CP-9",
        "one report suffices",
        "stored: quiet CompleteStore 0.0",
        after(lambda w: with_host(w, stores=host(w).stores[1:])),
    ),
    (
        "CP-9",
        "all reports do not",
        "stored: quiet CompleteStore 0.1",
        lambda m: after(lambda w: with_host(w, stores=host(m.before).stores))(m),
    ),
    ("CP-10", "a record", "lazy: walk BuildMetadata", after(lambda w: with_host(w, tracks=(Track(0, (0, 0)),)))),
    ("CP-10", "a count", "lazy: walk BuildMetadata", after(lambda w: with_host(w, counters=Counters(1, 1)))),
    ("CP-10", "in flight", "lazy: walk BuildMetadata", after(lambda w: with_host(w, in_flight=(1,)))),
    ("CP-10", "queued", "lazy: finish", after(lambda w: with_host(w, queued=(Queued((1,), (4,), None),)))),
    ("CP-11", "from 0 again", "stored: reset", after(lambda w: with_host(w, next_store=0))),
    ("CP-11", "an old number", "stored: 0 1 BuildMetadata", recorded(store_event=0)),
    ("CP-11", "an unknown report counts", "stored: unknown", after(lambda w: with_host(w, load_blocks=9))),
    ("CP-11", "an unknown report ends it", "stored: unknown", recorded(done=True)),
    ("CP-12", "a key left", "stored: reset", host_keyed(1)),
    ("CP-12", "a pin left", "stored: reset", host_refs(1, 1)),
    ("CP-12", "done while a store runs", "abandoned: reset", recorded(done=True)),
    ("CP-12", "not done although nothing runs", "stored: reset", recorded(done=False)),
    ("CN-1", "another reading", "stored: early reading", recorded(counters=(1, 1, 0, 0, 0, 0, 0, 0))),
    ("CN-1", "not read out", "stored: early reading", after(lambda w: with_host(w, drained=Counters()))),
    ("CN-1", "lost in a reset", "abandoned: reset", after(lambda w: with_host(w, counters=Counters()))),
    ("CN-1", "a handoff uncounted", "stored: 0 0 BuildMetadata", counted(published=2)),
    ("CN-1", "more read than counted", "stored: 0 0 BuildMetadata", after(lambda w: with_host(w, drained=Counters(5)))),
    ("CN-2", "a scanned block", "stored: 0 1 BuildMetadata", counted(stored=2)),
    ("CN-2", "a tail", "stored: finish", counted(stored=3)),
    ("CN-3", "as offered", "stored: allocate 0 0", recorded(hits=4)),
    ("CN-3", "another query", "stored: load", recorded(queries=10)),
    ("CN-3", "not counted", "stored: load", recorded(queries=0, hits=0)),
    ("CN-3", "counted again", "stored: allocate 0 1", recorded(queries=3)),
    ("CN-4", "when asked for", "stored: load complete", after(lambda w: with_host(w, load_blocks=0))),
    ("CN-5", "queued stores left out", "stored: early reading", recorded(gauge=0)),
    ("CN-6", "given again", "stored: misaligned again", recorded(notices=("misaligned_lookup",))),
    ("CN-6", "not kept", "stored: misaligned", after(lambda w: with_host(w, notices=()))),
    ("CN-6", "dropped handoffs told again", "full: 0 2 BuildMetadata", recorded(notices=("dropped_cpu_full",))),
    ("DS-1", "an entry not passed", "stored: 0 1 BuildMetadata", after(lambda w: with_host(w, tracks=(Track(0, (0, 0)),)))),
    ("DS-1", "a walk that stops early", "lazy: walk BuildMetadata", recorded(store_device=())),
    ("LV-7", "nothing pending", "stored: quiet empty Dispatch", recorded(pending_work=False)),
    ("LV-7", "queued stores left out", "stored: finish", recorded(pending_work=False)),
]


def broken_pin() -> Any:
    """The refusal of a load whose source nobody holds."""
    return ContractBroken("block 2 is held by nobody", block=2)


@pytest.mark.parametrize(("law", "what", "name", "tamper"), CASES, ids=[f"{law} {what}" for law, what, _, _ in CASES])
def test_a_law_sees_what_is_wrong(law: str, what: str, name: str, tamper: Tamper) -> None:
    """The premise is true and the law holds in the real moment; in the tampered one it does not."""
    del what
    stories.bites(law, moment(name), tamper)


@pytest.mark.parametrize("story", STORIES)
def test_no_law_is_broken_in_a_story(story: str) -> None:
    stories.holds_throughout(STORIES[story]())


def test_the_stories_say_what_the_cases_build_on() -> None:
    record = stories.answer(moment("stored: 0 1 BuildMetadata"))
    assert (record.store_event, record.store_device, record.store_host, record.store_meta) == (1, (1,), (2,), (WHOLE,))
    assert stories.answer(moment("stored: finish")).store_device == (3,)
    assert stories.answer(moment("stored: lookup")).external == 10
    outcomes = [row[4] for row in stories.answer(moment("full: 0 1 BuildMetadata")).outcomes]
    assert outcomes == ["dropped_cpu_full"]
    assert stories.answer(moment("abandoned: reset")).done is False
    assert stories.answer(moment("lazy: walk BuildMetadata")).store_device


def test_permissions() -> None:
    """PM-1: a resumed request loses its fresh handoffs; PM-5: one dropped for a full host is not had again."""
    assert [row[4] for row in stories.answer(moment("resumed: again BuildMetadata")).outcomes] == ["dropped_request_gone"]
    dropped = [stories.answer(full()[name]) for name in full() if name.endswith("BuildMetadata")]
    assert [row[3:] for record in dropped for row in record.outcomes] == [
        (8, "stored"),
        (12, "dropped_cpu_full"),
        (16, "dropped_cpu_full"),
        (20, "dropped_cpu_full"),
    ]


def test_evictions_by_id_are_no_violation() -> None:
    """C-60 to C-62: what the scan selects behind one is keyed inside its place, and its store registers what is there then."""
    record = stories.answer(moment("evicted: tail again BuildMetadata"))
    assert (record.store_device, record.store_meta) == ((1,), (((2, 2), (4, 2), (6, 2), (8, 8)),))
    world = moment("evicted: tail again BuildMetadata").before
    assert world.pool.key_node[1] == 6
    assert stories.judged("HO-10", moment("evicted: tail again BuildMetadata")) == []
    assert not stories.judged("HO-11", moment("evicted: keyed anew"))
    assert not stories.judged("HO-11", moment("evicted: withdrawn"))


@pytest.mark.parametrize(("span", "picks"), [(4, False), (8, True)])
def test_ds_1_counts_the_lazy_walk(span: int, picks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target counted with other spans goes another way as soon as it is shorter than the queue."""
    target = lazy_walks.group_target
    if span == 4:
        monkeypatch.setattr(lazy_walks, "group_target", lambda spec, size, tokens: 0 * target(spec, size, tokens))
    lazy.cache_clear()
    found = [stories.judged("DS-1", m) for name, m in lazy().items() if name.endswith("BuildMetadata")]
    lazy.cache_clear()
    assert any(evidence for evidence in found) is not picks


@pytest.mark.parametrize("law", ["IP-2", "IP-4", "IP-5"])
def test_without_events_there_is_no_metadata_to_judge(law: str) -> None:
    run = HostRun(hosted(Group(FULL, 4), Group(MAMBA, 4), events=False))
    plain(run)
    check = stories.LAWS[law].check
    assert check is not None
    assert {check(m) is None for m in run.named.values()} == {True}
