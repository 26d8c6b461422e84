"""Permissions (5.16): what is allowed happens in walks, and no law reports it."""

from __future__ import annotations

from collections import Counter

import pytest

from kvproof.core import geometry
from kvproof.core.config import Config
from kvproof.core.world import new_world
from kvproof.spec import judge, laws
from kvproof.spec.engines import scopes, walk
from tests.sampling import each

WALKS, STEPS = 3, 400
# Checkpoints inside chunks with two steps in flight take an open gate (T38).
OPEN = [
    scope.name
    for scope in scopes.ALL
    if (config := scope.config()).fine_grained and (config.checkpoint_alignment is None or config.max_steps_in_flight == 1)
]


def most_holders(config: Config, walked: walk.WalkResult) -> int:
    """The most blocks that one key stood for at a time in a walk."""
    world, most = new_world(config), 0
    for action in walked.actions:
        world = judge.attempt(world, action).after
        most = max([most, *Counter((node, group) for node, group, _, _ in world.pool.entries).values()])
    return most


@pytest.mark.parametrize("name", ["fa4-m4-n2", "fa4-st4", "fa4-w4", "fa2-n4-eagle-async"])
def test_one_key_may_stand_for_several_blocks(name: str) -> None:
    """PM-2 on the device: two requests compute the same prefix at a time, or one more block is keyed after a copy."""
    scope = scopes.by_name(name)
    config = scope.config()
    holders = []
    for number in range(WALKS):
        walked = walk.walk(config, f"permission/{name}/{number}", STEPS, laws.ALL, scope.limits(config))
        assert walked.violations == ()
        holders.append(most_holders(config, walked))
    assert max(holders) > 1


def closed(**conditions: object) -> bool:
    """A gate that lets no hit end inside a block."""
    del conditions
    return False


@pytest.mark.parametrize("name", each(3, OPEN))
def test_a_closed_gate_loses_hits_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PM-4: where the gate should be open and is not, HB-11 says so, and no other law has anything to report."""
    scope = scopes.by_name(name)
    opened = scope.config()
    monkeypatch.setattr(geometry, "fine_grained_gate", closed)
    config = scope.config()
    assert (opened.fine_grained, config.fine_grained) == (True, False)
    assert config.alignment == opened.scheduler_block_size
    assert [violation.law for violation in judge.Judge(laws.ALL).configuration(config)][:1] == ["HB-11"]
    others = [law for law in laws.ALL if law.id != "HB-11"]
    for number in range(WALKS - 1):
        walked = walk.walk(config, f"closed/{name}/{number}", STEPS, others, scope.limits(config))
        assert walked.violations == ()
        assert walked.premises["HB-15"] > 0
