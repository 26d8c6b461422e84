"""Where an action stands in the order of T0: the phases that it needs, and what to do in the others."""

from __future__ import annotations

from kvproof.core.errors import AdmissionAfterPreemption, PhaseError
from kvproof.core.world import Phase, World

NEXT = {
    Phase.IDLE: "open a plan with BeginStep",
    Phase.PLAN_RUNNING: "close the plan with Drain, BuildMetadata and Dispatch first",
    Phase.PLAN_WAITING: "close the plan with Drain, BuildMetadata and Dispatch first",
    Phase.DRAINED: "BuildMetadata is next",
    Phase.BUILT: "Dispatch is next",
}
PLANNING = (Phase.PLAN_RUNNING, Phase.PLAN_WAITING)


def need(world: World, action: str, *phases: Phase) -> None:
    """Refuse an action outside the phases that it needs (T0). Raises PhaseError."""
    if world.phase not in phases:
        wanted = " or ".join(phase.name for phase in phases)
        raise PhaseError(
            f"{action} needs phase {wanted}, the world is in {world.phase.name}: {NEXT[world.phase]} (T0)",
            phase=world.phase.name,
        )


def need_admission(world: World, action: str) -> None:
    """Refuse what concerns waiting requests where none is considered (T0 part 3).

    Raises PhaseError, or AdmissionAfterPreemption in a plan that preempted somebody.
    """
    need(world, action, *PLANNING)
    if world.plan.preempted:
        raise AdmissionAfterPreemption("this plan preempted a request: admit in the next one (T0 part 3)")
