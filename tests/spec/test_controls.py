"""Controls in two halves, one per family of laws: a run that breaks nothing, and the same run with one planted fault whose first
violation is of the family.

Both halves play the same actions. Which run it is follows from the generator: of the first walks of a scope one has to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import new_world
from kvproof.spec import faults
from kvproof.spec.engines import scopes, walk
from kvproof.spec.faults.base import configured, planted
from kvproof.spec.judge import Judge, Violation, attempt
from kvproof.spec.laws import ALL, FAMILIES

WALKS, STEPS = 12, 250

CONTROLS: list[tuple[str, str, str]] = [
    ("TB", "M-TBL-1", "m4-fa4"),
    ("HB", "M-PROMO-1", "fa1-m2-m4-n4"),
    ("DS", "M-CTX-1", "fa4-m4-n2"),
    ("COW", "M-COW-6", "fa1-m2-m4-n4"),
    ("HO", "M-HO-2", "fa4-m4"),
    ("HO", "M-HO-3", "fa4-m4-host"),
    ("HO", "M-STALE-1", "fa4-w4-host"),
    ("IP", "M-META-1", "fa4-m4-n2-host"),
    ("PC", "M-COW-9", "fa8-m2-n2"),
    ("PC", "M-LEAK-1", "fa4-host"),
    ("CP", "M-ACK-1", "fa2-n4-host-tiny"),
    ("LD", "M-EARLY-2", "fa4-host"),
    ("CA", "M-CAP-3", "m4-fa4"),
    ("CC", "M-ZERO-2", "fa2-m4-n4"),
    ("CN", "M-CNT-2", "fa4-m4-host"),
    ("LV", "M-LV-1", "fa4-m8-n2-roomy"),
    ("LV", "M-FLUSH-2", "fa4-host-both"),
    ("RQ", "M-SPEC-2", "fa2-m2+3-draft3"),
    ("EV", "M-EVT-1", "fa4-m4-n2-events"),
]


def family(violation: Violation) -> str:
    """The letters of a law's id."""
    return violation.law.partition("-")[0]


def first_violations(config: Config, actions: Sequence[Action]) -> list[Violation]:
    """What the laws say at the first moment at which they say anything; what is refused now changes nothing."""
    judge, world = Judge(ALL), new_world(config)
    assert not judge.configuration(config)
    for position, action in enumerate(actions):
        moment = attempt(world, action)
        found = judge.moment(moment, position)
        if found:
            return found
        world = moment.after
    return []


@pytest.mark.parametrize(("letters", "name", "place"), CONTROLS, ids=[f"{letters} {name}" for letters, name, _ in CONTROLS])
def test_a_clean_run_and_the_same_run_with_a_fault(letters: str, name: str, place: str) -> None:
    scope, fault = scopes.by_name(place), faults.by_id(name)
    seen = []
    for number in range(WALKS):
        config = scope.config()
        clean = walk.walk(config, f"control/{number}", STEPS, ALL, scope.limits(config), disabled_every=0, whole=False)
        assert clean.violations == ()
        assert first_violations(config, clean.actions) == []
        with planted(fault):
            found = first_violations(configured(fault, scope.config()), clean.actions)
        seen.append({family(violation) for violation in found})
        if seen[-1] == {letters}:
            return
    pytest.fail(f"no run breaks {letters} first: {seen}")


def test_every_family_has_a_control() -> None:
    assert {letters for letters, _, _ in CONTROLS} == set(FAMILIES)
