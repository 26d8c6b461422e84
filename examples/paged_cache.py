"""A small hybrid prefix cache as an engine has one: block tables, a key index, reference counts, an LRU free queue.

Nothing of kvproof is in here. Two kinds of groups share one pool of blocks. *Attention*: table entry j holds the tokens
[j * span, (j + 1) * span). *State*: entry j holds a recurrent state after at most (j + 1) * span tokens, and only the state
that a chunk reads and the one that it writes are kept; the rest of the table is null. All sizes are in tokens.

It decides some things differently from vLLM: keys appear when a step is dispatched, not when it is planned, so a withdrawn
plan has no keys to take back; and a key names one block, the first one that was registered under it.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

NULL = 0
"""The placeholder in tables. Block 0 is never handed out."""

Key = tuple[int, bytes]
"""Group and chain hash of a prefix."""


class CacheError(Exception):
    """The cache is used in a way that it does not offer."""


@dataclass(frozen=True)
class Layout:
    """One group: its kind and the tokens under one table entry (of all ranks together)."""

    kind: Literal["attention", "state"]
    span: int


@dataclass
class Hit:
    """What a lookup found: tokens, and per group the blocks that hold them."""

    length: int
    lists: list[list[int]]
    longest: int
    """The longest hit of one attention group, which another one may have cut short."""


@dataclass
class Request:
    """One live request. ``tokens`` grows with every output, ``hashes[i]`` is the chain hash of the first (i + 1) units."""

    context: int
    tokens: list[int]
    reads_cache: bool
    prompt: int
    tables: list[list[int]]
    hashes: list[bytes] = field(default_factory=list)
    registered: list[int] = field(default_factory=list)
    computed: int = 0
    running: bool = False
    preempted: bool = False
    in_flight: int = 0
    late: bool = False
    drop_late: bool = False


class BlockPool:
    """Blocks with reference counts; the free queue's front is reused first; ``index`` finds a block by its key."""

    def __init__(self, num_blocks: int) -> None:
        self.refs = [0] * num_blocks
        self.free = deque(range(1, num_blocks))
        self.index: dict[Key, int] = {}
        self.keys: list[dict[Key, int]] = [{} for _ in range(num_blocks)]

    def take(self) -> int:
        """Hand out the block that was unused for the longest time; it loses its keys."""
        if not self.free:
            raise CacheError("no block is free: count the demand before taking")
        block = self.free.popleft()
        self.forget(block)
        self.refs[block] = 1
        return block

    def touch(self, block: int) -> None:
        """Hold a block once more."""
        if self.refs[block] == 0:
            self.free.remove(block)
        self.refs[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Give blocks back in this order: those without keys are reused first, those with keys last."""
        idle: list[int] = []
        keyed: list[int] = []
        for block in blocks:
            if block == NULL:
                continue
            if self.refs[block] == 0:
                raise CacheError(f"block {block} is released more often than it is held")
            self.refs[block] -= 1
            if self.refs[block] == 0:
                (keyed if self.keys[block] else idle).append(block)
        self.free.extendleft(reversed(idle))
        self.free.extend(keyed)

    def register(self, key: Key, block: int, boundary: int) -> None:
        """Let a key name a block that holds ``boundary`` tokens of its prefix, unless it names another one already."""
        if key not in self.index:
            self.index[key] = block
            self.keys[block][key] = boundary

    def forget(self, block: int) -> None:
        """Remove every key of a block."""
        for key in self.keys[block]:
            del self.index[key]
        self.keys[block].clear()


class PagedCache:
    """The cache of one engine: ``unit`` is the size of a hash block, ``longest`` that of the longest request.

    Hits end at multiples of ``alignment``. They end inside a block if there are states to resume from there.
    """

    pool_type = BlockPool

    def __init__(
        self, layouts: Sequence[Layout], num_blocks: int, unit: int, longest: int, ranks: int = 1, caching: bool = True
    ) -> None:
        self.layouts = list(layouts)
        self.unit = unit
        self.whole = math.lcm(*(layout.span for layout in layouts))
        states = [layout.span for layout in layouts if layout.kind == "state"]
        self.fine = caching and any(span > unit or (ranks > 1 and span == unit) for span in states)
        self.alignment = unit if self.fine else self.whole
        self.longest = longest
        self.caching = caching
        self.pool = self.pool_type(num_blocks)
        self.requests: dict[int, Request] = {}
        self.planned: dict[int, int] = {}
        self.copies: list[tuple[int, int, int]] = []
        self.hit: tuple[int, Hit] | None = None

    # --- requests -------------------------------------------------------------------------------------------------

    def submit(self, name: int, tokens: Sequence[int], context: int = 0, reads_cache: bool = True) -> None:
        """Add a waiting request."""
        if name in self.requests:
            raise CacheError(f"request {name} is live")
        request = Request(context, list(tokens), reads_cache, len(tokens), tables=[[] for _ in self.layouts])
        request.registered = [0] * len(self.layouts)
        self.extend_hashes(request)
        self.requests[name] = request

    def extend_hashes(self, request: Request) -> None:
        """Hash the units of a request that are complete."""
        for start in range(len(request.hashes) * self.unit, len(request.tokens) - self.unit + 1, self.unit):
            before = request.hashes[-1] if request.hashes else self.seed(request)
            text = ",".join(str(token) for token in request.tokens[start : start + self.unit])
            request.hashes.append(hashlib.blake2b(before + text.encode(), digest_size=16).digest())

    def seed(self, request: Request) -> bytes:
        """Begin the chain of a request, so that requests of different contexts share nothing."""
        return f"context {request.context}".encode()

    def output(self, name: int, tokens: Sequence[int]) -> int:
        """Take what a step has sampled; returns the tokens known now. One that was preempted meanwhile may want none of it."""
        request = self.requests.get(name)
        if request is None:
            return 0
        request.in_flight = 0
        ignored = request.late and request.drop_late
        request.late = request.drop_late = False
        if not ignored:
            request.tokens.extend(tokens)
            self.extend_hashes(request)
        return len(request.tokens)

    def finish(self, name: int) -> None:
        """Forget a request and release its blocks."""
        self.release_tables(self.requests.pop(name))

    def preempt(self, name: int, drop_late: bool = False) -> None:
        """Take a running request's blocks away; it starts again later. ``drop_late``: its output in flight is void."""
        request = self.requests[name]
        self.planned.pop(name, None)
        self.release_tables(request)
        request.tables = [[] for _ in self.layouts]
        request.registered = [0] * len(self.layouts)
        request.computed = 0
        request.running = False
        request.preempted = True
        request.late = request.in_flight > 0
        request.drop_late = request.late and drop_late

    def release_tables(self, request: Request) -> None:
        """Release what a request holds, the end of each table first: what others may share lies at its beginning."""
        for table in request.tables:
            self.pool.release(reversed(table))

    # --- hits -----------------------------------------------------------------------------------------------------

    def lookup(self, name: int) -> Hit:
        """Find the longest prefix at which every group can resume. The last token is always computed."""
        request = self.requests[name]
        found: list[list[int]] = [[] for _ in self.layouts]
        reach, longest = self.limit(request) if self.caching and request.reads_cache else 0, 0
        for group in self.groups("attention"):
            length, found[group] = self.match(request, group, self.limit(request))
            longest = max(longest, length - length % self.alignment)
            reach = min(reach, length - length % self.alignment)
        while reach and not all(self.key(request, group, reach) in self.pool.index for group in self.groups("state")):
            reach -= self.alignment
        for group in self.groups("attention"):
            found[group] = found[group][: self.columns(group, reach)]
        for group in self.groups("state"):
            if reach:
                state = self.pool.index[self.key(request, group, reach)]
                found[group] = [NULL] * (self.columns(group, reach) - 1) + [state]
        hit = Hit(reach, found, longest)
        self.hit = (name, hit)
        return hit

    def limit(self, request: Request) -> int:
        """Return the longest hit that leaves something to compute."""
        return len(request.tokens) - 1

    def match(self, request: Request, group: int, limit: int) -> tuple[int, list[int]]:
        """Follow the full blocks of an attention group, then look for a boundary inside the next one."""
        span = self.layouts[group].span
        blocks: list[int] = []
        while (len(blocks) + 1) * span <= limit:
            block = self.pool.index.get(self.key(request, group, (len(blocks) + 1) * span))
            if block is None:
                break
            blocks.append(block)
        length = len(blocks) * span
        if self.alignment < span:
            last = min(length + span - self.unit, limit - limit % self.unit)
            for boundary in range(last, length, -self.unit):
                block = self.pool.index.get(self.key(request, group, boundary))
                if block is not None:
                    return boundary, [*blocks, block]
        return length, blocks

    def key(self, request: Request, group: int, boundary: int) -> Key:
        """Return the key of a request's first ``boundary`` tokens."""
        return group, request.hashes[boundary // self.unit - 1]

    def groups(self, kind: str) -> list[int]:
        """Return the groups of a kind."""
        return [group for group, layout in enumerate(self.layouts) if layout.kind == kind]

    def columns(self, group: int, tokens: int) -> int:
        """Return how many table entries hold so many tokens."""
        return -(-tokens // self.layouts[group].span)

    # --- a step ---------------------------------------------------------------------------------------------------

    def allocate(
        self, name: int, amount: int, *, lookahead: int = 0, reserved: int = 0, whole: bool = False
    ) -> list[list[int]] | None:
        """Get a request the blocks to compute ``amount`` tokens, or None if there are not enough; returns the new entries.

        A waiting one adopts the hit of the lookup before. ``reserved`` blocks stay free; ``whole`` asks that all its known
        tokens would fit.
        """
        request = self.requests[name]
        hit = Hit(0, [[] for _ in self.layouts], 0) if request.running else self.adoptable(name)
        start = request.computed + hit.length
        slots = min(start + amount + lookahead, self.longest)
        known = len(request.tokens)
        if whole and self.demand(request, hit, known, known) > len(self.pool.free):
            return None
        self.drop_old_states(request)
        if self.demand(request, hit, start + amount, slots) + reserved > len(self.pool.free):
            return None
        self.adopt(request, hit)
        taken = [self.grow(request, group, hit, start + amount, slots) for group in range(len(self.layouts))]
        request.computed = start
        request.running = True
        self.planned[name] = amount
        return taken

    def adoptable(self, name: int) -> Hit:
        """Return the hit that was looked up for a request."""
        if self.hit is None or self.hit[0] != name:
            raise CacheError(f"request {name} was not looked up")
        return self.hit[1]

    def demand(self, request: Request, hit: Hit, end: int, slots: int) -> int:
        """Count the blocks that leave the free queue: new ones, private copies, and adopted ones that nobody holds."""
        count = sum(1 for blocks in hit.lists for block in blocks if block != NULL and self.pool.refs[block] == 0)
        for group, layout in enumerate(self.layouts):
            held = len(request.tables[group]) + len(hit.lists[group])
            if layout.kind == "attention":
                count += max(self.columns(group, slots) - held, 0) + (1 if hit.length % layout.span else 0)
            elif self.columns(group, end) > held:
                count += 1
        return count

    def adopt(self, request: Request, hit: Hit) -> None:
        """Hold the blocks of a hit, those of all groups before anybody takes a new one."""
        for group, blocks in enumerate(hit.lists):
            for block in blocks:
                if block != NULL:
                    self.pool.touch(block)
            request.tables[group] += blocks
            request.registered[group] += hit.length // self.layouts[group].span

    def grow(self, request: Request, group: int, hit: Hit, end: int, slots: int) -> list[int]:
        """Make a table long enough and return its new entries; where a hit ends inside a block, the rest goes into a copy."""
        table, held = request.tables[group], len(request.tables[group])
        if self.layouts[group].kind == "attention":
            copied = [self.copy_on_write(table, group)] if hit.length % self.layouts[group].span else []
            while len(table) < self.columns(group, slots):
                table.append(self.pool.take())
            return copied + table[held:]
        if held < self.columns(group, end):
            table += [NULL] * (self.columns(group, end) - 1 - held)
            table.append(self.pool.take())
        return table[held:]

    def copy_on_write(self, table: list[int], group: int) -> int:
        """Replace the last, shared block by a copy. Both are held until the copy is handed to the worker."""
        source, copy = table[-1], self.pool.take()
        self.pool.touch(copy)
        self.copies.append((group, source, copy))
        table[-1] = copy
        return copy

    def drop_old_states(self, request: Request) -> None:
        """Release the states before the one that the next chunk reads."""
        for group in self.groups("state"):
            table, read = request.tables[group], self.columns(group, request.computed) - 1
            old = [column for column in range(min(read, len(table))) if table[column] != NULL]
            self.pool.release(table[column] for column in reversed(old))
            for column in old:
                table[column] = NULL

    def drain(self) -> list[tuple[int, int, int]]:
        """Hand the (group, source, destination) of the step's copies to the worker and let go of both ends."""
        copies = sorted(self.copies, key=lambda copy: copy[0])
        self.pool.release(end for _, source, copy in copies for end in (source, copy))
        self.copies.clear()
        return copies

    def dispatch(self) -> list[tuple[int, int]]:
        """Send the plan to the worker: what it computes counts as computed, and is found by others from now on."""
        scheduled = list(self.planned.items())
        for name, amount in scheduled:
            request = self.requests[name]
            request.computed += amount
            request.in_flight = amount
            if self.caching:
                for group in range(len(self.layouts)):
                    self.register(request, group, request.computed - amount)
        self.planned.clear()
        self.hit = None
        return scheduled

    def register(self, request: Request, group: int, start: int) -> None:
        """Register what a request has computed: full blocks and the end of its prompt, or the state at the end of a chunk."""
        span, table = self.layouts[group].span, request.tables[group]
        end = self.settled(request, group)
        if self.layouts[group].kind == "state":
            if end % span == 0:
                self.pool.register(self.key(request, group, end), table[-1], end)
            return
        for column in range(request.registered[group], end // span):
            boundary = (column + 1) * span
            self.pool.register(self.key(request, group, boundary), table[column], boundary)
        request.registered[group] = max(request.registered[group], end // span)
        tail = (request.prompt - 1) // self.unit * self.unit
        if tail % span and start <= tail <= end:
            self.pool.register(self.key(request, group, tail), table[tail // span], tail)

    def settled(self, request: Request, group: int) -> int:
        """Return how many tokens of a request a group may register: those that it holds and that are known."""
        return min(request.computed, len(request.tokens), len(request.tables[group]) * self.layouts[group].span)

    # --- the index ------------------------------------------------------------------------------------------------

    def reset(self) -> bool:
        """Forget every key, if no request holds a block."""
        if any(self.pool.refs):
            return False
        for block in range(len(self.pool.refs)):
            self.pool.forget(block)
        return True

    def evict(self, blocks: Iterable[int]) -> None:
        """Forget the keys of some blocks."""
        for block in blocks:
            self.pool.forget(block)
