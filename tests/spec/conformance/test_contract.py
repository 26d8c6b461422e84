"""What an adapter owes: to show what it declares, in a form that can be read. And what becomes of unexpected refusals."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.errors import ContractBroken
from kvproof.core.world import Phase
from kvproof.spec import laws
from kvproof.spec.conformance.adapter import AdapterError, Key, Observation, PoolState, Shows, State
from kvproof.spec.conformance.oracle import Oracle, Verdict
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


def test_an_answer_shows_what_is_declared() -> None:
    for capability, action in ((Shows.COPIES, act.Drain()), (Shows.EVENTS, SUBMIT)):
        with pytest.raises(AdapterError, match="without"):
            Shadow(CONFIG, [capability]).observe(action, Observation())


def test_an_answer_has_fields_of_a_record() -> None:
    with pytest.raises(AdapterError, match="no field 'blocks'"):
        Shadow(CONFIG, []).observe(SUBMIT, Observation({"blocks": ()}))
    with pytest.raises(AdapterError, match="cannot be read"):
        Shadow(CONFIG, [Shows.COPIES]).observe(act.Drain(), Observation({"copies": 3}))


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
