"""Faulty twins of the claims about who holds a position."""

from __future__ import annotations

from kvproof.core import geometry
from kvproof.proofs.planting import catalogued, planted

_SEVERAL = (
    "a_position_has_its_place_on_two_ranks",
    "a_position_has_its_place_on_four_ranks",
    "a_position_has_its_place_on_eight_ranks",
)

PLANTED = (
    catalogued("M-SLOT-2", *_SEVERAL),
    planted(
        "interleaving runs ignored",
        *_SEVERAL,
        at=geometry,
        owner_rank=lambda position, block_size, dcp_size, interleave: position // block_size % dcp_size,
    ),
    planted(
        "columns counted from one",
        "a_position_has_its_place_on_one_rank",
        at=geometry,
        block_column=lambda position, block_size, sharded, dcp_size: position // (block_size * dcp_size) + 1,
    ),
    catalogued("M-SLOT-3", "local_lengths_add_up_on_every_grid_point"),
)
