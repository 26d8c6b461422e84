"""The end of a store: the host blocks get the keys that their device blocks carry now (T28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core.errors import ContractBroken, NegativeNumber, TransferOrder
from kvproof.core.offload import counters, tracks
from kvproof.core.offload.state import Host, Meta, Stage, Store
from kvproof.core.pool import NO_KEY, Pool
from kvproof.core.records import Record

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.pool import Note
    from kvproof.core.world import World

Entry = tuple[int, int, int, int]


def complete(world: World, host: Host, event: int, acks: int) -> tuple[World, Record]:
    """Count the reports of ``acks`` more workers; the last one ends the store (T28, CP-9). Unknown events change nothing.

    Raises NegativeNumber, or TransferOrder if the store was not submitted, is ended before its bytes moved, or has more reports
    than workers.
    """
    store, abandoned = find(host, event)
    if store is None:
        return world, Record("CompleteStore", pending_work=counters.pending_work(host))
    check(world.config, store, acks)
    store = evolve(store, acks=store.acks + acks)
    done = is_complete(world.config, store)
    if not done:
        host = replace(host, store)
    elif abandoned:
        world, host = forget(world, host, store)
    else:
        world, host = end(world, host, store)
    world = evolve(world, host=host)
    return world, Record("CompleteStore", done=done, pending_work=counters.pending_work(host))


def find(host: Host, event: int) -> tuple[Store | None, bool]:
    """Return a running store, and whether it was abandoned by a reset (T28, T34)."""
    running = next((store for store in host.stores if store.event == event), None)
    abandoned = next((store for store in host.abandoned_stores if store.event == event), None)
    return running or abandoned, abandoned is not None


def replace(host: Host, store: Store) -> Host:
    """Return the host side with one running or abandoned store replaced."""
    return evolve(
        host,
        stores=tuple(store if other.event == store.event else other for other in host.stores),
        abandoned_stores=tuple(store if other.event == store.event else other for other in host.abandoned_stores),
    )


def check(config: Config, store: Store, acks: int) -> None:
    """Refuse reports that no worker can make: none or more than there are, of a copy that does not run, or is not there yet."""
    workers = config.offload.workers if config.offload else 0
    if acks < 1:
        raise NegativeNumber(f"{acks} workers report store {store.event}: give 1 or more (T28)", acks=acks)
    if store.acks + acks > workers:
        raise TransferOrder(
            f"{acks} more workers report store {store.event}, {store.acks} of the {workers} that copy it have: each reports "
            "once (T28)",
            acks=acks,
        )
    if store.stage < Stage.SUBMITTED:
        raise TransferOrder(f"store {store.event} is {store.stage.name}: execute the part that submits it first (T0)")
    if store.acks + acks == workers and store.stage is not Stage.COPIED:
        raise TransferOrder(f"the bytes of store {store.event} did not move yet: run it with RunStore first (T28)")


def is_complete(config: Config, store: Store) -> bool:
    """Tell whether every worker reported (T28, CP-9)."""
    return config.offload is None or store.acks >= config.offload.workers


def forget(world: World, host: Host, store: Store) -> tuple[World, Host]:
    """End an abandoned store: its references go, nothing else happens (T28, T34)."""
    host = evolve(host, abandoned_stores=tuple(other for other in host.abandoned_stores if other.event != store.event))
    world = evolve(world, pool=pools.release(world.pool, abandoned_device(store)))
    return world, evolve(host, pool=pools.release(host.pool, store.host))


def abandoned_device(store: Store) -> tuple[int, ...]:
    """Return the device blocks whose references an abandoned store gives back: all of them (LV-2)."""
    return store.device


def end(world: World, host: Host, store: Store) -> tuple[World, Host]:
    """Register what was copied, give the references back, and let go of requests that waited for it (T28)."""
    check_parallel(store)
    pool = host.pool
    for index, (source, destination) in enumerate(zip(store.device, store.host, strict=True)):
        keys = keys_now(world.pool, source)
        if world.config.events:
            pool = pools.noted(pool, *notes(world.config, keys, entry_of(store, index)))
        pool = register(pool, destination, keys)
    host = evolve(
        host,
        pool=pools.release(pool, store.host),
        stores=tuple(other for other in host.stores if other.event != store.event),
        in_flight=tuple(block for block in host.in_flight if block not in store.device),
    )
    return evolve(world, pool=pools.release(world.pool, store.device)), tracks.unlink(host, store.event)


def check_parallel(store: Store) -> None:
    """Refuse lists that do not belong together (IP-1). Raises ContractBroken."""
    lengths = {len(store.device), len(store.host), *(() if store.meta is None else (len(store.meta),))}
    if len(lengths) > 1:
        raise ContractBroken(
            f"store {store.event} has lists of {sorted(lengths)} entries: they are index-parallel (IP-1)", event=store.event
        )


def keys_now(device: Pool, block: int) -> tuple[tuple[int, int, int], ...]:
    """Return (node, group, tokens) of every key a stored block carries at completion, the primary first (T28).

    None if an eviction by id took them meanwhile (T4): then nobody knows what was copied (C-65).
    """
    primary = (device.key_node[block], device.key_group[block])
    if primary[0] == NO_KEY:
        return ()
    others = tuple((node, group, NO_KEY) for node, group, _, _ in pools.keys_of(device, block) if (node, group) != primary)
    return ((*primary, device.key_tokens[block]), *others)


def register(pool: Pool, block: int, keys: tuple[tuple[int, int, int], ...]) -> Pool:
    """Give a host block the keys of what was copied into it; only the primary's token count is known (T28, HB-4)."""
    for node, group, tokens in keys:
        pool = pools.insert(pool, node, group, block, tokens)
    return pool


def entry_of(store: Store, index: int) -> Meta:
    """Return what the events say of one stored block; nothing if it was not captured (T28)."""
    return () if store.meta is None else store.meta[index]


def notes(config: Config, keys: tuple[tuple[int, int, int], ...], meta: Meta) -> tuple[Note, ...]:
    """Return the notes of the keys a host block gets: size, payload tokens, and the node where these end (3.7, EV-2).

    The primary is announced with E tokens, the others with what was captured of them. Captured with another size than it is
    announced with, a key has no payload: 0 tokens.
    """
    if not keys:
        return ()
    known = dict(meta)
    sizes = [config.sizes[keys[0][1]], *(known.get(node, 0) for node, _, _ in keys[1:])]
    return tuple(
        (pools.COPIED, node, group, size, size if known.get(node) == size else 0, payload_end(config, group, meta, node))
        for (node, group, _), size in zip(keys, sizes, strict=True)
    )


def payload_end(config: Config, group: int, meta: Meta, node: int) -> int:
    """Return the node of the last token that a key is announced with: its own (EV-1).

    Captured of an entry that its block has left, one item more than the entry has boundaries, the primary key is announced
    with the tokens of that entry (3.1, field ``positional_ids``).
    """
    strange = len(meta) > config.sizes[group] // config.hash_block_size and meta[-1][0] == node
    return meta[-2][0] if strange else node
