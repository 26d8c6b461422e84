"""Claims about the kinds of groups: rows, what is read, caps, hits of one class, names of blocks, states (1.2, 2.5, T11)."""

from __future__ import annotations

from kvproof.core import config as configs
from kvproof.core import groups as grouping
from kvproof.core import world as worlds
from kvproof.core.allocation import InStep, Wanted
from kvproof.core.config import Group
from kvproof.core.kinds import (
    caching,
    chunked_local,
    copying,
    full_attention,
    recurrent,
    scratch,
    sliding_window,
    stable,
    windowed,
)
from kvproof.core.world import GroupState
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import caches, holders
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key, pick

SIZES = (1, 4, 16, 784)
FULL, WINDOW, CHUNK, STATE, STABLE, SCRATCH = (
    tuple(Group(kind, size, window=window) for size in SIZES)
    for kind, window in (
        ("full_attention", None),
        ("sliding_window", 6),
        ("chunked_local", 8),
        ("mamba_align", None),
        ("mamba_stable", None),
        ("scratch", None),
    )
)
SHARDED = tuple(Group("full_attention", size, sharded=True) for size in SIZES)
SPARE = tuple(Group("mamba_align", size, speculative_blocks=2) for size in SIZES)
GRID = "block sizes 1, 4, 16 and 784; 1, 2 and 4 ranks"

COARSE = configs.configure((Group("full_attention", 8), Group("sliding_window", 4, window=9)), num_blocks=9)
"""Hits at multiples of 8; the window of 9 tokens reads two blocks of 4 before the next position."""
LOCAL = configs.configure((Group("full_attention", 4), Group("chunked_local", 4, window=12)), num_blocks=9)
STATES = configs.configure((Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=9)
"""H of 4: hits end inside the blocks of 8 tokens of both groups."""
EAGLE = configs.configure(
    (Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=9, use_eagle=True
)
STEADY = configs.configure((Group("full_attention", 8), Group("mamba_stable", 4)), num_blocks=9)
BUFFERED = configs.configure((Group("full_attention", 4), Group("scratch", 4)), num_blocks=4)
SPECULATIVE = tuple(configs.configure((Group("mamba_align", 4, speculative_blocks=n),), num_blocks=9) for n in (0, 1, 2))
OPEN = InStep(worlds.new_world(BUFFERED))
RUNNING = Wanted(first=False, local=0, external=0, slots=8, main=8)
EMPTY = four.pool_of(Draft(0, (1, 1, 1), (1, 1, 1), 0))
NODES = [4, 8, 12, 16]

# --- rows ---------------------------------------------------------------------------------------------------------


@claim(
    full_attention.row_width,
    sliding_window.row_width,
    chunked_local.row_width,
    recurrent.row_width,
    stable.row_width,
    scratch.row_width,
    configs.configure,
    sizes="grid",
    bounds=GRID + "; any length",
    laws=("DS-1",),
    settles=("TB-12",),
)
def a_row_has_a_column_for_the_last_position(length: int, size: int, ranks: int) -> None:
    """A row has the column of the last position of the longest sequence, of states two spare ones more where two are asked
    for; attention divides its positions by the ranks if it is sharded, states never. A scratch row has one, and a scratch group
    no positions (TB-12, DS-1, 2.5).
    """
    assert length >= 1
    assert 0 <= size < 4
    assert 0 <= ranks < 3
    block, n = pick(SIZES, size), pick((1, 2, 4), ranks)
    whole = full_attention.row_width(pick(FULL, size), n, length)
    sharded = full_attention.row_width(pick(SHARDED, size), n, length)
    window = sliding_window.row_width(pick(WINDOW, size), n, length)
    chunk = chunked_local.row_width(pick(CHUNK, size), n, length)
    states = recurrent.row_width(pick(SPARE, size), n, length)
    steady = stable.row_width(pick(STABLE, size), n, length)
    one = scratch.row_width(pick(SCRATCH, size), n, length)
    mapped = configs.configure((pick(SCRATCH, size), pick(FULL, size)), num_blocks=4).positional
    last = (length - 1) // block
    assert (length - 1) // (block * n) < sharded
    assert (sharded - pick((128, 32, 8, 8), size)) * block * n < length
    assert (last < whole) & (last < window) & (last < chunk)
    assert (last + 2 < states) & (last < steady)
    assert (one == 1) & (mapped == (1,))


# --- what is read -------------------------------------------------------------------------------------------------


@claim(
    full_attention.skipped_tokens,
    sliding_window.skipped_tokens,
    chunked_local.skipped_tokens,
    recurrent.skipped_tokens,
    stable.skipped_tokens,
    scratch.skipped_tokens,
    windowed.tokens_read,
    sizes="grid",
    bounds="a window of 6 and local chunks of 8 tokens; any computed tokens",
    laws=("TB-3", "TB-5", "TB-6"),
)
def nothing_is_skipped_that_is_read_next(computed: int) -> None:
    """What may be nulled lies before the first position that the next token reads: all but five of a window of 6, all before
    the chunk of the next token, all states but the last, and nothing of full attention or scratch (2.8, TB-3, TB-5).
    """
    assert computed >= 0
    full = full_attention.skipped_tokens(FULL[0], computed)
    window = sliding_window.skipped_tokens(WINDOW[0], computed)
    chunk = chunked_local.skipped_tokens(CHUNK[0], computed)
    states = recurrent.skipped_tokens(STATE[0], computed)
    steady = stable.skipped_tokens(STABLE[0], computed)
    one = scratch.skipped_tokens(SCRATCH[0], computed)
    assert (full == 0) & (one == 0)
    assert window == (computed - 5 if computed > 5 else 0)
    assert (chunk % 8 == 0) & (chunk <= computed) & (computed < chunk + 8)
    assert (states == (computed - 1 if computed > 0 else 0)) & (steady == states)


@claim(
    sliding_window.admission_cap,
    chunked_local.admission_cap,
    full_attention.admission_cap,
    recurrent.admission_cap,
    stable.admission_cap,
    scratch.admission_cap,
    sizes="grid",
    bounds="blocks of 4 tokens, a window of 6 and local chunks of 8; any tokens in flight and length",
    laws=("LV-8",),
)
def a_cap_covers_what_is_held_and_no_more_than_a_window_needs(inflight: int, length: int, start: int) -> None:
    """The gate counts for a window at most the blocks that hold it and the tokens in flight at any offset, for a local chunk
    those from its start on, one block too many at most; other kinds have no cap (2.8, LV-8).
    """
    assert inflight >= 0
    assert length >= 1
    assert 0 <= start < 4
    window = sliding_window.admission_cap(WINDOW[1], inflight, length)
    chunk = chunked_local.admission_cap(CHUNK[1], inflight, length)
    others = [
        kind.admission_cap(groups[1], inflight, length)
        for kind, groups in ((full_attention, FULL), (recurrent, STATE), (stable, STABLE), (scratch, SCRATCH))
    ]
    live = 5 + inflight if 5 + inflight < length else length
    held = 8 + inflight if 8 + inflight < length else length
    assert others == [None] * 4
    assert window is not None
    assert chunk is not None
    assert (start + live - 1) // 4 + 1 <= window <= (live - 1) // 4 + 2
    assert (held - 1) // 4 + 1 == chunk


# --- hits of one class --------------------------------------------------------------------------------------------


@claim(
    full_attention.find_hit,
    sizes="shape",
    bounds="blocks of 8 tokens, hits at multiples of 4, with and without EAGLE; any keys of four boundaries, limits of 6 to 17",
    laws=("HB-10", "HB-15"),
)
def attention_is_hit_as_far_as_its_blocks_go(a: bool, b: bool, c: bool, d: bool, limit: int, drop: bool) -> None:
    """Full attention hits the blocks that are keyed without a gap, and behind them the last key inside the next block; under
    EAGLE a hash block of the match is given up. Its list has the blocks up to the hit (T11, T35, HB-10).
    """
    assert 0 <= limit < 4
    most = pick((6, 9, 13, 17), limit)
    hit, lists = full_attention.find_hit(EAGLE if drop else STATES, caches.pool_with((a, b, c, d)), NODES, (0,), most, drop)
    keys = (a, b, c, d)
    reached = caches.deepest([True, *(at <= most and caches.attention(keys, at, most, 8) for at in NODES)])
    assert hit == (max(reached - 4, 0) if drop else reached)
    assert lists == (
        tuple(pick(((), (1,) if not b or most < 8 else (2,), (2, 3) if not d or most < 16 else (2, 4)), -(-hit // 8))),
    )


@claim(
    sliding_window.find_hit,
    sliding_window.unread_tokens,
    windowed.find_hit,
    sizes="shape",
    bounds="blocks of 4 tokens, a window of 9, hits at multiples of 8; any keys of four boundaries, limits of 6 to 17 tokens",
    laws=("HB-8", "HB-10", "HB-15"),
)
def a_window_is_hit_where_its_blocks_are(a: bool, b: bool, c: bool, d: bool, limit: int, drop: bool) -> None:
    """A window hits the last aligned boundary before which its two blocks are keyed, with a drop also the block behind; its
    list has nulls up to them (T11, T35, HB-10).
    """
    assert 0 <= limit < 4
    most = pick((6, 9, 13, 17), limit)
    hit, (blocks,) = sliding_window.find_hit(COARSE, caches.pool_with((), (a, b, c, d)), NODES, (1,), most, drop)
    behind = [at + 4 <= most and (a, b, c, d, False)[at // 4] if drop else at <= most for at in (8, 16)]
    assert hit == (16 if c and d and behind[1] else 8 if a and b and behind[0] else 0)
    assert blocks == ((), (1, 2), (0, 0, 3, 4))[hit // 8]


@claim(
    chunked_local.find_hit,
    sizes="shape",
    bounds="blocks of 4 tokens, local chunks of 12, hits at multiples of 4; any keys of four boundaries, limits of 6 to 17",
    laws=("HB-8", "HB-10", "HB-15"),
)
def a_local_chunk_is_hit_where_its_blocks_are(a: bool, b: bool, c: bool, d: bool, limit: int) -> None:
    """Local attention hits the last boundary before which the blocks of its chunk are keyed; a chunk's end needs none, and
    what lies before the chunk is null (T11, HB-10).
    """
    assert 0 <= limit < 4
    most = pick((6, 9, 13, 17), limit)
    hit, (blocks,) = chunked_local.find_hit(LOCAL, caches.pool_with((), (a, b, c, d)), NODES, (1,), most, False)
    fits = [True, a, a and b, True, d]
    assert hit == caches.deepest([fit and 4 * at <= most for at, fit in enumerate(fits)])
    assert blocks == ((), (1,), (1, 2), (0, 0, 0), (0, 0, 0, 4))[hit // 4]


@claim(
    recurrent.find_hit,
    stable.find_hit,
    sizes="shape",
    bounds="blocks of 8 tokens with hits at multiples of 4, and of 4 tokens with hits at multiples of 8; any keys of four "
    "boundaries, limits of 6 to 17 tokens",
    laws=("HB-8", "HB-10", "HB-12"),
)
def a_state_is_hit_at_its_own_boundary(a: bool, b: bool, c: bool, d: bool, limit: int, drop: bool) -> None:
    """A recurrent class hits the last boundary of which there is a state, and none between; a drop changes nothing, since a
    state cannot be rewound. Its list is null up to that state (T11, T35, HB-10).
    """
    assert 0 <= limit < 4
    most = pick((6, 9, 13, 17), limit)
    pool = caches.pool_with((), (a, b, c, d))
    hit, (blocks,) = recurrent.find_hit(STATES, pool, NODES, (1,), most, drop)
    steady, (entries,) = stable.find_hit(STEADY, pool, NODES, (1,), most, drop)
    assert hit == caches.deepest([True, *(key and 4 * at <= most for at, key in enumerate((a, b, c, d), 1))])
    assert blocks == ((), (1,), (2,), (0, 3), (0, 4))[hit // 4]
    assert steady == (16 if d and most >= 16 else 8 if b and most >= 8 else 0)
    assert entries == ((), (0, 2), (0, 0, 0, 4))[steady // 8]


# --- scratch ------------------------------------------------------------------------------------------------------


@claim(
    scratch.grow,
    scratch.demand,
    scratch.missing_blocks,
    scratch.register,
    scratch.null_skipped,
    scratch.find_hit,
    sizes="shape",
    bounds="four blocks with one key; a request with and without its block",
    laws=("TB-15", "PC-3", "PC-7", "PC-9"),
)
def a_scratch_group_holds_one_block_without_a_key(draft: Draft, key: Key, first: int, there: bool) -> None:
    """A request takes one scratch block and never a second one; it is not nulled, gets no key, and no lookup asks for it
    (1.2, T17, TB-15).
    """
    assert four.legal(draft, key) & four.within(1, first, 3) & holders.held(draft, first)
    old = four.pool_of(draft, key)
    table = holders.table_of(first) if there else ()
    work = holders.work_on(BUFFERED, old, 4, 8)
    need = scratch.demand(work, 1, GroupState(table), (), RUNNING, OPEN)
    grown = four.attempt(scratch.grow, work, 1, GroupState(table), RUNNING)
    state = GroupState(table) if grown is None else grown[0]
    later = scratch.register(work, 1, scratch.null_skipped(work, 1, state, 8), 8)
    hit = scratch.find_hit(BUFFERED, old, [4, 8], (1,), 8, False)
    assert need == (0 if there else 1)
    assert (grown is None) == (not there and not old.free)
    assert grown is None or len(state.table) == 1
    assert later == state
    assert four.sound(work.pool)
    assert holders.accounted(work.pool, holders.others(old, table), later.table)
    assert four.keys_kept(old, work.pool, *(() if there else state.table))
    assert hit == (0, ((),))


# --- what blocks and states are for -------------------------------------------------------------------------------


@claim(copying.copy_demand, sizes="grid", bounds="blocks of 1, 4, 16 and 784 tokens; any hit", laws=("COW-6",))
def a_hit_inside_a_block_owes_one_copy(blocks: int, rest: int, size: int) -> None:
    """A local hit owes a copy exactly if it ends inside a block, and then of one block (T17, COW-6)."""
    assert blocks >= 0
    assert 0 <= size < 4
    assert 0 <= rest < pick(SIZES, size)
    owed = copying.copy_demand(pick(SIZES, size) * blocks + rest, pick(SIZES, size))
    assert owed == (1 if rest > 0 else 0)


@claim(
    caching.full_entries,
    caching.full_node,
    caching.partial_node,
    caching.boundary_node,
    sizes="grid",
    bounds="blocks of 8 tokens, H of 4; up to five hashed boundaries with any nodes, any cacheable tokens",
    laws=("HB-2", "HB-3", "HB-14"),
)
def a_full_block_is_named_by_the_node_of_its_end(one: int, two: int, three: int, last: int, hashed: int, tokens: int) -> None:
    """As many leading blocks are full as both the cacheable tokens and the hashes fill; a block is named by the node of its
    end, a boundary inside one by its own node (2.3, T7, T8, HB-3).
    """
    assert (one >= 0) & (two >= 0) & (three >= 0) & (last >= 0) & (tokens >= 0)
    assert 0 <= hashed <= 5
    nodes = (one, two, three, last, one)[: pick((0, 1, 2, 3, 4, 5), hashed)]
    work = holders.work_on(STATES, EMPTY, *nodes)
    full = caching.full_entries(work, 0, tokens)
    named = [caching.full_node(work, 0, index) for index in range(full)]
    inside = [caching.partial_node(work, 0, 4 * at + 4) for at in range(len(nodes))]
    assert (8 * full <= tokens) & (8 * full <= 4 * len(nodes))
    assert (8 * full + 8 > tokens) | (8 * full + 8 > 4 * len(nodes))
    assert named == [two, last][:full]
    assert inside == list(nodes)


@claim(
    full_attention.tail_boundaries,
    full_attention.tail_rule,
    sizes="grid",
    bounds="blocks of 8 tokens, H of 4, with and without EAGLE; a prompt with up to five hash boundaries, any cacheable tokens",
    laws=("HB-13", "LV-10"),
)
def a_prompt_has_one_tail_at_most(prompt: int, tokens: int, eagle: bool) -> None:
    """A prompt has at most one boundary inside a block that is registered: its last hash boundary that leaves a token to be
    computed, under EAGLE its last one, once the tokens up to it are cacheable (T9.2, HB-13).
    """
    assert 1 <= prompt <= 23
    assert tokens >= 0
    length = pick(tuple(range(1, 24)), prompt - 1)
    config = EAGLE if eagle else STATES
    nodes = tuple(range(4, length + 1, 4))
    work = holders.work_on(config, EMPTY, *nodes, num_prompt=length)
    found = full_attention.tail_boundaries(work, 0, tokens)
    last = max([0, *(node for node in nodes if node < length or eagle)])
    assert found == ((last,) if last % 8 == 4 and tokens >= last else ())


@claim(
    caching.reach,
    sizes="grid",
    bounds="blocks of 8 tokens, hits at multiples of 4, with and without EAGLE; any prompt and junction",
    laws=("LV-10",),
)
def a_mask_keeps_where_a_resend_resumes(prompt: int, junction: int, eagle: bool) -> None:
    """What a retention mask keeps are the boundaries at which a resend may resume, and the junction if there is one, under
    EAGLE also a block before it, and nothing else (2.9).
    """
    assert prompt >= 2
    assert junction >= 0
    work = holders.work_on(EAGLE if eagle else STATES, EMPTY, num_prompt=prompt)
    work.junction = junction
    found = caching.reach(work, 0)
    whole = prompt // 4 * 4
    again = ((whole - 8,) if whole == prompt and whole >= 8 else ()) + (max(whole - 4, 0),) if eagle else (prompt - 1,)
    assert found == again + ((junction, junction - 8) if junction > 0 and eagle else (junction,) if junction > 0 else ())


# --- states of Mamba align ----------------------------------------------------------------------------------------


@claim(
    recurrent.relocated_columns,
    sizes="all",
    bounds="any number of columns and of spare ones, any running column",
    laws=("TB-7",),
)
def spare_blocks_before_the_running_column_move(length: int, spare: int, running: int, column: int) -> None:
    """Of the last columns, which hold speculative blocks, exactly those before the running one move to the end (T21.4)."""
    assert 0 <= spare <= length
    assert column >= 0
    moved = recurrent.relocated_columns(length, spare, running)
    first, stop = moved.start, moved.stop
    inside = (first <= column) & (column < stop)
    assert inside == ((column >= length - spare) & (column < length) & (column < running))


@claim(recurrent.moved_to_end, sizes="shape", bounds="a table of three columns with any blocks", laws=("TB-8", "TB-10"))
def a_moved_block_leaves_null_behind(first: int, second: int, third: int, column: int) -> None:
    """A block that moves stands at the end and no longer in its column, and nothing else in the table changes (T21.4, TB-8)."""
    assert (first >= 1) & (second >= 1) & (third >= 1)
    assert 0 <= column < 3
    table = (first, second, third)
    at = pick((0, 1, 2), column)
    after = recurrent.moved_to_end(table, at)
    assert len(after) == 4
    assert (after[3] == table[at]) & (after[at] == 0)
    assert all(after[other] == table[other] for other in (0, 1, 2) if other != at)


@claim(
    recurrent.column_is_free,
    sizes="shape",
    bounds="a table of three columns with any blocks; up to three spare ones, any column behind or inside",
    laws=("TB-6",),
)
def a_checkpoint_takes_no_state_that_is_read(
    first: int, second: int, third: int, column: int, spare: int, allocated: bool
) -> None:
    """A checkpoint may take a column behind the table, one without a block, or one whose speculative block moves on (T38.3)."""
    assert (first >= 0) & (second >= 0) & (third >= 0)
    assert 0 <= column <= 4
    assert 0 <= spare <= 3
    at, behind = pick((0, 1, 2, 3, 4), column), pick((0, 1, 2, 3), spare)
    free = recurrent.column_is_free(GroupState((first, second, third), allocated=allocated), at, behind)
    assert free == (at > 2 or (first, second, third)[at] == 0 or (allocated and at in range(3 - behind, 3)))


@claim(
    recurrent.required_entries,
    recurrent.owed_copy,
    sizes="grid",
    bounds="blocks of 4 tokens, up to two spare blocks; any tokens, first and continuing, with and without a debt",
    laws=("TB-4", "TB-7", "COW-6"),
)
def a_state_needs_its_column_and_the_spare_ones(tokens: int, local: int, first: bool, debt: bool, spare: int) -> None:
    """A chunk needs the column in which its last token falls and the spare ones behind it, and one block more for a copy: of
    a debt, or of a state inside a block that is adopted (T17, T21, COW-6).
    """
    assert 1 <= local < tokens
    assert 0 <= spare < 3
    config = pick(SPECULATIVE, spare)
    work = holders.work_on(config, EMPTY)
    wanted = Wanted(first=first, local=local, external=0, slots=tokens, main=tokens)
    entries = recurrent.required_entries(work, 0, wanted)
    copies = recurrent.owed_copy(GroupState(partial_index=0 if debt else -1), wanted, 4)
    last = entries - pick((0, 1, 2), spare) - 1
    assert 4 * last < tokens <= 4 * last + 4
    assert copies == (1 if debt or (first and local % 4 != 0) else 0)


@claim(
    recurrent.is_checkpoint,
    recurrent.useful_checkpoint,
    sizes="grid",
    bounds="blocks of 8 tokens, hits at multiples of 4, with and without EAGLE; any prompt and chunk end",
    laws=("LV-10", "LV-6"),
)
def a_state_inside_its_block_is_kept_where_a_resend_resumes(prompt: int, units: int, rest: int, eagle: bool) -> None:
    """A chunk's end inside a block is kept exactly where an identical resend resumes: the last hash boundary that leaves a
    token, under EAGLE a hash block earlier. So is a checkpoint inside a chunk, and under dense retention one at a block's end
    (T10.2).
    """
    assert prompt >= 1
    assert units >= 1
    assert 0 <= rest < 4
    tokens = 4 * units + rest
    work = holders.work_on(EAGLE if eagle else STATES, EMPTY, num_prompt=prompt)
    kept = recurrent.is_checkpoint(work, tokens)
    useful = recurrent.useful_checkpoint(work, 1, tokens)
    left = prompt - tokens
    resumes = (rest == 0) & (four.within(4, left, 7) if eagle else four.within(1, left, 4))
    assert kept == resumes
    assert useful == (resumes | (tokens % 8 == 0))


# --- which groups belong together ---------------------------------------------------------------------------------


@claim(
    grouping.lookup_classes,
    grouping.eagle_groups,
    sizes="grid",
    bounds="four groups: attention of 4 or 8 tokens twice, states, scratch; any of the first two a drafter's",
    laws=("HB-10", "HB-15"),
)
def groups_of_one_kind_are_looked_up_together(one: bool, other: bool, first: bool, second: bool, eagle: bool) -> None:
    """Groups with equal specs are one class, whoever drafts with them, full attention stands first, and a scratch group is in
    none. The EAGLE set has the classes of the flagged groups whole, all groups if none is flagged, none without EAGLE
    (1.2, 3.1).
    """
    assert isinstance(one, bool)
    sizes = (8 if one else 4, 8 if other else 4)
    groups = (
        Group("scratch", 4, prefix_cacheable=False),
        Group("mamba_align", 4, prefix_cacheable=True),
        Group("full_attention", sizes[0], prefix_cacheable=True, draft=first),
        Group("full_attention", sizes[1], prefix_cacheable=True, draft=second),
    )
    classes = grouping.lookup_classes(groups)
    chosen = grouping.eagle_groups(groups, classes, eagle)
    same = one == other
    assert classes == (((2, 3), (1,)) if same else ((2,), (3,), (1,)))
    assert chosen[:2] == ((eagle and not (first or second)),) * 2
    assert chosen[2] == (eagle and (first or not second or same))
    assert chosen[3] == (eagle and (second or not first or same))


@claim(
    configs.effective_sizes,
    configs.gate,
    sizes="grid",
    bounds="1, 2 and 4 ranks; attention of 4 and states of 4 or 8 tokens, a window of blocks of 4 or 8 or none; H of 4 and 2; "
    "any interleave",
    laws=("HB-11", "DS-1", "DS-8"),
)
def hits_are_fine_where_every_kind_can_end_there(
    ranks: int, wide: bool, window: int, half: bool, caching_: bool, interleave: int
) -> None:
    """Hits may end inside a block exactly if something is cached, states stand closer together than a block of all, above
    the hash block on one rank, and blocks of a window are hash blocks; the interleave does not matter (2.4, HB-11, DS-8).
    """
    assert 0 <= ranks < 3
    assert 0 <= window < 3
    assert interleave >= 1
    n, state, unit = pick((1, 2, 4), ranks), 8 if wide else 4, 2 if half else 4
    groups = (
        Group("full_attention", 4, sharded=True, prefix_cacheable=True),
        Group("mamba_align", state, sharded=False, prefix_cacheable=True),
        *pick(
            (
                (),
                (Group("sliding_window", 4, sharded=False, prefix_cacheable=True, window=5),),
                (Group("sliding_window", 8, sharded=False, prefix_cacheable=True, window=5),),
            ),
            window,
        ),
    )
    sizes = configs.effective_sizes(groups, n)
    fine = configs.gate(groups, sizes, unit, caching=caching_, dcp_size=n, interleave=interleave)
    assert sizes[:2] == (4 * n, state)
    assert fine == (caching_ and (state > unit or (n > 1 and state == unit)) and (window == 0 or sizes[2] == unit))
