"""What the bounds of a scope allow, bound by bound: what generation is asked with, what is wanted, what is spent."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.actions import Action
from kvproof.core.config import Offload
from kvproof.core.world import Phase, World, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines import enabled
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exploring import alphabet
from kvproof.spec.exploring import bounds as limiting
from kvproof.spec.exploring.bounds import Bounds

SETTINGS: dict[str, Any] = {"max_model_len": 9, "num_blocks": 12, "max_running": 2}
PLAIN = configs.configure((full(1),), **SETTINGS)
HOST = configs.configure((full(1),), **SETTINGS, offload=Offload(num_blocks=4))
BOTH = configs.configure((full(1),), **SETTINGS, offload=Offload(num_blocks=4), connectors=(False,))
WIDE = Bounds(("a",), execution="any", failures=True, strays=True)
EMPTY = new_world(HOST)
PLANNING = judges.attempt(EMPTY, act.BeginStep()).after
STRAY = act.CompleteStore(7)
"""A report of a store that never was: what generation tries where no store was made yet."""


# --- what generation is asked with --------------------------------------------------------------------------------


def test_every_bound_of_generation_is_handed_on():
    bounds = Bounds(
        ("a", "aba"), live=5, alphabet=(3, 4), contexts=(2,), lookahead=(0, 7), gates=(True, False), reserved=(0, 9)
    )
    found = bounds.limits(BOTH)
    assert (found.max_live, found.max_prompt, found.alphabet, found.contexts) == (5, 3, (3, 4), (2,))
    assert (found.lookahead, found.gates, found.reserved, found.external) == ((0, 7), (True, False), (0, 9), True)
    assert evolve(bounds, prompts=("a" * 20,)).limits(BOTH).max_prompt == 8  # one token less than a model takes
    assert not evolve(bounds, external=False).limits(BOTH).external
    assert not bounds.limits(HOST).external


def test_prompts_are_shapes_with_every_choice_of_tokens_and_contexts():
    bounds = Bounds(("aba", "a"), alphabet=(3, 4), contexts=(0, 5))
    texts = [(3, 4, 3), (4, 3, 4), (3,), (4,)]
    assert list(bounds.submissions()) == [(text, context) for text in texts for context in (0, 5)]


def submitted(bounds: Bounds, world: World = EMPTY) -> set[tuple[tuple[int, ...], bool]]:
    """Return the prompts that may be submitted in a world, each with whether it leaves the cache alone."""
    found = alphabet.candidates(world, bounds, bounds.limits(HOST))
    return {(action.tokens, action.skip_reading) for action in found if isinstance(action, act.Submit)}


def test_requests_are_submitted_between_plans_as_long_as_so_many_are_alive():
    bounds = Bounds(("a",), alphabet=(3,), live=1)
    assert submitted(bounds) == {((3,), False)}
    assert submitted(evolve(bounds, skip_reading=True)) == {((3,), False), ((3,), True)}
    one = judges.attempt(EMPTY, act.Submit(0, (3,))).after
    assert (submitted(bounds, one), submitted(bounds, PLANNING)) == (set(), set())
    assert submitted(evolve(bounds, live=2), one) == {((3,), False)}


# --- what is wanted -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("narrower", "left_out"),
    [
        ({}, []),
        ({"failures": False}, [act.Output(0, (), failed=True), act.CompleteLoad(0, failed=True)]),
        ({"strays": False}, [STRAY]),
        ({"at_most": {}}, [act.Preempt(0)]),
        ({"at_most": {act.Preempt: None}}, []),
        ({"starts": "behind"}, [act.LookupExternal(0, 1)]),
    ],
)
def test_a_bound_leaves_out_what_it_speaks_of_and_nothing_else(narrower, left_out):
    bounds = evolve(WIDE, at_most={act.Preempt: 1})
    actions: list[Action] = [
        act.Output(0, ()),
        act.Output(0, (), failed=True),
        act.CompleteLoad(0),
        act.CompleteLoad(0, failed=True),
        STRAY,
        act.CompleteStore(0, 1),
        act.Preempt(0),
        act.Finish(0),
        act.Execute("flush"),
        act.RunStore(0),
        act.RunLoad(0),
        act.LookupExternal(0, 1),
    ]
    assert [action for action in actions if not alphabet.wanted(EMPTY, action, evolve(bounds, **narrower))] == left_out


def test_nothing_runs_beside_an_open_plan_where_steps_run_whole():
    running: tuple[Action, ...] = (act.Execute("flush"), act.RunStore(0), act.RunLoad(0))
    for action in running:
        assert not alphabet.wanted(PLANNING, action, evolve(WIDE, execution="whole"))
        assert alphabet.wanted(PLANNING, action, WIDE)
        assert alphabet.wanted(EMPTY, action, evolve(WIDE, execution="whole"))
    assert alphabet.wanted(PLANNING, act.Drain(), evolve(WIDE, execution="whole"))


def offered(monkeypatch: pytest.MonkeyPatch, bounds: Bounds, *actions: Action, world: World = PLANNING) -> list[Action]:
    """Return what is left of a list of legal actions."""
    monkeypatch.setattr(enabled, "enabled", lambda *given: list(actions))
    return list(alphabet.candidates(world, bounds, bounds.limits(HOST)))


def test_of_chunks_the_longest_is_taken_and_of_drafts_each(monkeypatch):
    plain = (
        act.Allocate(0, 3),
        act.Allocate(0, 2),
        act.Allocate(1, 2),
        act.Allocate(0, 2, local=1),
        act.Allocate(0, 1, local=1),
    )
    drafts = (act.Allocate(0, 3, drafts=(0,)), act.Allocate(0, 2, drafts=(0,)))
    assert offered(monkeypatch, evolve(WIDE, chunks="every"), *plain, *drafts) == [*plain, *drafts]
    longest = [plain[0], plain[2], plain[3]]
    assert offered(monkeypatch, evolve(WIDE, chunks="whole"), *plain, *drafts) == [*longest, *drafts]


def test_what_differs_in_names_alone_is_offered_too(monkeypatch):
    bounds = evolve(WIDE, alphabet=(0, 1, 2), at_most={act.EvictBlocks: 1, act.ReadCounters: 1})
    drafts = offered(monkeypatch, bounds, act.Allocate(0, 2, drafts=(0, 1)))
    assert {action.drafts for action in drafts if isinstance(action, act.Allocate)} == {
        (one, two) for one in range(3) for two in range(3) if one != two
    }
    keyed = evolve(PLANNING, pool=evolve(PLANNING.pool, key_node=(-1, 0, -1, 0, 0, *PLANNING.pool.key_node[5:])))
    evicted = offered(monkeypatch, bounds, act.EvictBlocks((1, 3)), act.EvictBlocks((1,)), world=keyed)
    assert evicted == [act.EvictBlocks(pair) for pair in ((1, 3), (1, 4), (3, 4))] + [act.EvictBlocks((1,))]
    assert offered(monkeypatch, bounds, act.ReadCounters()) == [act.ReadCounters(), STRAY]
    assert offered(monkeypatch, evolve(bounds, strays=False), act.ReadCounters()) == [act.ReadCounters()]


def test_a_step_that_began_runs_to_its_end(monkeypatch):
    world = EMPTY
    for action in (act.BeginStep(), act.Drain(), act.BuildMetadata(), act.Dispatch()):
        world = judges.attempt(world, action).after
    assert world.phase is Phase.IDLE
    whole = evolve(WIDE, execution="whole")
    both: tuple[Action, ...] = (act.BeginStep(), act.Execute(HOST.parts[0]))
    assert offered(monkeypatch, evolve(whole, live=0), *both, world=world) == list(both)
    began = judges.attempt(world, act.Execute(HOST.parts[0])).after
    assert offered(monkeypatch, evolve(whole, live=0), *both, world=began) == [act.Execute(HOST.parts[1])]
    assert offered(monkeypatch, evolve(WIDE, live=0), *both, world=began) == list(both)


def test_a_store_is_carried_on_at_once_between_plans_alone(monkeypatch):
    monkeypatch.setattr(alphabet, "store_on", lambda world: act.RunStore(0))
    prompt, other = evolve(WIDE, stores="prompt", live=0), act.Finish(0)
    assert offered(monkeypatch, prompt, other, world=EMPTY) == [act.RunStore(0)]
    assert offered(monkeypatch, prompt, other) == [other]
    assert offered(monkeypatch, evolve(prompt, stores="any"), other, world=EMPTY) == [other]


# --- what is spent ------------------------------------------------------------------------------------------------


def test_budgets_are_tokens_submissions_and_counted_kinds_in_the_order_of_their_names():
    bounds = Bounds(("a",), submits=3, outputs=2, at_most={act.Withdraw: 4, act.Preempt: 1, act.ResetCache: None})
    assert bounds.counted == (act.Submit, act.Preempt, act.Withdraw)
    start = bounds.start()
    assert start == (2, 3, 1, 4)
    for action, left in (
        (act.Output(0, (1, 1)), (0, 3, 1, 4)),
        (act.Output(0, (1,)), (1, 3, 1, 4)),
        (act.Output(0, ()), start),
        (act.Output(0, (1, 1, 1)), None),
        (act.Submit(0, (1,)), (2, 2, 1, 4)),
        (act.Preempt(0), (2, 3, 0, 4)),
        (act.Withdraw(0), (2, 3, 1, 3)),
        (act.ResetCache(), start),  # as often as may be
        (act.ResetHost(), None),  # a disturbance that is not named
        (act.Finish(0), start),
    ):
        assert limiting.spend(bounds, start, action) == left
    for action in (act.Submit(0, (1,)), act.Preempt(0), act.Withdraw(0)):
        assert limiting.spend(bounds, (0, 0, 0, 0), action) is None
    assert limiting.spend(bounds, (0, 0, 0, 0), act.Output(0, ())) == (0, 0, 0, 0)


def test_only_disturbances_are_left_out_unless_they_are_named():
    bounds = Bounds(("a",), at_most={act.Preempt: 1, act.ResetHost: 0, act.ResetCache: None, act.Finish: 0})
    for kind, out in (
        (act.Preempt, False),
        (act.ResetCache, False),
        (act.ResetHost, True),
        (act.Withdraw, True),
        (act.Output, False),
        (act.Finish, False),  # counted, and never to be spent
    ):
        assert bounds.left_out(kind) == out
    assert limiting.spend(bounds, bounds.start(), act.Finish(0)) is None
