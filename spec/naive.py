"""Independent definitions by counting and enumeration, which laws and tests compare the model with.

Nothing here calls a size or transition function of `core/`, so a wrong formula there cannot hide here. The definitions
walk over tokens, blocks or candidates one by one: right first, fast never. Units as in docs/semantics.md section 2:
tokens are global counts, positions are 0-based.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

# --- sizes (2.1, 2.2) ---------------------------------------------------------------------------------------------


def span(block_size: int, sharded: bool, dcp_size: int) -> int:
    """Tokens under one table entry, filling a block of `block_size` tokens on every rank that takes part (2.1)."""
    tokens = 0
    for rank in range(dcp_size):
        if sharded or rank == 0:
            tokens += block_size
    return tokens


def common_multiple(sizes: tuple[int, ...]) -> int:
    """The smallest positive token count that is a multiple of every size (2.2, S)."""
    largest = max(sizes)
    return next(n for n in count(largest, largest) if all(n % size == 0 for size in sizes))


def common_divisor(sizes: tuple[int, ...]) -> int:
    """The largest token count that divides every size (2.2, default H)."""
    return next(n for n in range(min(sizes), 0, -1) if all(size % n == 0 for size in sizes))


class SizeAnswer(NamedTuple):
    """S and H in tokens, or the reason of a refusal."""

    scheduler_block: int
    hash_block: int
    refused: str = ""


def resolve_sizes(
    sizes: tuple[int, ...],
    cacheable: tuple[bool, ...],
    *,
    active: bool,
    other_mamba_mode: bool = False,
    requested: int | None = None,
) -> SizeAnswer:
    """S and H of 2.2 for effective `sizes`; the arguments as in the configuration (requested match unit in tokens)."""
    block = common_multiple(sizes)
    candidates = [n for n in range(1, block + 1) if all(s % n == 0 for s, c in zip(sizes, cacheable, strict=True) if c)]
    if not active or (other_mamba_mode and len(sizes) > 1):
        return SizeAnswer(block, block)
    if len(sizes) == 1:
        return SizeAnswer(block, block, "" if requested in (None, block) else "one group has one match unit")
    if not any(cacheable):
        return SizeAnswer(block, block)
    if requested is None:
        return SizeAnswer(block, candidates[-1])
    return SizeAnswer(block, requested, "" if requested in candidates else "the unit must divide every cacheable size")


# --- fine-grained hits (2.4, HB-11) -------------------------------------------------------------------------------


class GateGroup(NamedTuple):
    """What the gate of 2.4 asks about a group."""

    kind: str
    """`full`, `mamba_align`, `mamba_other` (a mode of the engine), `mamba_stable`, `sliding`, `chunked` or `scratch`."""
    block_size: int
    """Tokens of a block on one rank."""
    sharded: bool = False
    cacheable: bool = True


def gate(groups: tuple[GateGroup, ...], *, caching: bool, allow: bool, dcp_size: int, hash_block: int) -> bool:
    """The four conditions of 2.4, each refuting on its own."""
    if not caching or not allow or len(groups) < 2:
        return False
    finer = False
    for group in groups:
        if group.kind == "mamba_align":
            strictly, equally = group.block_size > hash_block, group.block_size == hash_block
            finer = finer or strictly or (equally and dcp_size > 1)
        elif group.kind in ("sliding", "chunked", "scratch", "mamba_stable") and group.cacheable:
            if span(group.block_size, group.sharded, dcp_size) != hash_block:
                return False
    return finer


# --- rows (2.5, TB-12) --------------------------------------------------------------------------------------------


def columns_needed(num_tokens: int, block_size: int, sharded: bool, dcp_size: int) -> int:
    """Table entries opened one after the other until they cover `num_tokens` tokens (2.5, before alignment)."""
    each = span(block_size, sharded, dcp_size)
    columns, covered = 0, 0
    while covered < num_tokens:
        columns, covered = columns + 1, covered + each
    return columns


def row_step(block_size: int) -> int:
    """Columns of an attention row come in multiples of this: the fewest whose blocks fill whole 128 tokens (2.5)."""
    return next(step for step in count(1) if step * block_size % 128 == 0)


# --- placement (2.6, DS-2 to DS-4) --------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where one token of a group lies."""

    rank: int
    column: int
    offset: int


def placements(num_tokens: int, block_size: int, dcp_size: int, interleave: int) -> tuple[Place, ...]:
    """The place of each position of a sharded group: runs of `interleave` tokens dealt to the ranks in turn (2.6)."""
    held = [0] * dcp_size
    places: list[Place] = []
    rank, run = 0, 0
    for _ in range(num_tokens):
        if run == interleave:
            rank, run = (rank + 1 if rank + 1 < dcp_size else 0), 0
        column, offset = divmod(held[rank], block_size)
        places.append(Place(rank, column, offset))
        held[rank] += 1
        run += 1
    return tuple(places)


def replicated_placements(num_tokens: int, block_size: int) -> tuple[tuple[int, int], ...]:
    """Column and offset of each position of a replicated group, the same on every rank (2.6)."""
    return tuple((place.column, place.offset) for place in placements(num_tokens, block_size, 1, block_size))


def local_lengths(num_tokens: int, dcp_size: int, interleave: int) -> tuple[int, ...]:
    """How many of the first `num_tokens` positions each rank holds, by counting (DS-4)."""
    held = [0] * dcp_size
    for place in placements(num_tokens, interleave, dcp_size, interleave):
        held[place.rank] += 1
    return tuple(held)


def has_context(local: tuple[int, ...]) -> bool:
    """Whether any rank holds a token of the prefix, from the local lengths of *all* ranks (DS-10)."""
    return any(length > 0 for length in local)


# --- boundaries (2.8, T9.2) ---------------------------------------------------------------------------------------


def multiples(unit: int, limit: int) -> Iterator[int]:
    """0, `unit`, 2 `unit`, ... up to and including `limit`."""
    value = 0
    while value <= limit:
        yield value
        value += unit


def floor_multiple(n: int, unit: int) -> int:
    """The largest multiple of `unit` not above n >= 0."""
    return list(multiples(unit, n))[-1]


def checkpoint_boundary(n: int, unit: int, eagle: bool = False) -> int:
    """The largest multiple of `unit` strictly below n tokens; with EAGLE the last but one not above n, or 0 (2.8)."""
    if eagle:
        return ([0, *multiples(unit, n)])[-2]
    return list(multiples(unit, n - 1))[-1]


def replay_boundaries(prompt: int, unit: int, eagle: bool = False) -> frozenset[int]:
    """Where a resend of `prompt` tokens may resume, before the mask floors it (2.8)."""
    if not eagle:
        return frozenset({prompt - 1})
    return frozenset(checkpoint_boundary(n, unit, True) for n in (prompt - 1, prompt))


def cacheable_tokens(tokens: int, fine_grained: bool, scheduler_block: int, eagle_block: int = 0) -> int:
    """Tokens of a caching call: all with fine-grained hits, else whole scheduler blocks (2.8).

    `eagle_block` is E of a group of the EAGLE set: behind a whole scheduler block as many tokens more, if they are there.
    """
    if fine_grained:
        return tokens
    whole = floor_multiple(tokens, scheduler_block)
    return max(n for n in range(whole, tokens + 1) if n <= whole + eagle_block) if whole else 0


def prompt_tail_boundary(num_prompt: int, hash_block: int, num_hashes: int, last_token_excluded: bool = True) -> int:
    """The last hashed boundary of the prompt that leaves its last token to be computed (T9.2)."""
    limit = num_prompt - 1 if last_token_excluded else num_prompt
    return max(n for i, n in enumerate(multiples(hash_block, max(limit, 0))) if i <= num_hashes)


def unread_tokens(computed: int, reads: Callable[[int, int], bool]) -> int:
    """Leading positions that no position from `computed` on reads; `reads(q, p)` says whether q reads p <= q (2.8).

    It is enough to ask `computed` itself where a later position never reads further back, as in all kinds here.
    """
    return next((p for p in range(computed) if reads(computed, p)), computed)


# --- retention (2.9) ----------------------------------------------------------------------------------------------


def mamba_kept(
    num_blocks: int, block_size: int, alignment: int, retention: int | None, reach: tuple[int, ...]
) -> frozenset[int]:
    """Columns whose end state is kept: all, those at interval ends, and the last one usable by a resend (2.9)."""
    ends = {(i + 1) * block_size: i for i in range(num_blocks)}
    if retention is None:
        return frozenset(ends.values())
    kept = {i for end, i in ends.items() if retention and end % retention == 0}
    for boundary in reach:
        resume = floor_multiple(boundary, alignment)
        kept.update(i for end, i in ends.items() if resume - block_size < end <= resume)
    return frozenset(kept)


def window_kept(
    num_blocks: int,
    *,
    window: int,
    effective_size: int,
    alignment: int,
    retention: int | None,
    reach: tuple[int, ...],
    eagle: bool = False,
) -> frozenset[int]:
    """Blocks of a sliding-window group that some retained resume point reads (2.9)."""
    everything = frozenset(range(num_blocks))
    shift = 1 if eagle else 0
    need = len(range(0, window - 1, effective_size)) + shift
    interval = alignment if retention is None else retention
    if alignment % effective_size or 0 < interval <= need * effective_size:
        return everything
    points: set[int] = set()
    if interval:
        points.update(p for p in multiples(interval, (num_blocks + need) * effective_size + interval) if p)
    if retention is not None:
        points.update(floor_multiple(b, alignment) for b in reach)
    kept: set[int] = set()
    for point in points:
        end = len(range(0, point, effective_size)) + shift
        kept.update(range(max(end - need, 0), end))
    return everything & kept


# --- offloading (2.7, T29) ----------------------------------------------------------------------------------------


def reachable_chunks(n: int, chunk_tokens: int, alignment: int, window: int, eagle: bool = False) -> frozenset[int]:
    """Chunks of `n` that serve a resume at an aligned boundary or at the end: the tail of each segment (DS-7).

    Assumes the segment is longer than the window; sizes in tokens, `window` in chunks.
    """
    tail = window + (1 if eagle else 0)
    segments: list[list[int]] = []
    for j in range(n):
        if not segments or len(segments[-1]) * chunk_tokens + chunk_tokens > alignment:
            segments.append([])
        segments[-1].append(j)
    return frozenset(j for segment in segments for j in segment[-tail:])


def window_stored(
    num_blocks: int, window: int, effective_size: int, alignment: int | None, retention: int | None
) -> frozenset[int]:
    """Blocks of a window that the native connector stores: those that a resume at a kept boundary or at the end reads (DS-7).

    Sizes in tokens; ``alignment`` are the connector's own alignment tokens, None if it knows none and stores everything.
    """
    if alignment is None:
        return frozenset(range(num_blocks))
    kept = window_kept(
        num_blocks, window=window, effective_size=effective_size, alignment=alignment, retention=retention, reach=()
    )
    segment = alignment if retention is None else retention
    begun = [
        i for i in range(num_blocks) if segment and i * effective_size >= floor_multiple(num_blocks * effective_size, segment)
    ]
    need = len(range(0, window - 1, effective_size))
    return kept | frozenset(begun[-need:] if need else ())


def touched_columns(aligned: int, external: int, size: int) -> tuple[int, ...]:
    """Columns that hold a position of `[aligned, aligned + external)` with `size` tokens each (LD-1)."""
    bounds = list(multiples(size, aligned + external))
    return tuple(j for j, begin in enumerate(bounds) if begin < aligned + external and begin + size > aligned and external > 0)


# --- clipping (T22) -----------------------------------------------------------------------------------------------


class Clip(NamedTuple):
    """One question to T22, in tokens; the fields as in the semantics (B, H, A, c are the units)."""

    start: int
    wanted: int
    num_tokens: int
    num_prompt: int
    clip_block: int
    hash_block: int
    fine: bool
    max_chunk: int
    junction: int = 0
    eagle: bool = False
    exports_checkpoint: bool = False
    alignment: int = 1
    checkpoint_alignment: int | None = None
    mamba_block: int = 1
    shared_prefix_checkpoint: bool = False


def checkpoint_inside(clip: Clip) -> bool:
    """Whether the wanted chunk reaches the end of the prefill and can write its checkpoint inside (T22.1, T38.2)."""
    end = clip.start + clip.wanted
    finish = max(clip.num_prompt, clip.num_tokens - 1)
    unit = clip.checkpoint_alignment
    if not clip.exports_checkpoint or unit is None or end < finish:
        return False
    point = checkpoint_boundary(finish, clip.alignment, clip.eagle)
    # The running column is the last one; the checkpoint goes into the column before it, which the chunk must open.
    columns = columns_needed(end, clip.mamba_block, False, 1)
    entered = columns_needed(clip.start, clip.mamba_block, False, 1)
    reachable = point in range(clip.start, end, unit) and point >= clip.start + clip.hash_block
    return clip.start % clip.hash_block == 0 and columns - 1 > entered and reachable


def chunk_end(clip: Clip) -> int:
    """The token count at which the chunk ends, found by walking over its tokens and asking for a stop at each (T22)."""
    finish = max(clip.num_prompt, clip.num_tokens - 1)
    end = clip.start + clip.wanted
    if clip.start >= finish:
        return end
    inside = checkpoint_inside(clip)
    if end < finish:
        whole = floor_multiple(end, clip.clip_block)
        if whole > clip.start:
            end = whole
        elif clip.max_chunk >= clip.clip_block:
            return clip.start
    last = checkpoint_boundary(clip.num_tokens, clip.clip_block, clip.eagle)
    tail = checkpoint_boundary(clip.num_prompt, clip.hash_block, clip.eagle)
    passes_junction = clip.start < clip.junction < end
    at_junction = clip.junction
    if not (clip.shared_prefix_checkpoint and clip.junction <= clip.num_prompt):
        at_junction = next(
            (n for n in range(clip.junction, clip.start, -1) if (n - clip.start) % clip.clip_block == 0 and passes_junction),
            clip.start,
        )
    for n in range(clip.start + 1, end):
        closes_block = clip.start % clip.clip_block != 0 and n % clip.clip_block == 0
        at_tail = clip.fine and n == tail and last < tail < clip.num_prompt
        if not inside and (closes_block or n == last or at_tail):
            return n
        if passes_junction and n == at_junction:
            return n
    return end
