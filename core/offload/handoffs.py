"""What the store side makes of the handoffs of a step (T24, HO-3 to HO-5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core.offload import admission, choosing, counters, tracks
from kvproof.core.offload.state import Host, Meta

if TYPE_CHECKING:
    from kvproof.core.offload.choosing import Choice
    from kvproof.core.pool import Pool
    from kvproof.core.world import Plan, World

Handoff = tuple[int, int, int, int]
Outcome = tuple[int, int, int, int, str]
STORED = "stored"
GONE = "dropped_request_gone"
FULL = "dropped_cpu_full"


def consume(world: World, host: Host, choice: Choice) -> tuple[Host, tuple[Outcome, ...], tuple[str, ...]]:
    """Decide on every handoff of the step, request by request; return the host side, the outcomes and the notices (T24).

    What is decided cannot be had again: a handoff that finds no room is dropped.
    """
    outcomes: list[Outcome] = []
    notices: tuple[str, ...] = ()
    for handoff in by_request(world.plan.drained):
        outcome = GONE if is_gone(world.plan, host, handoff[0]) else offer(choice, handoff)
        if outcome == FULL:
            host, given = counters.notice(host, FULL)
            notices += given
        host = evolve(host, counters=counters.count(host.counters, outcome))
        outcomes.append((*handoff, outcome))
    return host, tuple(outcomes), notices


def by_request(handoffs: tuple[Handoff, ...]) -> list[Handoff]:
    """Return handoffs request by request, in the order in which each request comes first (T23, T24)."""
    first = {request: -index for index, (request, _, _, _) in reversed(list(enumerate(handoffs)))}
    return sorted(handoffs, key=lambda handoff: -first[handoff[0]])


def is_gone(plan: Plan, host: Host, request: int) -> bool:
    """Tell whether a request gave its blocks up: unknown to the store side, finished, or preempted in this step (HO-3).

    One that was resumed in the step that preempted it loses its handoffs, too (PM-1).
    """
    track = tracks.find(host, request)
    return track is None or track.finished or request in plan.preempted or request in plan.preempted_before


def offer(choice: Choice, handoff: Handoff) -> str:
    """Store the block of a handoff if it is worth it and there is room; return the outcome (T24).

    The boundary is not used: at completion the block's own keys tell what was stored.
    """
    request, _, block, _ = handoff
    answer = choosing.classify(choice, block)
    if answer != admission.READY:
        return answer
    if choosing.room(choice) <= 0:
        return FULL
    held = choice.device
    choosing.store(choice, (block,), metas(handoff))
    choice.device = pinned(held, choice.device)
    choice.owners.append(request)
    return STORED


def pinned(before: Pool, after: Pool) -> Pool:
    """Return the device pool in which the block of a handoff is pinned: nobody else holds it for the store (HO-4)."""
    del before
    return after


def metas(handoff: Handoff) -> tuple[Meta, ...]:
    """Return what the events say of a stored handoff: one entry without payload (T24, IP-1, IP-4)."""
    del handoff
    return ((),)
