"""Arithmetic of offloading: chunks, what is worth storing, load ranges, host pool (docs/semantics.md 2.7, 2.8, T29).

A *chunk* is a fixed number of consecutive blocks of one group that the native connector moves as a unit. Sizes are in
tokens unless a name says blocks or chunks; indices are 0-based.
"""

from kvproof.core import geometry


def tokens_per_block(block_size: int, sharded: bool, dcp_size: int) -> int:
    """Tokens of one offloaded block: the effective size of the group (2.7, DS-6)."""
    return geometry.effective_block_size(block_size, sharded, dcp_size)


def tokens_per_chunk(block_tokens: int, blocks_per_chunk: int) -> int:
    """Tokens of one chunk of `blocks_per_chunk` blocks of `block_tokens` tokens each (2.7)."""
    return block_tokens * blocks_per_chunk


def resolve_blocks_per_chunk(*, blocks_per_chunk: int | None, chunk_size: int | None, block_tokens: tuple[int, ...]) -> int:
    """Blocks of a chunk from either setting, 1 without one (2.7).

    `chunk_size` is in tokens and needs groups of one size, `block_tokens` holding one size per offloadable group.
    Raises GeometryError if both are set, a setting is below 1, the groups differ, or the chunk is not whole blocks.
    """
    if blocks_per_chunk is not None and chunk_size is not None:
        raise geometry.GeometryError("set blocks per chunk or a chunk size, not both")
    if blocks_per_chunk is not None:
        if blocks_per_chunk < 1:
            raise geometry.GeometryError(f"{blocks_per_chunk} blocks per chunk: set at least one")
        return blocks_per_chunk
    if chunk_size is None:
        return 1
    if len(set(block_tokens)) != 1:
        raise geometry.GeometryError(
            f"a chunk size in tokens needs groups of one size, not {block_tokens}: set blocks per chunk instead"
        )
    if chunk_size < 1 or chunk_size % block_tokens[0]:
        raise geometry.GeometryError(f"chunk size {chunk_size} is no positive multiple of {block_tokens[0]} tokens")
    return chunk_size // block_tokens[0]


def storable_blocks(tokens: int, block_size: int, sharded: bool, dcp_size: int) -> int:
    """Whole blocks of a group in the first `tokens` offloadable tokens (2.7, DS-6, vllm#41549).

    Counted in tokens of a block over all ranks, as the keys are, never in tokens of a block on one rank.
    """
    return tokens // tokens_per_block(block_size, sharded, dcp_size)


def hashes_per_chunk(chunk_tokens: int, block_tokens: int, hash_block: int) -> int:
    """Prefix hashes of one chunk; raises GeometryError unless H divides the tokens of a block (2.7)."""
    if block_tokens % hash_block:
        raise geometry.GeometryError(f"hash block {hash_block} does not divide the {block_tokens} tokens of a block")
    return chunk_tokens // hash_block


def chunk_hash_index(chunk: int, hashes: int) -> int:
    """Index of the prefix hash in the key of chunk `chunk`, with `hashes` hashes per chunk (2.7, DS-6)."""
    return hashes * (chunk + 1) - 1


def chunk_window_sliding(window: int, chunk_tokens: int, extra: int = 0) -> int:
    """Chunks that a sliding window of `window` tokens needs before a resume point (2.7)."""
    return max(geometry.ceil_div(window, chunk_tokens), geometry.ceil_div(window - 1 + extra, chunk_tokens))


def chunk_window_chunked(local_chunk: int, chunk_tokens: int) -> int:
    """Chunks that local attention over `local_chunk` tokens needs (2.7)."""
    return geometry.ceil_div(local_chunk, chunk_tokens)


def window_block_bound(window: int, blocks_per_chunk: int) -> int:
    """Most blocks that a load may fill in a group whose window is `window` chunks (2.7, vllm#48959).

    One more than the window's blocks: a window that begins inside a block reads a part of one more.
    """
    return window * blocks_per_chunk + 1


CHUNK_WINDOW_MAMBA = 1
"""Chunks that a recurrent group needs: the one with the state (2.7)."""


def alignment_tokens(attention_chunks: tuple[int, ...], other_chunks: tuple[int, ...]) -> int | None:
    """Alignment of native offloading from the chunk sizes of the groups, in tokens (2.7).

    The size that all full-attention groups share, None if they differ; without such a group the largest chunk. Raises
    GeometryError without any group.
    """
    if attention_chunks:
        return attention_chunks[0] if len(set(attention_chunks)) == 1 else None
    if not other_chunks:
        raise geometry.GeometryError("no offloadable group: leave the connector out")
    return max(other_chunks)


# --- the rule of vLLM 0.26 to 0.29 (`store_reachability = segments`) ----------------------------------------------


def alignment_chunk_count(*, full_attention: bool, alignment: int | None, chunk_tokens: int, window: int) -> int | None:
    """Chunks between two aligned resume points, or None if every chunk is worth storing (2.7).

    `window` is the group's window in chunks (not read for full attention).
    """
    if full_attention or alignment is None or alignment <= chunk_tokens:
        return None
    count = alignment // chunk_tokens
    return None if window >= count else count


def chunk_reachable(j: int, n: int, count: int | None, window: int, eagle: bool = False) -> bool:
    """Whether chunk `j` of `n` storable ones can serve an aligned resume (2.7, DS-7).

    `count` comes from `alignment_chunk_count`, `window` is in chunks. A short last segment keeps its own tail.
    """
    if count is None:
        return True
    pos = j % count
    segment = min(count, n - (j - pos))
    return pos >= segment - (window + int(eagle))


# --- the rule of 0.33.0 for recurrent groups ----------------------------------------------------------------------


def handoff_storable(block_id: int, boundary: int, limit: int, chunk_tokens: int) -> bool:
    """Whether the native connector stores the state handed over at `boundary`, `limit` being offloadable (2.7)."""
    return block_id != 0 and boundary <= limit and boundary % chunk_tokens == 0


def native_partial_tails(
    *,
    blocks_per_chunk: int,
    attention_sizes: tuple[int, ...],
    recurrent_sizes: tuple[int, ...],
    windowed: bool,
    hash_block: int,
    dcp_size: int,
) -> bool:
    """Whether the native connector stores tails shorter than a block (2.7); sizes are tokens per block."""
    return (
        blocks_per_chunk == 1
        and len(set(attention_sizes + recurrent_sizes)) == 1
        and any(size > hash_block for size in recurrent_sizes)
        and not windowed
        and dcp_size == 1
    )


# --- loads and pools ----------------------------------------------------------------------------------------------


def load_range(aligned: int, external: int, size: int) -> tuple[int, int]:
    """First table column and number of columns that a load of `external` tokens behind `aligned` fills (T29, LD-1).

    `size` is the effective block size; `aligned` must be a multiple of it (S divides it), which T29 asserts.
    """
    return aligned // size, geometry.ceil_div(external, size)


def lazy_span(block_size: int, sharded: bool, dcp_size: int) -> int:
    """Tokens that the lazy target counts for one block: the effective size of the group (2.8, DS-1, M-GEO-4)."""
    return geometry.effective_block_size(block_size, sharded, dcp_size)


LAZY_BLOCKS_MAMBA = 2
"""Blocks that the lazy target counts for a recurrent group (2.8)."""


def lazy_blocks_window(window: int, effective_size: int) -> int:
    """Blocks that the lazy target counts for a sliding-window group (2.8)."""
    return geometry.ceil_div(window, effective_size) + 1


def lazy_blocks_other(max_batched_tokens: int, effective_size: int) -> int:
    """Blocks that the lazy target counts for any other group (2.8)."""
    return geometry.ceil_div(max_batched_tokens, effective_size)


def lazy_target(blocks: tuple[int, ...]) -> int:
    """Device blocks that lazy mode keeps safe: twice the sum over the cacheable groups (2.8)."""
    return 2 * sum(blocks)


def host_pool_size(
    *, explicit: int | None, capacity: int, worker_count: int | None, gpu_blocks: int, cpu_bytes: int, gpu_bytes: int
) -> int:
    """Blocks of the host pool, its null block included (2.8); one less can be used.

    An explicit count in 1..capacity, else the count that the workers agreed on, else the share of the device blocks
    that fits into `cpu_bytes` when the device holds `gpu_bytes`. Raises GeometryError for a count out of range.
    """
    if explicit is not None:
        if not 1 <= explicit <= capacity:
            raise geometry.GeometryError(f"host pool of {explicit} blocks: choose 1 to {capacity}")
        return explicit
    if worker_count is not None:
        return worker_count
    return max(1, gpu_blocks * cpu_bytes // gpu_bytes)
