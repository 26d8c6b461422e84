"""Claims about retention masks, admission caps, internal checkpoints, and where a prefill chunk ends (2.8, 2.9, T22, T38).

What a mask must keep is told by positions: to resume at n a window of W tokens reads the positions from n - W + 1 on.
"""

from __future__ import annotations

from kvproof.core import retention
from kvproof.proofs.claim import claim
from kvproof.proofs.claims.pools_of_four import pick

WINDOWS = (1, 2, 4, 5, 6, 9)
"""Windows of which one is picked; in blocks of 4 tokens they read none, one, one, one, two and two before the next position."""
SEGMENTS = "blocks of 4 tokens, hits at multiples of 16, windows of 1, 2, 4, 5, 6 and 9 tokens"


def read_by(index: int, boundary: int, window: int, more: int = 0) -> bool:
    """Tell whether a resume at a boundary, ``more`` tokens matching behind it, reads some token of a block of 4 tokens."""
    return (4 * index < boundary + more) & (4 * index + 4 > boundary - window + 1) & ((window > 1) | (more > 0))


# --- masks --------------------------------------------------------------------------------------------------------


@claim(retention.attention_mask, sizes="all", bounds="any block", laws=("LV-5",))
def attention_keeps_every_block(index: int) -> None:
    """Full attention and chunked local attention register every full block (2.9)."""
    assert index >= 0
    kept = retention.attention_mask(index)
    assert kept


@claim(retention.window_need, sizes="grid", bounds="blocks of 1, 2, 4, 8 and 48 tokens; any window, any aligned resume point")
def a_window_reads_so_many_blocks_before_a_resume(window: int, blocks: int, size: int, eagle: bool) -> None:
    """A window needs the blocks that hold the W - 1 positions before a block's end, and one more under EAGLE (2.9)."""
    assert window >= 1
    assert 0 <= size < 5
    assert blocks >= window
    tokens = pick((1, 2, 4, 8, 48), size)
    need = retention.window_need(window, tokens, eagle)
    first = (blocks * tokens - window + 1) // tokens
    assert need == blocks - first + (1 if eagle else 0)


@claim(retention.window_segment, sizes="grid", bounds="blocks of 4 tokens, any multiples of them")
def a_segment_is_what_lies_between_two_resume_points(aligned: int, interval: int) -> None:
    """A retention segment has the blocks between two resume points: of the hit alignment, of the interval, or none (2.9)."""
    assert aligned >= 1
    assert interval >= 1
    dense = retention.window_segment(4, 4 * aligned, None)
    sparse = retention.window_segment(4, 4 * aligned, 0)
    wide = retention.window_segment(4, 4 * aligned, 4 * interval)
    assert (dense, sparse, wide) == (aligned, 0, interval)


@claim(retention.swa_mask, sizes="grid", bounds=SEGMENTS + "; any block", laws=("LV-10", "LV-6"))
def a_dense_mask_keeps_what_aligned_resumes_read(segment: int, inside: int, window: int, eagle: bool) -> None:
    """Dense retention keeps exactly the blocks of a window that a resume at some multiple of the alignment reads, and under
    EAGLE the block behind it, which has to match as well (2.9).
    """
    assert segment >= 1
    assert 0 <= inside < 4
    assert 0 <= window < 6
    width = pick(WINDOWS, window)
    index = 4 * segment + inside
    kept = retention.swa_mask(index, window=width, effective_size=4, alignment=16, retention=None, reach=(), eagle=eagle)
    more = 4 if eagle else 0
    assert kept == (read_by(index, 16 * segment, width, more) | read_by(index, 16 * segment + 16, width, more))


@claim(retention.swa_mask, sizes="grid", bounds=SEGMENTS + "; any block and resume point", laws=("LV-10", "LV-6"))
def a_sparse_mask_keeps_what_a_resend_reads(index: int, aligned: int, rest: int, window: int, eagle: bool) -> None:
    """Sparse retention keeps exactly the blocks of a window that a resend reads, which resumes at the last multiple of the
    alignment before its replay boundary (2.9).
    """
    assert index >= 0
    assert aligned >= 0
    assert 0 <= rest < 16
    assert 0 <= window < 6
    width = pick(WINDOWS, window)
    kept = retention.swa_mask(
        index, window=width, effective_size=4, alignment=16, retention=0, reach=(16 * aligned + rest,), eagle=eagle
    )
    read = read_by(index, 16 * aligned, width, 4 if eagle else 0)
    assert kept == read


@claim(retention.swa_mask, sizes="grid", bounds=SEGMENTS + ", an interval of 32; any block", laws=("LV-10",))
def an_interval_keeps_what_its_ends_read(segment: int, inside: int, window: int) -> None:
    """With a retention interval exactly the blocks are kept that a resume at some multiple of the interval reads (2.9)."""
    assert segment >= 1
    assert 0 <= inside < 8
    assert 0 <= window < 6
    width = pick(WINDOWS, window)
    index = 8 * segment + inside
    kept = retention.swa_mask(index, window=width, effective_size=4, alignment=16, retention=32, reach=())
    assert kept == (read_by(index, 32 * segment, width) | read_by(index, 32 * segment + 32, width))


@claim(retention.swa_mask, sizes="grid", bounds="blocks of 8 tokens, hits at multiples of 4; any block and window")
def blocks_inside_which_hits_end_are_all_kept(index: int, window: int, retained: bool) -> None:
    """Where hits may end inside a block of a window every block is kept (2.9)."""
    assert index >= 0
    assert window >= 1
    kept = retention.swa_mask(index, window=window, effective_size=8, alignment=4, retention=0 if retained else None, reach=())
    assert kept


@claim(retention.swa_store_mask, sizes="grid", bounds=SEGMENTS + "; any number of storable blocks", laws=("DS-7",))
def the_store_mask_keeps_the_last_window_as_well(segment: int, inside: int, behind: int, window: int) -> None:
    """The native connector stores what aligned resumes read and what one at the end of the storable blocks reads; where it
    knows no alignment, everything (2.7, DS-7).
    """
    assert segment >= 1
    assert 0 <= inside < 4
    assert behind >= 1
    assert 0 <= window < 6
    width = pick(WINDOWS, window)
    index = 4 * segment + inside
    count = index + behind
    kept = retention.swa_store_mask(
        index, num_storable=count, window=width, effective_size=4, alignment=16, retention=None, reach=()
    )
    everything = retention.swa_store_mask(
        index, num_storable=count, window=width, effective_size=4, alignment=None, retention=None, reach=()
    )
    whole = read_by(index, 16 * segment, width) | read_by(index, 16 * segment + 16, width)
    assert kept == (whole | read_by(index, 4 * count, width))
    assert everything


# --- admission caps -----------------------------------------------------------------------------------------------


@claim(retention.most_in_flight, sizes="all", bounds="any chunk; one and two steps in flight", laws=("LV-8",))
def every_step_in_flight_may_hold_a_whole_chunk(chunk: int, first: int, second: int, two: bool) -> None:
    """The tokens in flight are never more than a largest chunk for each step in flight, and may be so many (2.8)."""
    assert chunk >= 1
    assert 0 <= first <= chunk
    assert 0 <= second <= chunk
    most = retention.most_in_flight(chunk, 2 if two else 1)
    assert first + (second if two else 0) <= most
    assert most == chunk + (chunk if two else 0)


@claim(
    retention.admission_cap_chunked,
    sizes="grid",
    bounds="blocks of 4 tokens, local chunks of whole blocks; any tokens in flight and length",
    laws=("LV-8", "PC-7"),
)
def admission_cap_covers_a_local_chunk(chunk: int, inflight: int, length: int, start: int, live: int) -> None:
    """The blocks that the gate reserves for a local chunk hold it and what is in flight: it begins with a block (2.8)."""
    assert chunk >= 1
    assert inflight >= 0
    assert length >= 1
    assert start >= 0
    assert 1 <= live <= 4 * chunk + inflight
    assert live <= length
    cap = retention.admission_cap_chunked(4 * chunk, inflight, length, 4)
    last = (4 * start + live - 1) // 4
    assert last - start + 1 <= cap
    assert (cap - 1) * 4 < length


# --- checkpoints inside a chunk -----------------------------------------------------------------------------------


@claim(retention.checkpoint_column, sizes="all", bounds="any chunk end and block size", laws=("TB-6",))
def a_checkpoint_stands_before_the_running_state(end: int, size: int) -> None:
    """The internal checkpoint of a chunk stands in the column before that of the state at its end (T38.1)."""
    assert end >= 1
    assert size >= 1
    column = retention.checkpoint_column(end, size)
    assert (column + 1) * size < end <= (column + 2) * size


@claim(
    retention.checkpoint_of,
    retention.checkpoint_fits,
    retention.checkpoint_column,
    sizes="grid",
    bounds="blocks of 4, hash blocks of 2, hits at multiples of 2 and 4; any chunk; checkpoints at any token or every 4",
    laws=("LV-10", "TB-6"),
)
def a_checkpoint_is_where_the_next_resend_resumes(
    start: int, length: int, coarse: bool, eagle: bool, sparse: bool, none: bool
) -> None:
    """A chunk writes its checkpoint at the last multiple of the hit alignment before its end, under EAGLE one unit earlier,
    if the chunk begins on a hash boundary and the position and a free column lie inside (T38.1, T38.2).
    """
    assert start >= 0
    assert length >= 1
    unit, end = (4 if coarse else 2), start + length
    found = retention.checkpoint_of(
        start,
        end,
        block_size=4,
        hash_block=2,
        alignment=unit,
        eagle=eagle,
        checkpoint_alignment=None if none else 4 if sparse else 1,
    )
    position, column = (-1, -1) if found is None else found
    last = (end - (unit if eagle else 1)) // unit * unit
    inside = (start % 2 == 0) & (start + 2 <= last) & (start <= 4 * ((end + 3) // 4 - 2))
    assert (found is None) == (none or not inside or (sparse and (last - start) % 4 != 0))
    assert found is None or (start % 2 == 0) & (start + 2 <= position < end)
    assert found is None or (position % unit == 0) & ((not sparse) | ((position - start) % 4 == 0))
    assert found is None or (unit <= end - position < 2 * unit if eagle else 0 < end - position <= unit)
    assert found is None or ((column + 1) * 4 < end <= (column + 2) * 4) & (column * 4 >= start)


# --- where a chunk ends -------------------------------------------------------------------------------------------


@claim(retention.clips_fine, sizes="all", bounds="any hash block and scheduler block")
def a_chunk_stops_at_the_tail_only_inside_a_scheduler_block(fine: bool, unit: int, more: int) -> None:
    """Clipping minds a prompt's tail exactly if hits are fine and a scheduler block has several hash blocks (T22)."""
    assert unit >= 1
    assert more >= 0
    minds = retention.clips_fine(fine, unit, unit + more)
    assert minds == (fine & (more > 0))


@claim(
    retention.close_open_blocks,
    sizes="grid",
    bounds="one group of states every 4 tokens and one every 6; any start and amount",
    laws=("CC-3", "HB-3"),
)
def no_open_state_is_left_behind(start: int, amount: int) -> None:
    """A chunk that begins inside a block of states ends no later than that block does: the block would get the key of its end
    with the state at the chunk's start in it (T22.5, C-36).
    """
    assert start >= 0
    assert amount >= 1
    taken = retention.close_open_blocks(start, amount, (4, 6))
    four, six = start // 4 * 4 + 4, start // 6 * 6 + 6
    assert 1 <= taken <= amount
    assert (start % 4 == 0) | (start + taken <= four)
    assert (start % 6 == 0) | (start + taken <= six)
    assert (taken == amount) | (start + taken == four) | (start + taken == six)


@claim(
    retention.prefill_stops,
    sizes="grid",
    bounds="clipping unit 4, hash block 2; any start, end, prompt, further tokens and junction",
    laws=("LV-10",),
)
def stops_lie_where_a_state_can_be_used(
    start: int, length: int, prompt: int, more: int, fine: bool, junction: int, eagle: bool, exact: bool
) -> None:
    """A chunk should end at the last boundary of the clipping unit, at that of its open block, at the prompt's tail, and at a
    junction inside: all but the tail and an exact junction are whole units from the start or from zero (T22.2 to T22.5).
    """
    assert (start >= 0) & (length >= 1) & (prompt >= 1) & (more >= 0) & (junction >= 0)
    stops = retention.prefill_stops(
        start=start,
        end=start + length,
        num_tokens=prompt + more,
        num_prompt=prompt,
        clip_block=4,
        hash_block=2,
        fine=fine,
        junction=junction,
        eagle=eagle,
        internal=False,
        shared_prefix_checkpoint=exact,
    )
    inner = (start < junction) & (junction < start + length)
    last = stops[0]
    assert (last % 4 == 0) & (0 <= last < prompt + more)
    assert all(
        (stop % 4 == 0)
        | (fine & (stop % 2 == 0) & (last < stop) & (stop < prompt))
        | (inner & (stop <= junction) & (exact | ((stop - start) % 4 == 0)))
        for stop in stops
    )
    assert start % 4 == 0 or any(stop == start // 4 * 4 + 4 for stop in stops)


@claim(
    retention.prefill_stops,
    sizes="grid",
    bounds="clipping unit 4, hash block 2; any start, end and prompt",
    laws=("LV-10",),
)
def a_chunk_with_a_checkpoint_inside_need_not_stop(start: int, length: int, prompt: int, fine: bool, eagle: bool) -> None:
    """A chunk that writes its checkpoint inside stops for no boundary: none of its stops lies behind its start (T22.1)."""
    assert (start >= 0) & (length >= 1) & (prompt >= 1)
    stops = retention.prefill_stops(
        start=start,
        end=start + length,
        num_tokens=prompt,
        num_prompt=prompt,
        clip_block=4,
        hash_block=2,
        fine=fine,
        junction=0,
        eagle=eagle,
        internal=True,
        shared_prefix_checkpoint=False,
    )
    assert all(stop <= start for stop in stops)


@claim(
    retention.clip_chunk,
    retention.prefill_stops,
    sizes="grid",
    bounds="clipping unit 4, hash block 2; any start and length of a prompt's chunk, any room of a step",
    laws=("LV-10", "CC-3"),
    deep=True,
)
def a_clipped_chunk_ends_where_a_state_is_of_use(
    start: int, wanted: int, prompt: int, fine: bool, eagle: bool, most: int
) -> None:
    """A chunk of a prompt ends where it was to end, or at a boundary of the clipping unit, or at a hash boundary inside the
    prompt where hits are fine; a chunk that ends before the prompt does ends at a clipping unit if a step has room for one
    (T22).
    """
    assert (start >= 0) & (wanted >= 1) & (most >= 1)
    assert start + wanted <= prompt
    taken = retention.clip_chunk(
        start=start,
        wanted=wanted,
        num_tokens=prompt,
        num_prompt=prompt,
        clip_block=4,
        hash_block=2,
        fine=fine,
        max_chunk=most,
        eagle=eagle,
    )
    end = start + taken
    assert 0 <= taken <= wanted
    assert (taken == wanted) | (end % 4 == 0) | (taken == 0) | (fine & (end % 2 == 0) & (end < prompt))
    assert (start + wanted == prompt) | (most < 4) | (taken == 0) | (end % 4 == 0) | fine
    assert (start % 4 == 0) | (end <= start // 4 * 4 + 4)
