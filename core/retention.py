"""Retention masks (docs/semantics.md 2.9), admission caps (2.8), internal checkpoints and prefill clipping (T38, T22).

`retention` is None (dense), 0 (sparse) or a positive multiple of the scheduler block size, in tokens. `reach` are the
token counts at which a resend of the request may resume: its replay boundaries and its junction. The masks do not know
the table: a null block is never registered, whatever they say.
"""

from kvproof.core import geometry


def attention_mask(_index: int) -> bool:
    """Full attention and chunked local attention register every full block (2.9)."""
    return True


def mamba_mask(index: int, block_size: int, alignment: int, retention: int | None, reach: tuple[int, ...]) -> bool:
    """Whether a Mamba-align group registers the state at the end of column `index` (2.9).

    `block_size` is B and `alignment` the hit alignment A, both in tokens.
    """
    if retention is None:
        return True
    if retention > 0:
        step = retention // block_size
        if step <= 1 or (index + 1) % step == 0:
            return True
    return any(index == boundary // alignment * alignment // block_size - 1 for boundary in reach)


def window_need(window: int, effective_size: int, eagle: bool = False) -> int:
    """Blocks before a resume point that a sliding window of `window` tokens reads, one more with EAGLE (2.9)."""
    return geometry.ceil_div(window - 1, effective_size) + int(eagle)


def window_segment(effective_size: int, alignment: int, retention: int | None) -> int:
    """Blocks of one retention segment of a windowed group; 0 means that no segment is kept (2.9)."""
    return (alignment if retention is None else retention) // effective_size


def swa_mask(
    index: int,
    *,
    window: int,
    effective_size: int,
    alignment: int,
    retention: int | None,
    reach: tuple[int, ...],
    eagle: bool = False,
) -> bool:
    """Whether a sliding-window group registers full block `index` (2.9); all sizes in tokens."""
    if alignment % effective_size:
        return True
    need = window_need(window, effective_size, eagle)
    shift = int(eagle)
    per = window_segment(effective_size, alignment, retention)
    if per and (need >= per or (index >= shift and (index - shift) % per >= per - need)):
        return True
    if retention is None:
        return False
    ends = (boundary // alignment * alignment // effective_size + shift for boundary in reach)
    return any(end - need <= index < end for end in ends)


def swa_store_mask(
    index: int,
    *,
    num_storable: int,
    window: int,
    effective_size: int,
    alignment: int | None,
    retention: int | None,
    reach: tuple[int, ...],
    eagle: bool = False,
) -> bool:
    """The mask as the native connector applies it to `num_storable` blocks (2.7, `store_reachability = mask`).

    `alignment` are its own alignment tokens (`reachability.alignment_tokens`); unknown means that everything is stored.
    Without EAGLE the last blocks of a final partial segment stay reachable too.
    """
    if alignment is None or swa_mask(
        index,
        window=window,
        effective_size=effective_size,
        alignment=alignment,
        retention=retention,
        reach=reach,
        eagle=eagle,
    ):
        return True
    per = window_segment(effective_size, alignment, retention)
    if eagle or not per:
        return False
    kept = min(window_need(window, effective_size), num_storable % per)
    return num_storable - kept <= index < num_storable


def most_in_flight(max_chunk: int, max_steps: int) -> int:
    """Most tokens of a request that can be scheduled and not yet processed: a largest chunk in every step in flight (2.8)."""
    return max_chunk * max_steps


def admission_cap_window(window: int, extra: int, inflight: int, max_model_len: int, block_size: int) -> int:
    """Most blocks that admission counts for a sliding-window group; all but `block_size` in tokens too (2.8)."""
    return geometry.ceil_div(min(window - 1 + extra + inflight, max_model_len), block_size) + 1


def admission_cap_chunked(chunk: int, inflight: int, max_model_len: int, block_size: int) -> int:
    """Most blocks that admission counts for a chunked-local group (2.8)."""
    return geometry.ceil_div(min(chunk + inflight, max_model_len), block_size)


# --- T38 and T22: where the chunks of a prefill end ---------------------------------------------------------------


def checkpoint_fits(
    start: int, end: int, position: int, *, block_size: int, hash_block: int, checkpoint_alignment: int | None
) -> bool:
    """Whether the chunk `[start, end)` can write an internal checkpoint at `position` tokens (T38.2).

    `checkpoint_alignment` is the backend's, in tokens from the start of the chunk; None if it exports none.
    """
    return (
        checkpoint_alignment is not None
        and start % hash_block == 0
        and geometry.ceil_div(end, block_size) - 2 > (start - 1) // block_size
        and start + hash_block <= position < end
        and (position - start) % checkpoint_alignment == 0
    )


def checkpoint_of(
    start: int,
    end: int,
    *,
    block_size: int,
    hash_block: int,
    alignment: int,
    eagle: bool,
    checkpoint_alignment: int | None,
) -> tuple[int, int] | None:
    """Position (tokens) and column of the internal checkpoint of the chunk `[start, end)`, None if it has none (T38.1, T38.2).

    `alignment` is the hit alignment A, `eagle` says that there is an EAGLE drop.
    """
    position = geometry.checkpoint_boundary(end, alignment, eagle)
    fits = checkpoint_fits(
        start, end, position, block_size=block_size, hash_block=hash_block, checkpoint_alignment=checkpoint_alignment
    )
    return (position, checkpoint_column(end, block_size)) if fits else None


def checkpoint_column(end: int, block_size: int) -> int:
    """Column that takes the internal checkpoint of a chunk to `end`: the one before the running column (T38.1, M-CKPT-1)."""
    return geometry.ceil_div(end, block_size) - 2


def clips_fine(fine_grained: bool, hash_block: int, scheduler_block: int) -> bool:
    """Whether clipping stops at the prompt tail: fine-grained hits are on and H < S (T22)."""
    return fine_grained and hash_block < scheduler_block


def clip_chunk(
    *,
    start: int,
    wanted: int,
    num_tokens: int,
    num_prompt: int,
    clip_block: int,
    hash_block: int,
    fine: bool,
    junction: int = 0,
    max_chunk: int,
    eagle: bool = False,
    internal_checkpoint: bool = False,
    alignment: int = 1,
    checkpoint_alignment: int | None = None,
    mamba_blocks: tuple[int, ...] = (),
    shared_prefix_checkpoint: bool = False,
) -> int:
    """How many of the `wanted` tokens from `start` a prefill step computes; 0 skips the request this step (T22).

    Tokens throughout. `clip_block` is the clipping unit B; `fine` comes from `clips_fine`; `junction` is 0 if there is
    none; `max_chunk` is the largest chunk that a step can hold (budget and long-prefill limit). `internal_checkpoint`
    says that every Mamba group can export one, at `checkpoint_alignment`, with hit alignment `alignment` and Mamba
    blocks of `mamba_blocks` (default: `clip_block`), all of which it must fit. Decoding is never clipped.
    """
    prefill_end = max(num_prompt, num_tokens - 1)
    if start >= prefill_end:
        return wanted
    end = start + wanted
    internal = (
        internal_checkpoint
        and end >= prefill_end
        and all(
            checkpoint_fits(
                start,
                end,
                geometry.checkpoint_boundary(prefill_end, alignment, eagle),
                block_size=block,
                hash_block=hash_block,
                checkpoint_alignment=checkpoint_alignment,
            )
            for block in mamba_blocks or (clip_block,)
        )
    )
    if end < prefill_end:
        floored = end // clip_block * clip_block
        if floored > start or clip_block <= max_chunk:
            end = floored
    for stop in prefill_stops(
        start=start,
        end=end,
        num_tokens=num_tokens,
        num_prompt=num_prompt,
        clip_block=clip_block,
        hash_block=hash_block,
        fine=fine,
        junction=junction,
        eagle=eagle,
        internal=internal,
        shared_prefix_checkpoint=shared_prefix_checkpoint,
    ):
        if start < stop < end:
            end = stop
    return max(end - start, 0)


def close_open_blocks(start: int, amount: int, block_sizes: tuple[int, ...]) -> int:
    """How many of `amount` tokens a prefill chunk from `start` computes so that no open state block is left behind (T22.5).

    `block_sizes` are those of the recurrent groups. A group's column in which `start` falls holds the state at `start`;
    a chunk that runs past the column's end without ending there would leave that state under the key of the full block.
    """
    ends = [(start // size + 1) * size for size in block_sizes if start % size]
    return min([amount, *(end - start for end in ends)])


def prefill_stops(
    *,
    start: int,
    end: int,
    num_tokens: int,
    num_prompt: int,
    clip_block: int,
    hash_block: int,
    fine: bool,
    junction: int,
    eagle: bool,
    internal: bool,
    shared_prefix_checkpoint: bool,
) -> tuple[int, ...]:
    """Token counts at which a chunk from `start` should end, in no order (T22 steps 2, 4 and 5).

    `internal` says that the chunk writes its checkpoint inside, which makes ending at one superfluous.
    """
    stops: list[int] = []
    last = 0 if internal else geometry.checkpoint_boundary(num_tokens, clip_block, eagle)
    stops.append(last)
    if start % clip_block and not internal:
        stops.append((start // clip_block + 1) * clip_block)
    if fine and not internal:
        tail = geometry.checkpoint_boundary(num_prompt, hash_block, eagle)
        if last < tail < num_prompt:
            stops.append(tail)
    if start < junction < end:
        exact = shared_prefix_checkpoint and junction <= num_prompt
        stops.append(junction if exact else start + (junction - start) // clip_block * clip_block)
    return tuple(stops)
