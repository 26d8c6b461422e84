"""Actions that the model refuses and an implementation performs: they are followed as far as anything says what they did, and no
law judges the rest.
"""

from __future__ import annotations

import pytest
from attrs import define

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import NotScheduled
from kvproof.core.world import World
from kvproof.spec import judge as judges
from kvproof.spec.conformance import api
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.reference import ModelAdapter
from kvproof.spec.engines import scopes
from kvproof.spec.engines.walk import Walker
from kvproof.spec.laws.base import Moment
from tests.spec.conformance.following import begin


@define(slots=False)
class Immediate(ModelAdapter):
    """Frees blocks at once, whoever still reads them: it knows nothing of frees that wait."""

    def start(self, config: Config) -> None:
        super().start(configs.reconfigure(config, defer_block_free=False))


def test_references_that_are_not_those_that_are_counted_end_no_walk() -> None:
    """The model comes to a block that is released more often than it is held; what the output delivered is known all the same."""
    asked = {"scopes": ["fa4-ahead-defer"], "walks": 4, "isolation": False}
    report = api.check_all_laws(Immediate(), laws=["PC-3", "RQ", "TB"], **asked)  # type: ignore[arg-type]
    assert [law.law for law in report.refuted] == ["PC-3"]
    assert any(group.what == "refusal" and "(T3)" in group.predicted for group in report.differences)
    assert (report.problems, report.ended) == ((), ())
    assert report.of("RQ-4").verdict is Verdict.HOLDS
    sound = api.check_all_laws(Immediate(), laws=["PC-3"], policies=["defer_block_free=false"], **asked)  # type: ignore[arg-type]
    assert not sound.refuted


# --- every kind of action ---------------------------------------------------------------------------------------------

SCOPES = ("fa4-ahead-defer", "fa4-m4-n2", "fa4-m4-n2-host", "fa1-m4-n4-lazy", "fa1-m4+3-n4-async")
WALK = 400


def refused(world: World, action: Action) -> Moment:
    """What a model makes of actions that refuses every one."""
    return Moment(world, action, None, NotScheduled("not now"), world)


@pytest.mark.parametrize("scope", SCOPES)
def test_what_a_sound_implementation_does_and_the_model_refuses_breaks_no_law(
    scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every kind of action in turn the model refuses what the adapter, which is sound, performs."""
    where = scopes.by_name(scope)
    config = where.config()
    seen_kinds: set[type[Action]] = set()
    for number in range(40):
        adapter = ModelAdapter()
        followed = begin(adapter, config)
        walker = Walker.of(config, where.limits(config), f"{scope}/{number % 4}")
        world = followed.oracle.shadow.world
        for _ in range(WALK):
            world = followed.oracle.shadow.world
            action = walker.propose(world)
            fresh = type(action) not in seen_kinds
            if fresh:
                with monkeypatch.context() as patched:
                    patched.setattr(judges, "attempt", refused)
                    seen = followed.take(adapter, action)
                seen_kinds.add(type(action))
                assert seen.problems == ("the model refuses it: not now",)
            else:
                seen = followed.take(adapter, action)
            assert [(violation.law, violation.evidence) for violation in judges.refuted(followed.violations)] == [], action
            if fresh:
                break
            walker.observe(seen.followed)
        else:
            break
    assert seen_kinds >= {act.Submit, act.BeginStep, act.Lookup, act.Allocate, act.Drain, act.Dispatch, act.Execute, act.Output}
