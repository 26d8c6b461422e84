import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kvproof.core.actions import BeginStep
from kvproof.core.world import new_world
from kvproof.spec import faults, judge, laws
from kvproof.spec.engines import amounts, host_sightings, rules, scopes, sightings, walk, witnesses
from kvproof.spec.laws.base import Evidence, Law

ROOT = Path(__file__).parents[3]


def law(check, on=()):
    return Law("TB-1", "S", "A toy.", "test", (), on, check)


def run(name, seed, steps=300, judged=(), **arguments):
    scope = scopes.by_name(name)
    config = scope.config()
    return walk.walk(config, seed, steps, judged, scope.limits(config), **arguments)


def test_the_same_seed_gives_the_same_walk_and_another_seed_another():
    first = run("fa4-m4-n2", "a")
    assert first == run("fa4-m4-n2", "a")
    assert first.actions != run("fa4-m4-n2", "b").actions


def test_a_walk_does_not_depend_on_the_hash_seed_of_the_process():
    script = (
        "from kvproof.spec.engines import scopes, walk\n"
        "s = scopes.by_name('m4-m8-fa2-n2'); c = s.config()\n"
        "print(repr(walk.walk(c, 'hash', 250, limits=s.limits(c))))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "tests" / "_path")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(said) == 1
    assert "Submit" in said.pop()


def test_the_actions_of_a_walk_lead_to_its_end_without_a_refusal():
    walked = run("fa2-m8-n2", "replay")
    world = new_world(scopes.by_name("fa2-m8-n2").config())
    for action in walked.actions:
        moment = judge.attempt(world, action)
        assert moment.refusal is None
        world = moment.after
    assert walked.steps == 300
    assert len(walked.actions) > 240


def test_a_walk_stops_at_the_first_violation_with_its_action_last():
    judged = [law(lambda moment: [Evidence.of("no step may begin")], (BeginStep,))]
    walked = run("fa4-m4", "stop", judged=judged)
    assert isinstance(walked.actions[-1], BeginStep)
    assert [violation.position for violation in walked.violations] == [len(walked.actions) - 1]
    assert walked.steps < 300


def test_only_passes_over_other_laws_and_counts_premises():
    judged = [law(lambda moment: [Evidence.of("always broken")])]
    walked = run("fa4-m4", "only", judged=judged, only=rules.GUARD)
    assert walked.violations == ()
    assert walked.premises["TB-1"] == walked.steps == 300
    assert walked.premises[rules.GUARD] == 300 // walk.DISABLED_EVERY


def test_no_disabled_actions_if_none_are_asked_for():
    assert rules.GUARD not in run("fa4-m4", "none", disabled_every=0).premises


def test_a_scope_tries_hard_that_tokens_do_not_arrive_while_the_host_loads_the_same():
    """Each of five walks is worth a quick check: what a failed load of another does to loads is seen in them."""
    seen: Counter[str] = Counter()
    for number in range(5):
        seen.update(run("fa4-host-missing", f"missing {number}", 600).witnesses)
    names = [*sightings.NAMES, *host_sightings.NAMES]
    wanted = [
        name for name in names if "did not arrive" in name or "condemned" in name or name == "loaded request starts again"
    ]
    assert len(wanted) == 8
    assert [name for name in wanted if not seen[name]] == []


def test_walks_without_a_connector_keep_no_blocks_free():
    assert {keep_of("fa4", number) for number in range(10)} == {0.0}
    assert {keep_of("fa4-host", number) for number in range(40)} == {0.0, 0.1, 0.3}


def keep_of(name, seed):
    config = scopes.by_name(name).config()
    return walk.Walker.of(config, amounts.limits_for(config), str(seed)).keep


@pytest.mark.deep
def test_every_situation_is_reached_within_a_few_walks_over_the_matrix():
    """`kvproof check` holds only if its engines reach them all."""
    seen: Counter[str] = Counter()
    for scope in scopes.ALL:
        steps = 600 if scope.settings.get("offload") else 300
        for number in range(8):
            seen.update(run(scope.name, f"situations {number}", steps).witnesses)
    assert set(seen) == set(witnesses.NAMES)


@pytest.mark.parametrize("fault", ["M-COW-7", "M-POOL-2", "M-EVICT-1", "M-KEY-2"])
def test_a_planted_fault_is_found_by_its_law(fault):
    with faults.planted(faults.by_id(fault)) as planted:
        judged = [known for known in laws.ALL if known.id == planted.laws[0]]
        found = any(
            run(scope.name, f"fault {number}", judged=judged, only=planted.laws[0]).violations
            for number in range(10)
            for scope in scopes.chosen(True)
        )
    assert found
