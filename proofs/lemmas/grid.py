"""Lemmas about places, lengths, rows and boundaries: concrete block sizes, ranks and interleaves, token counts of any size.

With a concrete divisor Z3 decides every statement here. `GRID` has what is concrete; positions, lengths, columns and blocks are
free. The formulas have the names and the arguments of the functions of `kvproof.core` that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from kvproof.core import geometry, reachability
from kvproof.proofs.claim import About
from kvproof.proofs.lemma import Formulas, Lemma, Statement
from kvproof.proofs.lemmas.terms import Term, count, div, every, implies, integers, least, most, some, up, when

BLOCK_SIZES = (1, 2, 4, 6, 8, 16, 64)
"""Tokens of a block on one rank."""

RANKS = (1, 2, 3, 4, 8)
"""DCP sizes."""

GRID = tuple((b, d, i) for b in BLOCK_SIZES for d in RANKS for i in range(1, b + 1) if b % i == 0)
"""Block size, DCP size and interleave; where a lemma needs a hash block, it is the third, which divides the first as well."""

BOUNDS = (
    f"each of {len(GRID)} combinations of block size ({', '.join(map(str, BLOCK_SIZES))}), DCP size "
    f"({', '.join(map(str, RANKS))}) and a divisor of the block size; all other integers"
)

# --- formulas -----------------------------------------------------------------------------------------------------


def effective_block_size(block_size: Term, sharded: bool, dcp_size: Term) -> Term:
    """2.1."""
    return block_size * dcp_size if sharded else block_size


def owner_rank(position: Term, block_size: Term, dcp_size: Term, interleave: Term) -> Term:
    """2.6."""
    return div(position % (block_size * dcp_size), interleave) % dcp_size


def block_column(position: Term, block_size: Term, sharded: bool, dcp_size: Term) -> Term:
    """2.6."""
    return div(position, effective_block_size(block_size, sharded, dcp_size))


def block_offset(position: Term, block_size: Term, sharded: bool, dcp_size: Term, interleave: Term) -> Term:
    """2.6."""
    if not sharded:
        return position % block_size
    inside = position % (block_size * dcp_size)
    return div(inside, interleave * dcp_size) * interleave + inside % interleave


def slot(block_id: Term, offset: Term, block_size: Term) -> Term:
    """2.6."""
    return block_id * block_size + offset


def slot_mapping(
    position: Term, rank: Term, block_id: Term, block_size: Term, sharded: bool, dcp_size: Term, interleave: Term
) -> Term:
    """2.6."""
    here = slot(block_id, block_offset(position, block_size, sharded, dcp_size, interleave), block_size)
    return when(owner_rank(position, block_size, dcp_size, interleave) == rank, here, -1) if sharded else here


def local_length(num_tokens: Term, rank: Term, dcp_size: Term, interleave: Term) -> Term:
    """2.6."""
    base = div(div(num_tokens, interleave), dcp_size) * interleave
    return base + least(most(num_tokens - base * dcp_size - rank * interleave, 0), interleave)


def attention_row_entries(max_model_len: Term, block_size: Term, sharded: bool, dcp_size: Term) -> Term:
    """2.5."""
    return up(max_model_len, effective_block_size(block_size, sharded, dcp_size))


def align_row_width(width: Term, block_size: int, token_alignment: int) -> Term:
    """2.5; the block size and the alignment are concrete."""
    step = token_alignment // gcd(token_alignment, block_size)
    return up(width, step) * step


def mamba_align_row_width(max_model_len: Term, block_size: Term, num_speculative_blocks: Term) -> Term:
    """2.5."""
    return up(max_model_len, block_size) + num_speculative_blocks


def expand_block_id(block: Term, j: Term, factor: Term) -> Term:
    """2.5."""
    return block * factor + j


def block_hash_index(index: Term, effective_size: Term, hash_block: Term) -> Term:
    """2.3."""
    return div(effective_size, hash_block) * (index + 1) - 1


def chunk_hash_index(chunk: Term, hashes: Term) -> Term:
    """2.7."""
    return hashes * (chunk + 1) - 1


def storable_blocks(tokens: Term, block_size: Term, sharded: bool, dcp_size: Term) -> Term:
    """2.7."""
    return div(tokens, effective_block_size(block_size, sharded, dcp_size))


def load_range(aligned: Term, external: Term, size: Term) -> tuple[Term, Term]:
    """T29."""
    return div(aligned, size), up(external, size)


def checkpoint_boundary(n: Term, unit: Term, eagle: bool = False) -> Term:
    """2.8."""
    return most(div(n, unit) * unit - unit, 0) if eagle else div(n - 1, unit) * unit


def cacheable_tokens(tokens: Term, fine_grained: bool, scheduler_block: Term) -> Term:
    """2.8."""
    return tokens if fine_grained else div(tokens, scheduler_block) * scheduler_block


def cacheable_tokens_eagle(tokens: Term, fine_grained: bool, scheduler_block: Term, effective_size: Term) -> Term:
    """2.8."""
    covered = cacheable_tokens(tokens, fine_grained, scheduler_block)
    return covered if fine_grained else when(covered == 0, 0, least(covered + effective_size, tokens))


def skipped_tokens_window(computed: Term, window: Term, extra: Term = 0) -> Term:
    """2.8."""
    return most(0, computed - window + 1 - extra)


def skipped_tokens_chunked(computed: Term, chunk: Term) -> Term:
    """2.8."""
    return div(computed, chunk) * chunk


def skipped_tokens_mamba(computed: Term) -> Term:
    """2.8."""
    return most(computed - 1, 0)


# --- statements ---------------------------------------------------------------------------------------------------

n, m, p, column, rank, offset, block, other, index, length, more, wide, draft = integers(
    "n m position column rank offset block other index length more width drafts"
)

Stated = Callable[[Formulas, int, int, int], tuple[Statement, ...]]


def over_the_grid(state: Stated) -> Callable[[Formulas], tuple[Statement, ...]]:
    """Return the statements for each point of the grid, each of them said to be of it."""

    def stated(f: Formulas) -> tuple[Statement, ...]:
        return tuple(
            Statement(
                one.premises, one.claim, f"block size {b}, DCP size {d}, interleave {i}" + (f", {one.of}" if one.of else "")
            )
            for b, d, i in GRID
            for one in state(f, b, d, i)
        )

    return stated


def _ranks(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    slots = [f["slot_mapping"](p, r, block, b, True, d, i) for r in range(d)]
    copies = [f["slot_mapping"](p, r, block, b, False, d, i) for r in range(d)]
    return (
        Statement(
            (p >= 0, block >= 0),
            every(count(*(found != -1 for found in slots)) == 1, *(found == block * b + p % b for found in copies)),
        ),
    )


def _places(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    def place(position: Term) -> tuple[Term, Term, Term]:
        return (
            f["block_column"](position, b, True, d),
            f["owner_rank"](position, b, d, i),
            f["block_offset"](position, b, True, d, i),
        )

    def position_of(at: Term, on: Term, inside: Term) -> Term:
        return at * b * d + (div(inside, i) * d + on) * i + inside % i

    at, on, inside = place(p)
    again = place(position_of(column, rank, offset))
    return (
        Statement(
            (p >= 0,),
            every(at >= 0, on >= 0, on < d, inside >= 0, inside < b, position_of(at, on, inside) == p),
            "of a position",
        ),
        Statement(
            (column >= 0, rank >= 0, rank < d, offset >= 0, offset < b),
            every(again[0] == column, again[1] == rank, again[2] == offset),
            "of a place",
        ),
    )


def _lengths(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    total = sum((f["local_length"](n, r, d, i) for r in range(d)), 0)
    grown = f["local_length"](n + 1, rank, d, i) - f["local_length"](n, rank, d, i)
    owned = f["owner_rank"](n, b, d, i) == rank
    return (
        Statement((n >= 0,), total == n, "their sum"),
        Statement((rank >= 0, rank < d), f["local_length"](0, rank, d, i) == 0, "none"),
        Statement((n >= 0, rank >= 0, rank < d), grown == when(owned, 1, 0), "one more"),
    )


def _dense(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    before = f["local_length"](p, f["owner_rank"](p, b, d, i), d, i)
    return (Statement((p >= 0,), before == f["block_column"](p, b, True, d) * b + f["block_offset"](p, b, True, d, i)),)


def _slots(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    here = f["slot"](block, offset, b)
    kernel = f["expand_block_id"](block, rank, d)
    return (
        Statement((block >= 0, offset >= 0, offset < b), every(div(here, b) == block, here % b == offset), "a slot"),
        Statement((block >= 0, rank >= 0, rank < d), every(div(kernel, d) == block, kernel % d == rank), "a kernel block"),
    )


def _width(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    return tuple(
        Statement(
            (length >= 1,),
            every(
                f["attention_row_entries"](length, b, sharded, d) == f["block_column"](length - 1, b, sharded, d) + 1,
                f["mamba_align_row_width"](length, b, draft) - draft >= f["attention_row_entries"](length, b, sharded, d),
                f["mamba_align_row_width"](length, b, draft) == f["block_column"](length - 1, b, False, d) + 1 + draft,
            ),
            "sharded" if sharded else "replicated",
        )
        for sharded in (True, False)
    )


def _aligned(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    found = f["align_row_width"](wide, b, 128)
    return (
        Statement(
            (wide >= 0,),
            every(found >= wide, (found * b) % 128 == 0, implies((found * b) != 0, (found - div(128, gcd(128, b))) < wide)),
        ),
    )


def _nesting(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    last = f["block_hash_index"](index, b * d, i)
    return (
        Statement((p >= 0,), f["block_column"](p, b, True, d) == div(f["block_column"](p, b, False, d), d), "blocks"),
        Statement((index >= 0,), every((last + 1) * i == (index + 1) * b * d, last >= index), "hashes of a block"),
        Statement(
            (index >= 0,),
            (f["chunk_hash_index"](index, b * d // i) + 1) * i == (index + 1) * b * d,
            "hashes of a chunk",
        ),
    )


def _destinations(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    first, amount = f["load_range"](column * b * d, more, b * d)
    whole = f["storable_blocks"](n, b, True, d)
    return (
        Statement(
            (column >= 0, more >= 1),
            every(
                first == f["block_column"](column * b * d, b, True, d),
                first + amount - 1 == f["block_column"](column * b * d + more - 1, b, True, d),
            ),
            "a load",
        ),
        Statement((n >= 0,), every(whole * b * d <= n, n < (whole + 1) * b * d), "a store"),
    )


def _checkpoints(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    unit = b * d
    kept, down = f["checkpoint_boundary"](n, unit), f["checkpoint_boundary"](n, unit, True)
    fine, later = f["checkpoint_boundary"](n, i), f["checkpoint_boundary"](n + m, unit)
    return (
        Statement((n >= 1,), every(kept % unit == 0, kept >= 0, kept < n, n - kept <= unit), "strictly below"),
        Statement(
            (n >= 1,),
            every(down % unit == 0, down >= 0, down <= kept, n - down < 2 * unit, some(down == 0, n - down >= unit)),
            "with EAGLE",
        ),
        Statement((n >= 1, m >= 0), every(kept <= later, later - kept <= m + unit), "of more tokens"),
        Statement((n >= 1,), every(kept <= fine, f["checkpoint_boundary"](fine + 1, unit) == kept), "of a finer unit"),
    )


def _cacheable(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    found = []
    for fine in (True, False):
        plain, eagle = f["cacheable_tokens"](n, fine, b * d), f["cacheable_tokens_eagle"](n, fine, b * d, b)
        later = f["cacheable_tokens_eagle"](n + m, fine, b * d, b)
        more = plain if fine else when(plain == 0, 0, least(plain + b, n))
        whole = plain == n if fine else every(plain % (b * d) == 0, plain <= n, n < plain + b * d)
        claim = every(whole, eagle == more, eagle <= later)
        found.append(Statement((n >= 0, m >= 0), claim, "fine-grained" if fine else "whole blocks"))
    return tuple(found)


def _skipped(f: Formulas, b: int, d: int, i: int) -> tuple[Statement, ...]:
    chunk = b * d
    found = {
        "a window": (f["skipped_tokens_window"](n, length), f["skipped_tokens_window"](n + 1, length), p <= n - length),
        "a chunk": (
            f["skipped_tokens_chunked"](n, chunk),
            f["skipped_tokens_chunked"](n + 1, chunk),
            div(p, chunk) < div(n, chunk),
        ),
        "a state": (f["skipped_tokens_mamba"](n), f["skipped_tokens_mamba"](n + 1), p < n - 1),
    }
    return tuple(
        Statement(
            (n >= 0, length >= 1, p >= 0),
            every(now >= 0, now <= n, now <= then, then <= n + 1, (p < now) == unread),
            what,
        )
        for what, (now, then, unread) in found.items()
    )


# --- lemmas -------------------------------------------------------------------------------------------------------

FORMULAS: dict[str, Callable[..., Term]] = {
    function.__name__: function
    for function in (
        owner_rank,
        block_column,
        block_offset,
        slot,
        slot_mapping,
        local_length,
        attention_row_entries,
        align_row_width,
        mamba_align_row_width,
        expand_block_id,
        block_hash_index,
        chunk_hash_index,
        storable_blocks,
        load_range,
        checkpoint_boundary,
        cacheable_tokens,
        cacheable_tokens_eagle,
        skipped_tokens_window,
        skipped_tokens_chunked,
        skipped_tokens_mamba,
    )
}
"""The formulas by the names of the functions that they stand for."""


def _lemma(
    name: str,
    state: Stated,
    of: tuple[Callable[..., object], ...],
    sentence: str,
    *,
    laws: tuple[str, ...] = (),
    settles: tuple[str, ...] = (),
    faulty: dict[str, Formulas],
) -> Lemma:
    about = About(of, "grid", BOUNDS, (*settles, *laws), settles)
    formulas = {function.__name__: FORMULAS[function.__name__] for function in of}
    return Lemma(f"grid.{name}", sentence, about, over_the_grid(state), formulas, faulty)


LEMMAS: tuple[Lemma, ...] = (
    _lemma(
        "one_rank_has_a_slot",
        _ranks,
        (geometry.slot_mapping,),
        "A position of a sharded group has a slot on exactly one rank, one of a replicated group the same slot on every rank "
        "(DS-2).",
        settles=("DS-2",),
        faulty={
            "a replicated group is written by its owner": {
                "slot_mapping": lambda p, rank, x, b, sharded, d, i: slot_mapping(p, rank, x, b, True, d, i),
            },
            "every rank writes": {
                "slot_mapping": lambda p, rank, x, b, sharded, d, i: slot(x, block_offset(p, b, sharded, d, i), b),
            },
        },
    ),
    _lemma(
        "places_and_positions_are_one_to_one",
        _places,
        (geometry.block_column, geometry.owner_rank, geometry.block_offset),
        "Column, rank and offset determine the position, and each column, rank and offset is the place of a position (DS-3).",
        settles=("DS-3",),
        faulty={
            "the rank plays no part in the offset": {"block_offset": lambda p, b, sharded, d, i: p % (b * d) % b},
            "interleave left out": {"owner_rank": lambda p, b, d, i: p % d},
            "the column of one rank": {"block_column": lambda p, b, sharded, d: div(p, b)},
        },
    ),
    _lemma(
        "local_lengths_count_the_owned_positions",
        _lengths,
        (geometry.local_length, geometry.owner_rank),
        "The local lengths of all ranks add up to the tokens; without tokens they are 0, and each further token makes that of "
        "its owner one longer and no other (DS-4).",
        settles=("DS-4",),
        faulty={
            "an even share for each rank": {"local_length": lambda n, rank, d, i: up(n, d)},
            "interleave left out": {"local_length": lambda n, rank, d, i: div(n + d - 1 - rank, d)},
        },
    ),
    _lemma(
        "slots_of_a_rank_have_no_gap",
        _dense,
        (geometry.local_length, geometry.owner_rank, geometry.block_column, geometry.block_offset),
        "The number of earlier positions that a rank holds is the position's place among its slots, column by column (2.6).",
        laws=("DS-3", "DS-4"),
        faulty={
            "the rank plays no part in the offset": {"block_offset": lambda p, b, sharded, d, i: p % (b * d) % b},
            "an even share for each rank": {"local_length": lambda n, rank, d, i: up(n, d)},
        },
    ),
    _lemma(
        "blocks_share_no_slot",
        _slots,
        (geometry.slot, geometry.expand_block_id),
        "A slot belongs to one block and one offset, and a kernel block to one manager block (2.5, 2.6).",
        faulty={
            "blocks overlap": {"slot": lambda x, at, b: x * (b - 1) + at},
            "kernel blocks overlap": {"expand_block_id": lambda x, j, factor: x + j * factor},
        },
    ),
    _lemma(
        "a_row_ends_with_the_last_position",
        _width,
        (geometry.attention_row_entries, geometry.mamba_align_row_width, geometry.block_column),
        "An attention row ends with the column of the last position; a recurrent row with the same block size has that of its "
        "own last position and the speculative ones, and is never the narrower one (TB-12).",
        laws=("TB-12",),
        faulty={
            "floor for ceil": {"attention_row_entries": lambda most_, b, sharded, d: div(most_, b * d if sharded else b)},
            "DCP divides the recurrent row": {"mamba_align_row_width": lambda most_, b, extra: up(most_, 2 * b) + extra},
        },
    ),
    _lemma(
        "an_aligned_row_is_the_next_multiple",
        _aligned,
        (geometry.align_row_width,),
        "An aligned row is no narrower than asked, holds a multiple of 128 tokens, and is the narrowest such row (2.5).",
        laws=("TB-12",),
        faulty={
            "rounded down": {"align_row_width": lambda width, b, to: div(width, to // gcd(to, b)) * (to // gcd(to, b))},
            "aligned in columns": {"align_row_width": lambda width, b, to: up(width, to) * to},
        },
    ),
    _lemma(
        "blocks_and_hashes_nest",
        _nesting,
        (geometry.block_column, geometry.block_hash_index, reachability.chunk_hash_index),
        "A block of a sharded group holds as many blocks of a replicated group of the same size as there are ranks, and the "
        "hash of a block and of a chunk ends with its last token (2.3, DS-1, DS-6).",
        laws=("DS-1", "DS-6"),
        faulty={
            "DCP scales every group": {"block_column": lambda p, b, sharded, d: div(p, b * d)},
            "the first hash of a block": {"block_hash_index": lambda j, size, h: div(size, h) * j},
            "the hash before": {"chunk_hash_index": lambda chunk, hashes: hashes * chunk},
        },
    ),
    _lemma(
        "a_load_fills_the_columns_of_its_tokens",
        _destinations,
        (reachability.load_range, reachability.storable_blocks, geometry.block_column),
        "A load behind whole blocks begins in the column of its first token and ends in that of its last; the blocks of a "
        "store are whole, and there is no further one (LD-1, DS-6).",
        laws=("LD-1", "DS-6"),
        faulty={
            "rounded down": {"load_range": lambda a, e, size: (div(a, size), div(e, size))},
            "blocks of one rank": {"storable_blocks": lambda tokens, b, sharded, d: div(tokens, b)},
        },
    ),
    _lemma(
        "checkpoints_are_the_last_boundaries",
        _checkpoints,
        (geometry.checkpoint_boundary,),
        "A checkpoint is the last boundary strictly below the tokens, with EAGLE the last one at least a unit below them, or "
        "none; it never falls with more tokens, and that of a coarse unit is found from that of a finer one (2.8).",
        laws=("LV-10",),
        faulty={
            "not strictly below": {"checkpoint_boundary": lambda n, unit, eagle=False: div(n, unit) * unit},
            "EAGLE gives up everything": {
                "checkpoint_boundary": lambda n, unit, eagle=False: 0 if eagle else div(n - 1, unit) * unit
            },
            "EAGLE gives up three units": {
                "checkpoint_boundary": lambda n, unit, eagle=False: (
                    most(div(n, unit) * unit - 3 * unit, 0) if eagle else div(n - 1, unit) * unit
                )
            },
            "EAGLE gives up nothing": {"checkpoint_boundary": lambda n, unit, eagle=False: div(n - 1, unit) * unit},
        },
    ),
    _lemma(
        "cacheable_prefixes_grow",
        _cacheable,
        (geometry.cacheable_tokens, geometry.cacheable_tokens_eagle),
        "A cacheable prefix is all whole scheduler blocks (every token with fine-grained hits), with EAGLE one block more as "
        "far as there are tokens, unless there is none, and more tokens never make it shorter (2.8, HB-14).",
        laws=("HB-14",),
        faulty={
            "rounded up": {"cacheable_tokens": lambda t, fine, s: t if fine else up(t, s) * s},
            "nothing": {"cacheable_tokens": lambda t, fine, s: t if fine else 0},
            "EAGLE caches no block more": {"cacheable_tokens_eagle": lambda t, fine, s, e: cacheable_tokens(t, fine, s)},
            "past the tokens": {"cacheable_tokens_eagle": lambda t, fine, s, e: t if fine else div(t, s) * s + e},
        },
    ),
    _lemma(
        "skipped_tokens_never_fall",
        _skipped,
        (geometry.skipped_tokens_window, geometry.skipped_tokens_chunked, geometry.skipped_tokens_mamba),
        "The next position reads its window, its chunk of local attention, or the state at the last token before it; every "
        "position before that is left behind and no other, and no further token brings any of them back (2.8, TB-5).",
        laws=("TB-5",),
        faulty={
            "a window that skips to its end": {"skipped_tokens_window": lambda c, window, extra=0: c - window + 1},
            "a window that skips everything": {"skipped_tokens_window": lambda c, window, extra=0: c},
            "a window that skips nothing": {"skipped_tokens_window": lambda c, window, extra=0: 0},
            "a chunk that skips everything": {"skipped_tokens_chunked": lambda c, chunk: c},
            "a state that is not kept": {"skipped_tokens_mamba": lambda c: c},
            "the rest of a chunk": {"skipped_tokens_chunked": lambda c, chunk: c % chunk},
            "the last token too": {"skipped_tokens_mamba": lambda c: c + 1},
        },
    ),
)
