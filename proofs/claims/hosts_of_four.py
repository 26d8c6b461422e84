"""Host tiers of four blocks beside a device pool of four, and what the store side knows of two requests.

A host pool is made like a device pool (`pools_of_four`); its blocks in use have one reference each: a pin of a lookup or
a load, or that of a store which fills it.
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import prefixes
from kvproof.core import world as worlds
from kvproof.core.config import Config, Group, Offload
from kvproof.core.errors import PoolExhausted
from kvproof.core.offload import choosing
from kvproof.core.offload import state as hosts
from kvproof.core.offload.choosing import Choice
from kvproof.core.offload.state import Host, Track
from kvproof.core.pool import Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import World
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

ONE = (1, 1, 1)
EMPTY = hosts.new_host(4, events=False)


def offloading(*groups: Group, workers: int = 1) -> Config:
    """Return the configuration of groups with four device blocks and an eager host tier of four blocks."""
    return configs.configure(groups, num_blocks=4, offload=Offload(num_blocks=4, workers=workers), events=True)


FULL = offloading(Group("full_attention", 4))
HYBRID = configs.configure(
    (Group("full_attention", 8), Group("mamba_align", 8)),
    hash_block_size=4,
    num_blocks=4,
    offload=Offload(num_blocks=4, workers=2),
)
"""H of 4, S of 8: both groups have blocks of 8 tokens, and two workers copy each of them."""
MIXED = offloading(Group("full_attention", 4), Group("mamba_align", 8))
"""H of 4, S of 8: blocks of 4 tokens and blocks of 8."""


def chain(tokens: int) -> Prefixes:
    """Return the prefix table of one request, in which the node of each boundary has its number."""
    table, root = prefixes.root(Prefixes(), 0)
    return prefixes.extend(table, root, range(tokens))[0]


def branched(one: int, two: int, other: int) -> Prefixes:
    """Return the prefix table of two requests whose second tokens differ: nodes 2 and 3, behind node 1 of the first token."""
    table, root = prefixes.root(Prefixes(), 0)
    table, first = prefixes.extend(table, root, (one,))
    table, _ = prefixes.extend(table, first, (two,))
    return prefixes.extend(table, first, (other,))[0]


CHAIN = chain(8)
FULL_WORLD = evolve(worlds.new_world(FULL), prefixes=CHAIN)
MIXED_WORLD = evolve(worlds.new_world(MIXED), prefixes=CHAIN)
HYBRID_WORLD = evolve(worlds.new_world(HYBRID), prefixes=CHAIN)


def draft_of(queue: int) -> Draft:
    """Return the draft of a host pool with this free queue; up to one key has been inserted."""
    return Draft(queue, ONE, ONE, 1)


def host_of(pool: Pool, *tracks: Track) -> Host:
    """Return a host tier with this pool, which knows these requests."""
    return evolve(EMPTY, pool=pool, tracks=tracks)


def of(world: World) -> Host:
    """Return the host tier of a world that has one. Raises ValueError; an assert would be a claim to CrossHair."""
    if world.host is None:
        raise ValueError("the world has no host tier: give it one of `host_of`")
    return world.host


def chooses(choice: Choice, blocks: tuple[int, ...]) -> bool:
    """Choose blocks without anything to say of them in events; tell whether the host had room."""
    try:
        choosing.store(choice, blocks, ((),) * len(blocks))
    except PoolExhausted:
        return False
    return True


def choice_of(device: Pool, host: Pool, *in_flight: int) -> Choice:
    """Return an empty choice on two pools, with stores of these device blocks under way."""
    return Choice(device, host, list(in_flight), [])


def answer(device: Pool, host: Pool, block: int, *in_flight: int) -> str:
    """Return what T25 says of a candidate, told by looking through the key maps."""
    if block == 0:
        return "dropped_null_block"
    if four.unkeyed(device, block):
        return "dropped_not_hashed"
    if block in in_flight:
        return "skipped_in_flight"
    same = [four.same_key(entry, named(device, block)) for entry in host.entries]
    return "skipped_already_cached" if any(same) else "ready"


def named(pool: Pool, block: int) -> Key:
    """Return the primary key of a block in the form of an entry."""
    return pool.key_node[block], pool.key_group[block], 0, block
