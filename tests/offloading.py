"""A driver of worlds with a host tier: runs and completes stores, and reads what the host side holds."""

from __future__ import annotations

from typing import Any

from kvproof.core import actions as act
from kvproof.core.config import Config, Group, Offload, configure
from kvproof.core.offload import tracks
from kvproof.core.offload.state import Counters, Host
from kvproof.core.records import Record
from tests.driving import Driver

FULL, MAMBA, WINDOW, STABLE = "full_attention", "mamba_align", "sliding_window", "mamba_stable"


def hosted(*groups: Group, offload: Offload | None = None, **settings: Any) -> Config:
    """A configuration with a host tier of 20 blocks and a device pool of 40, dense retention."""
    defaults: dict[str, Any] = {"num_blocks": 40, "offload": offload or Offload(num_blocks=20)}
    return configure(groups, **(defaults | settings))


class Hosted(Driver):
    """A driver whose steps have the sub-phases of a host tier."""

    @property
    def host(self) -> Host:
        """The host side."""
        assert self.world.host is not None
        return self.world.host

    def close(self, *sampled: tuple[int, int | tuple[int, ...]]) -> Record:
        """Drain, build, dispatch, execute and process all outputs. Returns the record of the metadata."""
        self.dispatch()
        built = self.records[-2]
        self.execute()
        self.output(*sampled)
        return built

    def execute(self) -> None:
        """Execute the oldest step whole."""
        for part in self.world.config.parts:
            self.do(act.Execute(part))

    def output(self, *sampled: tuple[int, int | tuple[int, ...]]) -> None:
        """Process the outputs of the oldest step, if it has any."""
        if self.world.steps:
            super().output(*sampled)

    def empty_step(self) -> Record:
        """A step without requests. Returns the record of the metadata."""
        self.do(act.BeginStep())
        return self.close()

    def copy(self, *events: int) -> None:
        """Let the worker copy stores."""
        for event in events:
            self.do(act.RunStore(event))

    def complete(self, event: int, acks: int = 1) -> Record:
        """Copy a store and report it."""
        self.copy(event)
        return self.do(act.CompleteStore(event, acks))

    def host_keys(self, group: int) -> dict[int, list[int]]:
        """Boundary -> host blocks that carry its key in this group, in lookup order."""
        found: dict[int, list[int]] = {}
        for node, owner, _, block in self.host.pool.entries:
            if owner == group:
                found.setdefault(self.world.prefixes.depth[node], []).append(block)
        return found

    def cursors(self, request: int) -> list[int] | None:
        """Leading blocks per group that were considered for storing; None if the store side does not know the request."""
        track = tracks.find(self.host, request)
        return None if track is None else list(track.cursors)

    def counted(self, **expected: int) -> bool:
        """Whether the counters are exactly these."""
        return self.host.counters == Counters(**expected)

    def wipe(self) -> None:
        """Forget the device's keys."""
        assert self.do(act.ResetCache()).done


def pairs(record: Record) -> list[tuple[int, int]]:
    """(device block, host block) of a record's stores."""
    return list(zip(record.store_device, record.store_host, strict=True))


def outcomes(record: Record) -> list[tuple[int, int, str]]:
    """(block, boundary, outcome) of a record's handoffs."""
    return [(block, boundary, outcome) for _, _, block, boundary, outcome in record.outcomes]
