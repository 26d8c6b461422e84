import pytest

from kvproof.core import actions as act
from kvproof.core import step as door
from kvproof.core.world import new_world
from kvproof.spec import faults, judge, laws
from kvproof.spec.engines import disabled, machine, rules, scopes, shrink, walk
from kvproof.spec.judge import Judge
from kvproof.spec.laws.base import Evidence, Law


def law(name):
    return [known for known in laws.ALL if known.id == name]


def scope_of(name):
    scope = scopes.by_name(name)
    config = scope.config()
    return config, scope.limits(config)


def breaks(config, actions, name):
    """Run actions as they stand and return where the law breaks."""
    judged, world = Judge(law(name)), new_world(config)
    for position, action in enumerate(actions):
        moment = judge.attempt(world, action)
        if judged.moment(moment, position):
            return position
        assert moment.refusal is None
        world = moment.after
    return None


def test_the_machine_finds_nothing_in_the_model_and_reaches_both_rules():
    config, limits = scope_of("fa4-m4-n2")
    ran = machine.run_machine(config, law("PC-1"), 3, 20, 25, limits)
    assert ran.violation is None
    assert ran.actions == ()
    assert ran.premises["PC-1"] > 50
    assert ran.premises[rules.GUARD] > 20
    assert ran.steps == ran.premises[rules.GUARD] + ran.premises[rules.TOTALITY]


def test_the_machine_finds_a_fault_and_its_actions_show_it():
    with faults.planted(faults.by_id("M-KEY-2")):
        config, limits = scope_of("fa4")
        first = machine.run_machine(config, law("CC-1"), 1, 60, 40, limits, "CC-1")
        again = machine.run_machine(config, law("CC-1"), 1, 60, 40, limits, "CC-1")
        assert first.violation is not None
        assert first.violation.law == "CC-1"
        assert breaks(config, first.actions, "CC-1") == len(first.actions) - 1
        assert (first.actions, first.violation) == (again.actions, again.violation)
    assert breaks(config, first.actions, "CC-1") is None


@pytest.mark.parametrize(("fault", "name", "where"), [("M-CACHE-1", "TB-14", "fa2-m8"), ("M-COW-7", "COW-5", "m4-fa4")])
def test_a_long_walk_shrinks_to_a_short_run_that_breaks_the_same_law(fault, name, where):
    with faults.planted(faults.by_id(fault)):
        config, limits = scope_of(where)
        walks = (walk.walk(config, f"shrink {n}", 300, law(name), limits, only=name) for n in range(40))
        walked = next(found for found in walks if found.violations)
        short, violation = shrink.shrink(config, walked.actions, walked.violations[0], law(name), limits)
        assert violation.law == name
        assert len(short) < min(len(walked.actions), 45)
        assert breaks(config, short, name) == violation.position == len(short) - 1


def test_an_illegal_action_that_is_accepted_stays_illegal_while_shrinking(monkeypatch):
    monkeypatch.setattr("kvproof.core.worker.check_capacity", lambda *arguments: None)
    config, limits = scope_of("m4-fa4")
    walks = (walk.walk(config, f"probe {n}", 300, (), limits, only=rules.GUARD) for n in range(20))
    walked = next(found for found in walks if found.violations)
    assert not walked.legal
    short, violation = shrink.shrink(config, walked.actions, walked.violations[0], (), limits, legal=False)
    assert violation.law == rules.GUARD
    assert len(short) < 12
    world = new_world(config)
    for action in short[:-1]:
        world = judge.attempt(world, action).after
    last = list(short)[-1]
    assert isinstance(last, act.AppendRows)
    assert last in disabled.disabled(world, limits)


def test_a_chunk_that_is_refused_although_it_is_legal_stays_the_same_while_shrinking(monkeypatch):
    allowed = door.chunk_allowed

    def refuse_some(world, request, start, amount):
        return allowed(world, request, start, amount) and not (amount == 4 and request.num_tokens > 8)

    monkeypatch.setattr(door, "chunk_allowed", refuse_some)
    config, limits = scope_of("fa8-m8-h2-eagle-ckpt")
    walks = (walk.walk(config, f"refused {n}", 300, (), limits, only=rules.TOTALITY) for n in range(40))
    walked = next(found for found in walks if found.violations)
    short, violation = shrink.shrink(config, walked.actions, walked.violations[0], (), limits)
    assert violation.law == rules.TOTALITY
    assert isinstance(short[-1], act.Allocate)
    assert short[-1].new_tokens == 4
    assert len(short) < 35


def no_rejection(moment):
    rejected = isinstance(moment.action, act.Output) and moment.record is not None and moment.record.rejected
    return [Evidence.of("a draft is rejected")] if rejected else None


TOY = [Law("TB-1", "S", "No draft is rejected.", "test", (), (act.Output,), no_rejection)]


def test_drafts_and_what_was_sampled_shrink_along_with_the_actions():
    config, limits = scope_of("fa2-m2+3-draft3")
    walks = (walk.walk(config, f"drafts {n}", 300, TOY, limits, only="TB-1") for n in range(20))
    walked = next(found for found in walks if found.violations)
    short, violation = shrink.shrink(config, walked.actions, walked.violations[0], TOY, limits)
    assert violation.law == "TB-1"
    (planned,) = (action for action in short if isinstance(action, act.Allocate) and action.drafts)
    assert (planned.drafts, planned.new_tokens, planned.lookahead) == ((0,), 2, 0)
    assert short[-1] == act.Output(planned.request, (0,))
    assert len(short) == 24, short


def test_the_machine_draws_drafts_and_outputs_that_accept_and_reject_them():
    config, limits = scope_of("fa2-m2+3-draft3")
    ran = machine.run_machine(config, (), 5, 20, 40, limits)
    assert ran.violation is None
    assert ran.witnesses["draft accepted"] > 0
    assert ran.witnesses["draft rejected"] > 0


def test_what_does_not_repeat_comes_back_as_it_was():
    config, limits = scope_of("fa4")
    actions = (act.Submit(0, (0, 0)), act.BeginStep())
    violation = judge.Violation("PC-1", 1, Evidence("gone"))
    assert shrink.shrink(config, actions, violation, law("PC-1"), limits) == (actions, violation)
