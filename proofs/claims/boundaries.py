"""Contracts of boundaries, masks, clipping and offloading arithmetic, in the style of `kvproof.proofs.claims.geometry`."""

from kvproof.core import geometry, reachability, retention
from kvproof.proofs.claim import claim

# --- boundaries ---------------------------------------------------------------------------------------------------


@claim(geometry.checkpoint_boundary, sizes="all", bounds="all integers", laws=())
def checkpoint_is_the_last_multiple_strictly_below(n: int, unit: int) -> None:
    """2.8."""
    assert n >= 1
    assert unit >= 1
    boundary = geometry.checkpoint_boundary(n, unit)
    quotient = (n - 1) // unit
    assert 0 <= boundary < n
    assert n - boundary <= unit
    assert boundary == quotient * unit


@claim(geometry.checkpoint_boundary, sizes="all", bounds="all integers", laws=())
def eagle_checkpoint_gives_up_a_unit(n: int, unit: int) -> None:
    """2.8: at least a whole unit remains to be computed, unless nothing is kept."""
    assert n >= 1
    assert unit >= 1
    boundary = geometry.checkpoint_boundary(n, unit, True)
    plain = geometry.checkpoint_boundary(n, unit)
    assert 0 <= boundary <= plain
    assert boundary == 0 or unit <= n - boundary < 2 * unit


@claim(geometry.replay_boundaries, sizes="all", bounds="all integers", laws=("LV-10",))
def replay_boundaries_ascend_below_the_prompt(prompt: int, unit: int) -> None:
    """2.8, LV-10: a resend resumes before the last token."""
    assert prompt >= 1
    assert unit >= 1
    found = geometry.replay_boundaries(prompt, unit, True)
    plain = geometry.replay_boundaries(prompt, unit)
    assert plain == (prompt - 1,)
    assert 1 <= len(found) <= 2
    assert all(0 <= boundary < prompt for boundary in found)
    assert len(found) == 1 or found[0] < found[1]


@claim(geometry.cacheable_tokens, sizes="all", bounds="all integers", laws=("HB-14",))
def cacheable_prefix_is_whole_blocks(tokens: int, block: int) -> None:
    """HB-14, 2.8."""
    assert tokens >= 0
    assert block >= 1
    fine = geometry.cacheable_tokens(tokens, True, block)
    coarse = geometry.cacheable_tokens(tokens, False, block)
    assert fine == tokens
    assert coarse <= tokens < coarse + block


@claim(geometry.cacheable_tokens, geometry.cacheable_tokens_eagle, sizes="all", bounds="all integers", laws=())
def eagle_prefix_stays_within_the_finalised_tokens(tokens: int, block: int, size: int, fine: bool) -> None:
    """2.8: one block more, never past the tokens."""
    assert tokens >= 0
    assert block >= 1
    assert size >= 1
    plain = geometry.cacheable_tokens(tokens, fine, block)
    covered = geometry.cacheable_tokens_eagle(tokens, fine, block, size)
    assert plain <= covered <= tokens
    assert covered <= plain + size


@claim(geometry.prompt_tail_boundary, sizes="all", bounds="all integers", laws=("LV-10",))
def prompt_tail_leaves_the_last_token(prompt: int, hash_block: int, hashes: int) -> None:
    """T9.2, LV-10."""
    assert prompt >= 1
    assert hash_block >= 1
    assert hashes >= 0
    boundary = geometry.prompt_tail_boundary(prompt, hash_block, hashes)
    assert 0 <= boundary < prompt
    assert boundary <= hashes * hash_block


@claim(geometry.skipped_tokens_window, sizes="all", bounds="all integers", laws=("TB-5",))
def window_skips_nothing_that_the_next_position_reads(computed: int, window: int, extra: int) -> None:
    """TB-5, 2.8."""
    assert computed >= 0
    assert window >= 1
    assert extra >= 0
    skipped = geometry.skipped_tokens_window(computed, window, extra)
    assert 0 <= skipped <= computed
    assert skipped == 0 or skipped + window - 1 + extra == computed


@claim(geometry.skipped_tokens_chunked, sizes="all", bounds="all integers", laws=())
def chunk_skips_up_to_its_start(computed: int, chunk: int) -> None:
    """2.8."""
    assert computed >= 0
    assert chunk >= 1
    skipped = geometry.skipped_tokens_chunked(computed, chunk)
    assert 0 <= skipped <= computed < skipped + chunk


@claim(geometry.skipped_tokens_mamba, geometry.ceil_div, sizes="all", bounds="all integers", laws=("TB-6",))
def recurrent_keeps_the_running_state(computed: int, block_size: int) -> None:
    """TB-6: the column of the last computed token is not skipped."""
    assert computed >= 1
    assert block_size >= 1
    skipped = geometry.skipped_tokens_mamba(computed)
    assert skipped // block_size == geometry.ceil_div(computed, block_size) - 1


# --- masks, clipping, offloading ----------------------------------------------------------------------------------


@claim(retention.mamba_mask, sizes="all", bounds="all integers", laws=())
def dense_mask_keeps_every_state(index: int, block_size: int, alignment: int, boundary: int) -> None:
    """2.9."""
    assert index >= 0
    assert block_size >= 1
    assert alignment >= 1
    kept = retention.mamba_mask(index, block_size, alignment, None, (boundary,))
    assert kept


@claim(retention.mamba_mask, sizes="all", bounds="all integers", laws=())
def sparse_mask_keeps_the_state_before_the_boundary(index: int, blocks: int, boundary: int) -> None:
    """2.9: one state per boundary, at or before it; alignment and block of 4 tokens, so `blocks` is its column count."""
    assert index >= 0
    assert blocks >= 0
    assert 4 * blocks <= boundary < 4 * blocks + 4
    kept = retention.mamba_mask(index, 4, 4, 0, (boundary,))
    assert kept == (index + 1 == blocks)


@claim(retention.mamba_mask, sizes="all", bounds="all integers", laws=())
def interval_mask_keeps_the_interval_ends(index: int, quotient: int, remainder: int) -> None:
    """2.9: with an interval of three blocks exactly every third state."""
    assert quotient >= 0
    assert 0 <= remainder < 3
    assert index + 1 == 3 * quotient + remainder
    kept = retention.mamba_mask(index, 4, 4, 12, ())
    assert kept == (remainder == 0)


@claim(retention.clip_chunk, sizes="all", bounds="all integers", laws=())
def clip_never_grows_a_chunk(start: int, wanted: int, prompt: int, extra: int, fine: bool, max_chunk: int) -> None:
    """T22, blocks of 4 and hashes of 2 tokens."""
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


@claim(retention.clip_chunk, sizes="all", bounds="all integers", laws=())
def clip_does_not_touch_decoding(start: int, wanted: int, prompt: int, fine: bool, junction: int) -> None:
    """T22 applies only before the end of the prefill."""
    assert prompt >= 1
    assert start >= prompt
    assert wanted >= 1
    q = retention.clip_chunk(
        start=start,
        wanted=wanted,
        num_tokens=start + 1,
        num_prompt=prompt,
        clip_block=4,
        hash_block=2,
        fine=fine,
        junction=junction,
        max_chunk=1,
    )
    assert q == wanted


@claim(retention.clip_chunk, sizes="all", bounds="all integers", laws=())
def clip_stops_at_the_last_block_boundary(start: int, blocks: int, rest: int, max_chunk: int) -> None:
    """T22.5: a chunk to the end of the prompt never runs past the last state that a resend can use."""
    assert 0 <= start < 4 * blocks
    assert 1 <= rest <= 4
    prompt = 4 * blocks + rest
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
    assert 0 < q <= 4 * blocks - start


@claim(retention.checkpoint_fits, sizes="all", bounds="all integers", laws=())
def checkpoint_inside_a_chunk_is_inside(start: int, length: int, position: int) -> None:
    """T38.2."""
    assert start >= 0
    assert length >= 1
    fits = retention.checkpoint_fits(start, start + length, position, block_size=4, hash_block=2, checkpoint_alignment=1)
    assert not fits or start + 2 <= position < start + length
    assert not fits or start % 2 == 0


@claim(reachability.chunk_reachable, sizes="all", bounds="all integers", laws=("DS-7",))
def segment_end_is_reachable(segment: int, segments: int, count: int, window: int, eagle: bool) -> None:
    """DS-7: the last chunk of a complete segment serves an aligned resume."""
    assert count == 2 or count == 3
    assert 0 <= segment < segments
    assert window >= 1
    reachable = reachability.chunk_reachable(segment * count + count - 1, segments * count, count, window, eagle)
    assert reachable


@claim(reachability.chunk_reachable, sizes="all", bounds="all integers", laws=("DS-7",))
def segment_start_is_not_reachable(segment: int, segments: int, window: int) -> None:
    """DS-7: nothing before the window of a complete segment of four chunks is stored."""
    assert 0 <= segment < segments
    assert 1 <= window <= 3
    reachable = reachability.chunk_reachable(segment * 4, segments * 4, 4, window)
    assert not reachable


@claim(reachability.load_range, sizes="all", bounds="all integers", laws=("LD-1",))
def load_covers_the_external_tokens(columns: int, external: int, size: int) -> None:
    """LD-1: the columns of the load are those that hold external tokens, `columns` being the local ones."""
    assert columns >= 0
    assert external >= 1
    assert size >= 1
    first, amount = reachability.load_range(columns * size, external, size)
    assert first == columns
    assert (amount - 1) * size < external <= amount * size


@claim(reachability.chunk_hash_index, sizes="all", bounds="all integers", laws=("DS-6",))
def chunk_key_names_the_chunk_end(chunk: int, hashes: int, hash_block: int) -> None:
    """DS-6."""
    assert chunk >= 0
    assert hashes >= 1
    assert hash_block >= 1
    index = reachability.chunk_hash_index(chunk, hashes)
    assert (index + 1) * hash_block == (chunk + 1) * hashes * hash_block


@claim(reachability.storable_blocks, sizes="all", bounds="all integers", laws=("DS-6",))
def stored_blocks_are_whole(tokens: int, dcp_size: int) -> None:
    """DS-6: blocks of 4 tokens on each rank of a sharded group."""
    assert tokens >= 0
    assert dcp_size == 1 or dcp_size == 2 or dcp_size == 4
    blocks = reachability.storable_blocks(tokens, 4, True, dcp_size)
    assert blocks * 4 * dcp_size <= tokens < (blocks + 1) * 4 * dcp_size


@claim(
    reachability.window_block_bound,
    reachability.chunk_window_sliding,
    geometry.skipped_tokens_window,
    geometry.ceil_div,
    sizes="all",
    bounds="all integers",
    laws=("LV-9",),
)
def window_load_stays_within_its_bound(window: int, total: int) -> None:
    """LV-9: blocks of 4 tokens that a window touches at any length, chunks of one block."""
    assert window >= 1
    assert total >= 1
    most = reachability.window_block_bound(reachability.chunk_window_sliding(window, 4), 1)
    first = geometry.skipped_tokens_window(total, window) // 4
    assert geometry.ceil_div(total, 4) - first <= most


@claim(retention.admission_cap_window, sizes="all", bounds="all integers", laws=())
def admission_cap_covers_a_window_at_any_offset(window: int, inflight: int, offset: int, length: int) -> None:
    """2.8: blocks of 4 tokens that a window and the tokens in flight can touch."""
    assert window >= 2
    assert inflight >= 0
    assert length >= 1
    assert 0 <= offset < 4
    cap = retention.admission_cap_window(window, 0, inflight, length, 4)
    live = min(window - 1 + inflight, length)
    assert (offset + live - 1) // 4 + 1 <= cap


@claim(reachability.host_pool_size, sizes="all", bounds="all integers", laws=())
def host_pool_has_a_block(gpu_blocks: int, cpu_bytes: int) -> None:
    """2.8: the null block exists even if nothing else fits."""
    assert gpu_blocks >= 0
    assert cpu_bytes >= 0
    size = reachability.host_pool_size(
        explicit=None, capacity=1, worker_count=None, gpu_blocks=gpu_blocks, cpu_bytes=cpu_bytes, gpu_bytes=4
    )
    assert size >= 1
