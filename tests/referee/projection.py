"""The projection of the pool on which `core/` and the Promela model must agree (docs/referee.md), run on the functions of core.

One full-attention group with blocks of two tokens; a request knows one token more than ``columns`` blocks hold. All texts are
equal up to their last token within these blocks: the keys of a text are those of its full blocks, and one inside the last
column. The block is looked up, demanded, adopted, copied, appended, registered and freed by the functions of core, each called
through its module, so that a planted fault is seen. What the projection does without is only put together here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import factorial

from attrs import frozen

from kvproof.core import allocation, freeing, prefixes
from kvproof.core import config as configs
from kvproof.core import pool as pools
from kvproof.core.allocation import Wanted
from kvproof.core.config import Config, Group
from kvproof.core.kinds import caching, full_attention
from kvproof.core.pool import NO_KEY, Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.work import Work
from kvproof.core.world import GroupState

SIZE = 2
"""Tokens of a block."""
IDLE = -1

Step = tuple[str, int, int]
"""What was done, to which request or block, and the text or column it was done with (0 where there is none)."""
Copy = tuple[int, int]
Holding = tuple[int, tuple[int, ...]]
"""The text of a request and its table; IDLE and () of a request that is not admitted."""


@frozen(slots=True)
class Size:
    """How large the projection is: blocks besides the null block, requests, table columns and texts.

    Texts differ in the last token of the last column. With 0 of them there is one, and its last column never fills.
    """

    blocks: int
    requests: int
    columns: int = 2
    texts: int = 1

    @property
    def keys(self) -> int:
        """Return the number of keys: full ones of the shared columns, the one inside the last column, one per text."""
        return self.columns + self.texts


@frozen(slots=True)
class State:
    """A state: the pool of core, what each request holds, and the copies (source, destination) that wait for the drain."""

    pool: Pool
    requests: tuple[Holding, ...]
    copies: tuple[Copy, ...] = ()


class Projection:
    """The projection of one size: its first state and its steps."""

    def __init__(self, size: Size) -> None:
        self.size = size
        # A second group, which nothing here touches, makes hits inside a block possible (2.4).
        groups = (Group("full_attention", SIZE), Group("mamba_align", SIZE))
        self.tokens = size.columns * SIZE
        self.full_columns = size.columns if size.texts else size.columns - 1
        self.config: Config = configs.configure(
            groups, num_blocks=size.blocks + 1, max_model_len=self.tokens + 1, hash_block_size=1
        )
        table, root = prefixes.root(Prefixes(), 0)
        table, shared = prefixes.extend(table, root, range(self.tokens - 1))
        self.nodes: list[list[int]] = []
        for text in range(max(size.texts, 1)):
            table, tip = prefixes.extend(table, shared, (self.tokens + text,))
            self.nodes.append(prefixes.boundary_nodes(table, tip, 1))
        self.prefixes = table
        full = [self.nodes[0][(column + 1) * SIZE - 1] for column in range(size.columns - 1)]
        self.exchanges = factorial(size.blocks) * factorial(size.requests) * factorial(len(self.nodes))
        self.keys = (*full, shared, *(nodes[-1] for nodes in self.nodes[: size.texts]))
        # What is no key of the projection has a number, too: a wrong core may register it.
        others = [node for node in range(len(table.parent)) if node not in self.keys]
        self.number = {NO_KEY: 0} | {node: key for key, node in enumerate((*self.keys, *others), 1)}
        ends = self.keys[size.columns :]
        self.namings = [
            (texts, self.number | {node: size.columns + 1 + texts[text] for text, node in enumerate(ends)})
            for texts in permutations(range(len(self.nodes)))
        ]

    def first(self) -> State:
        """Return the state of a new pool."""
        return State(pools.new_pool(self.size.blocks + 1), ((IDLE, ()),) * self.size.requests)

    def steps(self, state: State, alike: bool = False) -> Iterator[tuple[Step, int, State]]:
        """Yield every step that the semantics allows in a state, how often, and what it leads to; a refused one leads back.

        ``alike``: of the requests that are idle only the first is admitted, as often as there are idle ones.
        """
        idle = sum(text == IDLE for text, _ in state.requests) if alike else 1
        for request, (text, table) in enumerate(state.requests):
            if text == IDLE:
                if not idle:
                    continue
                for other in range(len(self.nodes)):
                    yield ("admit", request, other), idle, self._admit(state, request, other)
                if alike:
                    idle = 0
                continue
            yield ("free", request, 0), 1, self._free(state, request)
            if len(table) < self.size.columns:
                yield ("append", request, 0), 1, self._append(state, request)
            for column, block in enumerate(table[: self.full_columns]):
                if state.pool.key_node[block] == NO_KEY or state.pool.key_tokens[block] < (column + 1) * SIZE:
                    yield ("register", request, column), 1, self._register(state, request, column)
            if len(table) == self.size.columns:
                yield ("partial", request, 0), 1, self._partial(state, request)
        for block in range(1, self.size.blocks + 1):
            yield ("evict", block, 0), 1, self._with(state, pools.evict(state.pool, block))
        if state.copies:
            yield ("drain", 0, 0), 1, self._drain(state)
        yield ("reset", 0, 0), 1, self._with(state, pools.reset(state.pool)[0])

    def _work(self, state: State, text: int) -> Work:
        return Work(self.config, state.pool, self.prefixes, 0, self.tokens, 0, self.nodes[text], num_tokens=self.tokens + 1)

    def _admit(self, state: State, request: int, text: int) -> State:
        """Allocate for the token behind the longest hit, or be refused (T11, T16 to T19)."""
        work = self._work(state, text)
        hit, (blocks,) = full_attention.find_hit(self.config, state.pool, self.nodes[text], (0,), self.tokens, False)
        slots = min(hit + 1, self.tokens)
        wanted = Wanted(first=True, local=hit, external=0, slots=slots, main=slots)
        group = GroupState()
        need = full_attention.demand(work, 0, group, blocks, wanted, Queued(state.copies))
        if not allocation.fits(need, len(state.pool.free), 0):
            return state
        if blocks:
            group = allocation.adopt(work, 0, group, blocks, wanted)
        group, _ = full_attention.grow(work, 0, group, wanted)
        copies = tuple((source, destination) for _, source, destination in work.copies)
        return self._holding(state, work.pool, request, (text, group.table), state.copies + copies)

    def _append(self, state: State, request: int) -> State:
        """Allocate the next block of a request, or be refused (T16, T17, T19.2)."""
        text, table = state.requests[request]
        work = self._work(state, text)
        slots = len(table) * SIZE + 1
        wanted = Wanted(first=False, local=slots - 1, external=0, slots=slots, main=slots)
        need = full_attention.demand(work, 0, GroupState(table), (), wanted, Queued(state.copies))
        if not allocation.fits(need, len(state.pool.free), 0):
            return state
        group, _ = full_attention.grow(work, 0, GroupState(table), wanted)
        return self._holding(state, work.pool, request, (text, group.table), state.copies)

    def _register(self, state: State, request: int, column: int) -> State:
        """Register the full entry of one column (T7)."""
        text, table = state.requests[request]
        work = self._work(state, text)
        caching.register_full(work, 0, table, column, column + 1, lambda _: True)
        return self._with(state, work.pool)

    def _partial(self, state: State, request: int) -> State:
        """Register the boundary inside the last column (T8, T9.2)."""
        text, table = state.requests[request]
        work = self._work(state, text)
        full_attention.register_tail(work, 0, GroupState(table), self.tokens - 1)
        return self._with(state, work.pool)

    def _free(self, state: State, request: int) -> State:
        """Free a request's table, tail first (T3)."""
        _, table = state.requests[request]
        return self._holding(state, freeing.release_tables(state.pool, (table,)), request, (IDLE, ()), state.copies)

    def _drain(self, state: State) -> State:
        """Give back both ends of every copy in one call, copy by copy, the source first (T0 part 5)."""
        ends = tuple(end for copy in state.copies for end in copy)
        return State(pools.release(state.pool, ends), state.requests)

    @staticmethod
    def _with(state: State, pool: Pool) -> State:
        return state if pool is state.pool else State(pool, state.requests, state.copies)

    @staticmethod
    def _holding(state: State, pool: Pool, request: int, holding: Holding, copies: tuple[Copy, ...]) -> State:
        return State(pool, (*state.requests[:request], holding, *state.requests[request + 1 :]), copies)


@frozen(slots=True)
class Queued:
    """What the open plan is known to do: only its copies (T17)."""

    copies: tuple[Copy, ...]

    def registered(self, node: int, group: int) -> bool:
        """No recurrent group registers anything."""
        del node, group
        return False

    def unwritten(self, group: int, index: int, block: int, boundary: int) -> bool:
        """Tell whether a block gets its bytes by a queued copy."""
        del group, index, boundary
        return any(destination == block for _, destination in self.copies)
