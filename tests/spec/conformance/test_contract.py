"""What an adapter owes: to show what it declares, in a form that can be read. And what becomes of unexpected refusals."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.errors import ContractBroken
from kvproof.core.world import Phase
from kvproof.spec import laws
from kvproof.spec.conformance.adapter import (
    AdapterError,
    Geometry,
    Key,
    Observation,
    PoolState,
    RequestState,
    Shows,
    State,
)
from kvproof.spec.conformance.oracle import LawFinding, Oracle, Verdict
from kvproof.spec.conformance.reference import ALL, ModelAdapter
from kvproof.spec.conformance.shadow import Shadow
from kvproof.spec.engines import scopes

SUBMIT = act.Submit(0, (0, 1, 0, 1, 1))
CONFIG = scopes.by_name("fa4-m4-n2-host").config()


def started() -> tuple[ModelAdapter, Shadow]:
    adapter = ModelAdapter()
    adapter.start(CONFIG)
    return adapter, Shadow(CONFIG, adapter.shows)


MISSING: dict[Shows, State] = {
    Shows.REFERENCES: State(device=PoolState(free=(), keys=()), requests={}, rows={}),
    Shows.FREE_QUEUE: State(device=PoolState(references={}, keys=()), requests={}, rows={}),
    Shows.KEYS: State(device=PoolState(references={}, free=()), requests={}, rows={}),
    Shows.TABLES: State(),
    Shows.ROWS: State(),
    Shows.HOST: State(),
}


@pytest.mark.parametrize("capability", MISSING, ids=[capability.value for capability in MISSING])
def test_a_state_shows_what_is_declared(capability: Shows) -> None:
    shadow = Shadow(CONFIG, [capability])
    with pytest.raises(AdapterError, match=f"declares {capability.value} and does not show it"):
        shadow.observe(SUBMIT, Observation(state=MISSING[capability]))


def test_an_answer_has_no_field_that_nobody_reads() -> None:
    with pytest.raises(AdapterError, match=r"Submit: an answer has no field 'takn' \(did you mean taken"):
        Shadow(CONFIG, [Shows.ADMISSION]).observe(SUBMIT, Observation({"takn": ()}))
    with pytest.raises(AdapterError, match="Submit: an answer has no field 'zz'; known: "):
        Shadow(CONFIG, []).observe(SUBMIT, Observation({"zz": 1}))


def test_an_answer_shows_what_is_declared() -> None:
    for capability, action in ((Shows.COPIES, act.Drain()), (Shows.EVENTS, SUBMIT)):
        with pytest.raises(AdapterError, match="without"):
            Shadow(CONFIG, [capability]).observe(action, Observation())


def test_an_answer_has_fields_of_a_record() -> None:
    with pytest.raises(AdapterError, match="no field 'blocks'"):
        Shadow(CONFIG, []).observe(SUBMIT, Observation({"blocks": ()}))
    with pytest.raises(AdapterError, match="cannot be read"):
        Shadow(CONFIG, [Shows.COPIES]).observe(act.Drain(), Observation({"copies": 3}))


def shown_of(request: RequestState) -> State:
    return State(requests={0: request})


FORMS: tuple[tuple[Observation, str], ...] = (
    (Observation(state=None), "state is None, a State is needed"),  # type: ignore[arg-type]
    (Observation(result=None), "result is None, a Mapping is needed"),  # type: ignore[arg-type]
    (Observation(state=State(requests=[])), r"state.requests is \[\], a Mapping"),  # type: ignore[arg-type]
    (Observation(state=State(requests={})), "request 0 is live and not shown"),
    (Observation(state=State(requests={"0": RequestState(((), ()))})), "state.requests = '0': a number"),  # type: ignore[dict-item]
    (Observation(state=shown_of(RequestState(((1,),)))), "shown with 1 tables: there are 2 groups"),
    (Observation(state=shown_of(RequestState((("1",), ())))), "tables = .* cannot be read: 'str'"),  # type: ignore[arg-type]
    (Observation(state=shown_of(RequestState((None, ())))), "tables = .* cannot be read"),  # type: ignore[arg-type]
    (Observation(state=shown_of(RequestState(((), ()), status="lost"))), "status = 'lost': one of waiting"),
    (Observation(state=shown_of(RequestState(((), ()), computed="4"))), "computed = '4': a number of"),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(("observation", "words"), FORMS, ids=[words for _, words in FORMS])
def test_what_is_shown_can_be_read(observation: Observation, words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        Shadow(CONFIG, [Shows.TABLES]).observe(SUBMIT, observation)


KEYS: tuple[tuple[object, str], ...] = (
    ((1, 2, 3), "keys = .* cannot be read"),
    (Key(1, 2, 4, "0123456789ab"), "there is no group 2"),
    (Key(1, 0, 10**9, "0123456789ab"), "no request has 1000000000 tokens"),
    (Key(1, 0, -4, "0123456789ab"), "no request has -4 tokens"),
    (Key(1, 0, None, "0123456789ab"), "keys = .* cannot be read"),  # type: ignore[arg-type]
    (Key(1, 0, 4, b"0123456789ab"), "what prefix_id gives"),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(("key", "words"), KEYS, ids=[words for _, words in KEYS])
def test_keys_can_be_read(key: Any, words: str) -> None:
    """A boundary without bounds would be a made-up prefix of so many tokens."""
    with pytest.raises(AdapterError, match=words):
        Shadow(CONFIG, [Shows.KEYS]).observe(SUBMIT, Observation(state=State(PoolState(keys=(key,)))))


ANSWERS: tuple[tuple[str, object, str], ...] = (
    ("local", "4", "local = '4' cannot be read"),
    ("local", None, "answers without 'local'"),
    ("diverged", "no", "diverged = 'no' cannot be read: True or False"),
    ("diverged", 7, "diverged = 7 cannot be read: True or False"),
    ("lists", (("1",), ()), "lists = .* cannot be read"),
)


@pytest.mark.parametrize(("name", "value", "words"), ANSWERS, ids=[words for _, _, words in ANSWERS])
def test_answers_are_of_the_type_of_their_field(name: str, value: object, words: str) -> None:
    shadow = Shadow(CONFIG, [Shows.HITS])
    for action in (SUBMIT, act.BeginStep()):
        shadow.observe(action, Observation())
    answer: dict[str, object] = {"local": 0, "lists": ((), ())}
    with pytest.raises(AdapterError, match=words):
        shadow.observe(act.Lookup(0), Observation(answer | {name: value}))


def test_rows_of_an_answer_have_all_their_entries() -> None:
    shadow = Shadow(CONFIG, [Shows.COPIES])
    shadow.observe(act.BeginStep(), Observation())
    with pytest.raises(AdapterError, match=r"copies = \(\(1, 2\),\) cannot be read: its rows have 3 entries"):
        shadow.observe(act.Drain(), Observation({"copies": ((1, 2),)}))


def test_where_states_are_shown_at_times_a_request_may_be_left_out() -> None:
    """A recording shows no request that was preempted before its first block, say."""
    seen = Shadow(CONFIG, [Shows.TABLES], partial=True).observe(SUBMIT, Observation(state=State(requests={})))
    assert [difference.what for difference in seen.differences] == ["live requests"]


@pytest.mark.parametrize(
    "geometry",
    [
        Geometry(sizes=()),
        Geometry(sizes=("4", "4")),  # type: ignore[arg-type]
        Geometry(row_capacity=(4,)),
        Geometry(offload_tokens_per_block=[4, 4]),  # type: ignore[arg-type]
        Geometry(scheduler_block_size=0),
        Geometry(fine_grained="no"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_sizes_are_numbers_one_per_group(geometry: Geometry) -> None:
    with pytest.raises(AdapterError, match="is needed"):
        Oracle(laws.ALL, CONFIG, [Shows.GEOMETRY]).configuration(geometry)


def test_an_adapter_has_to_be_started() -> None:
    with pytest.raises(AdapterError, match="start"):
        ModelAdapter().perform(SUBMIT)


def test_an_expected_refusal_is_the_models() -> None:
    adapter, shadow = started()
    seen = shadow.observe(act.Dispatch(), adapter.perform(act.Dispatch()))
    assert seen.differences == ()
    assert seen.moment.refusal is not None
    assert seen.moment.refusal.code == "phase"
    assert seen.moment.after is seen.moment.before


def test_an_unexpected_refusal_is_a_broken_contract() -> None:
    adapter, _ = started()
    oracle = Oracle(laws.ALL, CONFIG, ALL)
    seen, found = oracle.observe(SUBMIT, evolve(adapter.perform(act.Dispatch()), refusal="no more requests today"))
    assert isinstance(seen.moment.refusal, ContractBroken)
    assert "no more requests today" in seen.moment.refusal.message
    assert [violation.law for violation in found] == ["LV-9"]
    assert oracle.finding("LV-9").verdict is Verdict.REFUTED
    assert oracle.shadow.world.requests == ()


def test_what_the_model_refuses_and_the_implementation_does_goes_on() -> None:
    adapter, shadow = started()
    seen = shadow.observe(act.Drain(), evolve(adapter.perform(act.Dispatch()), refusal=None, result=_drained()))
    assert seen.moment.record is not None
    assert seen.problems
    assert shadow.world.phase is Phase.DRAINED


def _drained() -> dict[str, object]:
    return {"copies": (), "handoffs": (), "zeroed": (), "destinations": (), "events": ()}


def test_what_is_shown_replaces_what_was_predicted() -> None:
    adapter, shadow = started()
    right = adapter.perform(SUBMIT)
    shown: dict[str, Any] = {"references": {3: 1}, "keys": (Key(3, 0, 4, "0123456789ab"),)}
    seen = shadow.observe(SUBMIT, evolve(right, state=evolve(right.state, device=evolve(right.state.device, **shown))))
    assert [difference.what for difference in seen.differences] == ["device references", "device keys"]
    pool, table = seen.moment.after.pool, seen.moment.after.prefixes
    assert pool.ref == tuple(int(block == 3) for block in range(CONFIG.num_blocks))
    node = pool.key_node[3]
    assert (table.depth[node], pool.key_tokens[3], [entry[:2] + entry[3:] for entry in pool.entries]) == (4, 4, [(node, 0, 3)])
    assert shadow.world.pool is pool


def test_parts_of_a_host_state_may_be_missing() -> None:
    adapter = ModelAdapter()
    adapter.start(CONFIG)
    oracle = Oracle(laws.ALL, CONFIG, ALL)
    for action in (SUBMIT, act.BeginStep(), act.Drain(), act.BuildMetadata()):
        right = adapter.perform(action)
        assert right.state.host is not None
        pool = evolve(right.state.host.pool, references=None)
        oracle.observe(action, evolve(right, state=evolve(right.state, host=evolve(right.state.host, pool=pool))))
    assert "host references" in oracle.finding("CP-1").reason


def test_a_law_that_was_hidden_once_does_not_hold() -> None:
    """However often it was judged: it may have been broken where nobody could look."""
    law = laws.ALL[0]
    found = [
        LawFinding(law, judged=1000),
        LawFinding(law, judged=1000, hidden=Counter(references=1)),
        LawFinding(law, judged=1000, unjudged="nobody asked"),
        LawFinding(law),
    ]
    assert [finding.verdict for finding in found] == [Verdict.HOLDS, *[Verdict.UNDETERMINED] * 3]
    assert "references (1 times)" in found[1].reason
