"""Runs of the model that share what they have in common do the same as runs that do not."""

import pytest

from kvproof.core import step as door
from kvproof.core.actions import BeginStep, Finish, Submit
from kvproof.core.config import configure
from kvproof.spec import laws
from kvproof.spec.engines import players, scopes, walk
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.judge import Judge

CONFIG = configure((full(1),), max_model_len=4, num_blocks=4)
OTHER = configure((full(1),), max_model_len=5, num_blocks=4)


def test_an_action_is_done_once_where_runs_share_their_beginning(monkeypatch):
    done = []
    real = door.step

    def counted(world, action):
        done.append(action)
        return real(world, action)

    monkeypatch.setattr(door, "step", counted)
    start = players.Shared()
    one = players.played(start, CONFIG, [Submit(0, (0, 0)), BeginStep()])
    two = players.played(start, CONFIG, [Submit(0, (0, 0)), Finish(0)])
    assert done == [Submit(0, (0, 0)), BeginStep(), Finish(0)]
    assert one.world != two.world
    assert one.world == players.played(players.model, CONFIG, [Submit(0, (0, 0)), BeginStep()]).world
    assert one.again().world is one.world


def test_runs_under_other_configurations_share_nothing():
    start = players.Shared()
    action = Submit(0, (0, 0, 0, 0))
    assert start(CONFIG).act(action).refusal is not None
    assert start(OTHER).act(action).refusal is None


@pytest.mark.parametrize("name", ["fa4-m4-n2-host", "fa1-m4+3-n4-async"])
def test_a_run_is_judged_as_without_sharing(name):
    scope = next(scope for scope in scopes.ALL if scope.name == name)
    config = scope.config()
    actions = walk.walk(config, "shared", 200, (), scope.limits(config), 0).actions
    shared, alone = Judge(laws.ALL), Judge(laws.ALL)
    assert shared.run(config, actions) == alone.run(config, actions, players.model)
    assert shared.premises == alone.premises
