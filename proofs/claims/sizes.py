"""Claims about block sizes, units, checks and the smaller functions of geometry.

Greatest common divisors of symbolic numbers do not finish, and a refusal spells its numbers out: where one of these is
called the sizes are picked from a stated list, one path for each.
"""

from __future__ import annotations

from kvproof.core import geometry
from kvproof.proofs.claim import claim
from kvproof.proofs.claims.pools_of_four import pick
from kvproof.proofs.refusing import refused

SIZES = (1, 2, 3, 4, 6, 8, 16, 48)
"""Sizes of which two are picked."""
PAIR = "two sizes out of 1, 2, 3, 4, 6, 8, 16 and 48"


@claim(geometry.scheduler_block_size, sizes="grid", bounds=PAIR + ", and a third out of 5 and 32", laws=("HB-1",))
def scheduler_block_is_the_least_common_multiple(one: int, other: int, third: int) -> None:
    """The scheduler block is the least number of tokens that every group's blocks divide; there is none without groups, nor
    with a group without tokens (2.2, HB-1).
    """
    assert 0 <= one < 8
    assert 0 <= other < 8
    assert 0 <= third < 2
    a, b, c = pick(SIZES, one), pick(SIZES, other), pick((5, 32), third)
    found = geometry.scheduler_block_size((a, b, c))
    none = refused(geometry.scheduler_block_size, ())
    empty = refused(geometry.scheduler_block_size, (a, 0, c))
    smaller = [n for n in range(c, found, c) if n % a == 0 and n % b == 0]
    assert none & empty
    assert found % a == 0
    assert found % b == 0
    assert found % c == 0
    assert not smaller


@claim(geometry.default_hash_block_size, geometry.hash_block_size, sizes="grid", bounds=PAIR, laws=("HB-1",))
def default_hash_block_is_the_greatest_common_divisor(one: int, other: int) -> None:
    """The default hash block is the greatest number of tokens that divides every cacheable group's blocks (2.2, HB-1)."""
    assert 0 <= one < 8
    assert 0 <= other < 8
    a, b = pick(SIZES, one), pick(SIZES, other)
    found = geometry.default_hash_block_size((a, b))
    asked = geometry.hash_block_size(sizes=(a, b), cacheable=(True, True), caching=True)
    greater = [n for n in range(found + 1, a + 1) if a % n == 0 and b % n == 0]
    assert asked == found
    assert a % found == 0
    assert b % found == 0
    assert not greater


@claim(
    geometry.hash_block_size,
    sizes="grid",
    bounds=PAIR + "; a requested unit of 1 to 8",
    laws=("HB-1",),
    deep=True,
)
def requested_unit_is_taken_iff_it_divides_every_cacheable_size(one: int, other: int, unit: int, flag: bool) -> None:
    """A requested match unit is taken exactly if it divides the size of every group that caches (2.2, HB-1)."""
    assert 0 <= one < 8
    assert 0 <= other < 8
    assert 0 <= unit < 8
    a, b, asked = pick(SIZES, one), pick(SIZES, other), pick((1, 2, 3, 4, 5, 6, 7, 8), unit)
    no = refused(geometry.hash_block_size, sizes=(a, b), cacheable=(True, flag), caching=True, requested=asked)
    wanted = None if no else asked
    found = geometry.hash_block_size(sizes=(a, b), cacheable=(True, flag), caching=True, requested=wanted)
    fits = a % asked == 0 and (not flag or b % asked == 0)
    assert no != fits
    assert no or found == asked


@claim(
    geometry.hash_block_size,
    geometry.scheduler_block_size,
    sizes="grid",
    bounds="two sizes out of 4, 6, 16 and 48",
    laws=("HB-1",),
)
def nothing_is_hashed_without_caching_and_connectors(one: int, other: int, cached: bool, connected: bool, mode: bool) -> None:
    """The hash block is the scheduler block without caching and connector, and with a recurrent group in another mode; a
    connector alone makes it the default one (2.2).
    """
    assert 0 <= one < 4
    assert 0 <= other < 4
    sizes = (pick((4, 6, 16, 48), one), pick((4, 6, 16, 48), other))
    found = geometry.hash_block_size(
        sizes=sizes, cacheable=(True, True), caching=cached, connected=connected, other_mamba_mode=mode
    )
    whole = mode or not (cached or connected)
    assert found == (geometry.scheduler_block_size(sizes) if whole else geometry.default_hash_block_size(sizes))


@claim(
    geometry.check_sizes,
    sizes="grid",
    bounds="a size out of 1, 2, 3, 4, 6, 8, 16 and 48, on 1 and on 2 ranks, and one out of 4, 6, 16 and 48; a hash block of 1, "
    "2, 4 and 5, scheduler blocks of 24 and 48",
    laws=("HB-1",),
    deep=True,
)
def sizes_are_accepted_iff_they_divide(one: int, other: int, unit: int, whole: int, flag: bool) -> None:
    """Sizes are accepted exactly if the hash block divides what caches, and it and all of them the scheduler block (2.2,
    HB-1).
    """
    assert 0 <= one < 8
    assert 0 <= other < 4
    assert 0 <= unit < 4
    assert 0 <= whole < 3
    a, b, h = pick(SIZES, one), pick((4, 6, 16, 48), other), pick((1, 2, 4, 5), unit)
    block, size = pick((24, 48, 48), whole), a * pick((1, 1, 2), whole)
    no = refused(
        geometry.check_sizes, scheduler_block=block, hash_block=h, block_sizes=(a, b), sizes=(size, b), cacheable=(True, flag)
    )
    fits = block % h == 0 and block % size == 0 and block % b == 0 and size % h == 0 and (not flag or b % h == 0)
    assert no != fits


@claim(geometry.check_state_compression, sizes="grid", bounds="alignments and tokens per state out of 1, 2, 3, 4, 6, 8, 16, 48")
def compressed_states_need_hits_that_end_on_a_state(one: int, other: int) -> None:
    """Several tokens per state are accepted exactly if they divide the hit alignment (2.2, rule 4)."""
    assert 0 <= one < 8
    assert 0 <= other < 8
    states, alignment = pick(SIZES, one), pick(SIZES, other)
    no = refused(geometry.check_state_compression, states, alignment)
    assert no == (alignment // states * states != alignment)


@claim(geometry.check_group_sharding, sizes="grid", bounds="1, 2 and 4 ranks; every kind of group", laws=("DS-1",))
def only_full_attention_is_sharded_on_several_ranks(full: bool, chunked: bool, sharded: bool, ranks: int) -> None:
    """On several ranks only full attention may be sharded, and chunked local attention may not occur (2.1, DS-1)."""
    assert 0 <= ranks < 3
    assert not (full & chunked)
    n = pick((1, 2, 4), ranks)
    no = refused(geometry.check_group_sharding, full_attention=full, chunked_local=chunked, sharded=sharded, dcp_size=n)
    assert no == (n > 1 and (chunked or (sharded and not full)))


@claim(geometry.check_interleave, sizes="grid", bounds="block sizes out of 1, 2, 3, 4, 6, 8, 16, 48; interleaves from 0 to 8")
def interleave_divides_the_block(one: int, other: int) -> None:
    """An interleave is accepted exactly if it is positive and divides the block size of a rank (2.6)."""
    assert 0 <= one < 8
    assert 0 <= other < 9
    block, interleave = pick(SIZES, one), pick((0, 1, 2, 3, 4, 5, 6, 7, 8), other)
    no = refused(geometry.check_interleave, block, interleave)
    fits = any(interleave * runs == block for runs in range(1, block + 1))
    assert no != fits


@claim(
    geometry.hit_alignment,
    geometry.eagle_unit,
    sizes="all",
    bounds="any hash block, block and scheduler block that are multiples",
)
def eagle_gives_up_one_unit_of_a_hit(hash_block: int, blocks: int, scheduler_blocks: int, fine: bool) -> None:
    """Full attention gives up a hash block under EAGLE where hits are fine, and a whole block where they are not (2.4, T35)."""
    assert hash_block >= 1
    assert blocks >= 1
    assert scheduler_blocks >= 1
    size = hash_block * blocks
    alignment = geometry.hit_alignment(fine, hash_block, size * scheduler_blocks)
    unit = geometry.eagle_unit(size, alignment)
    assert unit == (hash_block if fine else size)


@claim(geometry.eagle_margin, sizes="all", bounds="any sizes that are multiples of the hash block")
def eagle_margin_is_a_unit_of_the_class(hash_block: int, blocks: int, fine: bool) -> None:
    """A class that drops must match one more hash block where hits are fine, and one more block where not (2.8)."""
    assert hash_block >= 1
    assert blocks >= 1
    margin = geometry.eagle_margin(hash_block * blocks, hash_block, fine)
    assert margin == (hash_block if fine else hash_block * blocks)


@claim(
    geometry.attention_row_width,
    geometry.attention_row_entries,
    sizes="grid",
    bounds="1, 2 and 4 ranks; block sizes 1, 16 and 784, so steps of 128, 8 and 8 columns; any context",
    laws=("TB-12",),
)
def padded_attention_rows_still_cover_the_context(length: int, size: int, ranks: int) -> None:
    """A padded attention row has the least number of whole steps of columns that holds the longest context (TB-12, 2.5)."""
    assert length >= 0
    assert 0 <= size < 3
    assert 0 <= ranks < 3
    block, step, n = pick((1, 16, 784), size), pick((128, 8, 8), size), pick((1, 2, 4), ranks)
    width = geometry.attention_row_width(length, block, True, n)
    assert width % step == 0
    assert width * block * n >= length
    assert (width - step) * block * n < length


@claim(geometry.mamba_other_row_width, geometry.scratch_row_width, sizes="all", bounds="any number of spare columns")
def small_rows_hold_what_stands_in_them(spare: int) -> None:
    """A recurrent row in another mode holds the running state and the spare ones, a scratch row its one block (2.5)."""
    assert spare >= 0
    width = geometry.mamba_other_row_width(spare)
    one = geometry.scratch_row_width()
    assert width == spare + 1
    assert one == 1


@claim(geometry.shared_row_width, sizes="grid", bounds="two widths out of 1, 2, 3, 4, 6, 8, 16 and 48")
def a_shared_row_needs_one_width(one: int, other: int) -> None:
    """Groups share a row exactly if there are some and all of them need the same width, and it has that width (2.5)."""
    assert 0 <= one < 8
    assert 0 <= other < 8
    widths = (pick(SIZES, one), pick(SIZES, other))
    no = refused(geometry.shared_row_width, widths)
    none = refused(geometry.shared_row_width, ())
    shared = geometry.shared_row_width(widths[:1] * 3)
    assert (no == (one != other)) & none
    assert shared == widths[0]


@claim(geometry.owns, sizes="grid", bounds="blocks of 4 tokens, interleave 2; 1, 2 and 4 ranks; any position", laws=("DS-2",))
def a_sharded_position_has_one_owner_and_a_replicated_one_all(position: int, ranks: int) -> None:
    """Exactly one rank owns a position of a sharded group, and all ranks own one of a replicated group (DS-2)."""
    assert position >= 0
    assert 0 <= ranks < 3
    n = pick((1, 2, 4), ranks)
    sharded = [geometry.owns(position, rank, 4, True, n, 2) for rank in range(n)]
    replicated = [geometry.owns(position, rank, 4, False, n, 2) for rank in range(n)]
    assert sum(sharded) == 1
    assert all(replicated)


@claim(geometry.context_branches, sizes="grid", bounds="1 to 4 ranks; any prefix", laws=("DS-10",), settles=("DS-10",))
def all_ranks_take_one_branch(prefix: int, ranks: int) -> None:
    """All ranks take the same branch on whether there is context, that of the global prefix (DS-10)."""
    assert prefix >= 0
    assert 0 <= ranks < 4
    n = pick((1, 2, 3, 4), ranks)
    branches = geometry.context_branches(prefix, n)
    assert len(branches) == n
    assert all(branch == (prefix > 0) for branch in branches)


@claim(geometry.skipped_tokens_attention, sizes="all", bounds="any computed tokens", laws=("TB-3",))
def full_attention_reads_everything(computed: int) -> None:
    """Full attention skips no token, whatever is computed (2.8, TB-3)."""
    assert computed >= 0
    skipped = geometry.skipped_tokens_attention(computed)
    assert skipped == 0
