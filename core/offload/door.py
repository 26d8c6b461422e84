"""The door's part for the host tier: each action checks phase and arguments here, then calls one transition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvproof.core import actions as act
from kvproof.core import phases, requests
from kvproof.core.errors import LoadRunning, LookupMismatch, NoHostTier, NothingLoaded
from kvproof.core.offload import completion, counters, external, loads, promotion, reset, transfers
from kvproof.core.offload.state import Host
from kvproof.core.records import Record
from kvproof.core.world import Phase, Status, World


def need_host(world: World, action: str) -> Host:
    """Return the host tier of a world. Raises NoHostTier."""
    if world.host is None:
        raise NoHostTier(f"{action} needs a host tier: configure one with offload=Offload(...) (3.5)")
    return world.host


def _lookup_external(world: World, action: act.LookupExternal) -> tuple[World, Record]:
    host = need_host(world, "LookupExternal")
    phases.need_admission(world, "LookupExternal")
    request = requests.find_admissible(world, action.request)
    if not 0 <= action.start <= request.num_tokens:
        raise LookupMismatch(
            f"the lookup starts behind {action.start} of {request.num_tokens} tokens: give the local hit, rounded down to S "
            "(T14.1)",
            start=action.start,
            num_tokens=request.num_tokens,
        )
    return external.look_up(world, host, request, action.start)


def _promote(world: World, action: act.Promote) -> tuple[World, Record]:
    host = need_host(world, "Promote")
    phases.need_admission(world, "Promote")
    request = requests.find(world, action.request)
    if request.status is not Status.LOADING:
        raise NothingLoaded(f"request {action.request} is {request.status.name}: only loading ones are promoted (T30)")
    if loads.find(host, action.request) is not None:
        raise LoadRunning(f"the load of request {action.request} is not reported: complete it first (T30)")
    return promotion.promote(world, request)


def _run_store(world: World, action: act.RunStore) -> tuple[World, Record]:
    return transfers.run_store(world, need_host(world, "RunStore"), action.event), Record("RunStore")


def _run_load(world: World, action: act.RunLoad) -> tuple[World, Record]:
    return transfers.run_load(world, need_host(world, "RunLoad"), action.event), Record("RunLoad")


def _complete_store(world: World, action: act.CompleteStore) -> tuple[World, Record]:
    host = need_host(world, "CompleteStore")
    phases.need(world, "CompleteStore", Phase.IDLE)
    return completion.complete(world, host, action.event, action.acks)


def _complete_load(world: World, action: act.CompleteLoad) -> tuple[World, Record]:
    host = need_host(world, "CompleteLoad")
    phases.need(world, "CompleteLoad", Phase.IDLE)
    return loads.complete(world, host, action)


def _reset_host(world: World, action: act.ResetHost) -> tuple[World, Record]:
    del action
    host = need_host(world, "ResetHost")
    phases.need(world, "ResetHost", Phase.IDLE)
    return reset.reset(world, host)


def _read_counters(world: World, action: act.ReadCounters) -> tuple[World, Record]:
    del action
    host = need_host(world, "ReadCounters")
    phases.need(world, "ReadCounters", Phase.IDLE)
    return counters.read(world, host)


HANDLERS: dict[type[act.Action], Callable[[World, Any], tuple[World, Record]]] = {
    act.LookupExternal: _lookup_external,
    act.Promote: _promote,
    act.RunStore: _run_store,
    act.RunLoad: _run_load,
    act.CompleteStore: _complete_store,
    act.CompleteLoad: _complete_load,
    act.ResetHost: _reset_host,
    act.ReadCounters: _read_counters,
}
