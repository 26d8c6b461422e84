"""Every formula of section 2 against its definition by counting (spec/naive.py), on small sizes around every boundary."""

from hypothesis import given
from hypothesis import strategies as st

from kvproof.core import geometry, reachability, retention
from kvproof.spec import naive

DCP = st.sampled_from((1, 2, 3, 4, 8))
SMALL = st.integers(1, 12)


@st.composite
def interleaved(draw):
    """(block size, DCP size, interleave) with the interleave dividing the block size."""
    interleave, runs = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    return interleave * runs, draw(DCP), interleave


@given(SMALL, st.booleans(), DCP)
def test_effective_block_size(block_size, sharded, dcp_size):
    assert geometry.effective_block_size(block_size, sharded, dcp_size) == naive.span(block_size, sharded, dcp_size)


@given(st.lists(SMALL, min_size=1, max_size=4))
def test_scheduler_block_and_default_hash_block(sizes):
    assert geometry.scheduler_block_size(tuple(sizes)) == naive.common_multiple(tuple(sizes))
    assert geometry.default_hash_block_size(tuple(sizes)) == naive.common_divisor(tuple(sizes))


@given(
    st.lists(st.tuples(st.sampled_from((2, 4, 6, 8, 12)), st.booleans()), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.integers(-1, 13)),
)
def test_size_resolution(groups, active, other_mode, requested):
    sizes, cacheable = tuple(s for s, _ in groups), tuple(c for _, c in groups)
    asked = {"active": active, "other_mamba_mode": other_mode, "requested": requested}
    expected = naive.resolve_sizes(sizes, cacheable, **asked)
    assert geometry.scheduler_block_size(sizes) == expected.scheduler_block
    try:
        got = geometry.hash_block_size(
            sizes=sizes, cacheable=cacheable, caching=active, other_mamba_mode=other_mode, requested=requested
        )
    except geometry.GeometryError:
        assert expected.refused
    else:
        assert not expected.refused
        assert got == expected.hash_block


GROUP = st.builds(
    naive.GateGroup,
    kind=st.sampled_from(("full", "mamba_align", "mamba_other", "sliding", "chunked", "scratch")),
    block_size=st.sampled_from((1, 2, 4)),
    cacheable=st.booleans(),
)


@given(st.lists(GROUP, min_size=1, max_size=3), st.booleans(), st.booleans(), DCP, st.sampled_from((1, 2, 4)))
def test_gate(groups, caching, allow, dcp_size, hash_block):
    expected = naive.gate(tuple(groups), caching=caching, allow=allow, dcp_size=dcp_size, hash_block=hash_block)
    got = geometry.fine_grained_gate(
        caching=caching,
        num_groups=len(groups),
        allow=allow,
        dcp_size=dcp_size,
        hash_block_size=hash_block,
        mamba_align_block_sizes=tuple(g.block_size for g in groups if g.kind == "mamba_align"),
        other_coarse_sizes=tuple(
            geometry.effective_block_size(g.block_size, g.sharded, dcp_size)
            for g in groups
            if g.kind in ("sliding", "chunked", "scratch") and g.cacheable
        ),
    )
    assert got is expected


@given(st.integers(0, 300), SMALL, st.booleans(), DCP, st.integers(0, 3))
def test_rows(length, block_size, sharded, dcp_size, extra):
    entries = naive.columns_needed(length, block_size, sharded, dcp_size)
    assert geometry.attention_row_entries(length, block_size, sharded, dcp_size) == entries
    width = geometry.attention_row_width(length, block_size, sharded, dcp_size)
    # The aligned width is the first one that covers a whole number of 128-token units in unscaled blocks.
    assert width == next(w for w in range(entries, entries + 129) if w * block_size % 128 == 0)
    needed = naive.columns_needed(length, block_size, False, dcp_size) + extra
    assert geometry.mamba_align_row_width(length, block_size, extra) == needed


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 8))
def test_row_guard(start, amount, capacity):
    inside = set(range(start, start + amount)) <= set(range(capacity))
    assert geometry.fits_row(start, amount, capacity) == (inside and start <= capacity) or amount == 0


@given(st.integers(1, 5), st.integers(1, 6))
def test_kernel_blocks_are_dealt_out_without_gap(factor, blocks):
    ids = [geometry.expand_block_id(b, j, factor) for b in range(blocks) for j in range(factor)]
    assert ids == list(range(blocks * factor))


@given(interleaved(), st.integers(0, 120))
def test_places_of_a_sharded_group(sizes, num_tokens):
    block_size, dcp_size, interleave = sizes
    for position, place in enumerate(naive.placements(num_tokens, block_size, dcp_size, interleave)):
        assert geometry.owner_rank(position, block_size, dcp_size, interleave) == place.rank
        assert geometry.block_column(position, block_size, True, dcp_size) == place.column
        assert geometry.block_offset(position, block_size, True, dcp_size, interleave) == place.offset
        slots = [
            geometry.slot_mapping(
                position, rank, 5, block_size=block_size, sharded=True, dcp_size=dcp_size, interleave=interleave
            )
            for rank in range(dcp_size)
        ]
        expected = [-1] * dcp_size
        expected[place.rank] = list(range(5 * block_size, 6 * block_size))[place.offset]
        assert slots == expected


@given(interleaved(), st.integers(0, 60))
def test_places_of_a_replicated_group(sizes, num_tokens):
    block_size, dcp_size, interleave = sizes
    for position, (column, offset) in enumerate(naive.replicated_placements(num_tokens, block_size)):
        assert geometry.block_column(position, block_size, False, dcp_size) == column
        assert geometry.block_offset(position, block_size, False, dcp_size, interleave) == offset
        assert all(geometry.owns(position, rank, block_size, False, dcp_size, interleave) for rank in range(dcp_size))


@given(interleaved())
def test_places_of_one_block_are_a_bijection(sizes):
    block_size, dcp_size, interleave = sizes
    places = {
        (
            geometry.owner_rank(p, block_size, dcp_size, interleave),
            geometry.block_offset(p, block_size, True, dcp_size, interleave),
        )
        for p in range(block_size * dcp_size)
    }
    assert places == {(rank, offset) for rank in range(dcp_size) for offset in range(block_size)}


@given(st.integers(0, 200), DCP, st.integers(1, 16))
def test_local_lengths_and_context(num_tokens, dcp_size, interleave):
    expected = naive.local_lengths(num_tokens, dcp_size, interleave)
    got = tuple(geometry.local_length(num_tokens, rank, dcp_size, interleave) for rank in range(dcp_size))
    assert got == expected
    assert sum(got) == num_tokens
    assert geometry.has_context(num_tokens) == naive.has_context(expected)


@given(st.integers(0, 60), SMALL, st.integers(0, 3), SMALL)
def test_skipped_tokens_are_those_that_nobody_reads(computed, window, extra, chunk):
    assert geometry.skipped_tokens_attention(computed) == (naive.unread_tokens(computed, lambda q, p: True))
    got = geometry.skipped_tokens_window(computed, window, extra)
    # A window of one token reads the asking position alone, so that everything before it is skipped.
    assert got == naive.unread_tokens(computed, lambda q, p: p > q - window - extra)
    starts = list(naive.multiples(chunk, computed))
    assert geometry.skipped_tokens_chunked(computed, chunk) == naive.unread_tokens(computed, lambda q, p: p >= starts[-1])
    assert geometry.skipped_tokens_mamba(computed) == naive.unread_tokens(computed, lambda q, p: p == q - 1)


@given(st.integers(1, 80), SMALL, st.booleans())
def test_checkpoint_boundary(n, unit, eagle):
    assert geometry.checkpoint_boundary(n, unit, eagle) == naive.checkpoint_boundary(n, unit, eagle)


@given(st.integers(1, 80), SMALL, st.booleans())
def test_replay_boundaries(prompt, unit, eagle):
    got = geometry.replay_boundaries(prompt, unit, eagle)
    assert list(got) == sorted(set(got))
    assert frozenset(got) == naive.replay_boundaries(prompt, unit, eagle)


@given(st.integers(0, 80), st.booleans(), SMALL, SMALL)
def test_cacheable_tokens(tokens, fine, block, size):
    covered = naive.cacheable_tokens(tokens, fine, block)
    assert geometry.cacheable_tokens(tokens, fine, block) == covered
    got = geometry.cacheable_tokens_eagle(tokens, fine, block, size)
    assert got == (covered if fine or not covered else next(n for n in range(tokens, 0, -1) if n <= covered + size))


@given(st.integers(1, 60), SMALL, st.integers(0, 8), st.booleans())
def test_prompt_tail_boundary(prompt, hash_block, hashes, excluded):
    got = geometry.prompt_tail_boundary(prompt, hash_block, hashes, "P-1" if excluded else "P")
    assert got == naive.prompt_tail_boundary(prompt, hash_block, hashes, excluded)


@st.composite
def retentions(draw):
    """(H = A or S, B or E, retention, boundaries) with the retention interval a multiple of S = lcm."""
    alignment, size = draw(st.sampled_from((1, 2, 3, 4, 6, 8))), draw(st.sampled_from((1, 2, 4)))
    block = naive.common_multiple((alignment, size))
    retention_ = draw(st.sampled_from((None, 0, block, 2 * block, 3 * block)))
    return alignment, size, retention_, tuple(draw(st.lists(st.integers(0, 60), max_size=3)))


@given(retentions(), st.integers(0, 20))
def test_mamba_mask(drawn, num_blocks):
    alignment, size, interval, reach = drawn
    got = {i for i in range(num_blocks) if retention.mamba_mask(i, size, alignment, interval, reach)}
    assert got == naive.mamba_kept(num_blocks, size, alignment, interval, reach)


@given(retentions(), st.integers(0, 20), st.integers(1, 20), st.booleans())
def test_window_mask(drawn, num_blocks, window, eagle):
    alignment, size, interval, reach = drawn
    got = {
        i
        for i in range(num_blocks)
        if retention.swa_mask(
            i,
            window=window,
            effective_size=size,
            alignment=alignment,
            retention=interval,
            reach=reach,
            eagle=eagle,
        )
    }
    expected = naive.window_kept(
        num_blocks,
        window=window,
        effective_size=size,
        alignment=alignment,
        retention=interval,
        reach=reach,
        eagle=eagle,
    )
    assert got == expected


@given(retentions(), st.integers(0, 20), st.integers(1, 20), st.booleans(), st.booleans())
def test_store_mask_adds_the_tail_of_the_last_segment(drawn, num_blocks, window, eagle, unknown):
    alignment, size, interval, reach = drawn
    got = {
        i
        for i in range(num_blocks)
        if retention.swa_store_mask(
            i,
            num_storable=num_blocks,
            window=window,
            effective_size=size,
            alignment=None if unknown else alignment,
            retention=interval,
            reach=reach,
            eagle=eagle,
        )
    }
    everything = set(range(num_blocks))
    if unknown:
        assert got == everything
        return
    expected = set(
        naive.window_kept(
            num_blocks,
            window=window,
            effective_size=size,
            alignment=alignment,
            retention=interval,
            reach=reach,
            eagle=eagle,
        )
    )
    segment = alignment if interval is None else interval
    if not eagle and segment and segment % size == 0:
        need = len(range(0, window - 1, size))
        last = [i for i in everything if i * size >= naive.floor_multiple(num_blocks * size, segment)]
        expected |= set(last[-need:] if need else [])
    assert got == expected


@given(st.integers(0, 20), SMALL, st.integers(2, 5), st.data())
def test_reachable_chunks(n, chunk, count, data):
    alignment = chunk * count + data.draw(st.integers(0, chunk - 1))
    window, eagle = data.draw(st.integers(1, count - 1)), data.draw(st.booleans())
    found = reachability.alignment_chunk_count(full_attention=False, alignment=alignment, chunk_tokens=chunk, window=window)
    assert found == count
    got = {j for j in range(n) if reachability.chunk_reachable(j, n, found, window, eagle)}
    assert got == naive.reachable_chunks(n, chunk, alignment, window, eagle)


@given(SMALL, st.integers(0, 4), st.integers(0, 40), st.integers(1, 3))
def test_load_range_is_the_touched_columns(size, blocks, external, factor):
    aligned = size * factor * blocks
    first, amount = reachability.load_range(aligned, external, size)
    assert tuple(range(first, first + amount)) == naive.touched_columns(aligned, external, size)


@given(SMALL, SMALL, st.integers(0, 5), st.integers(0, 20), st.integers(1, 200))
def test_admission_caps_cover_what_can_be_live(block_size, window, extra, inflight, length):
    cap = retention.admission_cap_window(window, extra, inflight, length, block_size)
    live = min(window - 1 + extra + inflight, length)
    assert cap >= max(len({p // block_size for p in range(start, start + live)}) for start in range(block_size))
    assert retention.admission_cap_chunked(window, inflight, length, block_size) == naive.columns_needed(
        min(window + inflight, length), block_size, False, 1
    )


@st.composite
def clips(draw):
    hash_block = draw(st.sampled_from((1, 2, 4)))
    clip_block = hash_block * draw(st.sampled_from((1, 2, 4)))
    num_prompt = draw(st.integers(1, 60))
    num_tokens = num_prompt + draw(st.one_of(st.just(0), st.integers(0, 20)))
    start = draw(st.integers(0, num_tokens - 1))
    start -= draw(st.sampled_from((0, start % hash_block, start % clip_block)))
    return naive.Clip(
        start=start,
        wanted=draw(st.one_of(st.just(num_tokens - start), st.integers(1, num_tokens - start + 8))),
        num_tokens=num_tokens,
        num_prompt=num_prompt,
        clip_block=clip_block,
        hash_block=hash_block,
        fine=draw(st.booleans()),
        max_chunk=draw(st.integers(1, 60)),
        junction=draw(st.one_of(st.just(0), st.integers(0, 16).map(lambda k: k * hash_block))),
        eagle=draw(st.booleans()),
        exports_checkpoint=draw(st.booleans()),
        alignment=draw(st.sampled_from((hash_block, clip_block))),
        checkpoint_alignment=draw(st.sampled_from((None, 1, hash_block, clip_block))),
        mamba_block=draw(st.sampled_from((hash_block, clip_block))),
        shared_prefix_checkpoint=draw(st.booleans()),
    )


def clipped(clip):
    return retention.clip_chunk(
        start=clip.start,
        wanted=clip.wanted,
        num_tokens=clip.num_tokens,
        num_prompt=clip.num_prompt,
        clip_block=clip.clip_block,
        hash_block=clip.hash_block,
        fine=clip.fine,
        junction=clip.junction,
        max_chunk=clip.max_chunk,
        eagle=clip.eagle,
        internal_checkpoint=clip.exports_checkpoint,
        alignment=clip.alignment,
        checkpoint_alignment=clip.checkpoint_alignment,
        mamba_blocks=(clip.mamba_block,),
        shared_prefix_checkpoint=clip.shared_prefix_checkpoint,
    )


@given(clips())
def test_clipping_stops_where_a_walk_over_the_tokens_stops(clip):
    assert clip.start + clipped(clip) == naive.chunk_end(clip)


@given(clips())
def test_clipping_never_grows_a_chunk_and_leaves_a_small_model_block_default(clip):
    q = clipped(clip)
    assert 0 <= q <= clip.wanted
    same = clip._replace(mamba_block=clip.clip_block)
    implied = retention.clip_chunk(
        **{
            **{k: v for k, v in same._asdict().items() if k not in ("exports_checkpoint", "mamba_block")},
            "internal_checkpoint": same.exports_checkpoint,
        }
    )
    assert implied == clipped(same)


@given(st.integers(0, 60), st.integers(1, 40), st.lists(st.sampled_from((1, 2, 3, 4, 8)), max_size=3))
def test_a_chunk_closes_the_first_state_block_that_it_found_open(start, amount, sizes):
    opened = [size for size in sizes if start not in naive.multiples(size, start)]
    end = next(
        (n for n in range(start + 1, start + amount) if any(n in naive.multiples(size, n) for size in opened)),
        start + amount,
    )
    assert start + retention.close_open_blocks(start, amount, tuple(sizes)) == end
