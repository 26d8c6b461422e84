"""Faulty twins of the claims about the end of a store."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.offload import completion
from kvproof.proofs.planting import catalogued, planted

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
