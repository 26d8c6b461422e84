"""A driver of tests with a host tier: whole steps with all their parts, transfers that run and complete, the host's keys."""

from __future__ import annotations

from typing import Any

from attrs import asdict

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.config import Config, Group, Offload, configure
from kvproof.core.offload.state import Counters, Host, Stage
from kvproof.core.records import Record
from kvproof.core.step import refusal
from tests.driving import Driver

FULL, WINDOW, MAMBA, STABLE = "full_attention", "sliding_window", "mamba_align", "mamba_stable"


def hybrid(attention: int, mamba: int, offload: Offload | None = None, **settings: Any) -> Config:
    """One full-attention and one Mamba-align group with a host tier; dense retention unless said."""
    defaults: dict[str, Any] = {"num_blocks": 40, "offload": offload or Offload(num_blocks=20)}
    return configure((Group(FULL, attention), Group(MAMBA, mamba)), **(defaults | settings))


def attention(size: int, offload: Offload | None = None, **settings: Any) -> Config:
    """One full-attention group with a host tier."""
    defaults: dict[str, Any] = {"num_blocks": 40, "offload": offload or Offload(num_blocks=20)}
    return configure((Group(FULL, size),), **(defaults | settings))


class HostDriver(Driver):
    """Moves a world with a host tier; a step executes all its parts, what it stores runs and completes on request."""

    @property
    def host(self) -> Host:
        """The host tier as it stands."""
        assert self.world.host is not None
        return self.world.host

    def execute(self) -> None:
        """Run every part of the oldest step that is not executed."""
        self.do(*(act.Execute(part) for part in self.world.config.parts))

    def close(self, *sampled: tuple[int, int | tuple[int, ...]]) -> Record:
        """Drain, build, dispatch, execute and process all outputs. Returns the record of the metadata."""
        built = self.dispatch()
        self.execute()
        if self.world.steps:
            self.output(*sampled)
        return built

    def dispatch(self) -> Record:
        """Drain, build and dispatch the open plan. Returns the record of the metadata."""
        built = self.do(act.Drain(), act.BuildMetadata())
        self.do(act.Dispatch())
        return built

    def empty_step(self) -> Record:
        """A step in which nothing is scheduled. Returns the record of its metadata."""
        self.do(act.BeginStep())
        return self.close()

    def prefill(self, request: int, *ends: int) -> None:
        """Compute a request in chunks that end at these boundaries."""
        for end in ends:
            self.chunk(request, end - self.request(request).computed)

    def prompt(self, request: int, tokens: int | tuple[int, ...], *ends: int) -> None:
        """Submit a prompt and compute it in chunks that end at these boundaries."""
        self.submit(request, tokens)
        self.prefill(request, *ends)

    def carry(self) -> None:
        """Copy and complete every store that was submitted, oldest first."""
        for store in (*self.host.abandoned_stores, *self.host.stores):
            if store.stage is Stage.SUBMITTED:
                self.do(act.RunStore(store.event))
            if store.stage in (Stage.SUBMITTED, Stage.COPIED):
                self.do(act.CompleteStore(store.event, self.workers - store.acks))

    @property
    def workers(self) -> int:
        """How many workers acknowledge a store."""
        assert self.world.config.offload is not None
        return self.world.config.offload.workers

    def stored_prompt(self, request: int, tokens: int | tuple[int, ...], *ends: int) -> None:
        """Compute a prompt, finish it, store all there is, and empty the device's key map."""
        self.prompt(request, tokens, *ends)
        self.do(act.Finish(request))
        self.carry()
        self.empty_step()
        self.carry()
        assert self.do(act.ResetCache()).done is True

    def external(self, request: int, start: int = 0) -> int:
        """How many tokens the host tier has behind the first ``start`` of a waiting request; a plan is open."""
        return self.do(act.LookupExternal(request, start)).external

    def ask(self, request: int, tokens: int | tuple[int, ...], start: int = 0, context: int = 0) -> int:
        """Submit a prompt and look it up in the host tier in a new plan."""
        self.submit(request, tokens, context)
        self.do(act.BeginStep(), act.Lookup(request))
        return self.external(request, start)

    def load(self, request: int, tokens: int | tuple[int, ...], start: int = 0) -> Record:
        """Submit a prompt, look it up on both sides in a new plan, and allocate for its load. Returns that record."""
        self.submit(request, tokens)
        local = self.do(act.BeginStep(), act.Lookup(request)).local
        found = self.external(request, start)
        assert local == start
        return self.do(act.Allocate(request, 0, local=start, external=found, load=True))

    def host_keys(self, group: int) -> dict[int, list[int]]:
        """Boundary -> host blocks that carry its key in this group, in lookup order."""
        found: dict[int, list[int]] = {}
        for node, owner, _, block in self.host.pool.entries:
            if owner == group:
                found.setdefault(self.world.prefixes.depth[node], []).append(block)
        return found

    def counts_read(self) -> dict[str, int]:
        """What is counted since the last reading, without the zeros."""
        values = self.do(act.ReadCounters()).counters
        return {name: value for name, value in zip(asdict(Counters()), values, strict=True) if value}

    def refs(self, *blocks: int) -> list[int]:
        """References of device blocks."""
        return [self.world.pool.ref[block] for block in blocks]

    def host_refs(self, *blocks: int) -> list[int]:
        """References of host blocks."""
        return [self.host.pool.ref[block] for block in blocks]

    def refused(self, action: act.Action) -> str | None:
        """The name of the refusal of an action, None if it is legal."""
        found = refusal(self.world, action)
        return None if found is None else type(found).__name__


def tried(scenario: Any) -> object:
    """What a scenario comes to: its value, or the name of the refusal that ends it."""
    try:
        return scenario()
    except errors.KvproofError as refused:
        return type(refused).__name__
