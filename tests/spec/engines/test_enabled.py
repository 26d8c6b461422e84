from random import Random

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import step as door
from kvproof.core import worker
from kvproof.core.errors import REFUSALS, ChunkNotClipped, ContractBroken, PoolExhausted, UnknownAction
from kvproof.core.world import Phase, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines import amounts, disabled, rules, scopes, walk
from kvproof.spec.engines import enabled as lists

NAMES = [scope.name for scope in scopes.ALL]


def worlds(scope, seeds, steps, every):
    """Worlds on random ways through the enabled actions, the first ones preferred so that steps are carried through."""
    config = scope.config()
    limits = scope.limits(config)
    for seed in range(seeds):
        random, world = Random(seed), new_world(config)
        for at in range(steps):
            if at % every == 0:
                yield world, limits
            actions = lists.enabled(world, limits)
            first = random.random() < 0.85
            chosen = min(int(random.expovariate(0.5)), len(actions) - 1) if first else random.randrange(len(actions))
            world = judges.attempt(world, actions[chosen]).after


@pytest.mark.parametrize("name", NAMES)
def test_every_enabled_action_is_accepted_and_every_disabled_one_is_refused_without_a_trace(name):
    phases = set()
    for world, limits in worlds(scopes.by_name(name), seeds=4, steps=150, every=3):
        phases.add(world.phase)
        for action in lists.enabled(world, limits):
            assert judges.attempt(world, action).refusal is None, action
        for action, expected in disabled.attempts(world, limits):
            moment = judges.attempt(world, action)
            assert isinstance(moment.refusal, expected), (action, moment.refusal)
            assert not judges.is_internal(moment.refusal), action
            assert moment.after is world, action
    assert phases == set(Phase)


def test_every_refusal_is_asked_for_in_some_world():
    """All but the two that mean that the model is wrong, and the one for what is no action."""
    reached = set()
    for scope in scopes.chosen(True):
        for world, limits in worlds(scope, seeds=2, steps=150, every=1):
            reached.update(type(judges.attempt(world, action).refusal) for action in disabled.disabled(world, limits))
    assert reached == set(REFUSALS) - {ContractBroken, PoolExhausted, UnknownAction}


def test_lists_are_the_same_every_time():
    for world, limits in worlds(scopes.by_name("fa4-m4-n2"), seeds=1, steps=60, every=7):
        assert lists.enabled(world, limits) == lists.enabled(world, limits)
        assert disabled.disabled(world, limits) == disabled.disabled(world, limits)


def test_every_action_of_the_alphabet_occurs_in_both_lists():
    legal: set[type] = set()
    illegal: set[type] = set()
    for name in ("fa4-m4-n2", "m4-fa4"):
        for world, limits in worlds(scopes.by_name(name), seeds=8, steps=150, every=1):
            legal.update(type(action) for action in lists.enabled(world, limits))
            illegal.update(type(action) for action in disabled.disabled(world, limits))
    assert legal == set(act.ACTIONS)
    assert illegal == set(act.ACTIONS)


def test_lengths_stand_on_both_sides_of_every_boundary():
    scope = scopes.by_name("fa4-m4-n2")
    config = scope.config()
    limits = scope.limits(config)
    assert (config.hash_block_size, config.scheduler_block_size) == (4, 8)
    assert amounts.lengths(config, limits) == tuple(n for n in range(1, 32) if n % 4 != 2)


def test_a_step_stands_before_what_disturbs_it():
    scope = scopes.by_name("fa4-m4-n2")
    config = scope.config()
    limits = scope.limits(config)
    world = new_world(config)
    for _ in range(40):
        first = lists.enabled(world, limits)[0]
        assert not isinstance(first, act.Finish | act.Preempt | act.Withdraw | act.EvictBlocks | act.ResetCache)
        world = judges.attempt(world, first).after
    assert world.requests[0].num_tokens > 1


def test_prompts_are_resent_extended_cut_branched_and_moved_to_another_context():
    scope = scopes.by_name("fa4-m4-n2")
    config = scope.config()
    limits = evolve(scope.limits(config), submits=400)
    tokens = (0, 1, 0, 1, 1, 0, 0, 1, 1, 0)
    world = judges.attempt(new_world(config), act.Submit(0, tokens)).after
    submits = [action for action in lists.enabled(world, limits) if isinstance(action, act.Submit)]
    prompts = {(action.tokens, action.context) for action in submits}
    assert {(tokens, 0), (tokens, 1), (tokens[:4], 0)} <= prompts
    assert any(len(prompt) > 10 and prompt[:10] == tokens for prompt, _ in prompts)
    assert any(prompt[:4] == tokens[:4] and prompt[4:5] == (0,) for prompt, _ in prompts)
    assert any(action.skip_reading for action in submits)
    assert {action.request for action in submits} == {1}


def test_a_missing_row_guard_is_seen_through_the_disabled_actions(monkeypatch):
    monkeypatch.setattr(worker, "check_capacity", lambda *arguments: None)
    assert _first_law("m4-fa4", rules.GUARD) == rules.GUARD


def test_a_guard_that_refuses_too_much_is_seen_through_the_enabled_actions(monkeypatch):
    def refuse(world, request, action):
        raise ChunkNotClipped("no chunk fits")

    monkeypatch.setattr(door, "check_amount", refuse)
    assert _first_law("fa4-m4-n2", rules.TOTALITY) == rules.TOTALITY


def test_sound_guards_give_no_finding():
    assert _first_law("m4-fa4", rules.GUARD) is None


def _first_law(name, only):
    scope = scopes.by_name(name)
    config = scope.config()
    for seed in range(5):
        walked = walk.walk(config, f"guard {seed}", 200, limits=scope.limits(config), only=only)
        if walked.violations:
            return walked.violations[0].law
    return None
