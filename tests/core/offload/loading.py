"""What tests of loads share: a stored prompt, a wiped device, and the way through a load."""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.core.offload import loads
from kvproof.core.offload.state import Load
from kvproof.core.records import Record
from tests.offloading import Hosted


class Loading(Hosted):
    """A driver that stores, forgets and loads."""

    def store(self, request: int, *chunks: int) -> None:
        """Compute a submitted request in chunks, finish it, store what is left, and complete every store."""
        for amount in chunks:
            self.chunk(request, amount)
        self.do(act.Finish(request))
        self.empty_step()
        self.complete_stores()

    def complete_stores(self) -> None:
        """Copy and report every store."""
        for store in self.host.stores:
            self.complete(store.event)

    def ask(self, request: int, external: int | None = None) -> Record:
        """Look a request up on both tiers and ask for the load of its external hit. Returns the allocation's record."""
        local = self.do(act.Lookup(request)).local
        start = local - local % self.world.config.scheduler_block_size
        found = self.do(act.LookupExternal(request, start)).external
        return self.do(act.Allocate(request, 0, start, found if external is None else external, load=True))

    def load(self, request: int, external: int | None = None) -> Record:
        """A step that asks for a load and hands it over. Returns the allocation's record."""
        self.do(act.BeginStep())
        asked = self.ask(request, external)
        self.close()
        return asked

    def row(self, request: int) -> Load:
        """The load of a request."""
        found = loads.find(self.host, request)
        assert found is not None
        return found

    def arrive(self, request: int, failed: bool = False, valid: int = 0) -> Record:
        """Copy the batch of a load and report the load. Returns the report's record."""
        self.do(act.RunLoad(self.row(request).event))
        return self.do(act.CompleteLoad(request, failed, valid))

    def promote(self, request: int) -> Record:
        """Promote a request in the open plan."""
        return self.do(act.Promote(request))
