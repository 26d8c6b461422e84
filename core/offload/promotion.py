"""A loaded request is considered again: what was loaded gets its keys (T30)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import outputs
from kvproof.core.offload import loads
from kvproof.core.records import Record
from kvproof.core.world import Phase, Request, World


def made_now(before: World, after: World) -> World:
    """Return the world whose plan counts as registered in this step what a promotion registered: nothing, it is loaded already.

    A profile counts it, and a request that adopts it waits a step (3.1, field ``loaded_keys``).
    """
    if before.config.profile.loaded_keys == "this_step":
        return after
    return evolve(after, plan=evolve(after.plan, cached=before.plan.cached))


def promote(world: World, request: Request) -> tuple[World, Record]:
    """Register what was loaded, keys appear only now, and let the request wait for its chunk with its blocks (T30, LD-6).

    If everything was hit the last token is computed again.
    """
    world = made_now(world, outputs.register_tokens(world, request, request.computed))
    computed = min(request.computed, request.num_tokens - 1)
    requests = tuple(
        evolve(other, status=loads.waiting_status(other), computed=computed, loaded=True)
        if other.request == request.request
        else other
        for other in world.requests
    )
    return evolve(world, requests=requests, phase=Phase.PLAN_WAITING), Record("Promote", computed=computed)
