"""One-step claims of the end of a store: its reports, the keys of the host, and what is given back (T28, T34)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.offload import completion
from kvproof.core.offload.state import Stage, Store, Track
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

COPIED = Store(event=0, device=(), host=(), meta=None, stage=Stage.COPIED)


@claim(
    completion.end,
    completion.register,
    sizes="shape",
    bounds="four device blocks with one key, four host blocks with one; a store of one block",
    laws=("PC-3", "CP-1", "CP-2", "CP-3", "HO-4", "HO-6", "LV-2", "LV-4"),
    deep=True,
)
def end_a_store_of_one_block(draft: Draft, key: Key, queue: int, node: int, group: int, source: int, gone: bool) -> None:
    """When a store ends, the host block gets the key that its device block carries now, both references go, the block
    counts as stored no more, and a finished request that waited for it is forgotten (T28, CP-2, LV-2, LV-4).
    """
    assert four.legal(draft, key) & four.within(1, source, 3) & holders.held(draft, source)
    assert four.within(0, queue, 2) & (node >= 0) & (group >= 0)
    old, host = four.pool_of(draft, key), four.pool_of(tiers.draft_of(queue), (node, group, 0, 1))
    (block,) = holders.table_of(source)
    store = evolve(COPIED, device=(block,), host=(3,))
    tracks = (Track(0, (0, 0), events=(0,), finished=gone), Track(1, (0, 0), events=(0, 1)))
    tier = evolve(tiers.host_of(host, *tracks), stores=(store,), in_flight=(block,))
    world, after = completion.end(holders.world_of(tiers.HYBRID_WORLD, old), tier, store)
    assert four.sound(world.pool) & four.sound(after.pool)
    assert holders.accounted(after.pool, holders.others(host, (3,)))
    assert holders.accounted(world.pool, holders.others(old, (block,)))
    assert four.keys_kept(old, world.pool) & four.keys_kept(host, after.pool, 3)
    assert four.standing(after.pool, 3) == four.standing(old, block)
    assert (after.stores == ()) & (after.in_flight == ())
    assert after.tracks == ((Track(1, (0, 0), events=(1,)),) if gone else (Track(0, (0, 0)), Track(1, (0, 0), events=(1,))))


@claim(
    completion.end,
    completion.register,
    sizes="shape",
    bounds="four device blocks with two keys, four empty host blocks; a store of two blocks",
    laws=("PC-3", "CP-1", "CP-2", "HB-5", "IP-1", "LV-2"),
    deep=True,
)
def end_a_store_of_two_blocks(draft: Draft, key: Key, other: Key, first: int, second: int) -> None:
    """Each host block of a store gets all keys of the device block that stands at its place in the list, secondary ones
    too, and no other host block gets any (T28, HB-5, IP-1).
    """
    assert four.legal(draft, key, other) & holders.held(draft, first, second)
    assert four.within(1, first, 3) & four.within(1, second, 3) & (first != second)
    old, host = four.pool_of(draft, key, other), four.pool_of(tiers.draft_of(1))
    blocks = holders.table_of(first, second)
    store = evolve(COPIED, device=blocks, host=(3, 2))
    tier = evolve(tiers.host_of(host), stores=(store,), in_flight=tuple(sorted(blocks)))
    world, after = completion.end(holders.world_of(tiers.HYBRID_WORLD, old), tier, store)
    given = ((blocks[0], 3), (blocks[1], 2))
    assert four.sound(world.pool) & four.sound(after.pool)
    assert holders.accounted(after.pool, holders.others(host, (3, 2)))
    assert holders.accounted(world.pool, holders.others(old, blocks))
    assert four.keys_kept(old, world.pool) & four.unkeyed(after.pool, 1)
    assert all(four.standing(after.pool, to)[:2] == four.standing(old, of)[:2] for of, to in given)
    assert all(len(four.entries_of(after.pool.entries, to)) == len(four.entries_of(old.entries, of)) for of, to in given)
    assert all(
        four.carries(after.pool, node, group, to) for of, to in given for node, group, _, _ in four.entries_of(old.entries, of)
    )


@claim(
    completion.end,
    sizes="shape",
    bounds="two running stores, of two blocks and of one, for two requests of which either may have finished; one key each",
    laws=("HO-4", "HO-6", "CP-3", "LV-2", "LV-4", "PC-3"),
)
def the_end_of_a_store_is_that_of_no_other(node: int, other: int, second: bool, gone: bool, also: bool) -> None:
    """When one of two stores ends, its blocks are in flight no more, its references on both sides go, and who waited for it is
    forgotten if finished; the other one runs on with its blocks, its references and its requests (T28, HO-4, HO-6).
    """
    assert (node >= 0) & (other >= 0) & (node != other)
    keys = ((node, 0, 0, 1), (other, 0, 1, 3))
    old = holders.referenced(four.pool_of(Draft(3, (1, 1, 1), (1, 1, 1), 2), *keys), (1, 2, 3))
    host = holders.referenced(four.pool_of(tiers.draft_of(3)), (1, 2, 3))
    both = evolve(COPIED, device=(1, 2), host=(3, 2)), evolve(COPIED, event=1, device=(3,), host=(1,))
    tracks = Track(0, (0,), events=(0,), finished=gone), Track(1, (0,), events=(1,), finished=also)
    tier = evolve(tiers.host_of(host, *tracks), stores=both, in_flight=(1, 2, 3))
    at = 1 if second else 0
    world, after = completion.end(holders.world_of(tiers.FULL_WORLD, old), tier, both[at])
    left = tuple(track for track in tracks if track.request != at)
    mine = () if (gone, also)[at] else (evolve(tracks[at], events=()),)
    assert after.stores == (both[1 - at],)
    assert after.in_flight == both[1 - at].device
    assert (world.pool.ref, after.pool.ref) == (((0, 1, 1, 0), (0, 0, 1, 1)) if second else ((0, 0, 0, 1), (0, 1, 0, 0)))
    assert after.tracks == ((*left, *mine) if second else (*mine, *left))
    assert four.unkeyed(after.pool, 2) & four.unkeyed(after.pool, 3 if second else 1)
    assert four.standing(after.pool, 1 if second else 3)[0] == (other if second else node)


@claim(
    completion.complete,
    sizes="shape",
    bounds="four device blocks with one key, four host blocks without; a store of one block by two workers",
    laws=("CP-9", "CP-2", "PC-3", "LV-2"),
    deep=True,
)
def complete_a_store_with_the_last_report(draft: Draft, key: Key, source: int, had: int, more: int, event: int) -> None:
    """A store ends with the last worker's report: before it no key appears on the host and no reference goes, with it the
    blocks of the store alone are in flight no more. A report of an event that nobody knows changes nothing (T28, CP-2, CP-9).
    """
    assert four.legal(draft, key) & four.within(1, source, 3) & holders.held(draft, source)
    assert (had >= 0) & (more >= 1) & (had + more <= 2) & four.within(0, event, 1)
    old, host = four.pool_of(draft, key), four.pool_of(tiers.draft_of(2))
    (block,) = holders.table_of(source)
    store = evolve(COPIED, device=(block,), host=(3,), acks=had)
    busy = 2 if block == 1 else 1
    tier = evolve(tiers.host_of(host), stores=(store,), in_flight=tuple(sorted((block, busy))))
    world = evolve(holders.world_of(tiers.HYBRID_WORLD, old), host=tier)
    after, record = completion.complete(world, tier, event, more)
    last = (event == 0) & (had + more == 2)
    assert record.done == last
    assert record.pending_work == (not last)
    assert tiers.of(after).in_flight == ((busy,) if last else tier.in_flight)
    assert holders.accounted(after.pool, holders.others(old, (block,)), () if last else (block,))
    assert holders.accounted(tiers.of(after).pool, holders.others(host, (3,)), () if last else (3,))
    assert four.sound(after.pool) & four.sound(tiers.of(after).pool)
    assert last or (tiers.of(after).pool == host) & (after.pool == old)
    assert last or tiers.of(after).stores == (evolve(store, acks=had + more if event == 0 else had),)


@claim(
    completion.complete,
    sizes="shape",
    bounds="four device blocks with one key, four host blocks with one; an abandoned store of one block by two workers, and a "
    "second one",
    laws=("CP-11", "LV-2", "PC-3", "CP-1"),
)
def complete_an_abandoned_store(draft: Draft, key: Key, source: int, node: int, had: int) -> None:
    """The end of a store from before a reset gives back the references of both sides and registers nothing; a second such
    store is still waited for (T28, T34, LV-2).
    """
    assert four.legal(draft, key) & four.within(1, source, 3) & holders.held(draft, source)
    assert four.within(0, had, 1) & (node >= 0)
    old, host = four.pool_of(draft, key), four.pool_of(tiers.draft_of(1), (node, 0, 0, 1))
    (block,) = holders.table_of(source)
    store = evolve(COPIED, device=(block,), host=(3,), acks=had)
    further = evolve(COPIED, event=1, device=(2,), host=(2,))
    tier = evolve(tiers.host_of(host), abandoned_stores=(store, further))
    world = evolve(holders.world_of(tiers.HYBRID_WORLD, old), host=tier)
    after, record = completion.complete(world, tier, 0, 2 - had)
    assert record.done & record.pending_work & (tiers.of(after).abandoned_stores == (further,))
    assert four.sound(after.pool) & four.sound(tiers.of(after).pool)
    assert holders.accounted(after.pool, holders.others(old, (block,)))
    assert holders.accounted(tiers.of(after).pool, holders.others(host, (3,)))
    assert four.keys_kept(old, after.pool) & four.keys_kept(host, tiers.of(after).pool)
