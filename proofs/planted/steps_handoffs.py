"""Faulty twins of the claims about handoffs."""

from __future__ import annotations

from kvproof.core.offload import admission
from kvproof.proofs.planting import catalogued, planted

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
    catalogued("M-HO-3", "consume_one_handoff"),
    catalogued("M-CNT-1", "consume_one_handoff", "consume_two_handoffs"),
    catalogued("M-CNT-7", "consume_two_handoffs"),
)
