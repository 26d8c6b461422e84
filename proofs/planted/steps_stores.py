"""Faulty twins of the claims about the end of a store."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.offload import completion
from kvproof.core.offload.state import Host, Store
from kvproof.core.world import World
from kvproof.proofs.planting import catalogued, planted

_end = completion.end


def _all_ended(world: World, host: Host, store: Store) -> tuple[World, Host]:
    """End a store, and forget what others have in flight."""
    world, host = _end(world, host, store)
    return world, evolve(host, in_flight=())


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
        "complete_a_store_with_the_last_report",
        at=completion,
        end=_all_ended,
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
