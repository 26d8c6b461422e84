"""Faulty twins of the claims about the end of a store."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.offload import completion
from kvproof.core.offload.state import Host, Store
from kvproof.core.world import World
from kvproof.proofs.planting import catalogued, planted

_end, _forget = completion.end, completion.forget


def _all_ended(world: World, host: Host, store: Store) -> tuple[World, Host]:
    """End a store, and forget what others have in flight."""
    world, host = _end(world, host, store)
    return world, evolve(host, in_flight=())


def _all_gone(world: World, host: Host, store: Store) -> tuple[World, Host]:
    """End a store, and forget the others that run."""
    world, host = _end(world, host, store)
    return world, evolve(host, stores=())


def _all_forgotten(world: World, host: Host, store: Store) -> tuple[World, Host]:
    """End an abandoned store, and forget the others."""
    world, host = _forget(world, host, store)
    return world, evolve(host, abandoned_stores=())


def _still_there(world: World, host: Host, store: Store) -> tuple[World, Host]:
    """End a store that stays among those that run."""
    world, after = _end(world, host, store)
    return world, evolve(after, stores=host.stores)


PLANTED = (
    planted(
        "the host gets no keys",
        "end_a_store_of_one_block",
        "end_a_store_of_two_blocks",
        at=completion,
        register=lambda pool, block, keys: pool,
    ),
    catalogued("M-LEAK-3", "end_a_store_of_one_block"),
    planted(
        "the end of a store ends all that are in flight",
        "the_end_of_a_store_is_that_of_no_other",
        "complete_a_store_with_the_last_report",
        at=completion,
        end=_all_ended,
    ),
    planted("the end of a store is that of all", "the_end_of_a_store_is_that_of_no_other", at=completion, end=_all_gone),
    planted(
        "a store that has ended stays",
        "the_end_of_a_store_is_that_of_no_other",
        at=completion,
        end=_still_there,
    ),
    planted(
        "the end of an abandoned store is that of all", "complete_an_abandoned_store", at=completion, forget=_all_forgotten
    ),
    planted(
        "the host gets the primary key only",
        "end_a_store_of_two_blocks",
        at=completion,
        keys_now=lambda device, block, keys=completion.keys_now: keys(device, block)[:1],
    ),
    planted(
        "the host gets keys with the first report",
        "complete_a_store_with_the_last_report",
        at=completion,
        replace=lambda host, store, replace=completion.replace: replace(
            evolve(host, pool=completion.register(host.pool, store.host[0], ((4, 0, 4),))), store
        ),
    ),
    catalogued("M-ACK-1", "complete_a_store_with_the_last_report"),
    catalogued("M-LEAK-1", "complete_an_abandoned_store"),
)
