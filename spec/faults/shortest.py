"""The shortest counterexample of each fault: walk with the fault planted, shrink what is found, keep the shortest.

Deterministic and bounded by steps; `python -m kvproof.spec.faults.shortest` prints the table of ``lengths``.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from kvproof.core.actions import Action
from kvproof.spec import faults
from kvproof.spec import laws as all_laws
from kvproof.spec.engines import scopes, shrink, walk
from kvproof.spec.engines.scopes import Scope
from kvproof.spec.faults.base import Fault, configured, planted
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Law

WALKS = 150
WALK_STEPS = 600
KEPT = 3
SHRINK_RUNS = 600


@frozen(slots=True)
class Kill:
    """A walk that broke one law under a fault: where, with which seed, after how many steps, and by which actions."""

    law: str
    scope: str
    seed: str
    steps: int
    actions: tuple[Action, ...]
    violation: Violation
    legal: bool


def kills(fault: Fault, law: Law, where: tuple[Scope, ...], walks: int = WALKS, steps: int = WALK_STEPS) -> Iterator[Kill]:
    """Yield the walks that break ``law`` with the fault planted: one walk per scope, then a second one, and so on."""
    for number in range(walks):
        for scope in where:
            seed = f"{fault.id}/{scope.name}/{number}"
            with planted(fault):
                config = configured(fault, scope.config())
                walked = walk.walk(config, seed, steps, [law], scope.limits(config), only=law.id)
            if walked.violations:
                yield Kill(law.id, scope.name, seed, walked.steps, walked.actions, walked.violations[0], walked.legal)


def shrunk(fault: Fault, kill: Kill, law: Law, scope: Scope) -> tuple[Action, ...]:
    """Return a minimal list of actions that still breaks the law with the fault planted."""
    with planted(fault):
        config = configured(fault, scope.config())
        actions, _ = shrink.shrink(config, kill.actions, kill.violation, [law], scope.limits(config), kill.legal, SHRINK_RUNS)
    return actions


def shortest(fault: Fault, where: tuple[Scope, ...]) -> int | None:
    """Return the number of actions of the shortest counterexample found by any of the fault's laws, None if none was."""
    found: list[int] = []
    by_name = {scope.name: scope for scope in where}
    for law in all_laws.ALL:
        if law.id not in fault.laws:
            continue
        for kept, kill in enumerate(kills(fault, law, where)):
            found.append(len(shrunk(fault, kill, law, by_name[kill.scope])))
            if kept + 1 == KEPT:
                break
    return min(found, default=None)


def hinted(fault: Fault) -> tuple[Scope, ...]:
    """Return the scopes that a fault names."""
    return tuple(scope for name in fault.scopes for scope in scopes.ALL if scope.name == name)


def main() -> None:
    """Print the lengths of all faults, ready for ``lengths``."""
    for fault in faults.ALL:
        length = shortest(fault, hinted(fault))
        if length is not None:
            print(f'    "{fault.id}": {length},', flush=True)


if __name__ == "__main__":
    main()
