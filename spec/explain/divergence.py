"""What it costs that a connector does not serve divergent hits, or saves that it does (T12, T13, T14.1)."""

from __future__ import annotations

from attrs import evolve, frozen

from kvproof.core import actions as act
from kvproof.core import step as door
from kvproof.spec import naive
from kvproof.spec.explain import answer as answers
from kvproof.spec.explain import rules
from kvproof.spec.explain.answer import Answer, Disagreement
from kvproof.spec.explain.scenario import SECOND
from kvproof.spec.explain.view import classes, view


@frozen(slots=True)
class Divergence:
    """``common`` is the joint hit, ``deep`` that of full attention if only recurrent groups are behind, else the same.

    ``behind_common`` and ``behind_deep`` are both rounded down to S: there a connector is asked. ``capable`` tells whether the
    deployment's connectors serve divergent hits; ``tokens`` lie between the two, which attention has already.
    """

    capable: bool
    common: int
    deep: int
    behind_common: int
    behind_deep: int

    @property
    def tokens(self) -> int:
        """Tokens that a connector which serves divergent hits need not bring."""
        return self.behind_deep - self.behind_common


def explain(answer: Answer) -> Divergence | None:
    """Return what divergent hits mean for an answered question, None without a connector. Raises Disagreement."""
    run, config = answer.run, answer.config
    if run is None or not config.children:
        return None
    seen = view(run)
    readers = {members: rules.reader(seen, members) for members in classes(config)}
    deep, diverged = answers.divergent_hit(config, seen, readers, answer.joint)
    capable = evolve(config, connectors=(True,), offload=None, children=(True,))
    _, record = door.step(evolve(run.world, config=capable, host=None), act.Lookup(SECOND))
    if (record.local, record.diverged) != (deep, diverged):
        raise Disagreement(
            f"the rules give a divergent hit of {deep} ({diverged}), the model {record.local} ({record.diverged}) where every "
            "connector serves them"
        )
    scheduler = naive.common_multiple(seen.spans)
    return Divergence(
        capable=all(config.children),
        common=answer.joint,
        deep=deep if diverged else answer.joint,
        behind_common=naive.floor_multiple(answer.joint, scheduler),
        behind_deep=naive.floor_multiple(deep if diverged else answer.joint, scheduler),
    )
