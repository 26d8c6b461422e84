from random import Random

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import execute, worker
from kvproof.core import step as door
from kvproof.core.errors import (
    REFUSALS,
    ChunkNotClipped,
    ContractBroken,
    NoHostTier,
    OutputMismatch,
    OutputPending,
    PoolExhausted,
    Refusal,
    StaleOutput,
    UnknownAction,
    VictimInFlight,
)
from kvproof.core.world import GroupState, Phase, Request, new_world
from kvproof.spec import judge as judges
from kvproof.spec import macros
from kvproof.spec.engines import amounts, disabled, host_refused, rules, scopes, shrink, walk
from kvproof.spec.engines import enabled as lists
from tests.sampling import each

NAMES = [scope.name for scope in scopes.ALL]
HOST_ACTIONS = (
    act.LookupExternal,
    act.Promote,
    act.RunStore,
    act.RunLoad,
    act.CompleteStore,
    act.CompleteLoad,
    act.ResetHost,
    act.ReadCounters,
)


def worlds(scope, seeds, steps, every):
    """Worlds on random ways through the enabled actions, the first ones preferred so that steps are carried through.

    With a host tier every second way is a walker's: it waits for stores and comes back for them.
    """
    config = scope.config()
    limits = scope.limits(config)
    for seed in range(seeds):
        random, world = Random(seed), new_world(config)
        walker = walk.Walker.of(config, limits, f"worlds {seed}") if config.offload is not None and seed % 2 else None
        for at in range(steps):
            if at % every == 0:
                yield world, limits
            if walker is not None:
                moment = judges.attempt(world, walker.propose(world))
                walker.observe(moment)
                world = moment.after
                continue
            actions = lists.enabled(world, limits)
            first = random.random() < 0.85
            chosen = min(int(random.expovariate(0.5)), len(actions) - 1) if first else random.randrange(len(actions))
            world = judges.attempt(world, actions[chosen]).after


@pytest.mark.parametrize("name", each(4, NAMES))
def test_every_enabled_action_is_accepted_and_every_disabled_one_is_refused_without_a_trace(name):
    phases = set()
    longer = 2 if scopes.by_name(name).settings.get("offload") else 1
    for world, limits in worlds(scopes.by_name(name), seeds=4, steps=150 * longer, every=3 * longer):
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
    """All but the two that mean that the model is wrong, the one for what is no action, and the one for a missing host."""
    reached: set[type[Refusal]] = set()
    for scope in (*scopes.chosen(True), scopes.by_name("fa4-m4-rows")):
        config = scope.config()
        limits = scope.limits(config)
        for seed in range(4):
            walker, world = walk.Walker.of(config, limits, f"refusals {seed}"), new_world(config)
            for _ in range(200):
                reached.update(expected[0] for _, expected in disabled.attempts(world, limits) if len(expected) == 1)
                moment = judges.attempt(world, walker.propose(world))
                walker.observe(moment)
                world = moment.after
    assert reached == set(REFUSALS) - {ContractBroken, PoolExhausted, UnknownAction, NoHostTier}


def test_without_a_host_tier_its_actions_are_refused_and_never_listed():
    kinds = set(HOST_ACTIONS)
    for world, limits in worlds(scopes.by_name("fa4-m4-n2"), seeds=2, steps=60, every=5):
        assert {type(action) for action, _ in host_refused.without_host(world)} == kinds
        for action, expected in host_refused.without_host(world):
            moment = judges.attempt(world, action)
            assert (type(moment.refusal), moment.after) == (expected[0], world)
        listed = [*lists.enabled(world, limits), *disabled.disabled(world, limits)]
        assert not kinds.intersection(type(action) for action in listed)
    assert host_refused.without_host(new_world(scopes.by_name("fa4-host").config())) == []


def test_bad_deliveries_are_found_with_a_single_token():
    scope = scopes.by_name("fa4-m4+1")
    config = scope.config()
    limits = evolve(scope.limits(config), alphabet=(0,))
    result = walk.walk(config, "one token", 400, limits=limits)
    assert result.steps == 400
    assert not result.violations


def test_lists_are_the_same_every_time():
    for world, limits in worlds(scopes.by_name("fa4-m4-n2"), seeds=1, steps=60, every=7):
        assert lists.enabled(world, limits) == lists.enabled(world, limits)
        assert disabled.disabled(world, limits) == disabled.disabled(world, limits)


def test_every_action_of_the_alphabet_occurs_in_both_lists():
    legal: set[type] = set()
    illegal: set[type] = set()
    for name, steps, every in (("fa4-m4-n2", 150, 1), ("m4-fa4", 150, 1), ("fa4-host-both", 400, 3)):
        for world, limits in worlds(scopes.by_name(name), seeds=8, steps=steps, every=every):
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


@pytest.mark.parametrize("name", [scope.name for scope in scopes.ALL if scope.config().snapshots])
def test_the_model_accepts_just_the_chunks_that_some_wanted_amount_is_clipped_to(name):
    config, random = scopes.by_name(name).config(), Random(name)
    world = new_world(config)
    for _ in range(60):
        prompt = random.randint(1, config.max_model_len - 1)
        tokens = min(config.max_model_len, prompt + random.choice((0, 0, 0, 1, 2, 5)))
        unit = config.hash_block_size
        request = Request(
            request=0,
            context=0,
            tip=0,
            num_tokens=tokens,
            num_prompt=prompt,
            skip_reading=False,
            groups=(GroupState(),) * len(config.groups),
            junction=random.choice((0, random.randrange(tokens) // unit * unit)),
        )
        start = random.randrange(tokens)
        most = min(tokens - start, config.max_chunk)
        wanted = {amounts.chunk(config, request, start, amount) for amount in range(1, most + 1)}
        accepted = {amount for amount in range(1, most + 1) if door.chunk_allowed(world, request, start, amount)}
        assert accepted == wanted - {0}, request


def in_decode(scope, drafts=()):
    """A world in which request 0 is past its prompt of six tokens, and its first decode is planned, with these drafts."""
    config = scopes.by_name(scope).config()
    world = new_world(config)
    first = (act.Submit(0, (0, 1, 0, 1, 1, 0)), act.BeginStep(), *macros.admit(0, 4), *macros.run([(0, ())]))
    second = (act.BeginStep(), act.Allocate(0, 2), *macros.run([(0, (1,))]))
    for action in (*first, *second, act.BeginStep(), *macros.decode(0, *drafts)):
        world, record = door.step(world, action)
        assert record.admitted is not False
    return world


def legal(world):
    return lists.enabled(world, amounts.limits_for(world.config))


def test_a_decode_may_carry_as_many_drafts_as_the_drafter_gives_and_a_prefill_none():
    scope = scopes.by_name("fa2-m2+3-draft3")
    planned = [action for action in legal_at_begin(scope, 1) if isinstance(action, act.Allocate)]
    assert {len(action.drafts) for action in planned} == {0, 1, 2, 3}
    assert all(action.new_tokens == 1 + len(action.drafts) for action in planned)
    first = [action for action in legal_at_begin(scope, 0) if isinstance(action, act.Allocate)]
    assert first
    assert all(not action.drafts for action in first)


def legal_at_begin(scope, steps):
    """What is legal in the plan after so many steps of a request of four tokens."""
    config = scope.config()
    world = new_world(config)
    actions: list[act.Action] = [act.Submit(0, (0, 1, 0, 1)), act.BeginStep()]
    if steps:
        actions += [*macros.admit(0, 2), *macros.run([(0, ())])]
        actions += [act.BeginStep(), act.Allocate(0, 2), *macros.run([(0, (1,))]), act.BeginStep()]
    else:
        actions += [act.Lookup(0)]
    for action in actions:
        world, _ = door.step(world, action)
    return lists.enabled(world, scope.limits(config))


def test_an_output_brings_the_accepted_drafts_and_one_token_more():
    world = in_decode("fa2-m2+3-draft3", (1, 0))
    for action in (*macros.CLOSE, *macros.EXECUTE):
        world, _ = door.step(world, action)
    outputs = {action.tokens for action in legal(world) if isinstance(action, act.Output)}
    assert outputs == {(0,), (1,), (1, 0), (1, 1), (1, 0, 0), (1, 0, 1)}


def test_with_two_steps_in_flight_the_next_plan_opens_before_the_output_and_its_forward_waits_for_it():
    world = in_decode("fa1-m4+3-n4-async", (1, 0))
    for action in macros.CLOSE:
        world, _ = door.step(world, action)
    assert act.BeginStep() in legal(world)
    for action in (act.BeginStep(), *macros.decode(0, 1), *macros.CLOSE, *macros.EXECUTE):
        world, _ = door.step(world, action)
    assert act.BeginStep() not in legal(world)
    for part in execute.PARTS[:3]:
        assert act.Execute(part) in legal(world)
        world, _ = door.step(world, act.Execute(part))
    assert not any(isinstance(action, act.Execute) for action in legal(world))
    refused = dict(disabled.attempts(world, amounts.limits_for(world.config)))
    assert refused[act.Execute("precopy")] == (OutputPending,)
    world, _ = door.step(world, act.Output(0, (1, 1)))
    assert act.Execute("precopy") in legal(world)


def test_a_victim_in_flight_leaves_a_late_output_that_is_delivered_before_it_resumes_or_dropped():
    world = in_decode("fa1-m4+3-n4-async")
    for action in (*macros.CLOSE, act.BeginStep()):
        world, _ = door.step(world, action)
    ways = [action for action in legal(world) if isinstance(action, act.Preempt)]
    assert ways == [act.Preempt(0), act.Preempt(0, drop_stale=True)]
    for way in ways:
        late = door.step(world, way)[0]
        for action in (*macros.CLOSE, *macros.EXECUTE, *macros.EXECUTE, act.BeginStep()):
            late, _ = door.step(late, action)
        assert (act.Lookup(0) in legal(late)) is way.drop_stale
        refused = dict(disabled.attempts(late, amounts.limits_for(late.config)))
        assert refused.get(act.Lookup(0)) == (None if way.drop_stale else (StaleOutput,))


def test_while_freeing_is_deferred_nobody_in_flight_is_preempted():
    scope = scopes.by_name("fa4-ahead-defer")
    config = scope.config()
    world = new_world(config)
    for action in (act.Submit(0, (0,) * 6), act.BeginStep(), *macros.admit(0, 2), *macros.CLOSE, act.BeginStep()):
        world, _ = door.step(world, action)
    assert not any(isinstance(action, act.Preempt) for action in legal(world))
    refused = dict(disabled.attempts(world, scope.limits(config)))
    assert refused[act.Preempt(0)] == (VictimInFlight,)


def brought():
    """Request 0 is brought 8 of its 12 tokens at once, request 1 runs in the same step; the step is executed."""
    scope = scopes.by_name("fa4")
    world = new_world(evolve(scope, settings={**scope.settings, "connectors": (False,)}).config())
    submits = (act.Submit(0, (0, 1) * 6), act.Submit(1, (0, 1, 1, 0)))
    admitted = (act.BeginStep(), *macros.admit(0, 4, 0, 8), *macros.admit(1, 4))
    for action in (*submits, *admitted, *macros.CLOSE, *macros.EXECUTE):
        world, record = door.step(world, action)
        assert record.admitted is not False
    return world


def test_what_a_connector_brings_may_be_missing_until_another_output_of_the_step_is_processed():
    world = brought()
    failures = [action for action in legal(world) if isinstance(action, act.Output) and action.failed]
    assert failures == [act.Output(0, failed=True, valid=valid) for valid in (0, 4, 7)]
    refused = [
        action
        for action, expected in disabled.attempts(world, amounts.limits_for(world.config))
        if isinstance(action, act.Output) and action.failed and expected == (OutputMismatch,)
    ]
    assert refused == [
        act.Output(0, failed=True, valid=-1),
        act.Output(0, failed=True, valid=8),
        *(act.Output(1, failed=True, valid=valid) for valid in (-1, 0)),
    ]
    later, _ = door.step(world, act.Output(1, (0,)))
    assert not any(isinstance(action, act.Output) and action.failed for action in legal(later))
    assert (act.Output(0, failed=True, valid=0), (OutputMismatch,)) in disabled.attempts(
        later, amounts.limits_for(later.config)
    )
    without = scopes.by_name("fa4-m4-n2")
    assert not disabled._bad_failures(evolve(world, config=without.config()), 0)


def test_blocks_are_kept_free_for_others_only_where_a_connector_brings_tokens():
    for name, begin, counts in (
        ("fa8-m2", 0, {0, 1, 6}),
        ("fa8-m2", 1, {0, 1, 6}),
        ("fa4-host", 0, {0, 1, 5}),
        ("fa2-m2+3-draft3", 0, {0}),
        ("fa2-m2+3-draft3", 1, {0}),
    ):
        planned = [action for action in legal_at_begin(scopes.by_name(name), begin) if isinstance(action, act.Allocate)]
        assert {action.reserved for action in planned} == counts, name
    assert lists.kept_free([], amounts.limits_for(scopes.by_name("fa4-host").config())) == []


def test_a_failed_load_and_blocks_kept_free_are_made_simpler_by_shrinking():
    world = brought()
    failed = act.Output(0, failed=True, valid=6)
    assert shrink._fitted(world, failed) == failed
    assert list(shrink._simpler_actions(failed)) == [
        act.Output(0),
        act.Output(0, failed=True),
        act.Output(0, failed=True, valid=5),
    ]
    keeping = act.Allocate(0, 4, reserved=3)
    assert act.Allocate(0, 4) in list(shrink._simpler_actions(keeping))
    assert shrink._cost([keeping]) > shrink._cost([act.Allocate(0, 4)])
    assert shrink._cost([failed]) > shrink._cost([evolve(failed, valid=5)]) > shrink._cost([act.Output(0)])
