"""The laws that run actions again ask a player: the model by default, anybody else if told so."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import define

from kvproof.core.actions import Action, Finish
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken
from kvproof.core.world import World, new_world
from kvproof.spec import laws
from kvproof.spec.engines import drain, players, scopes, twins, walk
from kvproof.spec.judge import Judge
from kvproof.spec.laws.base import Law, Moment

WHOLE = [law for law in laws.ALL if law.check_run is not None or law.check_end is not None]


@define
class Counting:
    """A player that is the model, keeps what laws may see apart, and counts."""

    model: players.Model
    counts: Counter[str]

    @property
    def world(self) -> World:
        self.counts["world"] += 1
        return self.model.world

    @property
    def shown(self) -> World:
        self.counts["shown"] += 1
        return self.model.world

    def act(self, action: Action) -> Moment:
        self.counts["act"] += 1
        return self.model.act(action)

    def again(self) -> Counting:
        self.counts["again"] += 1
        return Counting(self.model.again(), self.counts)


def starter(counts: Counter[str]) -> players.Start:
    def start(config: Config) -> players.Player:
        counts["start"] += 1
        return Counting(players.Model(new_world(config)), counts)

    return start


def walked(scope: str, steps: int = 500, number: int = 1) -> tuple[Config, tuple[Action, ...]]:
    chosen = scopes.by_name(scope)
    config = chosen.config()
    return config, walk.walk(config, f"players/{number}", steps, (), chosen.limits(config), 0).actions


@pytest.mark.parametrize("law", WHOLE, ids=lambda law: law.id)
def test_a_law_of_whole_runs_performs_every_action_through_the_player(law: Law) -> None:
    config, actions = walked("fa4-m4-n2" if law.id == "LV-10" else "fa4-m4-n2-host")
    counts: Counter[str] = Counter()
    judge, other = Judge((law,)), Judge((law,))
    assert other.run(config, actions, starter(counts)) == judge.run(config, actions)
    assert other.premises == judge.premises
    assert counts["act"] >= len(actions)


def test_a_resend_goes_on_from_the_same_point_each_time() -> None:
    judge = Judge([law for law in WHOLE if law.id == "LV-6"])
    counts: Counter[str] = Counter()
    for number in range(40):
        config, actions = walked("fa4-m4-host", 150, number)
        counts.clear()
        assert judge.run(config, actions, starter(counts)) == []
        assert counts["start"] == 1
        if judge.premises["LV-6"]:
            break
    assert judge.premises["LV-6"] == 1
    assert counts["again"] >= 1


def test_a_run_that_cannot_go_on_says_so() -> None:
    """Who refuses to let anybody finish keeps its blocks for ever."""

    @define
    class Refusing(Counting):
        def act(self, action: Action) -> Moment:
            if isinstance(action, Finish):
                return Moment(self.model.world, action, None, ContractBroken("never"), self.model.world)
            return self.model.act(action)

    config, actions = walked("fa4-host", 200)
    actions = tuple(action for action in actions if not isinstance(action, Finish))
    judge = Judge([law for law in WHOLE if law.check_end is not None])
    found = judge.run(config, actions, lambda config: Refusing(players.Model(new_world(config)), Counter()))
    said = [violation.evidence.message for violation in found if violation.law == "LV-2"]
    assert said[0] == "what an engine does by itself to end this is refused"
    assert "blocks stay pinned for ever" in said


def test_the_model_as_a_player_is_the_model() -> None:
    config, actions = walked("fa4-m4-n2", 120)
    player = players.played(players.model, config, actions)
    *_, last = twins.moments(config, actions)
    assert player.world == player.shown == last.after
    other = player.again()
    drained = drain.carried(player)
    assert drained.start is other.world
    assert drained.world == drain.drain(other.world).world != other.world
