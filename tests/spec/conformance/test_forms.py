"""What is shown in a form that nobody can use: each part is named, and nothing of it gets into the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve, fields_dict

from kvproof.core import actions as act
from kvproof.core import prefixes
from kvproof.core.actions import Action
from kvproof.spec.conformance.adapter import (
    AdapterError,
    Announcement,
    HostState,
    Key,
    Observation,
    Pin,
    PoolState,
    RequestState,
    Shows,
    State,
    Transfer,
)
from kvproof.spec.conformance.names import Digests
from kvproof.spec.conformance.reference import ALL, ModelAdapter
from kvproof.spec.conformance.shadow import Shadow
from kvproof.spec.engines import scopes
from tests.spec.conformance.following import walk

CONFIG = scopes.by_name("fa4-m4-n2-host").config()
SUBMIT = act.Submit(0, (0, 1, 0, 1, 1))
NAME = "0123456789ab"


def shown(action: Action = SUBMIT, **changes: Any) -> None:
    """Let a shadow see the model's own observation, but for some parts of its state."""
    adapter, shadow = ModelAdapter(), Shadow(CONFIG, ALL)
    adapter.start(CONFIG)
    observation = adapter.perform(action)
    shadow.observe(action, evolve(observation, state=evolve(observation.state, **changes)))


def of_request(**changes: Any) -> dict[str, Any]:
    return {"requests": {0: evolve(RequestState(((), ()), (0, None)), **changes)}}


def of_host(**changes: Any) -> dict[str, Any]:
    adapter = ModelAdapter()
    adapter.start(CONFIG)
    host = adapter.perform(SUBMIT).state.host
    assert host is not None
    return {"host": evolve(host, **changes)}


PARTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"requests": {0: None}}, "request 0 is None, a RequestState is needed"),
    ({"requests": {"0": RequestState()}}, "state.requests = '0': a number is needed"),
    (of_request(computed=-7), "request 0 computed = -7: a number of tokens is needed, 0 to "),
    (of_request(computed=10**12), "request 0 computed = 1000000000000: a number of tokens is needed, 0 to "),
    (of_request(computed=1.5), r"request 0 computed = 1.5: a number of tokens is needed"),
    (of_request(in_flight=-1), "request 0 in_flight = -1: a number of tokens is needed, 0 to "),
    (of_request(status=[1]), r"request 0 status = \[1\]: one of waiting, "),
    (of_request(num_cached=3), "request 0 num_cached = 3: a sequence is needed"),
    (of_request(num_cached=(-2, None)), "request 0 num_cached = -2: a number is needed, 0 to "),
    ({"copies": 3}, "state.copies = 3: a sequence is needed"),
    ({"copies": ((1,),)}, r"state.copies = \(1,\): rows of 2 entries"),
    ({"copies": (("a", 2),)}, "state.copies = 'a': a number is needed"),
    ({"handoffs": 4}, "state.handoffs = 4: a sequence is needed"),
    ({"handoffs": ((1, 2),)}, r"state.handoffs = \(1, 2\): rows of 4 entries"),
    ({"deferred": (5,)}, "state.deferred = 5: a sequence is needed"),
    ({"deferred": (("a", (1,)),)}, "state.deferred = 'a': a number is needed"),
    ({"deferred": ((1, ("b",)),)}, "state.deferred = 'b': a number is needed"),
    ({"deferred": ((1,),)}, r"state.deferred = \(1,\): rows of 2 entries"),
    ({"rows": 3}, "state.rows is 3, a Mapping is needed"),
    ({"rows": {0: ((),)}}, r"state.rows\[0\] = \(\(\),\): one list per group is needed, 2 in all"),
    ({"rows": {-1: ((), ())}}, "state.rows = -1: the number of a row is needed, 0 to "),
    ({"device": None}, "state.device is None, a PoolState is needed"),
    ({"host": 3}, "state.host is 3, a HostState is needed"),
    (of_host(pool=3), "state.host.pool is 3, a PoolState is needed"),
    (of_host(pins=(5,)), "an entry of state.host.pins is 5, a Pin is needed"),
    (of_host(pins=(Pin(0, -4, 4, ((), ())),)), "state.host.pins = -4: a number of tokens is needed"),
    (of_host(pins=(Pin(0, 0, 4, ((),)),)), "state.host.pins = .*: one list per group is needed"),
    (of_host(loads=({"device": 1},)), "an entry of state.host.loads is {'device': 1}, a Transfer is needed"),
    (of_host(stores=(Transfer(3, (4,)),)), "state.host.stores = 3: a sequence is needed"),  # type: ignore[arg-type]
    (of_host(queued=(Transfer((3,), (4,), event=-2),)), "state.host.queued = -2: a number is needed, -1 or more"),
    (of_host(cursors={0: 5}), "state.host.cursors = 5: a sequence is needed"),
    (of_host(cursors={0: (0,)}), r"state.host.cursors = \(0,\): one per group is needed, 2 in all"),
    (of_host(cursor="x"), "state.host.cursor = 'x': a number is needed"),
    (of_host(counters=4), "state.host.counters is 4, a Mapping is needed"),
    (of_host(counters={"foo": 1}), "state.host.counters = {'foo': 1}: no 'foo' is counted; known: "),
)


@pytest.mark.parametrize(("changes", "words"), PARTS, ids=[words for _, words in PARTS])
def test_a_part_of_a_state_has_its_form(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(AdapterError, match=f"^Submit: {words}"):
        shown(**changes)


def test_the_form_of_what_the_model_shows_is_right() -> None:
    """The checks refuse nothing that a sound implementation shows."""
    for scope in ("fa4-m4-n2-host", "fa4-m4+1-n2-ahead-host"):
        assert len(walk(ModelAdapter(), scope, "forms/0", 150, laws=()).actions) == 150


def test_every_part_is_checked() -> None:
    """A part that is added to a state is not forgotten here."""
    assert {name for changes, _ in PARTS for name in changes} == set(fields_dict(State))
    host = {"pool", "pins", "loads", "stores", "queued", "cursors", "cursor", "counters", "abandoned_loads", "abandoned_stores"}
    assert set(fields_dict(HostState)) == host


@pytest.mark.parametrize("block", [10**6, -5])
def test_a_reference_is_to_a_block_of_the_pool(block: int) -> None:
    every = tuple(range(1, CONFIG.num_blocks))
    device = PoolState({block: 3}, every, ())
    with pytest.raises(AdapterError, match=rf"references = .* cannot be read: .* block {block} is none of them"):
        Shadow(CONFIG, [Shows.REFERENCES, Shows.FREE_QUEUE]).observe(SUBMIT, Observation(state=State(device)))


def test_a_request_that_nobody_submitted_is_not_shown() -> None:
    ghost = RequestState(((1, 2, 3), ()), (0, None), status="running", computed=12)
    live = RequestState(((), ()), (0, None))
    with pytest.raises(AdapterError, match="Submit: request 77 is shown and does not live"):
        shown(requests={0: live, 77: ghost})


EVENTS = scopes.by_name("fa4-m4-n2-events").config()
ANNOUNCED: tuple[tuple[Announcement, str], ...] = (
    (Announcement("update", "device", 0, NAME, 4), "its kind 'update' is none of stored, removed, cleared"),
    (Announcement("stored", "device", 0, NAME, 10**9), "no request has 1000000000 tokens"),
    (Announcement("removed", "device", 0, NAME, 10**9), "no request has 1000000000 tokens"),
    (Announcement("stored", "device", 0, NAME, 4, NAME, (), -(10**9)), "a payload has no -1000000000 tokens"),
    (Announcement("stored", "device", 0, 7, 4), "what prefix_id gives"),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(("said", "words"), ANNOUNCED, ids=[words for _, words in ANNOUNCED])
def test_an_announcement_has_its_form(said: Announcement, words: str) -> None:
    with pytest.raises(AdapterError, match=f"events = .* cannot be read: .*{words}"):
        Shadow(EVENTS, [Shows.EVENTS]).observe(SUBMIT, Observation({"events": (said,)}))


ANSWERS: tuple[tuple[Action, Shows, dict[str, object], str], ...] = (
    (act.Lookup(0), Shows.HITS, {"local": 0, "lists": ((),)}, "lists = .*: one list per group is needed, 2 in all"),
    (act.Lookup(0), Shows.HITS, {"local": 0, "lists": ((), (), ())}, "lists = .*: one list per group is needed, 2 in all"),
    (act.Lookup(0), Shows.HITS, {"local": 0, "lists": ()}, "lists = .*: one list per group is needed, 2 in all"),
    (act.Lookup(0), Shows.HITS, {"local": -4, "lists": ((), ())}, "local = -4 cannot be read: a number from 0 to "),
    (act.Lookup(0), Shows.HITS, {"local": 10**9, "lists": ((), ())}, "local = 1000000000 cannot be read"),
    (act.LookupExternal(0, 0), Shows.HITS, {"external": 4, "lists": ((1,),)}, "lists = .*: one list per group is needed"),
    (act.Allocate(0, 4), Shows.ADMISSION, {"admitted": True, "new_blocks": ((1,),)}, "new_blocks or .*one list per group"),
    (act.Allocate(0, 4), Shows.ADMISSION, {"admitted": True, "demand": -1}, "demand = -1 cannot be read: a number from 0 on"),
)


@pytest.mark.parametrize(("action", "capability", "answer", "words"), ANSWERS, ids=[words for *_, words in ANSWERS])
def test_an_answer_has_its_form(action: Action, capability: Shows, answer: dict[str, object], words: str) -> None:
    shadow = Shadow(CONFIG, [capability])
    for before in (SUBMIT, act.BeginStep()):
        shadow.observe(before, Observation())
    with pytest.raises(AdapterError, match=words):
        shadow.observe(action, Observation(answer))


def test_metadata_of_a_store_names_prefixes_that_can_be() -> None:
    config = scopes.by_name("fa4-m4-n2-host").config()
    shadow = Shadow(config, [Shows.TRANSFERS])
    state = State(host=HostState())
    for before in (SUBMIT, act.BeginStep(), act.Drain()):
        shadow.observe(before, Observation(state=state))
    with pytest.raises(AdapterError, match=r"store_meta = .* cannot be read: no request has 1000000000 tokens"):
        shadow.observe(act.BuildMetadata(), Observation({"store_meta": ((("zz", 10**9),),)}, state))


def test_made_up_prefixes_cost_a_token_each_and_end_somewhere() -> None:
    """Fifty names of nobody, as long as they may be, at every action: one path, and soon an error."""
    table, digests = prefixes.Prefixes(), Digests()
    for number in range(16):
        table, node = digests.node(table, f"name {number}", 65_000)
        assert (table.depth[node], digests.known(table, f"name {number}", 65_000)) == (65_000, node)
    assert len(table.depth) == 65_000 + 16
    shorter, node = digests.node(table, "short", 3)
    assert (shorter.depth[node], len(shorter.depth)) == (3, len(table.depth) + 1)
    with pytest.raises(ValueError, match="too many prefixes that no request had, the last one 'one more' of 65000 tokens"):
        digests.node(shorter, "one more", 65_000)
    keys = tuple(Key(1, 0, 65_000, f"{number:012}") for number in range(50))
    with pytest.raises(AdapterError, match=r"keys = .* cannot be read: too many prefixes that no request had"):
        Shadow(CONFIG, [Shows.KEYS]).observe(SUBMIT, Observation(state=State(PoolState(keys=keys))))


def test_a_walk_to_less_than_no_tokens_ends() -> None:
    table, node = prefixes.extend(prefixes.Prefixes(), prefixes.NO_NODE, (0, 1, 2))
    with pytest.raises(ValueError, match="a prefix has no -7 tokens"):
        prefixes.ancestor(table, node, -7)
