"""What the engines do around a host tier: which transfers go on, what may be loaded, what a walk reaches and how it shrinks."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Config, Group, Offload, configure
from kvproof.core.offload.state import Host, Load, PendingHit, Stage, Store
from kvproof.core.world import Hit, Request, World, new_world
from kvproof.spec import judge
from kvproof.spec.engines import amounts, host, machine, prompts, scopes, shrink, walk
from kvproof.spec.engines import enabled as lists
from kvproof.spec.judge import Judge
from kvproof.spec.laws.base import Evidence, Law, Moment

FULL, MAMBA = "full_attention", "mamba_align"


def config_of(*groups: Group, workers: int = 1) -> Config:
    return configure(groups or (Group(FULL, 4),), num_blocks=20, offload=Offload(num_blocks=20, workers=workers))


def with_host(world: World, **changes: Any) -> World:
    assert isinstance(world.host, Host)
    return evolve(world, host=evolve(world.host, **changes))


def store(event: int, stage: Stage, acks: int = 0) -> Store:
    return Store(event, (event + 1,), (event + 1,), None, stage, acks)


def test_copies_run_oldest_first_in_each_direction_and_only_when_they_were_submitted() -> None:
    world = new_world(config_of())
    assert host.transfers(world) == []
    loads = (Load(0, (1,), (1,), 3, Stage.SUBMITTED), Load(1, (2,), (2,), 4, Stage.SUBMITTED), Load(2, (3,), (3,)))
    world = with_host(
        world,
        loads=loads,
        stores=(store(2, Stage.SUBMITTED), store(3, Stage.BUILT)),
        abandoned_stores=(store(1, Stage.SUBMITTED), store(0, Stage.COPIED)),
    )
    assert host.copies(world) == [act.RunLoad(3), act.RunStore(1)]


def test_a_younger_store_is_never_ahead_and_the_last_report_waits_for_the_bytes() -> None:
    world = with_host(
        new_world(config_of(workers=3)),
        stores=(store(0, Stage.COPIED, 1), store(1, Stage.SUBMITTED), store(2, Stage.SUBMITTED), store(3, Stage.BUILT)),
    )
    assert [(entry.event, most) for entry, most in host.acks_left(world)] == [(0, 2), (1, 1)]
    world = with_host(world, stores=(store(1, Stage.SUBMITTED), store(2, Stage.COPIED)))
    assert [(entry.event, most) for entry, most in host.acks_left(world)] == [(1, 2)]


def test_an_unknown_event_is_one_that_is_over_or_never_was() -> None:
    world = with_host(new_world(config_of()), stores=(store(2, Stage.BUILT),), next_store=3)
    assert host.unknown_event(world) == 1
    assert host.unknown_event(with_host(world, stores=(), next_store=0)) == 7


def test_ids_of_loads_and_of_finished_requests_with_stores_are_not_given_again() -> None:
    world = with_host(new_world(config_of()), loads=(Load(0, (1,), (1,), 0, Stage.BUILT, finished=True),))
    assert prompts.free_id(world) == 1


@pytest.mark.parametrize(("groups", "choices"), [((Group(FULL, 4),), (12, 8, 4)), ((Group(FULL, 4), Group(MAMBA, 4)), (12,))])
def test_a_pinned_hit_is_cut_only_where_every_group_keeps_all_its_blocks(groups, choices) -> None:
    config = config_of(*groups)
    pin = PendingHit(0, 0, 12, ((1, 2, 3),) * len(groups))
    assert host.load_amounts(config, pin, 0) == choices
    assert host.load_amounts(config, pin, 4) == tuple(length for length in choices if length > 4)
    assert host.load_amounts(config, pin, 12) == ()


def test_a_load_needs_the_pinned_hit_of_the_request_that_was_looked_up() -> None:
    config = config_of()
    limits = amounts.limits_for(config)
    hit = Hit(0, 4, ((5,),), 0, diverged=False)
    world = with_host(new_world(config), pending=(PendingHit(0, 4, 8, ((1, 2),)), PendingHit(1, 0, 4, ((1,),))))
    found = host.loading(world, hit, limits)
    assert [(action.local, action.external, action.load) for action in found if isinstance(action, act.Allocate)] == [
        (4, 8, True),
        (4, 4, True),
    ]
    assert host.loading(world, evolve(hit, request=1), limits) == []
    assert host.loading(world, evolve(hit, request=2), limits) == []


def test_a_walker_without_a_host_tier_has_no_part_for_it() -> None:
    scope = scopes.by_name("fa4")
    config = scope.config()
    assert walk.Walker.of(config, scope.limits(config), "x").host is None
    hosted = scopes.by_name("fa4-host").config()
    assert walk.Walker.of(hosted, amounts.limits_for(hosted), "x").host is not None


def failing(moment: Moment) -> list[Evidence] | None:
    """A toy law: no load fails."""
    action = moment.action
    if not isinstance(action, act.CompleteLoad) or moment.record is None:
        return None
    return [Evidence.of("a load fails")] if action.failed else []


TOY = [Law("LD-1", "S", "No load fails.", "test", (), (act.CompleteLoad,), failing)]


def test_a_walk_with_a_load_shrinks_to_one_store_and_one_load_of_it() -> None:
    scope = scopes.by_name("fa4-host")
    config = scope.config()
    limits = scope.limits(config)
    walks = (walk.walk(config, f"loads {number}", 600, TOY, limits, only="LD-1") for number in range(40))
    walked = next(found for found in walks if found.violations)
    short, violation = shrink.shrink(config, walked.actions, walked.violations[0], TOY, limits)
    assert violation.law == "LD-1"
    last = list(short)[-1]
    assert isinstance(last, act.CompleteLoad)
    assert last == act.CompleteLoad(last.request, failed=True)
    kinds = [type(action) for action in short]
    assert (kinds.count(act.RunStore), kinds.count(act.RunLoad), kinds.count(act.LookupExternal)) == (1, 1, 1)
    assert len(short) < 70, short
    judged, world = Judge(TOY), new_world(config)
    for position, action in enumerate(short):
        moment = judge.attempt(world, action)
        assert moment.refusal is None
        broken = judged.moment(moment, position)
        assert bool(broken) is (position == len(short) - 1)
        world = moment.after


def test_events_and_loads_that_no_longer_fit_are_fitted_again_while_shrinking() -> None:
    config = config_of(workers=2)
    world = with_host(new_world(config), stores=(store(4, Stage.SUBMITTED),), next_store=5)
    assert shrink._fitted(world, act.RunStore(9)) == act.RunStore(4)
    assert shrink._fitted(world, act.CompleteStore(9, 2)) == act.CompleteStore(4, 1)
    request = Request(0, 0, 0, 13, 13, skip_reading=False, groups=())
    world = evolve(
        with_host(world, pending=(PendingHit(0, 4, 8, ((1, 2),)),)),
        requests=(request,),
        hit=Hit(0, 4, ((5,),), 0, diverged=False),
    )
    assert shrink._fitted(world, act.Allocate(0, 0, external=12, load=True)) == act.Allocate(0, 0, 4, 8, load=True)
    assert shrink._fitted(world, act.LookupExternal(0, 0)) == act.LookupExternal(0, 4)


def test_the_machine_comes_back_for_what_the_host_has() -> None:
    scope = scopes.by_name("fa4-host-both")
    config = scope.config()
    ran = machine.run_machine(config, (), 3, 20, 40, scope.limits(config))
    assert ran.violation is None
    assert ran.witnesses["external hit"] > 0
    assert ran.witnesses["store completed"] > 0


def test_whatever_a_walk_does_with_a_host_tier_is_in_the_list_of_legal_actions() -> None:
    """Chunks and prompts are drawn from more than the list holds."""
    drawn_freely = (act.Submit, act.EvictBlocks, act.AppendRows)
    for name in ("fa4-host", "fa4-m4-w2-lazy"):
        scope = scopes.by_name(name)
        config = scope.config()
        limits = scope.limits(config)
        walker, world = walk.Walker.of(config, limits, "listed"), new_world(config)
        for _ in range(400):
            action = walker.propose(world)
            chunk = isinstance(action, act.Allocate) and not action.load
            if not chunk and not isinstance(action, drawn_freely):
                legal = lists.enabled(world, limits)
                partly = isinstance(action, act.CompleteStore) and evolve(action, acks=1) in legal
                assert action in legal or partly, action
            moment = judge.attempt(world, action)
            walker.observe(moment)
            world = moment.after
