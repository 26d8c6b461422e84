"""The worked numbers of docs/semantics.md section 2 (and of T22, T29), one by one."""

from typing import Any

import pytest

from kvproof.core import geometry, reachability, retention


@pytest.mark.parametrize(
    ("sharded", "dcp_size", "expected"),
    [(True, 2, 32), (True, 8, 128), (False, 2, 16), (False, 8, 16), (True, 1, 16)],
)
def test_effective_block_size_of_16_token_blocks(sharded, dcp_size, expected):
    assert geometry.effective_block_size(16, sharded, dcp_size) == expected


# (block size, sharded) of each group, N, requested unit; E, S, H
SIZES = [
    (((16, True), (16, False)), 1, None, (16, 16), 16, 16),
    (((16, True), (16, False)), 2, None, (32, 16), 32, 16),
    (((16, True), (16, False)), 4, None, (64, 16), 64, 16),
    (((16, True), (16, False)), 8, None, (128, 16), 128, 16),
    (((4, True), (4, False)), 2, None, (8, 4), 8, 4),
    (((4, True), (4, False)), 4, None, (16, 4), 16, 4),
    (((64, True), (64, False)), 1, 16, (64, 64), 64, 16),
    (((16, True), (64, False)), 4, None, (64, 64), 64, 64),
    (((1536, True), (1536, False)), 8, None, (12288, 1536), 12288, 1536),
]


@pytest.mark.parametrize(("groups", "dcp_size", "unit", "effective", "block", "hashed"), SIZES)
def test_table_of_block_sizes(groups, dcp_size, unit, effective, block, hashed):
    sizes = tuple(geometry.effective_block_size(bs, sharded, dcp_size) for bs, sharded in groups)
    assert sizes == effective
    assert geometry.scheduler_block_size(sizes) == block
    assert geometry.hash_block_size(sizes=sizes, cacheable=(True, True), caching=True, requested=unit) == hashed
    geometry.check_sizes(
        scheduler_block=block,
        hash_block=hashed,
        block_sizes=tuple(bs for bs, _ in groups),
        sizes=sizes,
        cacheable=(True, True),
    )


@pytest.mark.parametrize(
    ("sizes", "cacheable", "active", "other_mode", "unit", "expected"),
    [
        ((32, 16), (True, True), False, False, None, 32),  # rule 1: nothing asks for hashes
        ((32, 16), (True, True), False, False, 8, 32),
        ((32, 16), (True, True), True, True, None, 32),  # rule 2
        ((32, 16), (True, True), True, True, 8, 32),
        ((32, 16), (True, True), True, False, 8, 8),  # rule 3, requested
        ((32, 24), (True, True), True, False, None, 8),  # rule 3, default
        ((32, 16), (True, False), True, False, None, 32),  # only cacheable groups count
        ((32, 16), (False, False), True, False, None, 32),
        ((32,), (True,), True, False, None, 32),  # one group
        ((32,), (True,), True, False, 32, 32),
        ((32,), (True,), False, False, 8, 32),
    ],
)
def test_rules_of_the_hash_block_size(sizes, cacheable, active, other_mode, unit, expected):
    got = geometry.hash_block_size(
        sizes=sizes, cacheable=cacheable, caching=active, other_mamba_mode=other_mode, requested=unit
    )
    assert got == expected


def test_a_connector_alone_needs_hashes():
    sizes, cacheable = (32, 16), (True, True)
    assert geometry.hash_block_size(sizes=sizes, cacheable=cacheable, caching=False, connected=True) == 16
    assert geometry.hash_block_size(sizes=sizes, cacheable=cacheable, caching=False, connected=False) == 32


def test_two_groups_with_one_boundary_share_its_hash():
    # FA 64 and Mamba 16 with H 16: the boundary at 64 tokens is hash 3 for both.
    assert geometry.block_hash_index(0, 64, 16) == geometry.block_hash_index(3, 16, 16) == 3


@pytest.mark.parametrize(
    ("dcp_size", "block_size", "hash_block", "expected"),
    [(1, 16, 16, False), (1, 32, 16, True), (2, 16, 16, True), (2, 16, 32, False)],
)
def test_truth_table_of_gate_condition_3(dcp_size, block_size, hash_block, expected):
    assert geometry.mamba_gate_condition(dcp_size, block_size, hash_block) is expected


GATE: dict[str, Any] = {
    "caching": True,
    "num_groups": 2,
    "allow": True,
    "dcp_size": 2,
    "hash_block_size": 16,
    "mamba_align_block_sizes": (16,),
    "other_coarse_sizes": (),
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"caching": False}, False),
        ({"num_groups": 1}, False),
        ({"allow": False}, False),
        ({"mamba_align_block_sizes": ()}, False),
        ({"mamba_align_block_sizes": (8, 16)}, True),
        ({"other_coarse_sizes": (16,)}, True),  # SWA 16 with H 16
        ({"other_coarse_sizes": (32,)}, False),  # SWA 32 with H 16
        ({"other_coarse_sizes": (16, 32)}, False),
        ({"dcp_size": 1}, False),  # FA32 + Mamba16, H = 16
        ({"dcp_size": 1, "mamba_align_block_sizes": (32,)}, True),  # FA32 + Mamba32, H = 16
    ],
)
def test_gate_needs_all_four_conditions(change, expected):
    assert geometry.fine_grained_gate(**{**GATE, **change}) is expected


def test_hits_end_at_hash_boundaries_only_with_fine_grained_hits():
    assert geometry.hit_alignment(True, 16, 64) == 16
    assert geometry.hit_alignment(False, 16, 64) == 64


def test_rows_at_a_context_of_one_million_tokens_and_dcp_8():
    length = 1_048_576
    assert geometry.attention_row_width(length, 16, True, 8) == 8_192
    assert geometry.mamba_align_row_width(length, 16, 0) == 65_536
    assert geometry.attention_row_entries(length, 784, True, 8) == 168
    assert geometry.attention_row_width(length, 784, True, 8) == 168  # a multiple of 8 already
    assert geometry.mamba_align_row_width(length, 784, 0) == 1_338


def test_rows_at_100000_tokens():
    assert geometry.attention_row_entries(100_000, 16, True, 1) == 6_250
    assert geometry.attention_row_width(100_000, 16, True, 1) == 6_256
    assert geometry.attention_row_width(100_000, 16, False, 8) == 6_256
    assert geometry.mamba_align_row_width(100_000, 16, 0) == 6_250


def test_other_rows():
    assert geometry.mamba_align_row_width(33, 16, 2) == 5
    assert geometry.mamba_other_row_width(2) == 3
    assert geometry.scratch_row_width() == 1
    assert geometry.shared_row_width((8, 8)) == 8


def test_row_guard_compares_after_expansion():
    # capacity 4, factor 2, three ids are six kernel ids (M-CAP-2)
    kernel = [geometry.expand_block_id(block, j, 2) for block in (5, 6, 9) for j in range(2)]
    assert kernel == [10, 11, 12, 13, 18, 19]
    assert not geometry.fits_row(0, len(kernel), 4)
    assert geometry.fits_row(1, 3, 4)
    assert not geometry.fits_row(2, 3, 4)


@pytest.mark.parametrize(
    ("interleave", "position", "column", "rank", "offset"),
    [
        (1, 0, 0, 0, 0),
        (1, 1, 0, 1, 0),
        (1, 2, 0, 0, 1),  # M-SLOT-2 would say 2
        (1, 31, 0, 1, 15),
        (1, 32, 1, 0, 0),
        (16, 0, 0, 0, 0),
        (16, 15, 0, 0, 15),
        (16, 16, 0, 1, 0),
        (16, 31, 0, 1, 15),
        (4, 4, 0, 1, 0),
        (4, 8, 0, 0, 4),
        (4, 31, 0, 1, 15),
    ],
)
def test_places_of_16_token_blocks_at_dcp_2(interleave, position, column, rank, offset):
    assert geometry.block_column(position, 16, True, 2) == column
    assert geometry.owner_rank(position, 16, 2, interleave) == rank
    assert geometry.block_offset(position, 16, True, 2, interleave) == offset
    for asking in range(2):
        expected = 7 * 16 + offset if asking == rank else -1
        got = geometry.slot_mapping(position, asking, 7, block_size=16, sharded=True, dcp_size=2, interleave=interleave)
        assert got == expected


def test_every_rank_owns_every_position_of_a_replicated_group():
    # M-SLOT-1 would pad half of them
    for rank in range(2):
        got = [geometry.slot_mapping(p, rank, 3, block_size=16, sharded=False, dcp_size=2, interleave=4) for p in range(16, 32)]
        assert got == list(range(48, 64))
    assert geometry.block_column(33, 16, False, 2) == 2


@pytest.mark.parametrize(
    ("num_tokens", "dcp_size", "interleave", "expected"),
    [
        (49, 2, 1, [25, 24]),
        (50, 4, 1, [13, 13, 12, 12]),
        (50, 2, 16, [32, 18]),
        (16, 4, 16, [16, 0, 0, 0]),
        (12, 4, 4, [4, 4, 4, 0]),
    ],
)
def test_local_lengths(num_tokens, dcp_size, interleave, expected):
    got = [geometry.local_length(num_tokens, rank, dcp_size, interleave) for rank in range(dcp_size)]
    assert got == expected


def test_context_is_decided_from_the_global_length():
    assert geometry.has_context(16)  # ranks 1 to 3 of N=4, I=16 hold nothing of it
    assert not geometry.has_context(0)
    assert geometry.context_branches(16, 4) == (True,) * 4
    assert geometry.context_branches(0, 2) == (False,) * 2


def test_spans_of_offloaded_blocks():
    assert reachability.tokens_per_block(16, True, 2) == 32
    assert reachability.tokens_per_block(16, False, 2) == 16
    assert [reachability.lazy_span(16, sharded, 2) for sharded in (True, False)] == [32, 16]
    assert reachability.tokens_per_chunk(32, 3) == 96
    assert reachability.hashes_per_chunk(96, 32, 16) == 6
    assert reachability.chunk_hash_index(1, 6) == 11


def test_chunk_windows_and_alignment():
    assert reachability.chunk_window_sliding(33, 16) == 3
    assert reachability.chunk_window_sliding(33, 16, 16) == 3
    assert reachability.chunk_window_sliding(33, 16, 17) == 4
    assert reachability.chunk_window_chunked(33, 16) == 3
    assert reachability.CHUNK_WINDOW_MAMBA == 1
    assert reachability.alignment_tokens((32,), (16,)) == 32
    assert reachability.alignment_tokens((32, 32), (16,)) == 32
    assert reachability.alignment_tokens((32, 64), (16,)) is None
    assert reachability.alignment_tokens((), (16, 64)) == 64


def reachable(n, count, window, eagle=False):
    return [j for j in range(n) if reachability.chunk_reachable(j, n, count, window, eagle)]


def test_reachable_chunks():
    count = reachability.alignment_chunk_count(full_attention=False, alignment=32, chunk_tokens=16, window=1)
    assert count == 2
    assert reachable(4, count, 1) == [1, 3]
    assert reachable(3, count, 1) == [1, 2]  # the short last segment keeps its tail
    assert reachable(8, 4, 2) == [2, 3, 6, 7]
    assert reachable(8, 4, 2, True) == [1, 2, 3, 5, 6, 7]
    assert reachable(4, None, 1) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("full", "alignment", "chunk", "window", "expected"),
    [
        (True, 64, 16, 1, None),
        (False, None, 16, 1, None),
        (False, 32, 32, 1, None),  # the wrong scaling of a Mamba chunk: everything is "reachable"
        (False, 64, 16, 4, None),
        (False, 64, 16, 3, 4),
        (False, 33, 32, 1, None),
        (False, 65, 32, 1, 2),
    ],
)
def test_alignment_chunk_count(full, alignment, chunk, window, expected):
    got = reachability.alignment_chunk_count(full_attention=full, alignment=alignment, chunk_tokens=chunk, window=window)
    assert got == expected


def test_native_connector_stores_states_at_whole_chunks():
    assert reachability.handoff_storable(3, 64, 64, 32)
    assert not reachability.handoff_storable(0, 64, 64, 32)
    assert not reachability.handoff_storable(3, 64, 63, 32)
    assert not reachability.handoff_storable(3, 48, 64, 32)


TAILS: dict[str, Any] = {
    "blocks_per_chunk": 1,
    "attention_sizes": (64,),
    "recurrent_sizes": (64,),
    "windowed": False,
    "hash_block": 16,
    "dcp_size": 1,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"blocks_per_chunk": 2}, False),
        ({"attention_sizes": (32,)}, False),
        ({"recurrent_sizes": ()}, False),
        ({"hash_block": 64}, False),
        ({"windowed": True}, False),
        ({"dcp_size": 2}, False),
    ],
)
def test_native_partial_tails(change, expected):
    assert reachability.native_partial_tails(**{**TAILS, **change}) is expected


def test_skipped_tokens():
    assert geometry.skipped_tokens_attention(100) == 0
    assert geometry.skipped_tokens_window(7, 4) == 4
    assert geometry.skipped_tokens_window(7, 4, 1) == 3
    assert geometry.skipped_tokens_window(2, 4) == 0
    assert [geometry.skipped_tokens_chunked(c, 8) for c in (13, 8, 7)] == [8, 8, 0]
    assert [geometry.skipped_tokens_mamba(c) for c in (0, 1, 16)] == [0, 0, 15]


def test_checkpoint_is_strictly_below():
    assert [geometry.checkpoint_boundary(n, 16) for n in (1, 16, 17, 32, 33, 50)] == [0, 0, 16, 16, 32, 48]
    assert [geometry.checkpoint_boundary(n, 16, True) for n in (15, 16, 31, 32, 33, 100)] == [0, 0, 0, 16, 16, 80]


@pytest.mark.parametrize(
    ("prompt", "unit", "expected"), [(95, 16, (64,)), (95, 64, (0,)), (160, 16, (128, 144)), (160, 64, (64,))]
)
def test_replay_boundaries_with_eagle(prompt, unit, expected):
    assert geometry.replay_boundaries(prompt, unit, True) == expected


def test_replay_boundary_without_eagle_is_a_token_count():
    assert geometry.replay_boundaries(95, 16) == (94,)


def test_eagle_margin():
    assert geometry.eagle_margin(64, 16, True) == 16
    assert geometry.eagle_margin(64, 16, False) == 64
    assert geometry.eagle_margin(8, 16, True) == 8


def test_cacheable_tokens():
    assert geometry.cacheable_tokens(50, True, 64) == 50
    assert geometry.cacheable_tokens(150, False, 64) == 128
    assert geometry.cacheable_tokens_eagle(50, True, 64, 16) == 50
    assert geometry.cacheable_tokens_eagle(50, False, 64, 16) == 0
    assert geometry.cacheable_tokens_eagle(150, False, 64, 16) == 144
    assert geometry.cacheable_tokens_eagle(150, False, 64, 64) == 150


def test_prompt_tail():
    # N=4, FA16, H=16, P=48 (M-TAIL-4): 32, and 48 before 0.32
    assert geometry.prompt_tail_boundary(48, 16, 3) == 32
    assert geometry.prompt_tail_boundary(48, 16, 3, "P") == 48
    assert geometry.prompt_tail_boundary(50, 16, 3) == 48
    assert geometry.prompt_tail_boundary(50, 16, 2) == 32
    assert geometry.prompt_tail_boundary(16, 16, 1) == 0


def test_admission_caps():
    assert retention.admission_cap_window(33, 0, 64, 1024, 16) == 7
    assert retention.admission_cap_window(33, 1, 64, 1024, 16) == 8
    assert retention.admission_cap_window(33, 0, 64, 48, 16) == 4
    assert retention.admission_cap_chunked(32, 64, 1024, 16) == 6
    assert retention.admission_cap_chunked(32, 64, 90, 16) == 6
    assert retention.admission_cap_chunked(32, 64, 80, 16) == 5


@pytest.mark.parametrize(("dcp_size", "expected"), [(1, 40), (2, 24)])
def test_lazy_target_of_attention_and_a_replicated_window(dcp_size, expected):
    attention = geometry.effective_block_size(16, True, dcp_size)
    window = geometry.effective_block_size(16, False, dcp_size)
    blocks = (reachability.lazy_blocks_other(256, attention), reachability.lazy_blocks_window(33, window))
    assert reachability.lazy_target(blocks) == expected
    assert reachability.lazy_target((*blocks, reachability.LAZY_BLOCKS_MAMBA)) == expected + 4


HOST: dict[str, Any] = {
    "explicit": None,
    "capacity": 100,
    "worker_count": None,
    "gpu_blocks": 10,
    "cpu_bytes": 1000,
    "gpu_bytes": 300,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 33),
        ({"cpu_bytes": 1}, 1),
        ({"worker_count": 12}, 12),
        ({"explicit": 1, "worker_count": 12}, 1),
        ({"explicit": 100}, 100),
    ],
)
def test_host_pool_size(change, expected):
    assert reachability.host_pool_size(**{**HOST, **change}) == expected


@pytest.mark.parametrize(("size", "expected"), [(64, (0, 1)), (16, (0, 3))])
def test_load_of_48_tokens_at_dcp_4(size, expected):
    assert reachability.load_range(0, 48, size) == expected


def test_load_starts_behind_the_local_prefix():
    assert reachability.load_range(64, 48, 64) == (1, 1)
    assert reachability.load_range(64, 48, 16) == (4, 3)


def test_window_mask_keeps_the_block_before_each_segment_end():
    kept = [i for i in range(8) if retention.swa_mask(i, window=17, effective_size=16, alignment=64, retention=None, reach=())]
    assert kept == [3, 7]


def test_store_mask_keeps_the_tail_of_the_last_segment():
    sizes: dict[str, Any] = {"window": 17, "effective_size": 16, "alignment": 64, "retention": None, "reach": ()}
    assert [i for i in range(8) if retention.swa_store_mask(i, num_storable=6, **sizes)] == [3, 5, 7]
    assert [i for i in range(8) if retention.swa_store_mask(i, num_storable=6, eagle=True, **sizes)] == [3, 4, 7]


def test_internal_checkpoint_positions_count_from_the_start_of_the_chunk():
    sizes = {"block_size": 16, "hash_block": 16}
    fitting = [q for q in range(16, 112, 16) if retention.checkpoint_fits(16, 112, q, checkpoint_alignment=64, **sizes)]
    assert fitting == [80]
    assert not retention.checkpoint_fits(16, 80, 80, checkpoint_alignment=64, **sizes)  # that is the end, not inside
    assert not any(retention.checkpoint_fits(16, 112, q, checkpoint_alignment=None, **sizes) for q in range(112))


def test_internal_checkpoint_needs_a_column_of_its_own():
    # From 17 the chunk has entered column 1, from 16 it has not.
    sizes = {"block_size": 16, "hash_block": 1, "checkpoint_alignment": 1}
    assert retention.checkpoint_fits(16, 48, 47, **sizes)
    assert not retention.checkpoint_fits(17, 48, 47, **sizes)


def test_mamba_mask_keeps_the_last_state_before_the_end_of_the_prompt():
    reach = geometry.replay_boundaries(50, 16)
    assert [i for i in range(8) if retention.mamba_mask(i, 16, 16, 0, reach)] == [2]
    assert [i for i in range(8) if retention.mamba_mask(i, 16, 16, None, reach)] == list(range(8))
    assert [i for i in range(8) if retention.mamba_mask(i, 16, 16, 64, reach)] == [2, 3, 7]
    assert [i for i in range(8) if retention.mamba_mask(i, 16, 16, 16, ())] == list(range(8))
    assert [i for i in range(8) if retention.mamba_mask(i, 16, 64, 0, (79,))] == [3]


def test_attention_mask_keeps_everything():
    assert all(retention.attention_mask(i) for i in range(4))


def test_clipping_knows_the_prompt_tail_only_with_hits_finer_than_a_block():
    assert retention.clips_fine(True, 16, 64)
    assert not retention.clips_fine(True, 16, 16)
    assert not retention.clips_fine(False, 16, 64)


def chunk_ends(prompt, *, clip_block, hash_block, block, eagle=False):
    """Chunk ends of a prompt prefilled with an ample budget."""
    ends = [0]
    while ends[-1] < prompt:
        q = retention.clip_chunk(
            start=ends[-1],
            wanted=prompt - ends[-1],
            num_tokens=prompt,
            num_prompt=prompt,
            clip_block=clip_block,
            hash_block=hash_block,
            fine=retention.clips_fine(True, hash_block, block),
            max_chunk=8192,
            eagle=eagle,
        )
        assert q > 0
        ends.append(ends[-1] + q)
    return ends[1:]


@pytest.mark.parametrize(
    ("clip_block", "block", "eagle", "prompt", "expected"),
    [
        (64, 64, False, 50, [48, 50]),
        (64, 64, False, 64, [48, 64]),
        (64, 64, False, 65, [64, 65]),
        (64, 64, False, 100, [64, 96, 100]),
        (64, 64, True, 95, [64, 95]),
        (64, 64, True, 100, [80, 100]),
        (64, 64, True, 160, [64, 144, 160]),
        (16, 32, True, 100, [80, 100]),
    ],
)
def test_chunk_ends(clip_block, block, eagle, prompt, expected):
    assert chunk_ends(prompt, clip_block=clip_block, hash_block=16, block=block, eagle=eagle) == expected


CLIP: dict[str, Any] = {
    "start": 0,
    "wanted": 100,
    "num_tokens": 100,
    "num_prompt": 100,
    "clip_block": 64,
    "hash_block": 16,
    "fine": False,
    "max_chunk": 1000,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 64),
        ({"start": 100, "num_tokens": 101, "wanted": 1}, 1),  # decoding
        ({"start": 100, "num_tokens": 101, "wanted": 70}, 70),  # decoding with drafts, past a block boundary
        ({"wanted": 63}, 0),  # no whole block, although one fits a step: skipped
        ({"wanted": 63, "max_chunk": 63}, 63),  # a block never fits a step
        ({"start": 10, "wanted": 90}, 54),  # the block that the chunk begins in ends at 64
        ({"start": 64, "wanted": 36}, 36),
        ({"start": 64, "wanted": 36, "fine": True}, 32),
        ({"num_tokens": 300, "wanted": 299}, 256),  # a resumed request recomputes up to its last token but one
        ({"clip_block": 16, "hash_block": 16, "junction": 40}, 32),
        ({"clip_block": 16, "hash_block": 8, "junction": 40, "shared_prefix_checkpoint": True}, 40),
        ({"clip_block": 16, "junction": 120, "num_tokens": 200, "wanted": 150, "shared_prefix_checkpoint": True}, 112),
        ({"clip_block": 16, "junction": 96}, 96),
        ({"clip_block": 16, "junction": 100, "num_tokens": 200, "wanted": 150, "shared_prefix_checkpoint": True}, 100),
        ({"clip_block": 16, "start": 80, "wanted": 20, "junction": 100, "eagle": True}, 20),  # the chunk ends there anyway
        ({"checkpoint_alignment": 1, "alignment": 16}, 64),  # not every Mamba group exports checkpoints
        ({"shared_prefix_checkpoint": True}, 64),  # without a junction the opt-in changes nothing
    ],
)
def test_clipping(change, expected):
    assert retention.clip_chunk(**{**CLIP, **change}) == expected


INTERNAL: dict[str, Any] = {"internal_checkpoint": True, "alignment": 16, "checkpoint_alignment": 16}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"wanted": 150, "num_tokens": 150, "num_prompt": 150}, 150),  # written at 144, in the chunk
        ({"wanted": 150, "num_tokens": 150, "num_prompt": 150, "internal_checkpoint": False}, 128),
        ({"wanted": 150, "num_tokens": 150, "num_prompt": 150, "checkpoint_alignment": None}, 128),
        ({"wanted": 150, "num_tokens": 150, "num_prompt": 150, "checkpoint_alignment": 64}, 128),
        ({"wanted": 149, "num_tokens": 150, "num_prompt": 150}, 128),
        ({}, 100),  # written at 96, into the first of two columns
        ({"wanted": 60, "num_tokens": 60, "num_prompt": 60, "fine": True}, 48),  # there is one column only
        ({"mamba_blocks": (32,)}, 100),
        ({"mamba_blocks": (64, 128)}, 64),  # of two Mamba groups one has a single column
        ({"start": 8, "wanted": 142, "num_tokens": 150, "num_prompt": 150, "checkpoint_alignment": 8}, 56),
    ],
)
def test_clipping_with_an_internal_checkpoint(change, expected):
    assert retention.clip_chunk(**{**CLIP, **INTERNAL, **change}) == expected
