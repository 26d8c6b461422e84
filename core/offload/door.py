"""The door's part for the host tier: each action checks phase and arguments here, then calls one transition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvproof.core import actions as act
from kvproof.core import phases
from kvproof.core.errors import NoHostTier
from kvproof.core.offload import completion, counters, reset
from kvproof.core.offload.state import Host
from kvproof.core.records import Record
from kvproof.core.world import Phase

if TYPE_CHECKING:
    from kvproof.core.world import World


def need_host(world: World, action: str) -> Host:
    """Return the host tier of a world. Raises NoHostTier."""
    if world.host is None:
        raise NoHostTier(f"{action} needs a host tier: configure one with offload=Offload(...) (3.5)")
    return world.host


def _lookup_external(world: World, action: act.LookupExternal) -> tuple[World, Record]:
    need_host(world, "LookupExternal")
    raise NotImplementedError


def _promote(world: World, action: act.Promote) -> tuple[World, Record]:
    need_host(world, "Promote")
    raise NotImplementedError


def _run_store(world: World, action: act.RunStore) -> tuple[World, Record]:
    need_host(world, "RunStore")
    raise NotImplementedError


def _run_load(world: World, action: act.RunLoad) -> tuple[World, Record]:
    need_host(world, "RunLoad")
    raise NotImplementedError


def _complete_store(world: World, action: act.CompleteStore) -> tuple[World, Record]:
    host = need_host(world, "CompleteStore")
    phases.need(world, "CompleteStore", Phase.IDLE)
    return completion.complete(world, host, action.event, action.acks)


def _complete_load(world: World, action: act.CompleteLoad) -> tuple[World, Record]:
    need_host(world, "CompleteLoad")
    raise NotImplementedError


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
