"""The native offloading connector: chunks, keys, the mask of stored blocks, handoffs, and what a load fills (2.7, 8.3)."""

from __future__ import annotations

import pytest

from kvproof.core import native
from kvproof.core.config import Config, Group, configure
from kvproof.core.geometry import GeometryError

FA, SWA, MAMBA, CHUNKED, SCRATCH = "full_attention", "sliding_window", "mamba_align", "chunked_local", "scratch"


def pair(**settings: int) -> Config:
    """FA16 and Mamba16 under N=2: blocks of 32 and 16 tokens, H=16."""
    return configure((Group(FA, 16), Group(MAMBA, 16)), dcp_size=2, num_blocks=8, **settings)  # type: ignore[arg-type]


def test_dcp_scales_attention_but_not_mamba_group_blocks() -> None:
    """8.3: 16-token blocks under N=2 are (32, 16), the alignment is that of attention, of four Mamba chunks 1 and 3 are reachable."""
    connector = native.resolve(pair())
    assert [chunked.block_tokens for chunked in connector.groups] == [32, 16]
    assert [chunked.chunk_tokens for chunked in connector.groups] == [32, 16]
    assert [chunked.hashes for chunked in connector.groups] == [2, 1]
    assert [chunked.window for chunked in connector.groups] == [None, 1]
    assert connector.alignment == 32
    assert [native.segment_chunks(connector, chunked, 4) for chunked in connector.groups] == [(0, 1, 2, 3), (1, 3)]
    assert native.segment_chunks(connector, connector.groups[1], 3) == (1, 2)


def test_a_chunk_may_be_several_blocks() -> None:
    """2.7: sizes, hashes and keys of chunks of three blocks; a chunk size in tokens needs groups of one size."""
    connector = native.resolve(pair(), blocks_per_chunk=3)
    assert [(chunked.chunk_tokens, chunked.hashes) for chunked in connector.groups] == [(96, 6), (48, 3)]
    nodes = tuple(range(16, 400, 16))
    assert native.chunk_key(nodes, connector.groups[0], 1) == (192, 0)
    assert native.chunk_key(nodes, connector.groups[1], 1) == (96, 1)
    assert native.chunk_blocks(connector, (1, 5, 6, 7, 2, 4, 9, 3, 8), 1) == (7, 2, 4)
    with pytest.raises(GeometryError, match="groups of one size"):
        native.resolve(pair(), chunk_size=64)
    with pytest.raises(IndexError):
        native.chunk_key(nodes[:11], connector.groups[0], 1)


def test_scratch_groups_are_not_moved() -> None:
    """2.7, M-SCR-1: only what is cached is offloadable."""
    config = configure((Group(FA, 32), Group(SCRATCH, 8)), hash_block_size=32, num_blocks=8)
    assert [chunked.group for chunked in native.resolve(config).groups] == [0]


def test_without_full_attention_the_largest_chunk_aligns() -> None:
    """2.7: alignment tokens without full attention, and with two sizes of it."""
    assert native.resolve(configure((Group(SWA, 16, window=20), Group(MAMBA, 64)), num_blocks=8)).alignment == 64
    two = configure((Group(FA, 16), Group(FA, 16, sharded=False), Group(MAMBA, 16)), dcp_size=2, num_blocks=8)
    assert native.resolve(two).alignment is None


def window_of_17(retention: int | None) -> Config:
    """FA64 and a window of 17 tokens in blocks of 16: the next position reads one block before a resume point."""
    groups = (Group(FA, 64), Group(SWA, 16, window=17))
    return configure(groups, num_blocks=8, retention=retention)


def test_the_mask_keeps_what_an_aligned_resume_reads_and_the_end() -> None:
    """2.7, 2.9: blocks 3 and 7 of eight (alignment 64), and the last of a final partial segment."""
    config = window_of_17(None)
    connector = native.resolve(config)
    window = connector.groups[1]
    assert connector.alignment == 64
    kept = [index for index, stored in enumerate(native.block_mask(config, connector, window, 8)) if stored]
    assert kept == [3, 7]
    assert native.block_mask(config, connector, window, 6)[4:] == (False, True)
    assert native.block_mask(config, connector, connector.groups[0], 2) == (True, True)
    sparse = window_of_17(0)
    assert not any(native.block_mask(sparse, native.resolve(sparse), window, 8))
    reach = native.block_mask(sparse, native.resolve(sparse), window, 8, (130,))
    assert [index for index, stored in enumerate(reach) if stored] == [7]


@pytest.mark.parametrize(
    ("retention", "reach", "kept"), [(None, (), range(8)), (64, (), (3, 7)), (0, (), ()), (0, (100,), (5,))]
)
def test_the_mask_of_states_follows_the_retention(retention: int | None, reach: tuple[int, ...], kept: tuple[int, ...]) -> None:
    """2.9: states at multiples of 16, aligned to attention's 32: every one, every fourth, none, and the one before 100."""
    config = configure((Group(FA, 16), Group(MAMBA, 16)), dcp_size=2, num_blocks=8, retention=retention)
    connector = native.resolve(config)
    mask = native.block_mask(config, connector, connector.groups[1], 8, reach)
    assert [index for index, stored in enumerate(mask) if stored] == list(kept)


def test_a_chunk_is_stored_if_the_mask_keeps_a_block_and_none_of_those_is_null() -> None:
    """2.7: the scan over a table with nulled blocks; states of Mamba align are not scanned."""
    config = window_of_17(None)
    connector = native.resolve(config, blocks_per_chunk=2)
    window = connector.groups[1]
    assert connector.alignment == 128
    assert native.scanned_chunks(config, connector, window, (0, 0, 0, 0, 0, 0, 5, 6), 128) == (3,)
    assert native.scanned_chunks(config, connector, window, (0, 0, 0, 0, 0, 0, 5, 0), 128) == ()
    assert native.scanned_chunks(config, connector, window, (0, 0, 0, 0, 0, 0, 0, 6), 128) == (3,)
    assert native.scanned_chunks(config, connector, window, (1, 2, 3, 4, 5, 6, 7, 8), 127) == (2,)
    assert native.chunk_is_whole((True, True), (0, 6)) is False
    assert native.chunk_is_whole((False, False), (5, 6)) is False
    mamba = pair()
    assert native.scanned_chunks(mamba, native.resolve(mamba), native.resolve(mamba).groups[1], (1, 2), 32) == ()
    assert native.scanned_chunks(mamba, native.resolve(mamba), native.resolve(mamba).groups[0], (1, 2), 64) == (0, 1)


@pytest.mark.parametrize(
    ("block", "boundary", "limit", "stored"),
    [(3, 48, 50, True), (0, 48, 50, False), (3, 48, 47, False), (3, 40, 50, False), (3, 48, 48, True)],
)
def test_a_state_is_stored_by_its_handoff(block: int, boundary: int, limit: int, stored: bool) -> None:
    """2.7: not block 0, not behind the offloadable tokens, and only at the end of a chunk."""
    mamba = native.resolve(pair()).groups[1]
    assert native.accepts_handoff(mamba, block, boundary, limit) is stored


def test_partial_tails_need_one_rank_and_one_size() -> None:
    """2.7: with DCP, with unequal sizes or with a window the connector stores no tail inside a block."""
    assert native.resolve(configure((Group(FA, 64), Group(MAMBA, 64)), hash_block_size=16, num_blocks=8)).partial_tails
    assert not native.resolve(pair()).partial_tails
    assert not native.resolve(configure((Group(FA, 32), Group(MAMBA, 64)), hash_block_size=16, num_blocks=8)).partial_tails
    windowed = (Group(FA, 64), Group(MAMBA, 64), Group(SWA, 64, window=65))
    assert not native.resolve(configure(windowed, hash_block_size=16, num_blocks=8)).partial_tails
    whole = configure((Group(FA, 64), Group(MAMBA, 64)), hash_block_size=16, num_blocks=8)
    assert not native.resolve(whole, blocks_per_chunk=2).partial_tails


def test_an_unaligned_window_touches_one_block_more() -> None:
    """#48959: a window of 4,096 at 98,012 tokens in blocks of 32 begins inside block 2,934: 129 blocks, its own are 128."""
    groups = (Group(FA, 32), Group(SWA, 32, window=4096))
    config = configure(groups, num_blocks=8, max_model_len=1 << 17)
    connector = native.resolve(config)
    window = connector.groups[1]
    found = native.loading(config, connector, window, 0, 98_012)
    assert (found.first, found.blocks, window.window) == (2934, 129, 128)
    assert (found.chunk, found.end) == (2934, 3063)
    with pytest.raises(GeometryError, match="fills 130 blocks, and the window touches at most 129"):
        native.check_window(connector, window, 130)
    native.check_window(connector, connector.groups[0], 3063)


def test_a_load_fills_what_is_read_afterwards() -> None:
    """T29: attention from the local end on, the last state, and of a chunk what is begun."""
    config = configure((Group(FA, 16), Group(MAMBA, 16), Group(CHUNKED, 16, window=32)), num_blocks=8)
    connector = native.resolve(config, blocks_per_chunk=2)
    found = [native.loading(config, connector, chunked, 16, 64) for chunked in connector.groups]
    assert [(load.first, load.blocks) for load in found] == [(1, 4), (4, 1), (4, 1)]
    assert [(load.chunk, load.end) for load in found] == [(0, 3), (2, 3), (2, 3)]
    at_an_edge = native.loading(config, connector, connector.groups[2], 16, 48)
    assert (at_an_edge.first, at_an_edge.blocks, at_an_edge.chunk == at_an_edge.end) == (4, 0, True)
    with pytest.raises(GeometryError, match="8 local tokens end inside a block of 16"):
        native.loading(config, connector, connector.groups[0], 8, 16)


def test_the_mask_of_an_attention_group_keeps_everything_whatever_the_retention() -> None:
    """2.9: retention is about windows and states; an attention block is always kept."""
    config = pair(retention=0)
    connector = native.resolve(config)
    assert connector.alignment == 32
    assert native.block_mask(config, connector, connector.groups[0], 4) == (True,) * 4
    assert native.block_mask(config, connector, connector.groups[1], 4) == (False,) * 4
