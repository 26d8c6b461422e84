"""Contracts of boundaries, masks, clipping and offloading arithmetic, in the style of `kvproof.proofs.claims.geometry`."""

from kvproof.core import geometry, reachability, retention
from kvproof.proofs.claim import claim

# --- boundaries ---------------------------------------------------------------------------------------------------


@claim(geometry.checkpoint_boundary, sizes="all", bounds="any length and unit")
def checkpoint_is_the_last_multiple_strictly_below(n: int, unit: int) -> None:
    """A checkpoint boundary is the last multiple of the unit strictly below the length (2.8)."""
    assert n >= 1
    assert unit >= 1
    boundary = geometry.checkpoint_boundary(n, unit)
    quotient = (n - 1) // unit
    assert 0 <= boundary < n
    assert n - boundary <= unit
    assert boundary == quotient * unit


@claim(geometry.checkpoint_boundary, sizes="all", bounds="any length and unit")
def eagle_checkpoint_gives_up_a_unit(whole: int, rest: int, unit: int) -> None:
    """Under EAGLE a checkpoint boundary is the last multiple of the unit that leaves at least a unit to be computed, and 0 of a
    shorter length (2.8).
    """
    assert whole >= 0
    assert 0 <= rest < unit
    assert whole + rest >= 1
    boundary = geometry.checkpoint_boundary(whole * unit + rest, unit, True)
    plain = geometry.checkpoint_boundary(whole * unit + rest, unit)
    assert 0 <= boundary <= plain
    assert boundary == (0 if whole == 0 else (whole - 1) * unit)


@claim(geometry.replay_boundaries, sizes="all", bounds="any prompt and unit", laws=("LV-10",))
def replay_boundaries_are_those_of_a_resend(whole: int, rest: int, unit: int) -> None:
    """A resend may resume before its last token. Under EAGLE it may at the last multiple of the unit that leaves a unit to be
    computed, and at the multiple before that, too, if the prompt is one itself (2.8, LV-10).
    """
    assert whole >= 0
    assert 0 <= rest < unit
    assert whole + rest >= 1
    found = geometry.replay_boundaries(whole * unit + rest, unit, True)
    plain = geometry.replay_boundaries(whole * unit + rest, unit)
    last = 0 if whole == 0 else (whole - 1) * unit
    assert plain == (whole * unit + rest - 1,)
    assert found == ((last - unit, last) if whole >= 2 and rest == 0 else (last,))


@claim(geometry.cacheable_tokens, sizes="all", bounds="any number of tokens and block", laws=("HB-14",))
def cacheable_prefix_is_whole_blocks(whole: int, rest: int, block: int) -> None:
    """What may be cached is every token where hits are fine, and the whole scheduler blocks where they are not (HB-14, 2.8)."""
    assert whole >= 0
    assert 0 <= rest < block
    fine = geometry.cacheable_tokens(whole * block + rest, True, block)
    coarse = geometry.cacheable_tokens(whole * block + rest, False, block)
    assert fine == whole * block + rest
    assert coarse == whole * block


@claim(geometry.cacheable_tokens, geometry.cacheable_tokens_eagle, sizes="all", bounds="any sizes, hits fine or coarse")
def eagle_prefix_stays_within_the_finalised_tokens(tokens: int, block: int, size: int, fine: bool) -> None:
    """The prefix that EAGLE may cache is one entry more, or all tokens if they do not fill it; nothing more where hits are fine
    or nothing is cached without EAGLE (2.8).
    """
    assert tokens >= 0
    assert block >= 1
    assert size >= 1
    plain = geometry.cacheable_tokens(tokens, fine, block)
    covered = geometry.cacheable_tokens_eagle(tokens, fine, block, size)
    more = (not fine) & (plain > 0)
    assert plain <= covered <= tokens
    assert covered == plain if not more else covered == plain + size or (covered == tokens and tokens < plain + size)


@claim(geometry.prompt_tail_boundary, sizes="all", bounds="any prompt, hash block and number of hashes", laws=("LV-10",))
def prompt_tail_leaves_the_last_token(whole: int, rest: int, hash_block: int, hashes: int) -> None:
    """The boundary of a prompt's tail is the last hash boundary that has a hash and leaves the last token to be computed, under
    the rule ``P`` the last one of the prompt that has a hash (T9.2, LV-10).
    """
    assert whole >= 0
    assert 0 <= rest < hash_block
    assert hashes >= 0
    before = geometry.prompt_tail_boundary(whole * hash_block + rest + 1, hash_block, hashes)
    of_all = geometry.prompt_tail_boundary(whole * hash_block + rest, hash_block, hashes, "P")
    assert before == (hashes if hashes < whole else whole) * hash_block
    assert of_all == before


@claim(geometry.skipped_tokens_window, sizes="all", bounds="any computed tokens, window and tokens beside it", laws=("TB-5",))
def window_skips_nothing_that_the_next_position_reads(computed: int, window: int, extra: int, position: int) -> None:
    """A sliding window skips exactly the positions that no position reads which is computed from now on or, with tokens kept
    beside the window, so many positions before (TB-5, 2.8).
    """
    assert computed >= 0
    assert window >= 1
    assert extra >= 0
    assert position >= 0
    skipped = geometry.skipped_tokens_window(computed, window, extra)
    reader = computed - extra
    assert skipped >= 0
    assert (position < skipped) == (position <= reader - window)


@claim(geometry.skipped_tokens_chunked, sizes="all", bounds="any computed tokens and chunk")
def chunk_skips_up_to_its_start(computed: int, chunk: int) -> None:
    """Chunked local attention skips everything before the chunk of the next position (2.8)."""
    assert computed >= 0
    assert chunk >= 1
    skipped = geometry.skipped_tokens_chunked(computed, chunk)
    assert 0 <= skipped <= computed < skipped + chunk


@claim(
    geometry.skipped_tokens_mamba, geometry.ceil_div, sizes="all", bounds="any computed tokens and block size", laws=("TB-6",)
)
def recurrent_keeps_the_running_state(computed: int, block_size: int) -> None:
    """A recurrent group never skips the column of the state that it runs on (TB-6)."""
    assert computed >= 1
    assert block_size >= 1
    skipped = geometry.skipped_tokens_mamba(computed)
    assert skipped // block_size == geometry.ceil_div(computed, block_size) - 1


# --- masks, clipping, offloading ----------------------------------------------------------------------------------


@claim(retention.mamba_mask, sizes="all", bounds="any index, block size, alignment and boundary")
def dense_mask_keeps_every_state(index: int, block_size: int, alignment: int, boundary: int) -> None:
    """Without a retention interval every recurrent state is kept (2.9)."""
    assert index >= 0
    assert block_size >= 1
    assert alignment >= 1
    kept = retention.mamba_mask(index, block_size, alignment, None, (boundary,))
    assert kept


@claim(retention.mamba_mask, sizes="grid", bounds="blocks and alignment of 4 tokens; any index and boundary")
def sparse_mask_keeps_the_state_before_the_boundary(index: int, blocks: int, boundary: int) -> None:
    """Under sparse retention exactly the state at or before the boundary is kept (2.9)."""
    assert index >= 0
    assert blocks >= 0
    assert 4 * blocks <= boundary < 4 * blocks + 4
    kept = retention.mamba_mask(index, 4, 4, 0, (boundary,))
    assert kept == (index + 1 == blocks)


@claim(retention.mamba_mask, sizes="grid", bounds="blocks and alignment of 4 tokens, an interval of 12; any index")
def interval_mask_keeps_the_interval_ends(index: int, quotient: int, remainder: int) -> None:
    """With a retention interval of three blocks exactly every third state is kept (2.9)."""
    assert quotient >= 0
    assert 0 <= remainder < 3
    assert index + 1 == 3 * quotient + remainder
    kept = retention.mamba_mask(index, 4, 4, 12, ())
    assert kept == (remainder == 0)


@claim(retention.clip_chunk, sizes="grid", bounds="clipping unit 4, hash block 2; any start, length, prompt and limit")
def clip_never_grows_a_chunk(start: int, wanted: int, prompt: int, extra: int, fine: bool, max_chunk: int) -> None:
    """Clipping never makes a chunk longer (T22)."""
    assert start >= 0
    assert wanted >= 0
    assert prompt >= 1
    assert extra >= 0
    q = retention.clip_chunk(
        start=start,
        wanted=wanted,
        num_tokens=prompt + extra,
        num_prompt=prompt,
        clip_block=4,
        hash_block=2,
        fine=fine,
        max_chunk=max_chunk,
    )
    assert 0 <= q <= wanted


@claim(
    retention.clip_chunk,
    sizes="grid",
    bounds="clipping unit 4, hash block 2; any start, length, prompt, known tokens, junction and limit",
)
def clip_does_not_touch_decoding(
    start: int, wanted: int, prompt: int, known: int, fine: bool, junction: int, max_chunk: int
) -> None:
    """A chunk behind the prompt is not clipped if at most one of its tokens is known; of a resumed request more are (T22)."""
    assert prompt >= 1
    assert start >= prompt
    assert prompt <= known <= start + 1
    assert wanted >= 1
    q = retention.clip_chunk(
        start=start,
        wanted=wanted,
        num_tokens=known,
        num_prompt=prompt,
        clip_block=4,
        hash_block=2,
        fine=fine,
        junction=junction,
        max_chunk=max_chunk,
    )
    assert q == wanted


@claim(retention.clip_chunk, sizes="grid", bounds="clipping unit and hash block 4; any start, prompt and limit")
def clip_stops_at_the_last_block_boundary(column: int, inside: int, blocks: int, rest: int, max_chunk: int) -> None:
    """A chunk to the end of the prompt stops at the last state that a resend can use, one that begins inside a block at the
    end of that block (T22.5).
    """
    assert 0 <= column < blocks
    assert 0 <= inside < 4
    assert 1 <= rest <= 4
    prompt, start = 4 * blocks + rest, 4 * column + inside
    q = retention.clip_chunk(
        start=start,
        wanted=prompt - start,
        num_tokens=prompt,
        num_prompt=prompt,
        clip_block=4,
        hash_block=4,
        fine=False,
        max_chunk=max_chunk,
    )
    assert q == (4 * blocks - start if inside == 0 else 4 - inside)


@claim(retention.checkpoint_fits, sizes="grid", bounds="blocks of 4, hash block 2, alignment 1; any start, end and position")
def checkpoint_inside_a_chunk_is_inside(start: int, column: int, rest: int, position: int) -> None:
    """An internal checkpoint fits exactly if it lies inside its chunk, a hash block or more behind its start, which is on a
    hash boundary, and the column before that of the state at the end begins in the chunk (T38.2).
    """
    assert start >= 0
    assert column >= -1
    assert 1 <= rest <= 4
    assert 4 * column + 4 + rest > start
    end = 4 * column + 4 + rest
    fits = retention.checkpoint_fits(start, end, position, block_size=4, hash_block=2, checkpoint_alignment=1)
    assert fits == ((start % 2 == 0) & (start + 2 <= position) & (position < end) & (4 * column >= start))


@claim(
    reachability.chunk_reachable,
    sizes="grid",
    bounds="segments of 2 and 3 chunks; any number of segments, any window",
    laws=("DS-7",),
)
def segment_end_is_reachable(segment: int, segments: int, count: int, window: int, eagle: bool) -> None:
    """The last chunk of a complete segment is stored: it serves an aligned resume (DS-7)."""
    assert count == 2 or count == 3
    assert 0 <= segment < segments
    assert window >= 1
    reachable = reachability.chunk_reachable(segment * count + count - 1, segments * count, count, window, eagle)
    assert reachable


@claim(
    reachability.chunk_reachable,
    sizes="grid",
    bounds="segments of 4 chunks, any window and number of segments, a last segment of 0 to 3 chunks",
    laws=("DS-7",),
)
def only_the_window_of_a_segment_is_stored(
    segment: int, segments: int, short: int, position: int, window: int, eagle: bool
) -> None:
    """Of a segment exactly the chunks in the window before its end are stored, one more with EAGLE; a last segment that is
    short ends where it ends (DS-7).
    """
    assert 0 <= segment <= segments
    assert 0 <= short < 4
    assert 0 <= position < (4 if segment < segments else short)
    assert window >= 1
    length = 4 if segment < segments else short
    reachable = reachability.chunk_reachable(segment * 4 + position, segments * 4 + short, 4, window, eagle)
    assert reachable == (position + window + eagle >= length)


@claim(reachability.load_range, sizes="all", bounds="any number of local columns and external tokens, any size", laws=("LD-1",))
def load_covers_the_external_tokens(columns: int, external: int, size: int) -> None:
    """A load covers exactly the columns that hold external tokens (LD-1)."""
    assert columns >= 0
    assert external >= 1
    assert size >= 1
    first, amount = reachability.load_range(columns * size, external, size)
    assert first == columns
    assert (amount - 1) * size < external <= amount * size


@claim(reachability.chunk_hash_index, sizes="all", bounds="any chunk, hashes in it, and hash block", laws=("DS-6",))
def chunk_key_names_the_chunk_end(chunk: int, hashes: int, hash_block: int) -> None:
    """The hash that names an offloaded chunk ends where the chunk ends (DS-6)."""
    assert chunk >= 0
    assert hashes >= 1
    assert hash_block >= 1
    index = reachability.chunk_hash_index(chunk, hashes)
    assert (index + 1) * hash_block == (chunk + 1) * hashes * hash_block


@claim(
    reachability.storable_blocks,
    sizes="grid",
    bounds="blocks of 4 tokens on each of 1, 2 and 4 ranks; any number of tokens",
    laws=("DS-6",),
)
def stored_blocks_are_whole(tokens: int, dcp_size: int) -> None:
    """A store takes the blocks that are full on all ranks together, and all of them (DS-6)."""
    assert tokens >= 0
    assert dcp_size == 1 or dcp_size == 2 or dcp_size == 4
    blocks = reachability.storable_blocks(tokens, 4, True, dcp_size)
    assert blocks * 4 * dcp_size <= tokens < (blocks + 1) * 4 * dcp_size


@claim(
    reachability.window_block_bound,
    reachability.chunk_window_sliding,
    geometry.skipped_tokens_window,
    geometry.ceil_div,
    sizes="grid",
    bounds="blocks of 4 tokens, chunks of one block; any window and length",
    laws=("LV-9",),
)
def window_load_stays_within_its_bound(window: int, total: int) -> None:
    """The load of a window has at most as many blocks as its bound says, at any offset: one more than hold it (LV-9)."""
    assert window >= 1
    assert total >= 1
    most = reachability.window_block_bound(reachability.chunk_window_sliding(window, 4), 1)
    first = geometry.skipped_tokens_window(total, window) // 4
    assert geometry.ceil_div(total, 4) - first <= most
    assert 4 * (most - 2) < window <= 4 * (most - 1)


@claim(
    retention.admission_cap_window,
    sizes="grid",
    bounds="blocks of 4 tokens; any window, tokens beside it and in flight, and length",
)
def admission_cap_covers_a_window_at_any_offset(window: int, extra: int, inflight: int, offset: int, length: int) -> None:
    """The blocks that the gate reserves for a window, with what is kept beside it and what is in flight, are enough at any
    offset: one more than hold those tokens (2.8).
    """
    assert window >= 2
    assert extra >= 0
    assert inflight >= 0
    assert length >= 1
    assert 0 <= offset < 4
    cap = retention.admission_cap_window(window, extra, inflight, length, 4)
    live = min(window - 1 + extra + inflight, length)
    assert (offset + live - 1) // 4 + 1 <= cap
    assert 4 * (cap - 2) < live


@claim(
    reachability.host_pool_size, sizes="grid", bounds="any number of device blocks; a device of 4 bytes, any bytes of the host"
)
def host_pool_has_a_block(gpu_blocks: int, cpu_bytes: int) -> None:
    """The host pool has the share of the device's blocks that fits into its bytes, and its null block even if nothing else
    fits; a count on which the workers agreed goes first (2.8).
    """
    assert gpu_blocks >= 0
    assert cpu_bytes >= 0
    size = reachability.host_pool_size(
        explicit=None, capacity=1, worker_count=None, gpu_blocks=gpu_blocks, cpu_bytes=cpu_bytes, gpu_bytes=4
    )
    agreed = reachability.host_pool_size(
        explicit=None, capacity=1, worker_count=7, gpu_blocks=gpu_blocks, cpu_bytes=cpu_bytes, gpu_bytes=4
    )
    share = gpu_blocks * cpu_bytes
    assert size >= 1
    assert share < 4 * size + 4
    assert size == 1 or 4 * size <= share
    assert agreed == 7
