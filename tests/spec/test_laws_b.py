"""Each law on boundaries, hits, ranks, handoffs and liveness: a moment that keeps it, and the same one tampered with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import geometry, reachability
from kvproof.core.actions import Action
from kvproof.core.config import SOUND, Config, Group, configure
from kvproof.core.errors import PhaseError
from kvproof.core.kinds import recurrent
from kvproof.core.world import World, new_world
from kvproof.spec import faults, ground, naive_hits
from kvproof.spec.engines import twins
from kvproof.spec.exits import UserError
from kvproof.spec.faults.base import planted
from kvproof.spec.judge import attempt
from kvproof.spec.laws import ALL, boundaries, by_id, equivalences, handoffs, hits, liveness, scaling
from tests.spec.stories import (
    LAWS,
    Moments,
    Run,
    Tamper,
    acted,
    after,
    answer,
    before,
    bites,
    crashed,
    emptied,
    holds_throughout,
    judged,
    put,
    recorded,
    run_law,
    with_pool,
)

OWN = {law.id for module in (boundaries, hits, scaling, equivalences, handoffs, liveness) for law in module.LAWS}
ELSEWHERE = {"DS-8", "DS-9", "LV-10", "HB-14", "LV-8"}
"""Laws that have their own test, here or among those of the kinds and of steps in flight."""
PROMPT = (0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1)
PAIR = (Group("full_attention", 4), Group("mamba_align", 4))


def consumer_run() -> Run:
    """Two ranks: request 0 computes 14 tokens and stays, request 1 shares 12 of them, which end inside a block."""
    run = Run(configure(PAIR, dcp_size=2, num_blocks=20))
    run.do(act.Submit(0, PROMPT))
    run.compute(0, 12, 2)
    run.do(act.Submit(1, (*PROMPT[:12], 1, 0, 0, 1)))
    run.compute(1, 4)
    run.do(act.BeginStep(), "begin")
    return run


@cache
def consumer() -> Moments:
    return consumer_run().named


@cache
def decoding() -> Moments:
    """The same prompt goes on to 16 tokens: its second attention block, keyed at 12, is full and keyed again."""
    run = Run(configure(PAIR, dcp_size=2, num_blocks=20))
    run.do(act.Submit(0, PROMPT))
    run.compute(0, 12, 2)
    for name in ("one", "two"):
        run.do(act.BeginStep())
        run.do(act.Allocate(0, 1), name)
        run.step()
        run.do(act.Output(0, (1,)))
    return run.named


@cache
def withdrawn() -> Moments:
    """Request 0 publishes the state at 8 in the open plan and is then taken out of it."""
    run = Run(configure(PAIR, num_blocks=12))
    run.do(act.Submit(0, (0, 1, 1, 0, 1, 1, 0, 1, 1)))
    run.compute(0, 4, 4, 1)
    run.do(act.Submit(1, (1, 1, 1, 1, 1, 1)))
    run.compute(1, 4, 2)
    for _ in range(2):
        run.do(act.BeginStep())
        run.do(act.Allocate(0, 1))
        run.step()
        run.do(act.Output(0, (1,)))
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1), "publish")
    run.do(act.Withdraw(0), "withdraw")
    return run.named


def with_entry(*entry: int) -> Tamper:
    return after(lambda w: with_pool(w, entries=(*w.pool.entries, entry)))


def with_handoffs(*handoffs: tuple[int, int, int, int]) -> Callable[[World], World]:
    return lambda w: evolve(w, plan=evolve(w.plan, handoffs=handoffs))


def with_cells(block: int, cells: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Tamper:
    return after(lambda w: evolve(w, contents=put(w.contents, block, cells(w.contents[block]))))


def with_table(group: int, table: tuple[int, ...]) -> Tamper:
    def change(world: World) -> World:
        request = world.requests[0]
        state = evolve(request.groups[group], table=table)
        return evolve(world, requests=(evolve(request, groups=put(request.groups, group, state)), *world.requests[1:]))

    return after(change)


def without(node: int, group: int) -> Tamper:
    return before(lambda w: with_pool(w, entries=tuple(e for e in w.pool.entries if e[:2] != (node, group))))


# Blocks: request 0 has attention 1, 2 (keyed at 8 and 12) and states 3 (keyed at 12), 4; request 1 gets 5 for 2, and 6.
# Nodes 1 to 14 are the boundaries of request 0's prompt.
CASES: list[tuple[str, str, Callable[[], Moments], str, Tamper]] = [
    ("HB-2", "a key between hash boundaries", consumer, "allocate 0 0", with_entry(3, 0, 99, 1)),
    ("HB-2", "a key of tokens nobody has", consumer, "allocate 0 0", after(lambda w: evolve(w, requests=()))),
    ("HB-3", "a key in another column", consumer, "allocate 0 0", with_table(0, (2, 1))),
    ("HB-3", "a state in another column", consumer, "allocate 0 0", with_table(1, (0, 3, 0))),
    ("HB-3", "a token count of another boundary", consumer, "allocate 0 0", after(lambda w: with_pool(w, key_tokens=put(w.pool.key_tokens, 2, 16)))),
    ("HB-4", "a primary without tokens", consumer, "allocate 0 0", after(lambda w: with_pool(w, key_tokens=put(w.pool.key_tokens, 2, -1)))),
    ("HB-4", "tokens without a primary", consumer, "allocate 0 0", after(lambda w: with_pool(w, key_node=put(w.pool.key_node, 2, -1)))),
    ("HB-5", "a name of an unkeyed block", consumer, "allocate 0 0", with_entry(8, 0, 99, 9)),
    ("HB-5", "a primary that the map lacks", consumer, "allocate 0 0", after(lambda w: with_pool(w, entries=w.pool.entries[1:]))),
    ("HB-5", "a key from before the primary", consumer, "allocate 0 0", with_entry(4, 0, -1, 1)),
    ("HB-5", "a key twice", consumer, "allocate 0 0", with_entry(8, 0, 99, 1)),
    ("HB-5", "a block that does not exist", consumer, "allocate 0 0", with_entry(8, 0, 99, 20)),
    ("HB-6", "a name of the null block", consumer, "allocate 0 0", with_entry(8, 0, 99, 0)),
    ("HB-6", "a primary of the null block", consumer, "allocate 0 0", after(lambda w: with_pool(w, key_node=put(w.pool.key_node, 0, 8)))),
    ("HB-7", "no more tokens than before", decoding, "two", before(lambda w: with_pool(w, key_tokens=put(w.pool.key_tokens, 2, 16)))),
    ("HB-8", "a hit between boundaries", consumer, "lookup 1", recorded(local=10)),
    ("HB-9", "a hit of everything", consumer, "lookup 1", recorded(local=16)),
    ("HB-9", "everything is adopted", consumer, "allocate 1 0", acted(local=16)),
    ("HB-9", "hit and external tokens are everything", consumer, "allocate 1 0", acted(local=8, external=8)),
    ("HB-10", "a list too short", consumer, "lookup 1", recorded(lists=((1,), (0, 0, 3)))),
    ("HB-10", "a block of another prefix", consumer, "lookup 1", recorded(lists=((2, 1), (0, 0, 3)))),
    ("HB-10", "another state", consumer, "lookup 1", recorded(lists=((1, 2), (0, 0, 4)))),
    ("HB-10", "more than one state", consumer, "lookup 1", recorded(lists=((1, 2), (3, 0, 3)))),
    ("HB-10", "a full block without its key", consumer, "lookup 1", without(8, 0)),
    ("HB-10", "no tail key", consumer, "lookup 1", without(12, 0)),
    ("HB-10", "no state of the hit", consumer, "lookup 1", without(12, 1)),
    ("HB-12", "no replicated state", consumer, "lookup 1", without(12, 1)),
    ("HB-13", "a second partial key", consumer, "allocate 0 0", with_entry(4, 0, 99, 1)),
    ("CA-6", "a hit beyond what one class can resume at", consumer, "lookup 1", without(12, 1)),
    ("HB-15", "a shorter hit", consumer, "lookup 1", recorded(local=8)),
    ("HB-15", "nothing hit", consumer, "lookup 1", recorded(local=0)),
    ("HB-15", "a hit that is not there", consumer, "lookup 1", without(8, 0)),
    ("HB-7", "a key vanishes", decoding, "two", before(lambda w: with_pool(w, entries=(*w.pool.entries, (4, 0, 99, 9))))),
    ("HO-1", "another request's", consumer, "allocate 0 0", after(with_handoffs((7, 1, 3, 12)))),
    ("HO-1", "an earlier handoff lost", consumer, "allocate 0 0", before(with_handoffs((7, 1, 3, 12)))),
    ("HO-1", "the null block", consumer, "allocate 0 0", after(with_handoffs((0, 1, 0, 12)))),
    ("HO-1", "an unkeyed block", consumer, "allocate 0 0", after(with_handoffs((0, 1, 9, 12)))),
    ("HO-1", "another boundary", consumer, "allocate 0 0", after(with_handoffs((0, 1, 3, 16)))),
    ("HO-1", "the other group", consumer, "allocate 0 0", after(with_handoffs((0, 0, 3, 12)))),
    ("HO-2", "left in the queue", consumer, "0 0 Drain", after(with_handoffs((0, 1, 3, 12)))),
    ("HO-2", "not handed out", consumer, "0 0 Drain", recorded(handoffs=())),
    ("HO-2", "lost by a new plan", consumer, "begin", before(with_handoffs((0, 1, 3, 12)))),
    ("HO-2", "waiting behind its plan", consumer, "0 0 Dispatch", before(with_handoffs((0, 1, 3, 12)))),
    ("HO-7", "a left handoff", withdrawn, "withdraw", after(with_handoffs((0, 1, 8, 12)))),
    ("HO-7", "another's handoff lost", withdrawn, "withdraw", before(with_handoffs((0, 1, 8, 12), (1, 1, 5, 4)))),
    ("DS-2", "a position on no rank", consumer, "0 0 forward", with_cells(1, lambda c: tuple(-1 if x == 3 else x for x in c))),
    ("DS-2", "a position on both ranks", consumer, "0 0 forward", with_cells(1, lambda c: (*c[:5], *c[1:5]))),
    ("DS-4", "equal shares", consumer, "1 0 Dispatch", recorded(local_lengths=((1, 16, 9, 9),))),
    ("DS-4", "a request forgotten", consumer, "1 0 Dispatch", recorded(local_lengths=())),
    ("DS-5", "one rank not copied", consumer, "1 0 copy", with_cells(5, lambda c: (*c[:5], -1, -1, -1, -1))),
    ("DS-10", "a rank alone", consumer, "1 0 forward", recorded(branches=((1, 12, True, False),))),
    ("LV-1", "put off", consumer, "allocate 1 0", recorded(admitted=False)),
    ("LV-9", "a crash", consumer, "allocate 1 0", crashed),
    ("LV-9", "an empty pool", consumer, "allocate 1 0", emptied),
]  # fmt: skip


@pytest.mark.parametrize(("law", "what", "story", "name", "tamper"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_a_tampered_moment_breaks_the_law_and_the_true_one_keeps_it(
    law: str, what: str, story: Callable[[], Moments], name: str, tamper: Tamper
):
    bites(law, story()[name], tamper)


@pytest.mark.parametrize("story", [consumer, decoding, withdrawn])
def test_no_law_is_broken_in_the_stories(story: Callable[[], Moments]):
    holds_throughout(story())


# --- configurations -------------------------------------------------------------------------------------------------

FORMULAS: list[tuple[str, ModuleType, str, Callable[..., Any]]] = [
    ("HB-1", geometry, "scheduler_block_size", lambda sizes: sum(sizes)),
    ("HB-1", geometry, "default_hash_block_size", lambda sizes: 1),
    ("HB-11", geometry, "fine_grained_gate", lambda **conditions: False),
    ("HB-11", geometry, "mamba_gate_condition", lambda dcp_size, block_size, unit: block_size >= unit),
    ("DS-1", geometry, "effective_block_size", lambda block_size, sharded, dcp_size: block_size * dcp_size),
    ("DS-1", reachability, "tokens_per_block", lambda block_size, sharded, dcp_size: block_size * dcp_size),
    ("DS-2", geometry, "owns", lambda p, rank, block_size, sharded, n, i: geometry.owner_rank(p, block_size, n, i) == rank),
    ("DS-3", geometry, "block_offset", lambda position, block_size, sharded, n, i: position % block_size),
    ("DS-3", geometry, "owner_rank", lambda position, block_size, n, i: position // i % (n + 1)),
    ("DS-4", geometry, "local_length", lambda n, rank, dcp_size, interleave: geometry.ceil_div(n, dcp_size)),
    ("DS-10", geometry, "has_context", lambda tokens: tokens > 1),
]  # fmt: skip


@pytest.mark.parametrize(("law", "module", "name", "wrong"), FORMULAS, ids=[f"{case[0]}: {case[2]}" for case in FORMULAS])
def test_a_wrong_formula_breaks_the_law_of_a_configuration(
    law: str, module: ModuleType, name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    config = configure(PAIR, dcp_size=2, interleave=2)
    check = LAWS[law].check_config
    assert check is not None
    assert check(config) == []
    monkeypatch.setattr(module, name, wrong)
    assert check(config)


def test_hb_1_notices_what_is_refused_and_what_is_let_through(monkeypatch: pytest.MonkeyPatch):
    config = configure(PAIR, dcp_size=2, hash_block_size=2)
    check = LAWS["HB-1"].check_config
    assert check is not None
    assert check(config) == []
    assert check(evolve(config, hash_block_size=3))
    assert check(evolve(config, scheduler_block_size=16))
    monkeypatch.setattr(geometry, "check_sizes", lambda **sizes: None)
    monkeypatch.setattr(geometry, "hash_block_size", lambda **sizes: sizes["requested"] or 4)
    assert any("illegal" in evidence.message for evidence in check(config) or ())

    def refuse(**sizes: Any) -> None:
        raise geometry.GeometryError("never")

    monkeypatch.setattr(geometry, "check_sizes", refuse)
    assert any("legal prefix match unit is refused" in evidence.message for evidence in check(config) or ())


def test_hb_11_and_ds_1_compare_what_the_configuration_holds():
    config = configure(PAIR, dcp_size=2)
    gate, span = LAWS["HB-11"].check_config, LAWS["DS-1"].check_config
    assert gate is not None
    assert span is not None
    assert gate(evolve(config, fine_grained=False))
    assert gate(evolve(config, alignment=8))
    assert span(evolve(config, sizes=(8, 8)))
    assert span(evolve(config, cells=(config.cells[0][:4], config.cells[1])))


@pytest.mark.parametrize(
    "config",
    [
        configure((Group("full_attention", 4),)),
        configure((Group("full_attention", 4, sharded=False), Group("mamba_align", 8)), dcp_size=4, hash_block_size=2),
        configure((Group("full_attention", 16), Group("mamba_align", 16), Group("mamba_align", 64)), dcp_size=8, interleave=16),
        configure(PAIR, caching=False),
        configure((Group("full_attention", 1536), Group("mamba_align", 1536)), dcp_size=8, max_model_len=4096),
    ],
    ids=["one group", "replicated", "DCP 8", "no caching", "large blocks"],
)
def test_the_laws_of_a_configuration_hold(config: Config):
    for law in ALL:
        if law.check_config is not None:
            unjudged = not config.caching and law.id in {"DS-6", "LV-9"}  # nothing has a key that could be offloaded
            assert law.check_config(config) == (None if unjudged else []), law.id


# --- whole runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "fault"), [("DS-8", "M-SLOT-4"), ("DS-9", "M-GATE-1"), ("DS-9", "M-GEO-5")])
def test_a_run_and_its_twin_agree_until_a_fault_is_planted(law: str, fault: str):
    actions = consumer_run().actions
    assert run_law(law, configure(PAIR, dcp_size=2, num_blocks=20, hash_block_size=2), actions) == []
    with planted(next(known for known in faults.ALL if known.id == fault)):
        config = configure(PAIR, dcp_size=2, num_blocks=20, hash_block_size=2, interleave=2)
        assert run_law(law, config, actions)


def test_the_sharded_flag_decides_nothing_on_one_rank(monkeypatch: pytest.MonkeyPatch):
    actions = consumer_run().actions
    assert run_law("DS-9", configure(PAIR, num_blocks=20), actions) == []
    monkeypatch.setattr(
        geometry, "effective_block_size", lambda block_size, sharded, dcp_size: block_size * dcp_size * (1 if sharded else 2)
    )
    assert run_law("DS-9", configure(PAIR, num_blocks=20), actions)


def test_twin_laws_need_a_twin():
    actions = consumer_run().actions
    assert run_law("DS-8", configure(PAIR, num_blocks=20), actions) is None
    assert run_law("DS-8", configure((Group("full_attention", 1), Group("mamba_align", 4)), dcp_size=2), actions) is None
    assert run_law("DS-8", configure(PAIR, dcp_size=2), ()) is None
    assert run_law("DS-9", configure(PAIR), ()) is None
    assert run_law("DS-9", configure((Group("mamba_align", 4),)), actions) is None
    # attention blocks of 4 on two ranks with a hash unit of 4: open, but closed for blocks of 8 on one rank
    assert run_law("DS-9", configure(PAIR, dcp_size=2, hash_block_size=4), actions) is None
    # with a hash unit of 2 the gate is open for both
    assert run_law("DS-9", configure(PAIR, dcp_size=2, hash_block_size=2), actions) == []


def test_a_difference_between_twins_names_its_place():
    actions = consumer_run().actions
    config = configure(PAIR, dcp_size=2, num_blocks=20)
    found = twins.first_difference(config, configure(PAIR, dcp_size=2, num_blocks=21), actions)
    assert found is not None
    assert dict(found.values)["differs"] == "pool.ref"
    assert twins.first_difference(config, config, actions) is None


def resent(
    config: Config,
    *between: Action,
    disturb: bool = False,
    finish: bool = True,
    prompt: int = 12,
    amounts: tuple[int, ...] = (8, 4),
) -> tuple[Config, list[Action]]:
    """A prompt of 12 tokens is computed, finished and sent again."""
    run = Run(config)
    run.do(act.Submit(0, PROMPT[:12]))
    run.compute(0, *amounts)
    if disturb:
        run.do(act.BeginStep())
        run.do(act.Preempt(0))
        run.step()
    if finish:
        run.do(act.Finish(0))
    for action in between:
        run.do(action)
    run.do(act.Submit(1, PROMPT[:prompt]))
    run.do(act.BeginStep())
    run.do(act.Lookup(1))
    return config, run.actions


def four_ranks(**settings: Any) -> Config:
    return configure(PAIR, dcp_size=4, num_blocks=12, **settings)


def test_lv_10_wants_the_checkpoint_of_a_resent_prompt():
    assert run_law("LV-10", *resent(four_ranks())) == []
    assert run_law("LV-10", *resent(four_ranks(), finish=False)) == []
    # a block without keys
    assert run_law("LV-10", *resent(four_ranks(), act.EvictBlocks((9,)))) == []
    found = run_law("LV-10", *resent(four_ranks(profile=evolve(SOUND, prompt_tail="P"))))
    assert found
    assert dict(found[0].values) == {"request": 1, "prompt": PROMPT[:12], "expected": 8, "actual": 0}
    assert ("prompt_tail", "P") in LAWS["LV-10"].bent_by


def test_lv_10_lets_recurrent_groups_alone_hit_behind_the_checkpoint():
    # they drop no EAGLE unit: the state at 10 of the longer prompt is one at which the resend of 11 tokens may resume
    states = (Group("mamba_align", 2), Group("mamba_align", 2, speculative_blocks=1))
    run = Run(configure(states, dcp_size=2, use_eagle=True, num_blocks=40, retention=None))
    run.do(act.Submit(0, PROMPT[:13]))
    run.compute(0, 10, 2, 1)
    run.do(act.Submit(1, PROMPT[:11]))
    run.compute(1, 1)
    run.do(act.Submit(2, PROMPT[:11]))
    run.do(act.BeginStep())
    assert answer(run.do(act.Lookup(2))).local == 10
    assert run_law("LV-10", run.world.config, run.actions) == []


COARSE = (Group("full_attention", 8), Group("mamba_align", 2))
"""Hash unit 2 and a closed gate: hits are multiples of 8, and chunks do not have to end there."""


def test_lv_10_wants_the_scheduler_block_where_hits_are_coarse(monkeypatch: pytest.MonkeyPatch):
    assert run_law("LV-10", *resent(configure(PAIR, num_blocks=12))) == []
    for retention in (None, 0, 8):
        config = configure(COARSE, num_blocks=16, retention=retention)
        assert not config.fine_grained
        assert run_law("LV-10", *resent(config, amounts=(8, 2, 2))) == []
    monkeypatch.setattr(recurrent, "kept_entries", lambda work, group: lambda index: False)
    found = run_law("LV-10", *resent(configure(COARSE, num_blocks=16, retention=0), amounts=(8, 2, 2)))
    assert found
    assert dict(found[0].values)["expected"] == 8


def test_lv_10_wants_a_unit_less_with_eagle(monkeypatch: pytest.MonkeyPatch):
    config = four_ranks(use_eagle=True, retention=0, hash_block_size=2)
    assert run_law("LV-10", *resent(config, amounts=(8, 2, 2))) == []
    single = configure((Group("full_attention", 2),), num_blocks=16, use_eagle=True)
    assert run_law("LV-10", *resent(single, amounts=(12,))) == []
    monkeypatch.setattr(recurrent, "is_checkpoint", lambda work, tokens: False)
    found = run_law("LV-10", *resent(config, amounts=(8, 2, 2)))
    assert found
    assert dict(found[0].values)["expected"] == 10


@pytest.mark.parametrize(
    ("config", "actions"),
    [
        resent(four_ranks(), act.EvictBlocks((1,))),
        resent(four_ranks(), act.ResetCache()),
        resent(four_ranks(), disturb=True),
        resent(four_ranks(), prompt=11),
        resent(configure(PAIR, num_blocks=12, hash_block_size=4, caching=False)),
        resent(configure((Group("full_attention", 8), Group("mamba_align", 2)), num_blocks=16), amounts=(10, 2)),
    ],
    ids=["evicted", "reset", "preempted", "another prompt", "no caching", "no chunk ends at S"],
)
def test_lv_10_promises_nothing_otherwise(config: Config, actions: list[Action]):
    assert run_law("LV-10", config, actions) is None


# --- premises and definitions -----------------------------------------------------------------------------------------


def test_laws_are_not_judged_where_their_premise_is_not_true():
    moments = consumer()
    for law, name in [
        ("HB-2", "lookup 1"),
        ("HB-7", "allocate 0 0"),
        ("HB-8", "lookup 0"),
        ("HB-9", "lookup 0"),
        ("HB-10", "lookup 0"),
        ("HB-12", "lookup 0"),
        ("HB-13", "allocate 0 1"),
        ("HO-1", "allocate 0 1"),
        ("HO-2", "0 1 Drain"),
        ("DS-2", "0 0 copy"),
        ("DS-5", "0 0 copy"),
        ("DS-10", "0 0 copy"),
        ("LV-1", "allocate 0 0"),
    ]:
        assert judged(law, moments[name]) is None, (law, name)
    assert judged("HB-7", withdrawn()["withdraw"]) == []
    assert judged("HB-10", recorded(diverged=True)(moments["lookup 1"])) is None


def test_lv_1_excuses_a_state_that_is_made_in_the_same_plan():
    """Request 0 computes the shared prefix, request 1 asks for it in the same plan: refused, and rightly so."""
    run = Run(configure(PAIR, num_blocks=20))
    run.do(act.Submit(0, PROMPT[:9]))
    run.do(act.Submit(1, PROMPT[:9]))
    run.do(act.BeginStep())
    run.do(act.Lookup(0))
    run.do(act.Allocate(0, 8))
    assert answer(run.do(act.Lookup(1))).local == 8
    put_off = run.do(act.Allocate(1, 1, local=8))
    assert answer(put_off).admitted is False
    assert judged("LV-1", put_off) is None
    run.step()
    run.do(act.Output(0))
    run.do(act.BeginStep())
    run.do(act.Lookup(1))
    admitted = run.do(act.Allocate(1, 1, local=8))
    assert judged("LV-1", admitted) == ()
    assert judged("LV-1", recorded(admitted=False)(admitted))


def test_lv_1_excuses_a_copy_whose_source_is_not_written_yet():
    moment = recorded(admitted=False)(consumer()["allocate 1 0"])
    assert judged("LV-1", moment)
    empty = before(lambda w: evolve(w, contents=put(w.contents, 2, ())))
    assert judged("LV-1", empty(moment)) is None
    copied = before(lambda w: evolve(w, plan=evolve(w.plan, copies=((0, 9, 2),))))
    assert judged("LV-1", copied(moment)) is None
    planned = consumer()["0 0 Drain"].before.plan.scheduled
    assert [(entry.request, entry.start, entry.amount) for entry in planned] == [(0, 0, 12)]
    written = before(lambda w: evolve(w, plan=evolve(w.plan, scheduled=planned)))
    assert judged("LV-1", written(moment)) is None


def test_lv_9_takes_a_typed_refusal_for_an_answer():
    moment = attempt(new_world(configure(PAIR)), act.Drain())
    assert isinstance(moment.refusal, PhaseError)
    assert judged("LV-9", moment) is None


def test_the_searched_hit_needs_every_group():
    world = consumer()["lookup 1"].before
    request = ground.request_of(world, 1)
    assert request is not None

    def hit(config: Config = world.config, *lost: tuple[int, int]) -> tuple[int, int, int]:
        pool = evolve(world.pool, entries=tuple(entry for entry in world.pool.entries if entry[:2] not in lost))
        return (
            naive_hits.joint_hit(config, pool, world.prefixes, request),
            naive_hits.attention_hit(config, pool, world.prefixes, request),
            naive_hits.deepest_state(config, pool, world.prefixes, request),
        )

    assert hit() == (12, 12, 12)
    assert hit(world.config, (12, 0)) == (0, 8, 12)
    assert hit(world.config, (8, 0)) == (0, 0, 12)
    assert hit(world.config, (12, 1)) == (0, 12, 0)
    assert hit(evolve(world.config, fine_grained=False))[0] == 0
    assert naive_hits.joint_hit(world.config, world.pool, world.prefixes, evolve(request, skip_reading=True)) == 0


def test_every_law_has_a_case():
    assert {case[0] for case in CASES} | {case[0] for case in FORMULAS} | ELSEWHERE == OWN


def test_laws_are_found_by_id():
    assert by_id("HB-15").mark == "C"
    assert len({law.id for law in ALL}) == len(ALL)
    assert set(LAWS) >= OWN
    with pytest.raises(UserError, match=r"HB-99.*did you mean HB-9 .*`kvproof laws` lists the known ones$"):
        by_id("HB-99")
