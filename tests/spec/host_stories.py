"""Stories of worlds with a host tier: playing stores and loads with named moments, and tampering with the host side."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Config, Group, Offload, configure
from kvproof.core.offload.state import Host, Stage
from kvproof.core.world import World
from tests.spec.stories import Change, Run, answer, put

FULL, MAMBA, WINDOW, STABLE, SCRATCH = "full_attention", "mamba_align", "sliding_window", "mamba_stable", "scratch"
PAIR = (Group(FULL, 4), Group(MAMBA, 4))


def hosted(*groups: Group, offload: Offload | None = None, **settings: Any) -> Config:
    """Two ranks, hash blocks of 2 tokens, a host tier of 15 usable blocks with two workers, with events."""
    defaults: dict[str, Any] = {
        "dcp_size": 2,
        "hash_block_size": 2,
        "num_blocks": 24,
        "events": True,
        "max_model_len": 64,
        "offload": offload or Offload(num_blocks=16, workers=2),
    }
    return configure(groups or PAIR, **(defaults | settings))


class HostRun(Run):
    """A run that also copies, completes and loads."""

    @property
    def host(self) -> Host:
        """The host side."""
        assert self.world.host is not None
        return self.world.host

    def send(self, request: int, tokens: int | tuple[int, ...], **more: Any) -> None:
        """Submit a prompt: its tokens, or how many tokens of 1, 2, 3, ..."""
        prompt = tuple(range(1, tokens + 1)) if isinstance(tokens, int) else tokens
        self.do(act.Submit(request, prompt, **more))

    def begin(self, request: int, *amounts: int) -> None:
        """Admit a request and compute chunks that do not reach the end of its prompt; names as for ``compute``."""
        self.do(act.BeginStep())
        local = answer(self.do(act.Lookup(request), f"lookup {request}")).local
        for at, amount in enumerate(amounts):
            if at:
                self.do(act.BeginStep())
            self.do(act.Allocate(request, amount, local=0 if at else local), f"allocate {request} {at}")
            self.step(f"{request} {at}", act.Output(request))

    def empty_step(self, name: str = "") -> None:
        """A step without requests."""
        self.do(act.BeginStep())
        self.step(name)

    def copy_and_complete(self, name: str = "") -> None:
        """Copy every submitted store that is not, and complete it, worker by worker; the moments are called after the event."""
        for store in (*self.host.abandoned_stores, *self.host.stores):
            if store.stage is Stage.SUBMITTED:
                self.do(act.RunStore(store.event), name and f"{name} RunStore {store.event}")
            workers = self.world.config.offload.workers if self.world.config.offload else 0
            for ack in range(workers):
                self.do(act.CompleteStore(store.event), name and f"{name} CompleteStore {store.event}.{ack}")

    def quiet(self, name: str = "") -> None:
        """Step and complete until no store is left."""
        self.copy_and_complete(name)
        while self.host.stores or self.host.queued:
            self.empty_step(name and f"{name} empty")
            self.copy_and_complete(name)

    def load(self, request: int, name: str = "", *, start: int = 0, local: int = 0) -> int:
        """Look a request up, locally and on the host, and load what the host has; the plan stays open."""
        self.do(act.BeginStep())
        self.do(act.Lookup(request), name and f"{name} Lookup")
        external = answer(self.do(act.LookupExternal(request, start), name and f"{name} LookupExternal")).external
        self.do(act.Allocate(request, 0, local=local, external=external, load=True), name and f"{name} Allocate")
        return external

    def arrive(self, request: int, name: str = "", **report: Any) -> None:
        """Close the plan, execute, copy and complete the load."""
        self.step(name)
        self.do(act.RunLoad(self.host.loads[-1].event), name and f"{name} RunLoad")
        self.do(act.CompleteLoad(request, **report), name and f"{name} CompleteLoad")


# --- tampering ----------------------------------------------------------------------------------------------------------


def host(world: World) -> Any:
    """Return the host side of a world that has one."""
    assert world.host is not None
    return world.host


def with_host(world: World, **changes: Any) -> World:
    """Return a world with a changed host side."""
    return evolve(world, host=evolve(host(world), **changes))


def with_host_pool(world: World, **changes: Any) -> World:
    """Return a world with a changed host pool."""
    assert world.host is not None
    return with_host(world, pool=evolve(world.host.pool, **changes))


def host_side(**changes: Any) -> Change:
    """Change the host side of a world."""
    return lambda world: with_host(world, **changes)


def with_host_content(world: World, block: int, cells: tuple[int, ...]) -> World:
    """Return a world in which a host block holds other cells."""
    assert world.host is not None
    return with_host(world, contents=put(world.host.contents, block, cells))


def with_store(world: World, at: int = -1, **changes: Any) -> World:
    """Return a world in which a running store is changed."""
    assert world.host is not None
    stores = list(world.host.stores)
    stores[at] = evolve(stores[at], **changes)
    return with_host(world, stores=tuple(stores))


def with_load(world: World, at: int = -1, **changes: Any) -> World:
    """Return a world in which a load is changed."""
    assert world.host is not None
    loads = list(world.host.loads)
    loads[at] = evolve(loads[at], **changes)
    return with_host(world, loads=tuple(loads))
