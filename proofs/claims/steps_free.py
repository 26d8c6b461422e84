"""One-step claims of giving tables back: at once, and behind the fence of the steps in flight (T3, T31, T32, T36.1)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import freeing, plans
from kvproof.core import world as worlds
from kvproof.core.config import Group
from kvproof.core.kinds import positional
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import DeferredFree, GroupState, Plan, Scheduled, Step
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

AT_ONCE = worlds.new_world(configs.configure((Group("full_attention", 4),), num_blocks=4))
FENCED = worlds.new_world(configs.configure((Group("full_attention", 4),), num_blocks=4, defer_block_free=True))
COUNTS = (0, 3, 4, 7, 8, 12)
CHUNK = (Scheduled(request=0, start=0, amount=4, fresh=True, loaded_from=0),)
IN_FLIGHT = Step(scheduled=(), copies=(), zero=(), part=0, due=(0,))


@claim(
    freeing.free_request,
    sizes="shape",
    bounds="four blocks with one key; one table of two entries",
    laws=("PC-1", "PC-3", "PC-8"),
    deep=True,
)
def free_a_table(draft: Draft, key: Key, first: int, second: int) -> None:
    """A freed request gives back one reference per entry of its table, tail first; whoever else holds a block keeps it, and
    all keys stay (T3, PC-3, PC-8).
    """
    assert four.legal(draft, key) & holders.held(draft, first, second)
    assert holders.own(first, second)
    old = four.pool_of(draft, key)
    table = holders.table_of(first, second)
    request = holders.request_of(GroupState(table))
    new = freeing.free_request(holders.world_of(AT_ONCE, old, request), request).pool
    assert four.sound(new)
    assert holders.accounted(new, holders.others(old, table))
    assert new.free == holders.wanted_queue(old, new, table[::-1])
    assert four.keys_kept(old, new)


@claim(
    freeing.free_request,
    sizes="shape",
    bounds="four blocks with one key; two tables of one entry each",
    laws=("PC-1", "PC-3", "PC-8"),
    deep=True,
)
def free_the_tables_of_two_groups(draft: Draft, key: Key, first: int, second: int) -> None:
    """A request of two groups gives its tables back group by group: what a later group releases without a key stands in
    front of what an earlier one did, and behind it with one (T3, PC-8).
    """
    assert four.legal(draft, key) & holders.held(draft, first, second)
    assert holders.own(first, second)
    old = four.pool_of(draft, key)
    one, two = holders.table_of(first), holders.table_of(second)
    request = holders.request_of(GroupState(one), GroupState(two))
    new = freeing.free_request(holders.world_of(AT_ONCE, old, request), request).pool
    between = holders.wanted_queue(old, new, one)
    assert four.sound(new)
    assert holders.accounted(new, holders.others(old, one, two))
    assert new.free == holders.wanted_queue(evolve(old, free=between), new, two)
    assert four.keys_kept(old, new)


@claim(freeing.free_request, sizes="shape", bounds=four.TWO_KEYED + "; both in one table", laws=("PC-3", "PC-8"))
def free_a_table_of_keyed_blocks(draft: Draft, key: Key, other: Key, turned: bool) -> None:
    """Blocks with keys that a freed table was the last to hold go behind all others, the table's tail first (T3, PC-8)."""
    assert four.legal(draft, key, other) & four.both_keyed(draft, key, other)
    old = four.pool_of(draft, key, other)
    table = (3, 2) if turned else (2, 3)
    request = holders.request_of(GroupState(table))
    new = freeing.free_request(holders.world_of(AT_ONCE, old, request), request).pool
    assert holders.accounted(new, holders.others(old, table))
    assert new.free == (*old.free, *(block for block in table[::-1] if new.ref[block] == 0))
    assert four.keys_kept(old, new)


@claim(freeing.free_request, sizes="shape", bounds=four.TWO_KEYED + "; one in each of two tables", laws=("PC-3", "PC-8"))
def free_two_tables_of_keyed_blocks(draft: Draft, key: Key, other: Key, turned: bool) -> None:
    """A block with a key that a later group gives back goes behind that of an earlier one (T3, PC-8)."""
    assert four.legal(draft, key, other) & four.both_keyed(draft, key, other)
    old = four.pool_of(draft, key, other)
    given = (3, 2) if turned else (2, 3)
    request = holders.request_of(GroupState(given[:1]), GroupState(given[1:]))
    new = freeing.free_request(holders.world_of(AT_ONCE, old, request), request).pool
    assert holders.accounted(new, holders.others(old, given))
    assert new.free == (*old.free, *(block for block in given if new.ref[block] == 0))
    assert four.keys_kept(old, new)


@claim(
    freeing.free_request,
    sizes="shape",
    bounds="four blocks without keys, one or two of them in use; two tables of one entry each, one step in flight",
    laws=("PC-3",),
    deep=True,
)
def free_behind_a_step_in_flight(draft: Draft, first: int, second: int, due: int, opened: bool, issued: int) -> None:
    """Where freeing is deferred, a request whose step runs and is not opened yet gives nothing back: its tables are queued
    behind the steps dispatched so far and still account for their references. Any other is freed at once (T3, 3.4).
    """
    assert four.legal(draft, free=1) & four.within(1, draft.queue, 2) & holders.held(draft, first, second)
    assert holders.own(first, second)
    assert four.within(0, due, 1) & (issued >= 0)
    old = four.pool_of(draft)
    tables = (holders.table_of(first), holders.table_of(second))
    request = holders.request_of(*(GroupState(table) for table in tables))
    step = evolve(IN_FLIGHT, due=(due,), opened=opened)
    world = evolve(holders.world_of(FENCED, old, request), steps=(step,), issued=issued)
    after = freeing.free_request(world, request)
    waiting = tuple(entry for free in after.deferred for entry in free.tables)
    assert four.sound(after.pool)
    assert (len(after.deferred) == 1) == ((due == 0) & (not opened))
    assert holders.accounted(after.pool, holders.others(old, *tables), *waiting)
    assert all((free.fence == issued) & (free.tables == tables) for free in after.deferred)


@claim(
    freeing.open_step,
    sizes="shape",
    bounds="four blocks without keys; two deferred frees of one entry each",
    laws=("PC-3",),
    deep=True,
)
def open_a_step_with_two_frees_waiting(draft: Draft, first: int, second: int, fence: int, later: int, processed: int) -> None:
    """The first output of a step releases the frees whose fence it reaches, from the front of those that wait; the tables
    that still wait account for their references (T36.1, PC-3).
    """
    assert four.legal(draft) & holders.held(draft, first, second)
    assert (processed >= 0) & (processed < fence) & (fence <= later)
    old = four.pool_of(draft)
    one, two = holders.table_of(first), holders.table_of(second)
    waiting = (DeferredFree(fence, (one,)), DeferredFree(later, (two,)))
    world = evolve(holders.world_of(FENCED, old), steps=(IN_FLIGHT,), issued=later, processed=processed, deferred=waiting)
    after = freeing.open_step(world, IN_FLIGHT)
    left = tuple(entry for free in after.deferred for entry in free.tables)
    assert four.sound(after.pool)
    assert (after.processed == processed + 1) & after.steps[0].opened
    assert len(left) == (fence > processed + 1) + (later > processed + 1)
    assert left == (one, two)[2 - len(left) :]
    assert holders.accounted(after.pool, holders.others(old, one, two), *left)


@claim(freeing.open_step, sizes="shape", bounds="four blocks without keys; one deferred free of one entry", laws=("PC-3",))
def open_a_step_only_once(draft: Draft, first: int, fence: int, processed: int) -> None:
    """A further output of the same step releases nothing more (T36.1)."""
    assert four.legal(draft) & holders.held(draft, first)
    assert (processed >= 0) & (processed < fence)
    old = four.pool_of(draft)
    waiting = (DeferredFree(fence, (holders.table_of(first),)),)
    opened = evolve(IN_FLIGHT, opened=True)
    world = evolve(holders.world_of(FENCED, old), steps=(opened,), issued=fence, processed=processed, deferred=waiting)
    after = freeing.open_step(world, opened)
    assert after.pool == old
    assert after.deferred == waiting
    assert after.processed == processed


@claim(freeing.free_ends, plans.copy_ends, sizes="shape", bounds="four blocks without keys; one copy", laws=("PC-3", "COW-3"))
def ends_of_a_copy_wait_for_their_step(draft: Draft, source: int, copy: int, issued: int, processed: int, tokens: bool) -> None:
    """Where freeing is deferred, a drain queues both ends of a copy behind the step that runs it if that has tokens, and behind
    the steps before it if it has none and not all of them are processed; else it gives both back. The ends that wait account
    for their references (T0 part 5, COW-3).
    """
    assert four.legal(draft) & holders.held(draft, source, copy)
    assert four.within(1, source, 3) & four.within(1, copy, 3) & (source != copy) & (processed >= 0) & (processed <= issued)
    old = four.pool_of(draft)
    ends = holders.table_of(source, copy)
    plan = Plan(scheduled=CHUNK if tokens else ())
    world = evolve(holders.world_of(FENCED, old), plan=plan, issued=issued, processed=processed)
    after = freeing.free_ends(world, plans.copy_ends(((0, ends[0], ends[1]),)))
    left = tuple(entry for free in after.deferred for entry in free.tables)
    assert four.sound(after.pool)
    assert (len(left) == 1) == (tokens | (processed < issued))
    assert four.every(free.fence == issued + tokens for free in after.deferred)
    assert holders.accounted(after.pool, holders.others(old, ends), *left)


@claim(
    positional.null_skipped,
    sizes="shape",
    bounds="four blocks of 4 tokens with one key; a table of two entries, 0, 3, 4, 7, 8 or 12 skipped tokens",
    laws=("PC-1", "PC-3", "PC-8", "TB-2", "TB-5"),
    deep=True,
)
def null_the_entries_behind_a_window(draft: Draft, key: Key, first: int, second: int, skipped: int) -> None:
    """The entries wholly behind a window become null and give their references back, the highest first; the others and
    all keys stay (T16.3, TB-2, TB-5).
    """
    assert four.legal(draft, key) & holders.held(draft, first, second) & four.within(0, skipped, 5)
    assert holders.own(first, second)
    old = four.pool_of(draft, key)
    table = holders.table_of(first, second)
    passed = four.pick(COUNTS, skipped)
    work = holders.work_on(AT_ONCE.config, old)
    state = positional.null_skipped(work, 0, GroupState(table), passed)
    stop = min(passed // 4, 2)
    assert four.sound(work.pool)
    assert state.table == (NULL_BLOCK,) * stop + table[stop:]
    assert state.retired == stop
    assert holders.accounted(work.pool, holders.others(old, table), state.table)
    assert work.pool.free == holders.wanted_queue(old, work.pool, table[:stop][::-1])
    assert four.keys_kept(old, work.pool)


@claim(
    positional.null_skipped,
    sizes="shape",
    bounds=four.TWO_KEYED + "; both in a table of which 8 or 12 tokens are skipped",
    laws=("PC-3", "PC-8", "TB-5"),
)
def null_keyed_entries_behind_a_window(draft: Draft, key: Key, other: Key, turned: bool, more: bool) -> None:
    """Of the keyed blocks that a window leaves behind the highest entry's goes first behind all others (T16.3, PC-8)."""
    assert four.legal(draft, key, other) & four.both_keyed(draft, key, other)
    old = four.pool_of(draft, key, other)
    table = (3, 2) if turned else (2, 3)
    work = holders.work_on(AT_ONCE.config, old)
    state = positional.null_skipped(work, 0, GroupState(table), 12 if more else 8)
    assert state.table == (NULL_BLOCK, NULL_BLOCK)
    assert holders.accounted(work.pool, holders.others(old, table))
    assert work.pool.free == (*old.free, *(block for block in table[::-1] if work.pool.ref[block] == 0))
    assert four.keys_kept(old, work.pool)
