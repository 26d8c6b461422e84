"""Faulty twins of the claims about handoffs."""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.core.offload import admission, choosing
from kvproof.core.offload.choosing import Choice
from kvproof.core.pool import Pool
from kvproof.proofs.planting import catalogued, planted

_reserve = choosing.reserve


def _touched(choice: Choice, blocks: tuple[int, ...]) -> tuple[Pool, tuple[int, ...]]:
    """Touch the blocks at the front of the host's queue instead of taking them."""
    taken = choice.host.free[: len(blocks)]
    return pools.touch(choice.host, taken), taken


PLANTED = (
    catalogued("M-HO-4", "offer_a_handoff", "consume_two_handoffs"),
    catalogued("M-META-1", "offer_a_handoff", "consume_two_handoffs"),
    catalogued("M-EARLY-1", "offer_a_handoff"),
    planted(
        "a block of a running store is offered again",
        "offer_a_handoff",
        "consume_two_handoffs",
        at=admission,
        is_in_flight=lambda in_flight, block: False,
    ),
    planted("what the host has is stored again", "offer_a_handoff", at=admission, is_on_host=lambda *of: False),
    planted(
        "a host block that is taken keeps its keys",
        "offer_a_handoff",
        at=choosing,
        reserve=lambda choice, blocks: (
            _touched(choice, blocks) if len(blocks) <= len(choice.host.free) else _reserve(choice, blocks)
        ),
    ),
    catalogued("M-HO-3", "consume_one_handoff"),
    catalogued("M-CNT-1", "consume_one_handoff", "consume_two_handoffs"),
    catalogued("M-CNT-7", "consume_two_handoffs"),
)
