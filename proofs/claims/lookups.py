"""Claims about local lookups: what a class is asked, the joint hit, divergent hits, and cutting a hit (T11 to T13, T15).

Which keys a cache has is any choice among those of the first hash boundaries (`kvproof.proofs.claims.caches`).
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import geometry, lookup
from kvproof.core.config import Group
from kvproof.core.profiles import VLLM_0_33_0
from kvproof.core.world import GroupState
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import caches, holders
from kvproof.proofs.claims.caches import attention, deepest, state
from kvproof.proofs.claims.pools_of_four import every, pick
from kvproof.proofs.refusing import refused

FULL, STATE, WINDOW, CHUNK = (
    Group("full_attention", 4),
    Group("mamba_align", 4),
    Group("sliding_window", 4, window=5),
    Group("chunked_local", 4, window=8),
)
HYBRID = configs.configure((FULL, STATE, WINDOW), num_blocks=10)
"""Blocks of 4 tokens, which is S and A as well; the window reads one block before the next position."""
EAGLE = configs.configure((FULL, STATE, WINDOW), num_blocks=10, use_eagle=True)
FINE = configs.configure((Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=10)
"""Blocks of 8 tokens and hits that end at multiples of 4."""
RANKS = configs.configure((FULL, STATE), num_blocks=10, dcp_size=2)
"""An attention block of 8 tokens on two ranks, a state every 4 tokens; hits end at multiples of 4."""
SCRATCH = configs.configure((Group("full_attention", 8), Group("mamba_align", 4), Group("scratch", 4)), num_blocks=10)
EVERY = configs.configure((FULL, STATE, WINDOW, CHUNK), num_blocks=10)
ALONE = configs.configure((FULL,), num_blocks=10, use_eagle=True)
DRAFTS = configs.configure(
    (Group("full_attention", 8), Group("mamba_align", 8), Group("sliding_window", 4, window=5)),
    hash_block_size=4,
    num_blocks=10,
    use_eagle=True,
)
BARE = configs.configure((Group("scratch", 4),), num_blocks=10)
PAIR = configs.configure((FULL, STATE), num_blocks=10)
SINGLE = configs.configure((FULL,), num_blocks=10)
LATEST = configs.configure((STATE, WINDOW), num_blocks=10)
CLOSED = configs.configure((FULL, STATE), num_blocks=10, caching=False)

# --- what is asked ------------------------------------------------------------------------------------------------


@claim(lookup.longest_hit, sizes="all", bounds="any number of tokens", laws=("HB-9",))
def the_last_token_is_computed_anew(tokens: int) -> None:
    """The longest legal hit leaves the last token to be computed, and no other (T11, HB-9)."""
    assert tokens >= 1
    most = lookup.longest_hit(tokens)
    assert 0 <= most < tokens
    assert most + 1 == tokens


@claim(lookup.reads_cache, sizes="shape", bounds="with caching, without it, and with nothing that could be cached")
def who_opts_out_reads_nothing(index: int, skip: bool) -> None:
    """A request is looked up exactly if it does not opt out and there is something that is cached (T11)."""
    assert 0 <= index < 3
    config = pick((HYBRID, CLOSED, BARE), index)
    request = evolve(holders.request_of(GroupState()), skip_reading=skip)
    reads = lookup.reads_cache(config, request)
    assert reads == ((not skip) & (index == 0))


@claim(lookup.asked_limit, sizes="all", bounds="any candidate up to any limit", laws=("HB-15",))
def only_full_attention_is_asked_beyond_the_candidate(current: int, more: int, closed: bool) -> None:
    """A class is asked up to the candidate, full attention up to the whole limit: its hits can be shortened; in the release
    no class is asked further (T11, HB-15).
    """
    assert current >= 0
    assert more >= 0
    members = (0,) if closed else (1,)
    asked = lookup.asked_limit(HYBRID, members, current + more, current)
    release = lookup.asked_limit(evolve(HYBRID, profile=VLLM_0_33_0), members, current + more, current)
    assert asked == (current + more if closed else current)
    assert release == current


@claim(
    lookup.with_margin,
    lookup.owes_drop,
    geometry.eagle_margin,
    sizes="grid",
    bounds="three kinds with coarse and with fine hits; any limit",
    laws=("HB-15",),
)
def a_drop_leaves_what_was_asked_for(asked: int, group: int, fine: bool, verified: bool) -> None:
    """A class of the EAGLE set is asked as much further as it gives up of a match: a hash block of attention with fine hits,
    else a block, and nothing of a recurrent state. It owes this once for each candidate (2.8, T11, T35).
    """
    assert asked >= 0
    assert 0 <= group < 3
    members = pick(((0,), (1,), (2,)), group)
    limit = lookup.with_margin(DRAFTS if fine else EAGLE, members, asked)
    plain = lookup.with_margin(HYBRID, members, asked)
    alone = lookup.with_margin(ALONE, (0,), asked)
    owed = lookup.owes_drop(EAGLE, members, verified)
    never = lookup.owes_drop(HYBRID, members, verified)
    assert limit - asked == (0 if group == 1 else 4)
    assert plain == asked
    assert alone == asked
    assert owed != verified
    assert not never


@claim(lookup.still_verified, sizes="shape", bounds="two verified classes", laws=("HB-15",))
def a_lower_candidate_is_verified_anew(drop: bool, index: int) -> None:
    """When a class lowers the candidate no drop counts as verified any more; in the release those stay if that class dropped
    itself (T11, T35).
    """
    assert 0 <= index < 2
    before = pick((frozenset({0}), frozenset({0, 2})), index)
    sound = lookup.still_verified(HYBRID, before, drop)
    release = lookup.still_verified(evolve(HYBRID, profile=VLLM_0_33_0), before, drop)
    assert sound == frozenset()
    assert release == (before if drop else frozenset())


@claim(lookup.one_pass, sizes="shape", bounds="one class, two with and without full attention, and three")
def two_classes_without_full_attention_need_a_second_pass(index: int) -> None:
    """One pass is enough for a single class, and for full attention with one other, which cannot lower each other again
    (T11).
    """
    assert 0 <= index < 4
    enough = lookup.one_pass(pick((SINGLE, PAIR, LATEST, HYBRID), index))
    assert enough == (index <= 1)


# --- what is found ------------------------------------------------------------------------------------------------


@claim(
    lookup.lookup_common,
    sizes="shape",
    bounds="full attention, states and a window in blocks of 4 tokens, with and without EAGLE; any keys of two boundaries, "
    "limits of 7 and 9 tokens",
    laws=("HB-8", "HB-9", "HB-10", "HB-15"),
    settles=("CA-6",),
    deep=True,
)
def the_joint_hit_is_the_deepest_where_all_can_resume(
    a: bool, b: bool, c: bool, d: bool, e: bool, f: bool, far: bool, eagle: bool
) -> None:
    """The joint hit is the greatest boundary within the limit at which every group can resume, under EAGLE with one block
    more to give up, and no group alone hits less. Its lists name the blocks of the keys that are read from there on (T11,
    CA-6, HB-10, HB-15).
    """
    assert isinstance(far, bool)
    most = 9 if far else 7
    config, more = (EAGLE, 4) if eagle else (HYBRID, 0)
    hit, lists, longest = lookup.lookup_common(config, caches.pool_with((a, b), (c, d), (e, f)), [4, 8], most)
    fits = caches.fitting((a, b), (c, d), (e, f), most, more)
    own = [deepest([True, *(one[group] for one in fits)]) for group in range(3)]
    assert hit == deepest([True, *(all(one) for one in fits)])
    assert lists == (((1, 2)[: hit // 4]), ((), (3,), (0, 4))[hit // 4], ((), (5,), (0, 6))[hit // 4])
    assert every(hit <= alone for alone in own)
    assert longest == 0 or hit < longest <= max(own)


@claim(
    lookup.lookup_common,
    sizes="shape",
    bounds="full attention and states in blocks of 8 tokens, H of 4; any keys of three boundaries, limits of 7, 11 and 13",
    laws=("CA-6", "HB-8", "HB-9", "HB-10", "HB-15"),
    deep=True,
)
def a_fine_hit_is_the_deepest_where_all_can_resume(a: bool, b: bool, c: bool, d: bool, e: bool, f: bool, limit: int) -> None:
    """With fine hits the joint hit may end inside a block: at the greatest hash boundary that attention reaches and at which
    there is a state (T11, HB-10, HB-15).
    """
    assert 0 <= limit < 3
    most = pick((7, 11, 13), limit)
    hit, lists, _ = lookup.lookup_common(FINE, caches.pool_with((a, b, c), (d, e, f)), [4, 8, 12], most)
    joint = deepest([True, *(at <= most and attention((a, b, c), at, most, 8) and state((d, e, f), at) for at in (4, 8, 12))])
    assert hit == joint
    assert len(lists[0]) == (hit + 7) // 8
    assert lists[1] == ((), (4,), (5,), (0, 6))[hit // 4]


@claim(
    lookup.lookup_common,
    sizes="shape",
    bounds="two ranks; an attention block of 8 tokens over both, states every 4; any keys of three boundaries, 13 tokens",
    laws=("HB-10", "HB-15"),
    settles=("HB-12",),
)
def several_ranks_hit_no_more_than_a_state(a: bool, b: bool, c: bool, d: bool, e: bool, f: bool) -> None:
    """On several ranks the joint hit is bounded by the deepest replicated state, and there is one at the hit (HB-12)."""
    assert isinstance(a, bool)
    hit, lists, _ = lookup.lookup_common(RANKS, caches.pool_with((a, b, c), (d, e, f)), [4, 8, 12], 12)
    assert hit <= deepest([True, d, e, f])
    assert state((d, e, f), hit)
    assert attention((a, b, c), hit, 12, 8)
    assert len(lists[0]) * 8 >= hit


@claim(
    lookup.lookup,
    lookup.joint,
    sizes="shape",
    bounds="no, one and two connectors; full attention and states in blocks of 4 tokens; any keys of two boundaries",
    settles=("CA-1",),
    deep=True,
)
def a_hit_diverges_only_for_connectors_that_can_use_it(
    a: bool, b: bool, c: bool, d: bool, one: bool, two: bool, count: int
) -> None:
    """A divergent hit is returned only if there are connectors and each of them can use it; without one the hit is the joint
    one (T13, CA-1).
    """
    assert 0 <= count < 3
    flags = pick(((), (one,), (one, two)), count)
    config = evolve(PAIR, children=flags)
    request = evolve(holders.request_of(GroupState(), GroupState()), num_tokens=9)
    pool = caches.pool_with((a, b), (c, d))
    hit = lookup.lookup(config, pool, request, [4, 8])
    common = lookup.joint(config, pool, request, [4, 8])
    assert not hit.diverged or (count > 0 and one and (two or count == 1))
    assert hit.diverged or hit == common
    assert not common.diverged


@claim(
    lookup.lookup_per_group,
    sizes="shape",
    bounds="full attention, states and a window in blocks of 4 tokens, with and without EAGLE; any keys of two boundaries, "
    "9 tokens",
    laws=("CA-5",),
    settles=("CA-4",),
    deep=True,
)
def a_deeper_group_takes_no_more_than_the_joint_hit(a: bool, b: bool, c: bool, d: bool, e: bool, f: bool, eagle: bool) -> None:
    """If a group hits more than full attention its blocks were lost: then the joint hit is used, which does not diverge.
    Only a recurrent group may lag behind a divergent hit (T12, CA-4).
    """
    assert isinstance(a, bool)
    config, more = (EAGLE, 4) if eagle else (HYBRID, 0)
    hit, _, _, diverged = lookup.lookup_per_group(config, caches.pool_with((a, b), (c, d), (e, f)), [4, 8], 8)
    fits = caches.fitting((a, b), (c, d), (e, f), 8, more)
    full, own, read = (deepest([True, *(one[group] for one in fits)]) for group in range(3))
    apart = own <= full and read == full
    assert hit == (full if apart else deepest([True, *(all(one) for one in fits)]))
    assert diverged == (apart and own < full)


@claim(lookup.attention_hit, sizes="all", bounds="any hits of three classes of full attention", laws=("CA-4",))
def the_attention_hit_is_the_least_of_its_classes(one: int, two: int, three: int) -> None:
    """The full-attention hit is one that every full-attention class reaches; in the release that of the first class (T12)."""
    assert (one >= 0) & (two >= 0) & (three >= 0)
    found = lookup.attention_hit(HYBRID, [one, two, three])
    release = lookup.attention_hit(evolve(HYBRID, profile=VLLM_0_33_0), [one, two, three])
    assert (found <= one) & (found <= two) & (found <= three)
    assert (found == one) | (found == two) | (found == three)
    assert release == one


@claim(lookup.may_lag, sizes="shape", bounds="every kind that is cached", laws=("CA-4", "CA-5"))
def only_states_may_lag_behind_a_divergent_hit(group: int) -> None:
    """A connector brings the state at the end of its tokens and nothing that is read before them: only a recurrent class may
    be shorter than full attention, in the release any (T12).
    """
    assert 0 <= group < 4
    members = pick(((0,), (1,), (2,), (3,)), group)
    lags = lookup.may_lag(EVERY, members)
    release = lookup.may_lag(evolve(EVERY, profile=VLLM_0_33_0), members)
    assert lags == (group == 1)
    assert release


# --- cutting a hit ------------------------------------------------------------------------------------------------


@claim(
    lookup.truncate,
    lookup.kept_entries,
    sizes="shape",
    bounds="attention blocks of 8 tokens, states every 4, a scratch group; up to two blocks, four states and one scratch "
    "block; cut to 0 to 16 tokens",
    laws=("CA-5",),
)
def a_hit_is_cut_at_block_edges_and_no_further_than_it_reaches(full: int, states: int, spare: bool, cut: int) -> None:
    """Cutting a hit leaves the entries of its first tokens in each group. It is refused inside a block, where attention does
    not reach so far, and if a scratch group has a block; a recurrent list may be shorter (T15, CA-5).
    """
    assert 0 <= full <= 2
    assert 0 <= states <= 4
    assert 0 <= cut <= 4
    tokens = pick((0, 4, 8, 12, 16), cut)
    lists = (
        pick(((), (1,), (1, 2)), full),
        pick(((), (3,), (0, 3), (0, 0, 3), (0, 0, 0, 3)), states),
        ((4,) if spare else ()),
    )
    no = refused(lookup.truncate, SCRATCH, lists, tokens)
    after = lists if no else lookup.truncate(SCRATCH, lists, tokens)
    covered = [[block for at, block in enumerate(lists[group]) if (at + 1) * (8, 4)[group] <= tokens] for group in (0, 1)]
    assert no == (tokens % 8 != 0 or len(lists[0]) * 8 < tokens or spare)
    assert no or (len(after[0]) * 8 == tokens and not after[2])
    assert no or [list(blocks) for blocks in after[:2]] == covered
