"""The native offloading connector over a configuration: chunks and keys, what is stored, what a load fills (2.7).

The arithmetic is in ``reachability``; here it meets the groups of a :class:`Config`. Sizes are in tokens unless a name says
blocks or chunks. The connector of the host tier (``core/offload``) moves single blocks and uses none of this.
"""

from __future__ import annotations

from typing import TypeVar

from attrs import frozen

from kvproof.core import geometry, kinds, reachability, retention
from kvproof.core.config import Config, Group

Entry = TypeVar("Entry")


@frozen(slots=True)
class Chunked:
    """One offloadable group: tokens of a block and of a chunk, prefix hashes per chunk, and the window in chunks.

    ``window`` is None where every chunk before a resume point is read (full attention).
    """

    group: int
    block_tokens: int
    chunk_tokens: int
    hashes: int
    window: int | None


@frozen(slots=True)
class Native:
    """The connector's geometry. ``alignment`` are its alignment tokens, None if full attention has several sizes.

    ``partial_tails``: whether it stores tails shorter than a block.
    """

    groups: tuple[Chunked, ...]
    blocks_per_chunk: int
    alignment: int | None
    partial_tails: bool


@frozen(slots=True)
class Loading:
    """What a load fills in one group: ``blocks`` table entries from entry ``first`` on, from chunks [``chunk``, ``end``)."""

    group: int
    first: int
    blocks: int
    chunk: int
    end: int


# --- geometry -----------------------------------------------------------------------------------------------------


def offloadable(config: Config) -> tuple[int, ...]:
    """Return the groups whose blocks the connector moves: those that are cached, no scratch group (2.7, M-SCR-1)."""
    return tuple(index for index, group in enumerate(config.groups) if group.prefix_cacheable)


def resolve(config: Config, *, blocks_per_chunk: int | None = None, chunk_size: int | None = None) -> Native:
    """Return the geometry of a configuration (2.7). Raises GeometryError for settings that do not fit its groups."""
    found = offloadable(config)
    blocks = tuple(_block_tokens(config, group) for group in found)
    per_chunk = reachability.resolve_blocks_per_chunk(
        blocks_per_chunk=blocks_per_chunk, chunk_size=chunk_size, block_tokens=blocks
    )
    groups = tuple(_chunked(config, group, size, per_chunk) for group, size in zip(found, blocks, strict=True))
    full = tuple(chunked.chunk_tokens for chunked in groups if chunked.window is None)
    other = tuple(chunked.chunk_tokens for chunked in groups if chunked.window is not None)
    return Native(groups, per_chunk, reachability.alignment_tokens(full, other), _partial_tails(config, groups, per_chunk))


def _block_tokens(config: Config, group: int) -> int:
    spec = config.groups[group]
    return reachability.tokens_per_block(spec.block_size, bool(spec.sharded), config.dcp_size)


def _chunked(config: Config, group: int, block_tokens: int, blocks_per_chunk: int) -> Chunked:
    chunk_tokens = reachability.tokens_per_chunk(block_tokens, blocks_per_chunk)
    hashes = reachability.hashes_per_chunk(chunk_tokens, block_tokens, config.hash_block_size)
    return Chunked(group, block_tokens, chunk_tokens, hashes, chunk_window(config.groups[group], chunk_tokens))


def chunk_window(spec: Group, chunk_tokens: int) -> int | None:
    """Return the chunks that a group reads before a resume point, None for all of them (2.7)."""
    can = kinds.of(spec.kind).CAPABILITIES
    if can.recurrent:
        return reachability.CHUNK_WINDOW_MAMBA
    if not can.windowed or spec.window is None:
        return None
    if spec.kind == "chunked_local":
        return reachability.chunk_window_chunked(spec.window, chunk_tokens)
    return reachability.chunk_window_sliding(spec.window, chunk_tokens)


def _partial_tails(config: Config, groups: tuple[Chunked, ...], blocks_per_chunk: int) -> bool:
    able = {chunked.group: kinds.of(config.groups[chunked.group].kind).CAPABILITIES for chunked in groups}
    return reachability.native_partial_tails(
        blocks_per_chunk=blocks_per_chunk,
        attention_sizes=tuple(chunked.block_tokens for chunked in groups if not able[chunked.group].recurrent),
        recurrent_sizes=tuple(chunked.block_tokens for chunked in groups if able[chunked.group].snapshots),
        windowed=any(able[chunked.group].windowed for chunked in groups),
        hash_block=config.hash_block_size,
        dcp_size=config.dcp_size,
    )


# --- keys and blocks of a chunk -----------------------------------------------------------------------------------


def storable_chunks(config: Config, native: Native, chunked: Chunked, tokens: int) -> int:
    """Return the whole chunks of a group in the first ``tokens`` offloadable tokens (2.7, DS-6)."""
    spec = config.groups[chunked.group]
    blocks = reachability.storable_blocks(tokens, spec.block_size, bool(spec.sharded), config.dcp_size)
    return blocks // native.blocks_per_chunk


def chunk_key(nodes: tuple[int, ...], chunked: Chunked, chunk: int) -> tuple[int, int]:
    """Return the key of a chunk, (prefix node, group): the node of the boundary at which the chunk ends (2.7, DS-6).

    ``nodes`` are the prefix nodes of the request's hash boundaries. Raises IndexError for a chunk that is not hashed yet.
    """
    return nodes[reachability.chunk_hash_index(chunk, chunked.hashes)], chunked.group


def chunk_blocks(native: Native, table: tuple[Entry, ...], chunk: int) -> tuple[Entry, ...]:
    """Return the entries of a chunk in a table, or in a mask over its blocks (2.7)."""
    first = chunk * native.blocks_per_chunk
    return table[first : first + native.blocks_per_chunk]


# --- what is stored -----------------------------------------------------------------------------------------------


def block_mask(config: Config, native: Native, chunked: Chunked, chunks: int, reach: tuple[int, ...] = ()) -> tuple[bool, ...]:
    """Return per block of the first ``chunks`` storable chunks whether a resume may read it (2.7, 2.9).

    The retention masks with the connector's alignment tokens. ``reach`` are the token counts at which a resend may resume.
    """
    count, spec = chunks * native.blocks_per_chunk, config.groups[chunked.group]
    if spec.kind == "sliding_window":
        return tuple(
            retention.swa_store_mask(
                index,
                num_storable=count,
                window=spec.window or 1,
                effective_size=chunked.block_tokens,
                alignment=native.alignment,
                retention=config.retention,
                reach=reach,
                eagle=config.eagle[chunked.group],
            )
            for index in range(count)
        )
    if spec.kind == "mamba_align" and native.alignment is not None:
        return tuple(
            retention.mamba_mask(index, chunked.block_tokens, native.alignment, config.retention, reach)
            for index in range(count)
        )
    return (True,) * count


def scanned_chunks(
    config: Config, native: Native, chunked: Chunked, table: tuple[int, ...], tokens: int, reach: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Return the chunks that the positional scan stores of the first ``tokens`` tokens of a table (2.7).

    A chunk is stored if the mask keeps one of its blocks, its last block is there, and no block that the mask keeps is null.
    States of Mamba-align groups are not scanned: they come by handoffs.
    """
    if kinds.of(config.groups[chunked.group].kind).CAPABILITIES.snapshots:
        return ()
    chunks = storable_chunks(config, native, chunked, tokens)
    mask = block_mask(config, native, chunked, chunks, reach)
    return tuple(
        chunk
        for chunk in range(chunks)
        if chunk_is_whole(chunk_blocks(native, mask, chunk), chunk_blocks(native, table, chunk))
    )


def chunk_is_whole(mask: tuple[bool, ...], blocks: tuple[int, ...]) -> bool:
    """Tell whether a chunk is stored: some block is kept by the mask, the last is no null block, nor is any kept one (2.7)."""
    return any(mask) and blocks[-1] != 0 and not any(kept and not block for kept, block in zip(mask, blocks, strict=True))


def segment_chunks(native: Native, chunked: Chunked, chunks: int, *, eagle: bool = False) -> tuple[int, ...]:
    """Return the chunks of ``chunks`` storable ones that vLLM 0.26 to 0.29 stored (``store_reachability = segments``, DS-7)."""
    count = reachability.alignment_chunk_count(
        full_attention=chunked.window is None,
        alignment=native.alignment,
        chunk_tokens=chunked.chunk_tokens,
        window=chunked.window or 0,
    )
    return tuple(j for j in range(chunks) if reachability.chunk_reachable(j, chunks, count, chunked.window or 0, eagle))


def accepts_handoff(chunked: Chunked, block: int, boundary: int, limit: int) -> bool:
    """Tell whether a state handed over at ``boundary`` is stored; ``limit`` are the offloadable tokens (2.7)."""
    return reachability.handoff_storable(block, boundary, limit, chunked.chunk_tokens)


# --- what a load fills --------------------------------------------------------------------------------------------


def loading(config: Config, native: Native, chunked: Chunked, local: int, external: int) -> Loading:
    """Return what a load of ``external`` tokens behind ``local`` fills in one group (2.7, T29).

    Entries that nobody reads at the end of the load are null and left out. Raises GeometryError if the local tokens end
    inside a block, or if a windowed group would be filled with more blocks than its window can touch.
    """
    size, total = chunked.block_tokens, local + external
    if local % size:
        raise geometry.GeometryError(
            f"group {chunked.group}: {local} local tokens end inside a block of {size}: load behind whole blocks"
        )
    end = geometry.ceil_div(total, size)
    first = min(max(geometry.ceil_div(local, size), unread_blocks(config, chunked, total)), end)
    check_window(native, chunked, end - first)
    chunk = first // native.blocks_per_chunk
    ends = geometry.ceil_div(total, chunked.chunk_tokens) if end > first else chunk
    return Loading(chunked.group, first, end - first, chunk, ends)


def unread_blocks(config: Config, chunked: Chunked, total: int) -> int:
    """Return the leading blocks that the request does not read any more once ``total`` tokens are there (2.8)."""
    spec = config.groups[chunked.group]
    can = kinds.of(spec.kind).CAPABILITIES
    if can.recurrent:
        skipped = geometry.skipped_tokens_mamba(total)
    elif spec.window is None:
        skipped = geometry.skipped_tokens_attention(total)
    elif spec.kind == "chunked_local":
        skipped = geometry.skipped_tokens_chunked(total, spec.window)
    else:
        skipped = geometry.skipped_tokens_window(total, spec.window)
    return max(skipped, 0) // chunked.block_tokens


def check_window(native: Native, chunked: Chunked, blocks: int) -> None:
    """Refuse a load that fills more blocks of a windowed group than its window can touch (2.7). Raises GeometryError."""
    if chunked.window is None:
        return
    most = reachability.window_block_bound(chunked.window, native.blocks_per_chunk)
    if blocks > most:
        raise geometry.GeometryError(
            f"group {chunked.group}: a load fills {blocks} blocks, and the window touches at most {most}: the table holds "
            "blocks that should be null"
        )
