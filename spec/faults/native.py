"""Faults of the native offloading connector, which the configuration alone shows (semantics 2.7)."""

from __future__ import annotations

from kvproof.core import reachability
from kvproof.spec.faults.base import Fault


def _window_without_the_block_before(window: int, blocks_per_chunk: int) -> int:
    return window * blocks_per_chunk


def _blocks_of_one_rank(tokens: int, block_size: int, sharded: bool, dcp_size: int) -> int:
    del sharded, dcp_size
    return tokens // block_size


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-BND-1",
        "a load may fill the window's own blocks and not the one in which the window begins",
        "#48959",
        ("LV-9",),
        ((reachability, "window_block_bound", _window_without_the_block_before),),
        scopes=("fa1-m2+1-w4-n4-draft1", "w4-fa4-w8-eagle-async"),
    ),
    Fault(
        "M-PUB-2",
        "the blocks to be stored are counted in tokens of one rank, their keys in tokens of all ranks",
        "#41549",
        ("DS-6",),
        ((reachability, "storable_blocks", _blocks_of_one_rank),),
        scopes=("fa4-m4-n2", "fa2-n4"),
    ),
)
