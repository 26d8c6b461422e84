"""Faulty twins of the claims about loads."""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.core.offload import loads
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-LOAD-1", "map_a_load", "ask_for_a_load"),
    catalogued("M-LOAD-2", "map_a_load"),
    catalogued("M-LOAD-7", "map_a_load"),
    catalogued("M-PUB-114", "map_a_load"),
    catalogued("M-PIN-1", "pin_a_hit_and_give_it_back", "exchange_the_pins_of_a_hit", "ask_for_a_load"),
    catalogued("M-LEAK-2", "drop_the_stale_hit_of_one_request"),
    planted(
        "both keep their pins",
        "exchange_the_pins_of_a_hit",
        at=loads,
        exchange_pins=lambda pool, chosen, pinned: pools.touch(pool, chosen),
    ),
    catalogued("M-CNT-5", "ask_for_a_load", "complete_a_load"),
    catalogued("M-PUB-96", "complete_a_load"),
    catalogued("M-PUB-126", "complete_a_load"),
    catalogued("M-LOAD-5", "finish_while_loading"),
    catalogued("M-LOAD-6", "finish_while_loading"),
)
