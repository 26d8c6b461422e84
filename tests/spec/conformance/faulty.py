"""The example cache with a mistake each: what an engine developer gets wrong, by overriding one method.

The law beside each mistake is the one that should say so; the comment says why it is that one.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable

from attrs import frozen

from examples.paged_cache import NULL, BlockPool, CacheError, Hit, Key, PagedCache, Request


class NeverTouched(PagedCache):
    """Adopts the blocks of a hit without holding them: they stay in the free queue and are handed out again."""

    def adopt(self, request: Request, hit: Hit) -> None:
        for group, blocks in enumerate(hit.lists):
            request.tables[group] += blocks


class _KeepsKeys(BlockPool):
    def take(self) -> int:
        block = self.free.popleft()
        self.refs[block] = 1
        return block


class TakesBeforeItHolds(PagedCache):
    """Takes new blocks before it holds those of the hit: one that nobody held is handed out, and stands in the table twice."""

    def adopt(self, request: Request, hit: Hit) -> None:
        for group, blocks in enumerate(hit.lists):
            request.tables[group] += blocks
            request.registered[group] += hit.length // self.layouts[group].span

    def allocate(
        self, name: int, amount: int, *, lookahead: int = 0, reserved: int = 0, whole: bool = False
    ) -> list[list[int]] | None:
        waited = not self.requests[name].running
        new = super().allocate(name, amount, lookahead=lookahead, reserved=reserved, whole=whole)
        for blocks in self.adoptable(name).lists if waited and new is not None else ():
            for block in blocks:
                self.pool.touch(block)
        return new


class RegistersThePreempted(PagedCache):
    """What a preempted request had planned is registered with the rest of it, as if it had been computed."""

    def preempt(self, name: int, drop_late: bool = False) -> None:
        request = self.requests[name]
        request.computed += self.planned.get(name, 0)
        for group in self.groups("attention"):
            self.register(request, group, request.computed)
        super().preempt(name, drop_late)


class KeysOutliveReuse(PagedCache):
    """A block that is handed out keeps the keys of what it held before."""

    pool_type = _KeepsKeys


class _ForgetsOneKey(BlockPool):
    def forget(self, block: int) -> None:
        last = max(self.keys[block].values(), default=0)
        for key, boundary in list(self.keys[block].items()):
            if boundary == last:
                del self.index[key], self.keys[block][key]


class InnerKeyOutlivesReuse(PagedCache):
    """A block that is handed out loses its last key only; the one of a boundary inside it stays."""

    pool_type = _ForgetsOneKey


class HitsTheWholePrompt(PagedCache):
    """Nothing of a prompt that was seen before is left to compute, so that nothing can be sampled."""

    def limit(self, request: Request) -> int:
        return len(request.tokens)


class MissesTheLastBlock(PagedCache):
    """The walk along the full blocks stops one too early."""

    def match(self, request: Request, group: int, limit: int) -> tuple[int, list[int]]:
        length, blocks = super().match(request, group, limit)
        return max(length - self.layouts[group].span, 0), blocks[:-1]


class NeverReleases(PagedCache):
    """A request that finishes takes its blocks with it."""

    def finish(self, name: int) -> None:
        del self.requests[name]


class _ReleasesTwice(BlockPool):
    def release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if block != NULL:
                self.refs[block] -= 2
                if self.refs[block] <= 0 and block not in self.free:
                    self.free.append(block)


class ReleasesTwice(PagedCache):
    """A block is given back as if it were held twice."""

    pool_type = _ReleasesTwice


class ReleasesTablesTwice(PagedCache):
    """A request's tables are released by two who do not know of each other."""

    def release_tables(self, request: Request) -> None:
        super().release_tables(request)
        super().release_tables(request)


class _HandsOutNull(BlockPool):
    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.free = deque(range(num_blocks))


class HandsOutTheNullBlock(PagedCache):
    """Block 0 is one like any other."""

    pool_type = _HandsOutNull


class RegistersEarly(PagedCache):
    """A block gets its key when it is allocated for, not when it is computed."""

    def settled(self, request: Request, group: int) -> int:
        return min(len(request.tokens), len(request.tables[group]) * self.layouts[group].span)


class CopiesTheWrongBlock(PagedCache):
    """The worker is told to copy the block beside the one that the hit ends in."""

    def drain(self) -> list[tuple[int, int, int]]:
        return [(group, source - 1 or source + 1, copy) for group, source, copy in super().drain()]


class NeverCopies(PagedCache):
    """A hit inside a block is written on in the shared block."""

    def copy_on_write(self, table: list[int], group: int) -> int:
        return table[-1]


class SourceIsNotHeld(PagedCache):
    """The block that is copied is let go of when the copy is queued, not when it is handed to the worker."""

    def copy_on_write(self, table: list[int], group: int) -> int:
        source = table[-1]
        copy = super().copy_on_write(table, group)
        self.pool.release([source])
        return copy

    def drain(self) -> list[tuple[int, int, int]]:
        copies = sorted(self.copies, key=lambda copy: copy[0])
        self.pool.release(copy for _, _, copy in copies)
        self.copies.clear()
        return copies


class HashesAreNotChained(PagedCache):
    """The hash of a unit covers its own tokens alone: the same words after another beginning are found."""

    def extend_hashes(self, request: Request) -> None:
        for start in range(len(request.hashes) * self.unit, len(request.tokens) - self.unit + 1, self.unit):
            request.hashes.append(f"{request.context} {start} {request.tokens[start : start + self.unit]}".encode())


class IgnoresContexts(PagedCache):
    """The adapter, image or salt of a request is no part of its keys."""

    def seed(self, request: Request) -> bytes:
        return b""


class TableTooShort(PagedCache):
    """A table gets one entry less than its tokens need."""

    def columns(self, group: int, tokens: int) -> int:
        exact = super().columns(group, tokens)
        return exact - 1 if exact > 2 else exact


class DemandForgetsAdopted(PagedCache):
    """Adopted blocks that nobody holds leave the free queue, too, and are not counted."""

    def demand(self, request: Request, hit: Hit, end: int, slots: int) -> int:
        counted = super().demand(request, hit, end, slots)
        return counted - sum(1 for blocks in hit.lists for block in blocks if block != NULL and self.pool.refs[block] == 0)


class ReleasesHeadFirst(PagedCache):
    """The beginning of a table is reused before its end, so that what is left matches nothing."""

    def release_tables(self, request: Request) -> None:
        for table in request.tables:
            self.pool.release(table)


class DropsTheStateItReads(PagedCache):
    """The state that the next chunk starts from is released before it is read."""

    def drop_old_states(self, request: Request) -> None:
        for group in self.groups("state"):
            table = request.tables[group]
            self.pool.release([block for block in table if block != NULL])
            table[:] = [NULL] * len(table)


class KeepsEveryState(PagedCache):
    """States that no chunk reads any more are held until the request ends."""

    def drop_old_states(self, request: Request) -> None:
        pass


class TakesAnyState(PagedCache):
    """A recurrent group resumes at any boundary behind which it has a state at all."""

    def key(self, request: Request, group: int, boundary: int) -> Key:
        if self.layouts[group].kind == "state":
            for other in range(boundary, 0, -self.layouts[group].span):
                found = (group, request.hashes[other // self.unit - 1])
                if found in self.pool.index:
                    return found
        return super().key(request, group, boundary)


class AdmitsBeforeItCounts(PagedCache):
    """The hit is held before it is known whether the request fits, and stays held if it does not."""

    def demand(self, request: Request, hit: Hit, end: int, slots: int) -> int:
        wanted = super().demand(request, hit, end, slots)
        if wanted > len(self.pool.free):
            for blocks in hit.lists:
                for block in blocks:
                    if block != NULL:
                        self.pool.touch(block)
        return wanted


class SaysItWasReset(PagedCache):
    """A reset is answered and not done."""

    def reset(self) -> bool:
        return not any(self.pool.refs)


class ResetsUnderRequests(PagedCache):
    """A reset does not ask who holds blocks."""

    def reset(self) -> bool:
        for block in range(len(self.pool.refs)):
            self.pool.forget(block)
        return True


class NeverResets(PagedCache):
    """A reset is put off for ever."""

    def reset(self) -> bool:
        return False


class RefusesToReset(PagedCache):
    """A reset is an error as long as there is something to be forgotten."""

    def reset(self) -> bool:
        if self.pool.index:
            raise CacheError("there are keys")
        return super().reset()


class NeverEvicts(PagedCache):
    """Blocks that are named to be forgotten are not."""

    def evict(self, blocks: Iterable[int]) -> None:
        pass


class EvictsTheNeighbour(PagedCache):
    """The block behind is forgotten as well."""

    def evict(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            super().evict({block, min(block + 1, len(self.pool.refs) - 1)})


class CountsBeforeItChecks(PagedCache):
    """Its own count of free blocks falls before the check that can fail, and is not put right."""

    missing = 0

    def demand(self, request: Request, hit: Hit, end: int, slots: int) -> int:
        wanted = super().demand(request, hit, end, slots) + self.missing
        self.missing += wanted > len(self.pool.free)
        return wanted


class Hangs(PagedCache):
    """Never comes back from its third lookup."""

    looked = 0

    def lookup(self, name: int) -> Hit:
        self.looked += 1
        if self.looked == 3:
            time.sleep(3600)
        return super().lookup(name)


class Raises(PagedCache):
    """Has a plain mistake in it."""

    def drain(self) -> list[tuple[int, int, int]]:
        return [self.copies[1]] if self.requests else []


class EndsTheProcess(PagedCache):
    """Gives up in the hardest way."""

    def dispatch(self) -> list[tuple[int, int]]:
        if len(self.requests) > 1:
            os._exit(7)
        return super().dispatch()


@frozen(slots=True)
class Mistake:
    """A faulty cache, the law that says so, a scope in which it shows, and why it is that law."""

    cache: type[PagedCache]
    law: str
    scope: str
    why: str
    walks: int = 2


MISTAKES: tuple[Mistake, ...] = (
    Mistake(NeverTouched, "PC-3", "fa4", "references are counted from tables", 4),
    Mistake(TakesBeforeItHolds, "TB-8", "fa4", "a block is handed out that stands in the table already", 12),
    Mistake(RegistersThePreempted, "CC-3", "fa4", "a key names a block whose last tokens were only planned", 6),
    Mistake(KeysOutliveReuse, "PC-5", "fa4-m4-n2-tight", "what is handed out has no key of its former owner"),
    Mistake(InnerKeyOutlivesReuse, "PC-5", "fa4-m4-n2-tight", "that of a boundary inside it is a key, too"),
    Mistake(HitsTheWholePrompt, "HB-9", "fa4", "the last token is always computed", 8),
    Mistake(MissesTheLastBlock, "HB-15", "fa4", "the joint hit is the greatest one, counted from the keys"),
    Mistake(NeverReleases, "PC-10", "fa4", "without requests every block is free", 4),
    Mistake(ReleasesTwice, "PC-4", "fa4", "a count falls below zero"),
    Mistake(ReleasesTablesTwice, "LV-9", "fa4", "the pool notices itself, and a legal finish fails"),
    Mistake(HandsOutTheNullBlock, "TB-3", "fa4", "an attention table has a null entry"),
    Mistake(RegistersEarly, "CC-3", "fa4", "a key names a block that does not hold its prefix", 8),
    Mistake(CopiesTheWrongBlock, "COW-2", "fa4-m4-n2", "the copy is not what the hit stands for"),
    Mistake(NeverCopies, "TB-9", "fa4-m4-n2", "a request writes into a block that another one holds"),
    Mistake(SourceIsNotHeld, "COW-3", "fa4-m4-n2", "both ends of a queued copy are held"),
    Mistake(HashesAreNotChained, "HB-10", "fa4", "the blocks of a hit are keyed for another prefix", 8),
    Mistake(IgnoresContexts, "CC-1", "fa4", "a request reads what another context has written", 6),
    Mistake(TableTooShort, "TB-4", "fa4", "the table does not reach the computed tokens"),
    Mistake(DemandForgetsAdopted, "PC-7", "fa4-m4-n2-tight", "an allocation that passed its check fails inside"),
    Mistake(ReleasesHeadFirst, "PC-8", "fa4", "a table's tail is reused before its head"),
    Mistake(DropsTheStateItReads, "CC-2", "fa4-m4-n2", "a chunk reads the state of the tokens before it"),
    Mistake(KeepsEveryState, "TB-6", "fa4-m4-n2", "a request holds the state it reads and those in flight, no more"),
    Mistake(TakesAnyState, "HB-10", "fa4-m4-n2", "a recurrent group resumes at exactly its boundary"),
    Mistake(AdmitsBeforeItCounts, "PC-3", "fa4-m4-n2-tight", "nobody holds what a refused request was given"),
    Mistake(SaysItWasReset, "PC-13", "fa4", "no key is left after a reset that was done"),
    Mistake(ResetsUnderRequests, "PC-14", "fa4-m4-n2", "blocks are in use, and the reset was done", 6),
    Mistake(NeverResets, "PC-14", "fa4", "nothing is in use, and the reset was not done"),
    Mistake(RefusesToReset, "LV-9", "fa4", "a reset between plans is answered, not refused"),
    Mistake(NeverEvicts, "PC-13", "fa4", "an evicted block keeps its keys"),
    Mistake(EvictsTheNeighbour, "PC-13", "fa4", "a block that was not named loses its keys"),
    Mistake(CountsBeforeItChecks, "LV-8", "fa4", "alone in the pool a request is admitted", 6),
    Mistake(Hangs, "LV-9", "fa4", "an action returns"),
    Mistake(Raises, "LV-9", "fa4", "an action returns without an error"),
    Mistake(EndsTheProcess, "LV-9", "fa4", "an action returns"),
)
