"""Claims about who holds a position, for 88 combinations of block size, DCP size and interleave.

A position is written as ``q * b * n + (run * n + rank) * i + offset``: that gives every position exactly once, and the
divisions that CrossHair could not follow become multiplications. ``q`` is any number, everything else comes from the lists.
"""

from __future__ import annotations

from kvproof.core import geometry
from kvproof.proofs.claim import claim
from kvproof.proofs.claims.pools_of_four import every, pick

BLOCKS = (1, 2, 3, 4, 6, 8, 12)
"""Block sizes, tokens on one rank; every interleave that divides one is taken: 22 combinations for each DCP size."""

BOUNDS = "block sizes 1, 2, 3, 4, 6, 8 and 12 with every interleave that divides them: 22 combinations; any position"


def places(ranks: int) -> list[tuple[int, int, int, int, int]]:
    """Return (block size, interleave, run, rank, offset) of every position of a block of every combination."""
    return [
        (block, interleave, run, rank, offset)
        for block in BLOCKS
        for interleave in range(1, block + 1)
        if block % interleave == 0
        for run in range(block // interleave)
        for rank in range(ranks)
        for offset in range(interleave)
    ]


def found(q: int, ranks: int) -> bool:
    """Tell whether owner, column and offset of every such position in the q-th block are those that it was made from."""
    return every(
        (geometry.owner_rank(q * b * ranks + (run * ranks + rank) * i + offset, b, ranks, i) == rank)
        & (geometry.block_column(q * b * ranks + (run * ranks + rank) * i + offset, b, True, ranks) == q)
        & (geometry.block_offset(q * b * ranks + (run * ranks + rank) * i + offset, b, True, ranks, i) == run * i + offset)
        for b, i, run, rank, offset in places(ranks)
    )


@claim(
    geometry.owner_rank,
    geometry.block_column,
    geometry.block_offset,
    sizes="grid",
    bounds="1 rank; " + BOUNDS,
    laws=("DS-2", "DS-3"),
    deep=True,
)
def a_position_has_its_place_on_one_rank(q: int) -> None:
    """On one rank every position has the owner, column and offset that it is made of, and no two share them (DS-2, DS-3)."""
    assert q >= 0
    right = found(q, 1)
    assert right


@claim(
    geometry.owner_rank,
    geometry.block_column,
    geometry.block_offset,
    sizes="grid",
    bounds="2 ranks; " + BOUNDS,
    laws=("DS-2", "DS-3"),
    deep=True,
)
def a_position_has_its_place_on_two_ranks(q: int) -> None:
    """On two ranks every position has the owner, column and offset that it is made of, and no two share them (DS-2, DS-3)."""
    assert q >= 0
    right = found(q, 2)
    assert right


@claim(
    geometry.owner_rank,
    geometry.block_column,
    geometry.block_offset,
    sizes="grid",
    bounds="4 ranks; " + BOUNDS,
    laws=("DS-2", "DS-3"),
    deep=True,
)
def a_position_has_its_place_on_four_ranks(q: int) -> None:
    """On four ranks every position has the owner, column and offset that it is made of, and no two share them (DS-2, DS-3)."""
    assert q >= 0
    right = found(q, 4)
    assert right


@claim(
    geometry.owner_rank,
    geometry.block_column,
    geometry.block_offset,
    sizes="grid",
    bounds="8 ranks; " + BOUNDS,
    laws=("DS-2", "DS-3"),
    deep=True,
)
def a_position_has_its_place_on_eight_ranks(q: int) -> None:
    """On eight ranks every position has the owner, column and offset that it is made of, and no two share them (DS-2, DS-3)."""
    assert q >= 0
    right = found(q, 8)
    assert right


SHARES = tuple((ranks, interleave) for ranks in (1, 2, 4, 8) for interleave in (1, 2, 3, 4, 6, 8, 12))


@claim(
    geometry.local_length,
    sizes="grid",
    bounds="1, 2, 4 and 8 ranks; interleaves 1, 2, 3, 4, 6, 8 and 12; any number of tokens",
    laws=("DS-4",),
    deep=True,
)
def local_lengths_add_up_on_every_grid_point(num_tokens: int, at: int) -> None:
    """The local lengths of all ranks add up to the tokens (DS-4)."""
    assert num_tokens >= 0
    assert 0 <= at < 28
    ranks, interleave = pick(SHARES, at)
    total = sum(geometry.local_length(num_tokens, rank, ranks, interleave) for rank in range(ranks))
    assert total == num_tokens
