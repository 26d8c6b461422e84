"""One-step claims of loads: pins of a lookup, the mapping to columns, asking for a load, and its end (T20, T29, T30)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.offload import external, loads
from kvproof.core.offload.state import Load, PendingHit, Stage
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import GroupState, Status
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key


@claim(
    loads.mapping,
    sizes="shape",
    bounds="two groups with blocks of 4 and 8 tokens; tables of four and two entries, 0 or 8 local and 4 or 8 loaded tokens, "
    "any device and host blocks, null ones among the latter",
    laws=("LD-1", "LD-3", "LD-4"),
)
def map_a_load(
    one: int,
    two: int,
    three: int,
    last: int,
    state: int,
    other: int,
    first: int,
    second: int,
    third: int,
    ahead: bool,
    short: bool,
) -> None:
    """Of each group as many host blocks as hold the accepted tokens are copied, each into the column of its own tokens,
    which begins behind the local ones in blocks of that group; a null entry is passed and takes a column (T29, LD-1,
    LD-3, LD-4).
    """
    assert four.every(block >= 1 for block in (one, two, three, last, state, other))
    assert (first >= 0) & (second >= 0) & (third >= 0)
    table, states = (one, two, three, last), (state, other)
    request = holders.request_of(GroupState(table), GroupState(states))
    start, accepted = (8 if ahead else 0), (4 if short else 8)
    pending = PendingHit(0, start, 8, ((first, second), (third,)))
    pairs = loads.mapping(tiers.MIXED_WORLD, request, pending, accepted)
    column, taken = (2 if ahead else 0), (1 if short else 2)
    wanted = [(0, column + at, table[column + at], (first, second)[at]) for at in range(taken)]
    wanted += [(1, column // 2, states[column // 2], third)]
    assert pairs == tuple(pair for pair in wanted if pair[3] != NULL_BLOCK)


@claim(
    external.pin,
    external.unpin,
    sizes="shape",
    bounds="four host blocks with one key; a hit of two blocks in one group and one in another, null ones among them",
    laws=("CP-1", "CP-4", "PC-3"),
    deep=True,
)
def pin_a_hit_and_give_it_back(draft: Draft, key: Key, first: int, second: int, third: int) -> None:
    """A hit pins each of its blocks once and is remembered; giving it back leaves the references as they were, whoever
    else holds the blocks (T20, CP-4).
    """
    assert four.legal(draft, key) & four.within(0, first, 3) & four.within(0, second, 3) & four.within(0, third, 3)
    assert holders.own(first, second, third)
    old = four.pool_of(draft, key)
    lists = (holders.table_of(first, second), holders.table_of(third))
    pinned = external.pin(tiers.host_of(old), PendingHit(0, 0, 8, lists))
    after = external.unpin(pinned, 0)
    assert four.sound(pinned.pool) & four.sound(after.pool)
    assert holders.accounted(pinned.pool, holders.others(old), *lists)
    assert holders.accounted(after.pool, holders.others(old))
    assert (len(pinned.pending) == 1) & (after.pending == ())
    assert four.keys_kept(old, after.pool)


@claim(
    external.drop_stale,
    sizes="shape",
    bounds="four host blocks without keys; two pending hits of one block each",
    laws=("CP-1", "CP-4"),
    deep=True,
)
def drop_the_stale_hit_of_one_request(draft: Draft, first: int, second: int, request: int) -> None:
    """A new lookup gives back exactly what the last one of the same request has pinned (T20.1, CP-4)."""
    assert four.legal(draft) & holders.held(draft, first, second) & four.within(0, request, 2)
    old = four.pool_of(draft)
    blocks = holders.table_of(first, second)
    mine, other = PendingHit(0, 0, 4, ((blocks[0],),)), PendingHit(1, 0, 4, ((blocks[1],),))
    host = evolve(tiers.host_of(old), pending=(mine, other))
    after = external.drop_stale(host, four.pick((0, 1, 2), request))
    left = tuple(hit for hit in (mine, other) if hit.request != request)
    assert after.pending == left
    assert four.sound(after.pool)
    assert holders.accounted(after.pool, holders.others(old, blocks), *(hit.lists[0] for hit in left))


@claim(
    loads.exchange_pins,
    sizes="shape",
    bounds="four host blocks with one key; a hit of two blocks, of which the load takes the first or both",
    laws=("CP-1", "CP-5", "PC-3"),
    deep=True,
)
def exchange_the_pins_of_a_hit(draft: Draft, key: Key, first: int, second: int, both: bool) -> None:
    """The pins of a lookup become those of its load: each chosen block keeps its references, the others lose one (T29,
    CP-5).
    """
    assert four.legal(draft, key) & holders.held(draft, first, second)
    assert holders.own(first, second) & four.within(1, first, 3) & four.within(1, second, 3)
    old = four.pool_of(draft, key)
    pinned = holders.table_of(first, second)
    chosen = pinned if both else pinned[:1]
    new = loads.exchange_pins(old, chosen, pinned)
    assert four.sound(new)
    assert holders.accounted(new, holders.others(old, pinned), chosen)
    assert four.holdings_kept(old, new, *pinned[len(chosen) :])
    assert four.keys_kept(old, new)


@claim(
    loads.after_allocation,
    sizes="shape",
    bounds="four device and four host blocks without keys; a hit of one block of full attention and one state",
    laws=("CP-5", "LD-1", "LD-7", "CN-4", "PC-3", "CP-1"),
)
def ask_for_a_load(draft: Draft, block: int, state: int, queue: int, asked: bool) -> None:
    """A load pins its device blocks and takes the pins of the lookup over; an admission without one gives them back.
    Either way the hit is used up, and nothing counts as loaded yet (T29, CN-4, LD-7).
    """
    assert four.legal(draft) & holders.held(draft, block, state) & four.within(1, block, 3) & four.within(1, state, 3)
    assert holders.own(block, state) & four.within(0, queue, 1)
    old, host = four.pool_of(draft), four.pool_of(tiers.draft_of(queue))
    device = holders.table_of(block, state)
    request = evolve(holders.request_of(GroupState(device[:1]), GroupState(device[1:])), status=Status.LOADING)
    tier = evolve(tiers.host_of(host), pending=(PendingHit(0, 0, 4, ((3,), (2,))),))
    world = evolve(holders.world_of(tiers.MIXED_WORLD, old, request), host=tier)
    action = act.Allocate(request=0, new_tokens=0, external=4 if asked else 0, load=asked)
    after, pairs = loads.after_allocation(world, tier, request, action)
    assert pairs == (((0, 0, device[0], 3), (1, 0, device[1], 2)) if asked else ())
    assert four.sound(after.pool) & four.sound(tiers.of(after).pool)
    assert holders.accounted(after.pool, holders.others(old), device if asked else ())
    assert holders.accounted(tiers.of(after).pool, holders.others(host, (3, 2)), (3, 2) if asked else ())
    assert (tiers.of(after).pending == ()) & (tiers.of(after).load_blocks == 0)
    assert tiers.of(after).loads == ((Load(0, device, (3, 2)),) if asked else ())


@claim(
    loads.complete,
    loads.free_held,
    sizes="shape",
    bounds="four device blocks with one key, a host block with a key; a copied load of one block, whose request has a "
    "table of that block and another entry",
    laws=("LD-7", "CN-4", "LV-2", "LV-3", "PC-3", "CP-1"),
    deep=True,
)
def complete_a_load(draft: Draft, key: Key, block: int, other: int, finished: bool) -> None:
    """The report of a load gives back its references on both sides and counts its blocks. If its request has finished
    meanwhile the tables go now, else it keeps them (T30, LD-7, CN-4).
    """
    assert four.legal(draft, key) & four.within(1, block, 3) & four.within(0, other, 3)
    assert holders.own(block, other) & holders.held(draft, block, other, block)
    old, host = four.pool_of(draft, key), four.pool_of(tiers.draft_of(2), (4, 0, 0, 3))
    table = holders.table_of(block, other)
    load = Load(0, table[:1], (3,), event=0, stage=Stage.COPIED, finished=finished, held=(table,) if finished else ())
    request = evolve(holders.request_of(GroupState(table), GroupState()), status=Status.LOADING, computed=8)
    tier = evolve(tiers.host_of(host), loads=(load,))
    world = evolve(holders.world_of(tiers.MIXED_WORLD, old, *(() if finished else (request,))), host=tier)
    after, record = loads.complete(world, tier, act.CompleteLoad(0))
    assert record.freed == finished
    assert four.sound(after.pool) & four.sound(tiers.of(after).pool)
    assert holders.accounted(after.pool, holders.others(old, table, table[:1]), () if finished else table)
    assert holders.accounted(tiers.of(after).pool, holders.others(host, (3,)))
    assert (tiers.of(after).loads == ()) & (tiers.of(after).load_blocks == 1)
    assert four.keys_kept(old, after.pool) & four.keys_kept(host, tiers.of(after).pool)
    assert after.requests == world.requests


@claim(
    loads.at_finish,
    sizes="shape",
    bounds="four device and four host blocks without keys; a load of one block that waits or was issued",
    laws=("LD-7", "LV-2", "LV-3", "PC-3", "CP-1"),
)
def finish_while_loading(draft: Draft, block: int, queue: int, issued: bool) -> None:
    """A request that finishes while a step's metadata names its load leaves it its tables and every reference; a load
    that was never issued ends at once and gives its own back (T30, T32, LD-7, LV-2).
    """
    assert four.legal(draft) & four.within(1, block, 3) & holders.held(draft, block, block) & four.within(0, queue, 2)
    old, host = four.pool_of(draft), four.pool_of(tiers.draft_of(queue))
    table = holders.table_of(block)
    load = Load(0, table, (3,), event=0 if issued else -1)
    request = evolve(holders.request_of(GroupState(table), GroupState()), status=Status.LOADING)
    world = evolve(holders.world_of(tiers.MIXED_WORLD, old, request), host=evolve(tiers.host_of(host), loads=(load,)))
    after, waits = loads.at_finish(world, request)
    assert waits == issued
    assert four.sound(after.pool) & four.sound(tiers.of(after).pool)
    assert holders.accounted(after.pool, holders.others(old, table, table), table, *((table,) if issued else ()))
    assert holders.accounted(tiers.of(after).pool, holders.others(host, (3,)), *(((3,),) if issued else ()))
    assert tiers.of(after).loads == ((evolve(load, finished=True, held=(table, ())),) if issued else ())
