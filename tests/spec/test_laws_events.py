"""The laws of the event stream: real moments that keep them, the same ones tampered with, and runs of every scope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core import pool as pools
from kvproof.core.config import SOUND, VLLM_0_33_0, Group, configure
from kvproof.core.pool import Pool
from kvproof.core.records import Event
from kvproof.core.world import new_world
from kvproof.spec import event_replay, ground
from kvproof.spec.engines import scopes, twins, walk
from kvproof.spec.engines.scopes import Scope
from kvproof.spec.faults.base import Fault, planted
from kvproof.spec.judge import Judge, attempt
from kvproof.spec.laws import events
from kvproof.spec.laws.base import Findings, Law, Moment
from tests.driving import Driver

LAWS: dict[str, Law] = {law.id: law for law in events.LAWS}
PAIR = (Group("full_attention", 4), Group("mamba_align", 4))
Tamper = Callable[[Moment], Moment]


class Watched(Driver):
    """A driver that keeps every moment."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            configure(PAIR, **({"dcp_size": 2, "hash_block_size": 2, "num_blocks": 12, "events": True} | settings))
        )
        self.moments: list[Moment] = []

    def do(self, *actions: act.Action) -> Any:
        for action in actions:
            moment = attempt(self.world, action)
            assert moment.record is not None, moment.refusal
            self.moments.append(moment)
            self.world = moment.after
            self.records.append(moment.record)
        return self.records[-1]

    def last(self, kind: type[act.Action] = act.Allocate) -> Moment:
        return [moment for moment in self.moments if isinstance(moment.action, kind)][-1]


def decoding() -> Watched:
    """A prompt of 11 tokens in chunks 8, 2, 1, then decoded to 15: attention blocks span 8 tokens, hash blocks 2."""
    driver = Watched()
    driver.submit(0, 11)
    for amount in (8, 2, 1, 1, 1, 1, 1):
        driver.chunk(0, amount)
    assert driver.request(0).computed == 15
    return driver


@cache
def life() -> dict[str, Moment]:
    """The decoded prompt and its 16th token, which is withdrawn in one run and computed in another; then copies of one key.

    The tail is registered at 10 and gives way to 16.
    """
    driver = decoding()
    allocations = [moment for moment in driver.moments if isinstance(moment.action, act.Allocate)]
    named: dict[str, Moment] = {}
    named["first"], named["tail"], named["producer"] = allocations[:3]
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    named["planned"] = driver.last()
    driver.do(act.Withdraw(0))
    named["withdrawn"] = driver.last(act.Withdraw)
    driver = decoding()
    for _ in range(2):
        driver.chunk(0, 1)
    named["silent"] = driver.last()
    driver.do(act.Finish(0))
    driver.do(act.Submit(1, tuple(range(1, 10)), 0, True))
    driver.chunk(1, 8)
    named["copy"] = driver.last()
    driver.do(act.Finish(1))
    twice = next(blocks for blocks in driver.keys(0).values() if len(blocks) == 2)
    driver.do(act.EvictBlocks(tuple(twice[:1])))
    named["one of two"] = driver.last(act.EvictBlocks)
    driver.do(act.EvictBlocks(tuple(twice[1:])))
    named["last of two"] = driver.last(act.EvictBlocks)
    driver.do(act.ResetCache())
    named["reset"] = driver.last(act.ResetCache)
    return named


def judged(law: str, moment: Moment) -> Findings:
    check = LAWS[law].check
    assert check is not None
    return check(moment)


def told(moment: Moment) -> tuple[Event, ...]:
    assert moment.record is not None
    return moment.record.events


def saying(*said: Event) -> Tamper:
    """The same moment with other events."""

    def change(moment: Moment) -> Moment:
        assert moment.record is not None
        return evolve(moment, record=evolve(moment.record, events=said))

    return change


def altered(at: int, **changes: Any) -> Tamper:
    """The same moment with one event changed."""
    return lambda moment: saying(*told(moment)[:at], evolve(told(moment)[at], **changes), *told(moment)[at + 1 :])(moment)


def without(*places: int) -> Tamper:
    """The same moment with some events left out."""
    return lambda moment: saying(*(event for at, event in enumerate(told(moment)) if at not in places))(moment)


def also(*extra: Event) -> Tamper:
    """The same moment with more events behind its own."""
    return lambda moment: saying(*told(moment), *extra)(moment)


def removed(group: int, node: int) -> Event:
    return Event("removed", "device", group, node)


def words(moment: Moment) -> list[tuple[str, int, int]]:
    depth = (*moment.after.prefixes.depth, -1)
    return [(event.kind, event.group, depth[event.node]) for event in told(moment)]


def test_the_life_says_what_the_cases_build_on() -> None:
    """Boundaries: 8 and 16 are full, 10 is the tail; group 1 keeps a state at every 4 tokens and at 10."""
    said = {name: words(moment) for name, moment in life().items()}
    assert said == {
        "first": [("stored", 0, 8), ("stored", 1, 8)],
        "tail": [("stored", 0, 10), ("stored", 1, 10)],
        "producer": [],
        "planned": [("removed", 0, 10), ("stored", 0, 16), ("stored", 0, 10), ("stored", 1, 16)],
        "withdrawn": [("removed", 0, 16), ("removed", 1, 16)],
        "silent": [],
        "copy": [("stored", 0, 8), ("stored", 1, 8)],
        "one of two": [],
        "last of two": [("removed", 0, 8)],
        "reset": [("cleared", -1, -1)],
    }


# The root of the one context is node 0, so node n is the one after the first n tokens.
CASES: list[tuple[str, str, str, Tamper]] = [
    ("EV-1", "tokens of another size", "first", altered(0, tokens=(1, 2, 3, 4))),
    ("EV-1", "other tokens", "tail", altered(0, tokens=(8, 9))),
    ("EV-1", "tokens in another order", "tail", altered(0, tokens=(10, 9))),
    ("EV-1", "another boundary", "tail", altered(1, boundary=12)),
    ("EV-2", "a full entry with a hash block", "first", altered(0, size=2)),
    ("EV-2", "a full entry scaled by the ranks", "first", altered(1, size=8)),
    ("EV-2", "a full entry unscaled", "first", altered(0, size=4)),
    ("EV-2", "a partial entry with a block", "tail", altered(1, size=4)),
    ("EV-2", "no payload", "tail", altered(0, size=0, tokens=())),
    ("EV-2", "a hash block at the end of a block where T8 registers nothing", "first", altered(1, size=2)),
    ("EV-3", "no parent", "tail", altered(0, parent=-1)),
    ("EV-3", "a parent where there is none", "first", altered(0, parent=0)),
    ("EV-3", "a parent by the index of the hash", "planned", altered(1, parent=2)),
    ("EV-4", "a key that gives way in silence", "planned", without(0)),
    ("EV-4", "a roll-back in silence", "withdrawn", without(1)),
    ("EV-4", "a key that one block still has", "one of two", also(removed(0, 8))),
    ("EV-4", "a key that went to a copy", "producer", also(removed(1, 10))),
    ("EV-4", "a key that nobody had", "silent", also(removed(0, 2))),
    ("EV-4", "a key that is there", "silent", also(removed(0, 8))),
    ("EV-4", "a key removed twice", "last of two", also(removed(0, 8))),
    ("EV-4", "a last copy in silence", "last of two", without(0)),
    ("EV-4", "a key that comes back unsaid", "planned", without(2)),
    ("EV-4", "a key announced and lost in silence", "last of two", also(Event("stored", "device", 0, 2))),
    ("EV-5", "a key unsaid", "first", without(1)),
    ("EV-5", "a removal unsaid", "withdrawn", without(0)),
    ("EV-5", "a removal of what is there", "one of two", also(removed(0, 8))),
    ("EV-5", "a key that is not there", "silent", also(Event("stored", "device", 0, 2))),
    ("EV-5", "a key in another group", "first", altered(1, group=0)),
    ("EV-5", "a reset in silence", "reset", without(0)),
    ("EV-5", "a clearing that did not happen", "silent", also(Event("cleared", "device"))),
    ("EV-6", "a key that is there", "silent", also(Event("stored", "device", 0, 10, 10, 8, (9, 10), 2))),
    ("EV-6", "a key said twice", "first", lambda m: also(told(m)[0])(m)),
    ("EV-6", "a second block's key said twice", "copy", lambda m: also(told(m)[0])(m)),
    ("EV-6", "a key that moved", "producer", also(Event("stored", "device", 1, 10, 10, 8, (9, 10), 2))),
    ("EV-6", "a key said and taken back that was never there", "silent", also(Event("stored", "device", 0, 2), removed(0, 2))),
    ("EV-6", "a key that was not given back", "withdrawn", also(Event("stored", "device", 0, 10))),
]


@pytest.mark.parametrize(("law", "what", "name", "tamper"), CASES, ids=[f"{law} {what}" for law, what, _, _ in CASES])
def test_a_law_sees_what_is_wrong(law: str, what: str, name: str, tamper: Tamper) -> None:
    """The law holds (or says nothing) on the real moment and not on the tampered one."""
    del what
    moment = life()[name]
    assert not judged(law, moment)
    assert judged(law, tamper(moment))


def test_every_law_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(LAWS)


def test_every_moment_keeps_every_law() -> None:
    """Also the refused and the silent ones."""
    for moment in life().values():
        for law in LAWS:
            assert not judged(law, moment), law
    refused = attempt(life()["first"].after, act.BuildMetadata())
    assert refused.refusal is not None
    assert [judged(law, refused) for law in LAWS] == [None] * len(LAWS)


@pytest.mark.parametrize("law", LAWS)
def test_without_events_nothing_is_judged(law: str) -> None:
    driver = Watched(events=False)
    driver.submit(0, 11)
    driver.chunk(0, 8)
    assert driver.keys(0)
    assert [judged(law, moment) for moment in driver.moments] == [None] * len(driver.moments)
    run = LAWS[law].check_run
    assert run is None or run(driver.world.config, [moment.action for moment in driver.moments]) is None


def test_premises_are_true_only_where_something_is_said_or_changed() -> None:
    silent = life()["silent"]
    assert [judged(law, silent) for law in LAWS] == [None] * len(LAWS)
    assert judged("EV-4", life()["first"]) is None
    assert judged("EV-4", life()["reset"]) is None
    assert judged("EV-6", life()["withdrawn"]) is None
    assert judged("EV-5", life()["reset"]) == ()


def test_ev_2_accepts_a_hash_block_where_t8_registers_the_end_of_a_block() -> None:
    """A state at the prompt's checkpoint that the mask left out: the recordings of EAGLE runs have such events."""
    moment = life()["first"]
    request = ground.request_of(moment.after, 0)
    assert request is not None
    checkpoint_at_8 = evolve(moment, after=evolve(moment.after, requests=(evolve(request, num_prompt=9),)))
    small = altered(1, size=2)(checkpoint_at_8)
    assert judged("EV-2", small) == []
    assert judged("EV-2", altered(0, size=2)(checkpoint_at_8)), "attention registers no such entry"


# --- over a run -----------------------------------------------------------------------------------------------------


def run_of(driver: Watched) -> Findings:
    check = LAWS["EV-3"].check_run
    assert check is not None
    return check(driver.world.config, [moment.action for moment in driver.moments])


def two_blocks(*between: act.Action) -> Watched:
    """A prompt of 18 tokens whose second attention block is registered after these actions."""
    driver = Watched(num_blocks=30)
    driver.submit(0, 18)
    driver.chunk(0, 8)
    driver.do(*between)
    driver.chunk(0, 8)
    return driver


def silenced(*nodes: int) -> Fault:
    """The full keys of these nodes are registered and not announced."""
    enter = pools.enter

    def silent(pool: Pool, what: int, node: int, group: int, block: int, tokens: int) -> Pool:
        after = enter(pool, what, node, group, block, tokens)
        return pools.with_notes(after, pool.notes) if node in nodes else after

    return Fault("M-NOTHING-1", "nothing", "here", (), ((pools, "enter", silent),))


def test_a_parent_is_announced_before_its_child() -> None:
    assert run_of(two_blocks()) == []
    with planted(silenced(8)):
        found = run_of(two_blocks())
    assert [evidence.message for evidence in found or ()] == ["the parent of a full key was never announced"]
    short = Watched()
    short.submit(0, 11)
    short.chunk(0, 8)
    assert run_of(short) is None, "no full attention key has a parent here"


def test_a_parent_that_was_evicted_by_id_may_be_missing() -> None:
    """T4 takes key 8 from block 1 while the request runs; its child at 16 is registered all the same."""
    assert run_of(two_blocks(act.EvictBlocks((1,)))) == []


def test_a_parent_that_is_gone_otherwise_is_missed() -> None:
    """The second registration takes the first block's keys along, which nothing in the model does."""
    promote = pools.promote

    def forgets(pool: Pool, node: int, group: int, block: int, tokens: int) -> Pool:
        pool = promote(pool, node, group, block, tokens)
        return pools.evict(pool, 1) if tokens == 16 and group == 0 else pool

    with planted(Fault("M-NOTHING-1", "nothing", "here", (), ((pools, "promote", forgets),))):
        found = run_of(two_blocks())
    assert [evidence.message for evidence in found or ()] == ["the parent of a full key is gone"]


# --- the consumer ---------------------------------------------------------------------------------------------------


def test_replay_is_a_fold() -> None:
    stored = [Event("stored", "device", group, node) for group, node in ((0, 3), (0, 3), (1, 3), (0, 5))]
    assert event_replay.replay(stored) == {(0, 3), (1, 3), (0, 5)}
    assert event_replay.replay([removed(0, 3), removed(0, 9)], {(0, 3), (0, 5)}) == {(0, 5)}
    assert event_replay.replay([*stored, Event("cleared", "device"), stored[2]]) == {(1, 3)}
    assert event_replay.replay([Event("cleared", "host"), Event("stored", "host", 0, 1)], {(0, 3)}) == {(0, 3)}
    assert event_replay.replay([Event("stored", "host", 0, 1), stored[0]], medium="host") == {(0, 1)}
    known = {(0, 1)}
    assert event_replay.replay([removed(0, 1)], known) == set()
    assert known == {(0, 1)}, "what is given stays as it is"
    for cut in range(len(stored) + 1):
        assert event_replay.replay(stored[cut:], event_replay.replay(stored[:cut])) == event_replay.replay(stored)


@pytest.mark.parametrize("scope", scopes.ALL, ids=[scope.name for scope in scopes.ALL])
def test_a_consumer_of_a_whole_run_has_the_keys_after_every_action(scope: Scope) -> None:
    """EV-5 as a consumer sees it: one set, from the first event on; every scope with its events turned on."""
    config = configs.reconfigure(scope.config(), events=True)
    limits = scope.limits(config)
    for number in range(2):
        walked = walk.walk(config, f"consumer/{scope.name}/{number}", 250, list(LAWS.values()), limits)
        assert walked.violations == ()
        keys: set[event_replay.Key] = set()
        for moment in twins.moments(config, walked.actions):
            if moment.record is not None:
                keys = event_replay.replay(moment.record.events, keys)
            assert keys == {(group, node) for node, group, _, _ in moment.after.pool.entries}
            assert not moment.after.pool.notes


def test_what_the_release_does_is_bent_and_not_refuted() -> None:
    """Under `vllm-0.33.0` every copy is announced as removed (EV-4, EV-5), and partial keys have unknown parents (EV-2, EV-3)."""
    scope = scopes.by_name("fa4-m4-n2-events")
    config = configs.reconfigure(scope.config(), profile=VLLM_0_33_0)
    seen: Counter[str] = Counter()
    for number in range(8):
        walked = walk.walk(config, f"bent/{number}", 300, list(LAWS.values()), scope.limits(config))
        assert all(violation.bent for violation in walked.violations)
        seen.update(violation.law for violation in walked.violations)
    assert set(seen) == {"EV-2", "EV-3", "EV-4", "EV-5"}


def test_the_scopes_with_events_reach_what_the_laws_are_about() -> None:
    """Roll-backs that say something, one of two copies lost, promotions, and clearings of a keyed map."""
    seen: Counter[str] = Counter()
    for scope in scopes.ALL:
        config = scope.config()
        if not config.events:
            continue
        for number in range(12):
            walked = walk.walk(config, f"reach/{scope.name}/{number}", 300, (), scope.limits(config))
            for moment in twins.moments(config, walked.actions):
                if moment.record is None:
                    continue
                said = {event.kind for event in moment.record.events}
                lost = Counter(e[:2] for e in moment.before.pool.entries) - Counter(e[:2] for e in moment.after.pool.entries)
                kept = {entry[:2] for entry in moment.after.pool.entries}
                seen["roll-back"] += isinstance(moment.action, act.Withdraw) and "removed" in said
                seen["one of two copies"] += any(key in kept for key in lost)
                seen["clearing"] += "cleared" in said and bool(moment.before.pool.entries)
                seen["reuse"] += isinstance(moment.action, act.Allocate) and said >= {"removed", "stored"}
    assert min(seen[name] for name in ("roll-back", "one of two copies", "clearing", "reuse")) > 0, seen


def test_a_new_world_has_nothing_to_say() -> None:
    for on, notes in ((True, ()), (False, None)):
        assert new_world(configure(PAIR, events=on)).pool.notes == notes
    court = Judge(events.LAWS)
    assert court.configuration(configure(PAIR, events=True, profile=SOUND)) == []
