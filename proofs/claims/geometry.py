"""Contracts of `kvproof.core` geometry for integers of any size, for CrossHair in its assert style.

In each function the leading asserts are preconditions, the assignments call the real functions, and the asserts behind
them are the claims. Where a divisor is free, its multiples are given by a witness (`block_size == interleave * runs`),
and where a proof needs concrete factors it takes them from the small tuples below. `proofs/twins.py` derives from each
contract a twin whose claim is false; the twin must be refuted, which shows that the contract is not vacuous.

Laws named in docstrings are those of docs/semantics.md section 5.
"""

from kvproof.core import geometry
from kvproof.proofs.claim import claim

RANKS = (1, 2, 4)
"""DCP sizes of the proofs that need a concrete one."""

INTERLEAVES = (1, 4)
"""Interleaves of the proofs that need a concrete one, with blocks of `BLOCK` tokens."""

BLOCK = 4
"""Tokens of a block on one rank in those proofs."""

# --- sizes and rows -----------------------------------------------------------------------------------------------


@claim(geometry.effective_block_size, sizes="all", bounds="any block size and number of ranks", laws=("DS-1",))
def effective_size_scales_iff_sharded(block_size: int, dcp_size: int) -> None:
    """An entry of a sharded group covers block size times ranks tokens, one of a replicated group its block size (DS-1)."""
    assert block_size >= 1
    assert dcp_size >= 1
    sharded = geometry.effective_block_size(block_size, True, dcp_size)
    replicated = geometry.effective_block_size(block_size, False, dcp_size)
    assert sharded == block_size * dcp_size
    assert replicated == block_size


@claim(geometry.ceil_div, sizes="all", bounds="any number, any positive divisor")
def ceiling_covers_and_is_least(a: int, b: int) -> None:
    """A quotient rounded up is the least one whose product covers the number (2.1)."""
    assert a >= 0
    assert b >= 1
    q = geometry.ceil_div(a, b)
    assert q * b >= a
    assert (q - 1) * b < a


@claim(geometry.attention_row_entries, sizes="grid", bounds="1, 2 and 4 ranks; any context and block size", laws=("TB-12",))
def attention_row_covers_the_context(length: int, block_size: int) -> None:
    """An attention row has enough columns for the longest context, and none too many (TB-12)."""
    assert length >= 0
    assert block_size >= 1
    spans = [(n, geometry.attention_row_entries(length, block_size, True, n)) for n in RANKS]
    assert all(columns * block_size * n >= length for n, columns in spans)
    assert all((columns - 1) * block_size * n < length for n, columns in spans)


@claim(
    geometry.mamba_align_row_width, sizes="all", bounds="any context, block size and number of spare columns", laws=("TB-12",)
)
def mamba_row_covers_the_context(length: int, block_size: int, extra: int) -> None:
    """A recurrent row has enough columns for the longest context beside its spare ones (TB-12)."""
    assert length >= 0
    assert block_size >= 1
    assert extra >= 0
    columns = geometry.mamba_align_row_width(length, block_size, extra)
    assert (columns - extra) * block_size >= length
    assert columns >= extra


@claim(
    geometry.mamba_align_row_width,
    geometry.attention_row_entries,
    sizes="grid",
    bounds="1, 2 and 4 ranks; any context and block size",
    laws=("TB-12",),
)
def mamba_row_is_never_narrower_than_the_attention_row(length: int, block_size: int) -> None:
    """A recurrent row is never narrower than the attention row of the same block size: it is not divided by the ranks (TB-12,
    vllm#50493).
    """
    assert length >= 0
    assert block_size >= 1
    pairs = [
        (geometry.mamba_align_row_width(length, block_size, 0), geometry.attention_row_entries(length, block_size, True, n))
        for n in RANKS
    ]
    assert all(mamba >= attention for mamba, attention in pairs)


@claim(geometry.align_row_width, sizes="grid", bounds="block sizes 1, 784 and 256, so steps of 128, 8 and 1 columns; any width")
def aligned_row_is_the_next_multiple(width: int) -> None:
    """A row is padded to the next multiple of its step and no further (2.5)."""
    assert width >= 0
    rows = [(step, geometry.align_row_width(width, size, 128)) for size, step in ((1, 128), (784, 8), (256, 1))]
    assert all(width <= aligned < width + step for step, aligned in rows)
    assert all(aligned % step == 0 for step, aligned in rows)


@claim(geometry.fits_row, sizes="all", bounds="any start, amount and capacity", laws=("TB-11",))
def row_guard_is_containment(start: int, amount: int, capacity: int) -> None:
    """An append is accepted exactly if its last column lies inside the row (TB-11)."""
    assert start >= 0
    assert amount >= 1
    fits = geometry.fits_row(start, amount, capacity)
    assert fits == (start + amount - 1 < capacity)


@claim(geometry.expand_block_id, sizes="all", bounds="any two blocks, any expansion factor")
def kernel_blocks_of_two_blocks_are_disjoint(block: int, other: int, j: int, k: int, factor: int) -> None:
    """Two blocks expand to kernel blocks that are in the order of the blocks and never the same (2.5)."""
    assert 0 <= j < factor
    assert 0 <= k < factor
    assert 0 <= block < other
    first = geometry.expand_block_id(block, j, factor)
    second = geometry.expand_block_id(other, k, factor)
    assert first < second


@claim(geometry.block_hash_index, sizes="all", bounds="any index, hash block, and multiple of it")
def chain_index_names_the_block_end(index: int, factor: int, hash_block: int) -> None:
    """The hash that names a block ends where the block ends (2.3)."""
    assert index >= 0
    assert factor >= 1
    assert hash_block >= 1
    i = geometry.block_hash_index(index, factor * hash_block, hash_block)
    assert (i + 1) * hash_block == (index + 1) * factor * hash_block


# --- the gate -----------------------------------------------------------------------------------------------------


@claim(geometry.mamba_gate_condition, sizes="all", bounds="any sizes, any number of ranks above one", laws=("HB-11",))
def gate_condition_is_strict_on_one_rank_only(block_size: int, hash_block: int, dcp_size: int) -> None:
    """On one rank fine-grained hits ask for recurrent blocks above the hash block, on several for no smaller ones (HB-11)."""
    assert block_size >= 1
    assert hash_block >= 1
    assert dcp_size >= 2
    alone = geometry.mamba_gate_condition(1, block_size, hash_block)
    several = geometry.mamba_gate_condition(dcp_size, block_size, hash_block)
    assert alone == (block_size > hash_block)
    assert several == (block_size >= hash_block)


@claim(
    geometry.fine_grained_gate,
    sizes="all",
    bounds="any sizes and flags; none or two Mamba-align groups and two other coarse sizes",
    laws=("HB-11",),
)
def gate_needs_each_condition(
    caching: bool, allow: bool, groups: int, dcp_size: int, hash_block: int, mamba: int, wider: int, one: int, other: int
) -> None:
    """The fine-grained gate opens exactly if caching and the option are on, there are several groups, the size of a
    Mamba-align group is coarse enough, and every other coarse size is the hash block (HB-11).
    """
    assert groups >= 1
    assert dcp_size >= 1
    assert hash_block >= 1
    is_open, without = (
        geometry.fine_grained_gate(
            caching=caching,
            num_groups=groups,
            allow=allow,
            dcp_size=dcp_size,
            hash_block_size=hash_block,
            mamba_align_block_sizes=sizes,
            other_coarse_sizes=(one, other),
        )
        for sizes in ((mamba, wider), ())
    )
    finest = hash_block + (dcp_size == 1)
    fits = (mamba >= finest) | (wider >= finest)
    assert is_open == (caching & allow & (groups > 1) & fits & (one == hash_block) & (other == hash_block))
    assert not without


# --- ownership ----------------------------------------------------------------------------------------------------


@claim(
    geometry.owner_rank,
    sizes="all",
    bounds="any position, ranks and interleave; blocks of whole interleave runs",
    laws=("DS-2",),
)
def owner_is_a_rank(position: int, interleave: int, runs: int, dcp_size: int) -> None:
    """The owner of a position is one of the ranks (DS-2)."""
    assert position >= 0
    assert interleave >= 1
    assert runs >= 1
    assert dcp_size >= 1
    rank = geometry.owner_rank(position, interleave * runs, dcp_size, interleave)
    assert 0 <= rank < dcp_size


@claim(
    geometry.slot_mapping,
    sizes="grid",
    bounds="blocks of 4 tokens; 1, 2 and 4 ranks; interleaves 1 and 4; any position and block",
    laws=("DS-2",),
)
def exactly_one_rank_has_a_slot(position: int, block: int) -> None:
    """A position of a sharded group has a slot on exactly one rank (DS-2)."""
    assert position >= 0
    assert block >= 0
    holders = [
        [
            geometry.slot_mapping(position, rank, block, block_size=BLOCK, sharded=True, dcp_size=n, interleave=i) >= 0
            for rank in range(n)
        ]
        for n in RANKS
        for i in INTERLEAVES
    ]
    assert all(sum(ranks) == 1 for ranks in holders)


@claim(
    geometry.block_offset,
    geometry.slot,
    sizes="grid",
    bounds="blocks of 4 tokens; 1, 2 and 4 ranks; interleaves 1 and 4; any position and block",
    laws=("DS-3",),
)
def offset_lies_inside_the_block(position: int, block: int) -> None:
    """The slot of a position lies inside its block and never in a neighbour's (DS-3)."""
    assert position >= 0
    assert block >= 0
    offsets = [geometry.block_offset(position, BLOCK, True, n, i) for n in RANKS for i in INTERLEAVES]
    slots = [geometry.slot(block, offset, BLOCK) for offset in offsets]
    assert all(0 <= offset < BLOCK for offset in offsets)
    assert all(slot // BLOCK == block for slot in slots)


@claim(
    geometry.block_column,
    geometry.block_offset,
    geometry.owner_rank,
    sizes="grid",
    bounds="blocks of 4 tokens; 1, 2 and 4 ranks; interleaves 1 and 4; any position",
    laws=("DS-3",),
)
def place_determines_the_position(position: int) -> None:
    """Rank, column and offset of a position of a sharded group give the position back (DS-3)."""
    assert position >= 0
    back = [
        geometry.block_column(position, BLOCK, True, n) * BLOCK * n
        + geometry.block_offset(position, BLOCK, True, n, i) // i * i * n
        + geometry.owner_rank(position, BLOCK, n, i) * i
        + geometry.block_offset(position, BLOCK, True, n, i) % i
        for n in RANKS
        for i in INTERLEAVES
    ]
    assert all(value == position for value in back)


@claim(
    geometry.block_column,
    geometry.block_offset,
    sizes="all",
    bounds="any position, block size and number of ranks",
    laws=("DS-3",),
)
def replicated_place_determines_the_position(position: int, block_size: int, dcp_size: int) -> None:
    """Column and offset of a position of a replicated group give the position back, whatever the ranks (DS-3)."""
    assert position >= 0
    assert block_size >= 1
    assert dcp_size >= 1
    column = geometry.block_column(position, block_size, False, dcp_size)
    offset = geometry.block_offset(position, block_size, False, dcp_size, 1)
    assert column * block_size + offset == position
    assert 0 <= offset < block_size


@claim(
    geometry.slot_mapping,
    sizes="all",
    bounds="any position, rank, block size and number of ranks; interleave 1",
    laws=("DS-2",),
)
def replicated_position_has_a_slot_on_every_rank(position: int, rank: int, block_size: int, dcp_size: int) -> None:
    """A position of a replicated group has a slot in its block on every rank (DS-2)."""
    assert position >= 0
    assert block_size >= 1
    assert 0 <= rank < dcp_size
    slot = geometry.slot_mapping(position, rank, 1, block_size=block_size, sharded=False, dcp_size=dcp_size, interleave=1)
    assert block_size <= slot < 2 * block_size


@claim(
    geometry.local_length,
    geometry.owner_rank,
    sizes="grid",
    bounds="blocks of 4 tokens; 1, 2 and 4 ranks; interleaves 1 and 4; any number of tokens",
    laws=("DS-4",),
)
def one_more_token_adds_to_its_owner(num_tokens: int, interleave_index: int) -> None:
    """One token more adds one to the local length of its owner and nothing to any other (DS-4, the step of counting)."""
    assert num_tokens >= 0
    assert 0 <= interleave_index < 2
    i = INTERLEAVES[interleave_index]
    grown = [
        geometry.local_length(num_tokens + 1, rank, n, i) - geometry.local_length(num_tokens, rank, n, i)
        for n in RANKS
        for rank in range(n)
    ]
    owned = [int(geometry.owner_rank(num_tokens, BLOCK, n, i) == rank) for n in RANKS for rank in range(n)]
    assert grown == owned


@claim(
    geometry.local_length, sizes="grid", bounds="1, 2 and 4 ranks; interleaves 1 and 4; any number of tokens", laws=("DS-4",)
)
def local_lengths_add_up(num_tokens: int) -> None:
    """The local lengths of all ranks add up to the tokens (DS-4)."""
    assert num_tokens >= 0
    sums = [sum(geometry.local_length(num_tokens, rank, n, i) for rank in range(n)) for n in RANKS for i in INTERLEAVES]
    assert all(total == num_tokens for total in sums)


@claim(geometry.local_length, sizes="all", bounds="any rank, number of ranks and interleave", laws=("DS-4",))
def no_token_is_local_before_the_first(rank: int, dcp_size: int, interleave: int) -> None:
    """Without tokens every local length is zero (DS-4, the beginning of counting)."""
    assert 0 <= rank < dcp_size
    assert interleave >= 1
    length = geometry.local_length(0, rank, dcp_size, interleave)
    assert length == 0


@claim(
    geometry.has_context,
    geometry.local_length,
    sizes="grid",
    bounds="1, 2 and 4 ranks; interleaves 1 and 4; any number of tokens",
    laws=("DS-10",),
)
def context_is_somewhere_iff_the_prefix_is_not_empty(num_tokens: int) -> None:
    """The global decision whether there is context is right for all ranks together (DS-10)."""
    assert num_tokens >= 0
    decision = geometry.has_context(num_tokens)
    anywhere = [any(geometry.local_length(num_tokens, rank, n, i) > 0 for rank in range(n)) for n in RANKS for i in INTERLEAVES]
    assert all(found == decision for found in anywhere)
