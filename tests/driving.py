"""A small driver for tests: applies actions, remembers records, and names boundaries instead of prefix nodes."""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.core import prefixes
from kvproof.core.config import Config
from kvproof.core.records import Record
from kvproof.core.step import step
from kvproof.core.world import DeferredFree, Request, World, new_world
from kvproof.spec import macros


class Driver:
    """Owns a world and moves it forward; every method returns the record of the action that matters."""

    def __init__(self, config: Config) -> None:
        self.world: World = new_world(config)
        self.records: list[Record] = []

    def do(self, *actions: act.Action) -> Record:
        """Apply actions; return the last record."""
        for action in actions:
            self.world, record = step(self.world, action)
            self.records.append(record)
        return self.records[-1]

    def submit(self, request: int, tokens: int | tuple[int, ...], context: int = 0) -> None:
        """Submit a prompt: its tokens, or how many tokens of 1, 2, 3, ..."""
        prompt = tuple(range(1, tokens + 1)) if isinstance(tokens, int) else tokens
        self.do(act.Submit(request, prompt, context))

    def request(self, request: int) -> Request:
        """The live request of this id."""
        (found,) = (candidate for candidate in self.world.requests if candidate.request == request)
        return found

    def close(self, *sampled: tuple[int, int | tuple[int, ...]]) -> Record:
        """Drain, dispatch, execute and process all outputs; ``sampled`` are (request, token or tokens).

        Returns the drain's record.
        """
        drained = self.dispatch()
        self.do(*macros.EXECUTE)
        if self.world.steps:
            self.output(*sampled)
        return drained

    def dispatch(self) -> Record:
        """Drain, build and dispatch the open plan. Returns the drain's record."""
        drained = self.do(act.Drain())
        self.do(*macros.CLOSE[1:])
        return drained

    def output(self, *sampled: tuple[int, int | tuple[int, ...]]) -> None:
        """Process all outputs of the oldest step; a chunk that samples brings ``sampled``, by default the token 9."""
        tokens = dict(sampled)
        for entry in self.world.steps[0].scheduled:
            brought = tokens.get(entry.request, 9)
            known = {request.request: request.num_tokens for request in self.world.requests}.get(entry.request, 0)
            room = self.world.config.max_model_len - known if entry.samples else 0
            self.do(act.Output(entry.request, (brought if isinstance(brought, tuple) else (brought,))[:room]))

    def chunk(self, request: int, amount: int) -> Record:
        """One step with one request: admit or continue it for ``amount`` tokens. Returns the drain's record."""
        self.do(act.BeginStep())
        self.allocate(request, amount)
        return self.close()

    def allocate(self, request: int, amount: int) -> Record:
        """Allocate, after a lookup if the request is not running."""
        if self.request(request).groups[0].table or self.request(request).computed:
            return self.do(act.Allocate(request, amount))
        hit = self.do(act.Lookup(request))
        return self.do(act.Allocate(request, amount, hit.local))

    def tables(self, request: int) -> list[list[int]]:
        """Block table per group."""
        return [list(state.table) for state in self.request(request).groups]

    def keys(self, group: int) -> dict[int, list[int]]:
        """Boundary -> blocks that carry its key in this group, in lookup order."""
        found: dict[int, list[int]] = {}
        for node, owner, _, block in self.world.pool.entries:
            if owner == group:
                found.setdefault(self.world.prefixes.depth[node], []).append(block)
        return found

    def handoffs(self) -> list[tuple[int, int, int, int]]:
        """Handoffs that the next drain will publish: (request, group, block, boundary)."""
        return list(self.world.plan.handoffs)

    def deferred(self) -> list[DeferredFree]:
        """Frees that wait for their fence, oldest first."""
        return list(self.world.deferred)

    def counts(self, request: int) -> tuple[int, int, int]:
        """Computed tokens, known tokens, tokens in flight."""
        found = self.request(request)
        return found.computed, found.num_tokens, found.in_flight

    def spelled(self, node: int) -> list[int]:
        """The tokens of a prefix."""
        table = self.world.prefixes
        return [table.token[at] for at in prefixes.path(table, node, 0, table.depth[node])]

    def cells(self, block: int) -> list[int]:
        """The last token of the prefix that each cell of a block holds; what is unwritten or garbage as it is."""
        nodes = self.world.contents[block][1:]
        return [self.world.prefixes.token[node] if node >= 0 else node for node in nodes]
