"""Claims about native offloading: chunks and their keys, what is stored of a table, and what a load fills (2.7, 2.8)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import native, reachability
from kvproof.core.config import Group
from kvproof.core.offload import choosing, lazy
from kvproof.core.pool import NO_KEY
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key, pick
from kvproof.proofs.refusing import refused

FULL, STATE, WINDOW = Group("full_attention", 4), Group("mamba_align", 4), Group("sliding_window", 4, window=7)
LOCAL = Group("chunked_local", 4, window=8)
RANKS = tuple(configs.configure((FULL, STATE, WINDOW), num_blocks=9, dcp_size=n, hash_block_size=4) for n in (1, 2, 4))
"""Blocks of 4 tokens on each of 1, 2 and 4 ranks, over which attention alone is sharded."""
KINDS = configs.configure((FULL, STATE, WINDOW, LOCAL), num_blocks=9)
ALL = tuple(
    (config, native.resolve(config, blocks_per_chunk=blocks), 4 * n, blocks)
    for config, n in zip(RANKS, (1, 2, 4), strict=True)
    for blocks in (1, 2, 3)
)
"""Each with chunks of 1, 2 and 3 blocks: the configuration, its geometry, tokens of an attention block, blocks of a chunk."""
GRID = "blocks of 4 tokens on each of 1, 2 and 4 ranks, chunks of 1, 2 and 3 blocks"
LATEST = configs.configure((STATE, Group("sliding_window", 8, window=9)), num_blocks=9)
"""Blocks of 4 tokens of states and of 8 of a window: no full attention."""
NODES = tuple(range(4, 200, 4))
"""The prefix nodes of a request: each has the number of its tokens."""
SEGMENTED = configs.configure(
    (Group("full_attention", 32), Group("mamba_align", 16), Group("sliding_window", 16, window=17)), num_blocks=9
)
"""Chunks of one block: 32 tokens of attention, which is the alignment, and 16 of states and of a window that reads one."""
SEGMENTS = native.resolve(SEGMENTED, blocks_per_chunk=1)

ONCE, DOUBLE = (native.resolve(KINDS, blocks_per_chunk=blocks) for blocks in (1, 2))

# --- chunks and their keys ----------------------------------------------------------------------------------------


@claim(
    native.chunk_key,
    native.chunk_blocks,
    native.storable_chunks,
    native.accepts_handoff,
    reachability.handoff_storable,
    sizes="grid",
    bounds=GRID + "; the first three chunks, any number of tokens, any block, boundary and limit handed over",
    settles=("DS-6",),
    deep=True,
)
def a_chunk_is_named_by_the_end_of_its_blocks(
    tokens: int, at: int, chunk: int, states: bool, block: int, quotient: int, rest: int, limit: int
) -> None:
    """The key of a chunk names the boundary at which its last block ends, as many chunks are stored as the tokens fill, and
    a state that is handed over is stored exactly if it is there, was computed, and a chunk ends with it (2.7, DS-6).
    """
    assert (tokens >= 0) & (block >= 0) & (quotient >= 0) & (limit >= 0)
    assert 0 <= at < 9
    assert 0 <= chunk < 3
    assert 0 <= rest < (4 if states else pick(ALL, at)[2]) * pick(ALL, at)[3]
    config, geometry, width, per = pick(ALL, at)
    group, span = (1, 4) if states else (0, width)
    one = geometry.groups[group]
    index = pick((0, 1, 2), chunk)
    whole = native.storable_chunks(config, geometry, one, tokens)
    key = native.chunk_key(NODES, one, index)
    columns = native.chunk_blocks(geometry, tuple(range(9)), index)
    taken = native.accepts_handoff(one, block, span * per * quotient + rest, limit)
    assert whole * per * span <= tokens < (whole + 1) * per * span
    assert key == ((columns[-1] + 1) * span, group)
    assert columns == tuple(j for j in range(9) if key[0] - per * span <= j * span < key[0])
    assert taken == ((block > 0) & (rest == 0) & (span * per * quotient <= limit))


@claim(
    native.offloadable,
    native.resolve,
    reachability.tokens_per_block,
    reachability.tokens_per_chunk,
    reachability.hashes_per_chunk,
    sizes="grid",
    bounds=GRID,
    laws=("DS-1", "DS-6"),
)
def chunks_are_so_many_blocks_over_all_ranks(at: int) -> None:
    """The tokens of a chunk are those of its blocks, counted over all ranks where a group is sharded, and it has a hash for
    each unit of them. Full attention aligns, and where there is none the largest chunk (2.7, DS-1).
    """
    assert 0 <= at < 9
    config, geometry, span, per = pick(ALL, at)
    groups = native.offloadable(config)
    found = native.resolve(config, blocks_per_chunk=per)
    alone = native.resolve(LATEST, blocks_per_chunk=per)
    sharded, states, read = found.groups
    assert groups == (0, 1, 2)
    assert found == geometry
    assert (sharded.block_tokens, states.block_tokens, read.block_tokens) == (span, 4, 4)
    assert all(one.chunk_tokens == one.block_tokens * per == 4 * one.hashes for one in found.groups)
    assert (found.alignment == sharded.chunk_tokens) & (alone.alignment == 8 * per)


@claim(
    reachability.tokens_per_block,
    reachability.tokens_per_chunk,
    sizes="all",
    bounds="any block size, number of ranks and of blocks in a chunk",
    laws=("DS-1", "DS-6"),
)
def a_chunk_has_the_tokens_of_its_blocks_on_every_rank(size: int, ranks: int, blocks: int) -> None:
    """One more block in a chunk makes it longer by the tokens of a block, on every rank of a sharded group (2.7, DS-1)."""
    assert size >= 1
    assert ranks >= 1
    assert blocks >= 1
    sharded = reachability.tokens_per_block(size, True, ranks)
    replicated = reachability.tokens_per_block(size, False, ranks)
    chunk = reachability.tokens_per_chunk(sharded, blocks)
    longer = reachability.tokens_per_chunk(sharded, blocks + 1)
    assert replicated == size
    assert longer - chunk == ranks * replicated
    assert chunk >= sharded


@claim(
    reachability.hashes_per_chunk,
    sizes="grid",
    bounds="blocks of 1, 2, 3, 4, 6, 8, 16 and 48 tokens, chunks of 1 to 3 blocks, hash blocks of 1 to 8",
    laws=("DS-6",),
)
def a_chunk_has_a_hash_for_each_unit_or_is_refused(size: int, per: int, unit: int) -> None:
    """A chunk has as many prefix hashes as hash blocks; a hash block that does not divide its blocks is refused (2.7)."""
    assert 0 <= size < 8
    assert 1 <= per <= 3
    assert 1 <= unit <= 8
    block = pick((1, 2, 3, 4, 6, 8, 16, 48), size)
    blocks, hashed = pick((1, 2, 3), per - 1), pick((1, 2, 3, 4, 5, 6, 7, 8), unit - 1)
    no = refused(reachability.hashes_per_chunk, block * blocks, block, hashed)
    hashes = 0 if no else reachability.hashes_per_chunk(block * blocks, block, hashed)
    fits = [count for count in range(1, block + 1) if count * hashed == block]
    assert no == (not fits)
    assert no or hashes * hashed == block * blocks


@claim(
    reachability.resolve_blocks_per_chunk,
    sizes="grid",
    bounds="no setting, 0 to 3 blocks, chunks of 0 to 12 tokens; two groups with blocks of 4 or 8 tokens",
)
def a_chunk_is_whole_blocks_of_one_size(blocks: int, tokens: int, one: bool, other: bool) -> None:
    """A chunk has the blocks that are asked for, or as many as make up its tokens, which needs groups of one size; both
    settings, none of a block, or a part of one are refused, and without a setting it is one block (2.7).
    """
    assert -1 <= blocks <= 3
    assert -1 <= tokens <= 4
    sizes = (8 if one else 4, 8 if other else 4)
    per = pick((None, 0, 1, 2, 3), blocks + 1)
    chunk = pick((None, 0, 4, 6, 8, 12), tokens + 1)
    no = refused(reachability.resolve_blocks_per_chunk, blocks_per_chunk=per, chunk_size=chunk, block_tokens=sizes)
    found = 0 if no else reachability.resolve_blocks_per_chunk(blocks_per_chunk=per, chunk_size=chunk, block_tokens=sizes)
    ways = [n for n in (1, 2, 3) if chunk is not None and one == other and n * sizes[0] == chunk]
    assert no == ((per is not None and (chunk is not None or per == 0)) or (per is None and chunk is not None and not ways))
    assert no or found == (per if per is not None else ways[0] if chunk is not None else 1)


@claim(
    reachability.alignment_tokens,
    sizes="grid",
    bounds="up to two chunk sizes of full attention and up to two others, out of 4, 8 and 12",
)
def native_hits_are_aligned_to_the_chunks_of_full_attention(full: int, other: int, one: int, two: int, three: int) -> None:
    """Native offloading is aligned to the one chunk size of full attention, to none if there are several, and without full
    attention to the largest chunk; without any group it is refused (2.7).
    """
    assert 0 <= full <= 2
    assert 0 <= other <= 2
    assert four.every(four.within(0, at, 2) for at in (one, two, three))
    sizes = tuple(pick((4, 8, 12), at) for at in (one, two, three))
    mine, its = sizes[: pick((0, 1, 2), full)], sizes[3 - pick((0, 1, 2), other) :]
    no = refused(reachability.alignment_tokens, mine, its)
    found = None if no else reachability.alignment_tokens(mine, its)
    assert no == (not mine and not its)
    assert no or not mine or found == (mine[0] if all(size == mine[0] for size in mine) else None)
    assert no or mine or (found in its and all(size <= found for size in its))


@claim(
    native.chunk_window,
    reachability.chunk_window_sliding,
    reachability.chunk_window_chunked,
    sizes="all",
    bounds="any chunk; every kind, a window of 7 and local chunks of 8 tokens",
)
def a_window_needs_the_chunks_that_hold_it(chunk: int, group: int) -> None:
    """Before a resume point a group needs the fewest chunks that hold what it reads: its window, its local chunk, or its one
    state; full attention needs all (2.7).
    """
    assert chunk >= 1
    assert 0 <= group < 4
    read = pick((0, 1, 7, 8), group)
    found = native.chunk_window(pick((FULL, STATE, WINDOW, LOCAL), group), chunk)
    assert (found is None) == (group == 0)
    assert found is None or (found * chunk >= read and (found - 1) * chunk < read)


@claim(
    reachability.native_partial_tails,
    sizes="grid",
    bounds="1 and 2 blocks in a chunk, 1 and 2 ranks; attention and states in blocks of 4 and 8 tokens, H of 4",
)
def native_tails_need_one_size_on_one_rank(per: bool, ranks: bool, attention: bool, states: bool, windowed: bool) -> None:
    """The native connector stores tails shorter than a block only on one rank, in chunks of one block, with one block size
    above the hash block and without windows (2.7).
    """
    assert isinstance(per, bool)
    found = reachability.native_partial_tails(
        blocks_per_chunk=2 if per else 1,
        attention_sizes=(8 if attention else 4,),
        recurrent_sizes=(8 if states else 4,),
        windowed=windowed,
        hash_block=4,
        dcp_size=2 if ranks else 1,
    )
    none = reachability.native_partial_tails(
        blocks_per_chunk=1, attention_sizes=(8,), recurrent_sizes=(), windowed=False, hash_block=4, dcp_size=1
    )
    assert found == (attention and states and not (per or ranks or windowed))
    assert not none


# --- what is stored -----------------------------------------------------------------------------------------------


@claim(
    native.segment_chunks,
    reachability.alignment_chunk_count,
    reachability.chunk_reachable,
    native.block_mask,
    sizes="grid",
    bounds="chunks of 16 tokens, alignment 32, a window of one chunk; 0 to 9 chunks",
    settles=("DS-7",),
)
def what_an_aligned_resume_reads_is_stored(count: int, eagle: bool) -> None:
    """A state is stored if an aligned resume or one at the end reads it, under EAGLE the one before it, too: of four chunks
    1 and 3. Of a window the blocks are stored that such a resume reads (2.7, DS-7).
    """
    assert 0 <= count <= 9
    n = pick((0, 1, 2, 3, 4, 5, 6, 7, 8, 9), count)
    stored = native.segment_chunks(SEGMENTS, SEGMENTS.groups[1], n, eagle=eagle)
    mask = native.block_mask(SEGMENTED, SEGMENTS, SEGMENTS.groups[2], n)
    whole = native.segment_chunks(SEGMENTS, SEGMENTS.groups[0], n)
    ends = [end for end in range(1, n + 1) if end % 2 == 0 or end == n]
    assert set(stored) == {end - back for end in ends for back in ((1, 2) if eagle else (1,)) if end >= back}
    assert {index for index, kept in enumerate(mask) if kept} == {end - 1 for end in ends}
    assert n != 4 or eagle or stored == (1, 3)
    assert whole == tuple(range(n))


@claim(native.chunk_is_whole, sizes="shape", bounds="a chunk of two blocks, any of them null or not kept", laws=("HO-10",))
def a_chunk_without_what_is_read_is_not_stored(first: int, second: int, one: bool, two: bool) -> None:
    """A chunk is stored if the mask keeps some block of it, its last block is there and every kept one is (2.7)."""
    assert (first >= 0) & (second >= 0)
    whole = native.chunk_is_whole((one, two), (first, second))
    assert whole == ((one | two) & (second > 0) & ((first > 0) | (not one)))


@claim(
    native.scanned_chunks,
    native.chunk_is_whole,
    native.block_mask,
    sizes="shape",
    bounds="a table of four blocks, any of them null; 0 to 19 tokens, chunks of two blocks of 4 tokens",
    laws=("HO-8", "DS-6"),
)
def the_scan_stores_whole_chunks_and_no_states(
    tokens: int, one: bool, two: bool, three: bool, last: bool, states: bool
) -> None:
    """The scan stores the chunks of attention that the tokens fill and of which no block is null, and no state of a
    Mamba-align group: these come by handoffs (2.7, HO-8).
    """
    assert 0 <= tokens < 20
    table = tuple(block if there else 0 for block, there in enumerate((one, two, three, last), 1))
    geometry, config = ALL[1][1], ALL[1][0]
    found = native.scanned_chunks(config, geometry, geometry.groups[1 if states else 0], table, tokens)
    whole = [chunk for chunk in (0, 1) if 8 * chunk + 8 <= tokens and table[2 * chunk] and table[2 * chunk + 1]]
    assert found == (() if states else tuple(whole))


# --- what a load fills --------------------------------------------------------------------------------------------


@claim(
    native.loading,
    native.check_window,
    native.unread_blocks,
    reachability.window_block_bound,
    sizes="grid",
    bounds="blocks of 4 tokens, chunks of 1 and 2 blocks; every kind; 0, 4, 6 and 8 local tokens, 1 to 9 external ones",
    laws=("LV-9",),
    deep=True,
)
def a_native_load_fills_what_is_read_afterwards(local: int, external: int, group: int, pairs: bool) -> None:
    """A load fills the entries behind the local tokens of which some token is read at its end, from the chunks that hold
    them, and no bound refuses it; behind a part of a block it is refused (2.7, LV-9).
    """
    assert 0 <= local < 4
    assert 1 <= external <= 9
    assert 0 <= group < 4
    start, more = pick((0, 4, 6, 8), local), pick(tuple(range(1, 10)), external - 1)
    geometry = DOUBLE if pairs else ONCE
    kind = pick((0, 1, 2, 3), group)
    no = refused(native.loading, KINDS, geometry, geometry.groups[kind], start, more)
    found = None if no else native.loading(KINDS, geometry, geometry.groups[kind], start, more)
    total = start + more
    first_read = (0, total - 1, total - 6, total // 8 * 8)[kind]
    filled = [column for column in range(start // 4, -(-total // 4)) if 4 * column + 3 >= first_read]
    assert no == (start % 4 != 0)
    assert found is None or list(range(found.first, found.first + found.blocks)) == filled
    assert found is None or not filled or found.chunk == filled[0] // (2 if pairs else 1)
    assert found is None or not filled or found.end == filled[-1] // (2 if pairs else 1) + 1


@claim(native.unread_blocks, sizes="all", bounds="blocks of 4 tokens; every kind, a window of 7, local chunks of 8; any total")
def unread_blocks_are_those_before_what_is_read(total: int, group: int) -> None:
    """The blocks that a load leaves out are those of which the next position of a group reads no token (2.8)."""
    assert total >= 1
    assert 0 <= group < 4
    kind = pick((0, 1, 2, 3), group)
    unread = native.unread_blocks(KINDS, ONCE.groups[kind], total)
    start = pick((0, total - 1, total - 6 if total >= 6 else 0, total - total % 8), group)
    assert 4 * unread <= start < 4 * unread + 4


# --- lazy storing -------------------------------------------------------------------------------------------------


@claim(
    reachability.lazy_blocks_window,
    reachability.lazy_blocks_other,
    reachability.lazy_span,
    sizes="grid",
    bounds="blocks of 4 tokens on each of 1, 2 and 4 ranks; any window and step",
    laws=("DS-1",),
)
def lazy_blocks_hold_a_step_and_a_window(window: int, offset: int, tokens: int, ranks: int) -> None:
    """The lazy target counts the blocks of a window at any offset, with at most one too many, and the fewest that hold the
    tokens of a step (2.8, DS-1).
    """
    assert window >= 1
    assert tokens >= 1
    assert 0 <= ranks < 3
    assert 0 <= offset < 4 * pick((1, 2, 4), ranks)
    size = 4 * pick((1, 2, 4), ranks)
    sharded = reachability.lazy_span(4, True, pick((1, 2, 4), ranks))
    replicated = reachability.lazy_span(4, False, pick((1, 2, 4), ranks))
    read = reachability.lazy_blocks_window(window, size)
    step = reachability.lazy_blocks_other(tokens, size)
    assert (sharded == size) & (replicated == 4)
    assert (offset + window - 1) // size + 1 <= read
    assert (read - 2) * size < window
    assert (step - 1) * size < tokens <= step * size


@claim(
    lazy.target,
    lazy.group_target,
    reachability.lazy_target,
    sizes="grid",
    bounds="blocks of 4 tokens on each of 1, 2 and 4 ranks: attention, states and a window of 7; any tokens of a step",
    laws=("DS-1",),
)
def the_lazy_target_has_room_for_two_steps(tokens: int, at: int) -> None:
    """The lazy target is twice what a step may need: the blocks of its tokens in attention, counted over the ranks, two
    states, and the three blocks of a window of 7 (2.8, DS-1).
    """
    assert tokens >= 1
    assert 0 <= at < 3
    size = pick((4, 8, 16), at)
    found = lazy.target(evolve(pick(RANKS, at), max_chunk=tokens))
    attention = found - 2 * 2 - 2 * 3
    assert attention % 2 == 0
    assert (attention // 2 - 1) * size < tokens <= attention // 2 * size


@claim(
    lazy.valid_cursor,
    lazy.behind,
    sizes="shape",
    bounds="four blocks without keys; a cursor on any of them, or none",
)
def the_walk_goes_on_behind_its_cursor(draft: Draft, cursor: int) -> None:
    """The walk goes on behind the block at which it stopped, and from the front if that block is in use again (T33)."""
    assert four.legal(draft)
    assert 0 <= cursor <= 3
    pool = four.pool_of(draft)
    at = pick((NO_KEY, 1, 2, 3), cursor)
    valid = lazy.valid_cursor(pool, at)
    rest = lazy.behind(pool.free, valid)
    assert valid == (at if at in pool.free else NO_KEY)
    assert rest == (pool.free if valid == NO_KEY else pool.free[pool.free.index(at) + 1 :])
    assert valid not in rest


@claim(
    lazy.walk,
    lazy.is_worth_it,
    choosing.take,
    choosing.room,
    sizes="shape",
    bounds="four device blocks with one key, four host blocks with one; a target of 8 blocks",
    laws=("CP-7", "CP-3", "IP-1", "PC-3"),
    deep=True,
)
def the_walk_picks_keyed_blocks_that_the_host_lacks(draft: Draft, key: Key, queue: int, node: int, cursor: int) -> None:
    """The lazy walk picks the free device blocks with a key that the host lacks, as far as the host has room, holds them, and
    remembers where it stopped; it passes all others (T33, CP-7).
    """
    assert four.legal(draft, key) & four.within(0, queue, 3) & (node >= 0) & four.within(0, cursor, 3)
    old, host = four.pool_of(draft, key), four.pool_of(tiers.draft_of(queue), (node, 0, 0, 3))
    start = pick((NO_KEY, 1, 2, 3), cursor)
    choice = tiers.choice_of(old, host)
    after = lazy.walk(tiers.FULL, evolve(tiers.host_of(host), cursor=start), choice)
    behind = lazy.behind(old.free, lazy.valid_cursor(old, start))
    lacking = [block for block in behind if tiers.answer(old, host, block) == "ready"]
    picked = lacking[: len(host.free)]
    passed = [block for at, block in enumerate(behind) if sum(one in lacking for one in behind[:at]) < len(host.free)]
    assert choice.blocks == picked
    assert choice.hosts == list(host.free[: len(picked)])
    assert four.sound(choice.device) & four.sound(choice.host)
    assert holders.accounted(choice.device, holders.others(old), tuple(picked))
    assert after.cursor == ([lazy.valid_cursor(old, start), *passed])[-1]
