"""Claims about what a call is refused for: phases, external tokens, chunks and drafts that cannot be (T0, T14, T22, T36)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core import phases, recovery
from kvproof.core import step as steps
from kvproof.core.config import Group
from kvproof.core.world import GroupState, Hit, Phase, Plan, Scheduled, Status, Step
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims.pools_of_four import pick
from kvproof.proofs.refusing import refused

PHASES = tuple(Phase)
FINE = configs.configure((Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=4)
"""S of 8, H and A of 4."""
DRAFTING = configs.configure((Group("full_attention", 4),), num_blocks=4, num_draft_tokens=2, max_model_len=20)
STATES = configs.configure((Group("mamba_align", 4, speculative_blocks=2),), num_blocks=4, num_draft_tokens=2)
NUMBERS = tuple(range(17))


@claim(
    phases.need,
    phases.need_admission,
    sizes="shape",
    bounds="each phase; a plan that preempted somebody or not",
)
def an_action_is_refused_outside_its_phases(phase: int, wanted: int, preempted: bool) -> None:
    """An action is refused exactly outside the phases that it needs; waiting requests are considered while a plan is open
    that has preempted nobody (T0).
    """
    assert 0 <= phase < 5
    assert 0 <= wanted < 5
    now, one = pick(PHASES, phase), pick(PHASES, wanted)
    world = evolve(tiers.FULL_WORLD, phase=now, plan=Plan(preempted=(3,) if preempted else ()))
    no = refused(phases.need, world, "Drain", one)
    closed = refused(phases.need_admission, world, "Lookup")
    assert no == (now is not one)
    assert closed == (preempted or now not in (Phase.PLAN_RUNNING, Phase.PLAN_WAITING))


@claim(
    steps.check_external,
    sizes="grid",
    bounds="S of 8 and A of 4; a hit of 0 to 16 tokens, 0 to 16 of them kept, 0 to 16 external ones, loaded or not",
    laws=("HB-8", "CA-7"),
    settles=("LD-2",),
    deep=True,
)
def external_tokens_begin_behind_whole_blocks(hit: int, kept: int, external: int, load: bool) -> None:
    """External tokens are refused behind a part of a scheduler block, in a number that no hit could have, and in place of as
    many local ones or more (T14, LD-2, CA-7).
    """
    assert 0 <= kept <= hit <= 4
    assert 0 <= external <= 16
    local, given, more = 4 * pick((0, 1, 2, 3, 4), hit), 4 * pick((0, 1, 2, 3, 4), kept), pick(NUMBERS, external)
    asked = act.Allocate(0, 0 if load else 1, local=given, external=more, load=load)
    no = refused(steps.check_external, FINE, Hit(0, local, ((), ()), 0, False), asked)
    assert no == (given % 8 != 0 or more % 4 != 0 or (given < local and given + more <= local))


@claim(steps.check_divergence, sizes="all", bounds="any external tokens, a hit that diverged or not", laws=("CA-3",))
def a_divergent_hit_needs_external_tokens(external: int, diverged: bool) -> None:
    """A hit that diverged is refused without external tokens, since no state stands at its end; no other is (T14.4, CA-3)."""
    assert external >= 0
    no = refused(steps.check_divergence, Hit(0, 8, ((), ()), 0, diverged), act.Allocate(0, 1, local=8, external=external))
    assert no == (diverged & (external == 0))


@claim(
    steps.adopted_lists,
    sizes="shape",
    bounds="blocks of 8 tokens of attention and states; a hit of 12 tokens, whole or cut to 8 or 0",
    laws=("CA-5",),
)
def a_hit_is_adopted_whole_or_cut(first: int, second: int, state: int, cut: int) -> None:
    """Of a hit that is adopted whole the lists stay as they are; a cut one has the entries of the tokens kept (T15)."""
    assert (first >= 1) & (second >= 1) & (state >= 1)
    assert 0 <= cut < 3
    local = pick((12, 8, 0), cut)
    hit = Hit(0, 12, ((first, second), (0, state)), 0, False)
    lists = steps.adopted_lists(FINE, hit, local)
    assert lists == pick((hit.lists, ((first,), (0,)), ((), ())), cut)


@claim(steps.split_start, sizes="all", bounds="any tokens computed, hit and loaded", laws=("LV-9",))
def a_chunk_begins_behind_what_is_hit_and_loaded(computed: int, local: int, external: int, new: int) -> None:
    """A chunk begins behind the tokens that are computed, hit locally and brought by a connector, and not among them (T22)."""
    assert (computed >= 0) & (local >= 0) & (external >= 0) & (new >= 1)
    request = evolve(holders.request_of(), computed=computed)
    begin = steps.split_start(request, act.Allocate(0, new, local=local, external=external))
    more = steps.split_start(request, act.Allocate(0, new, local=local, external=external + 1))
    assert begin >= computed
    assert begin - computed == local + external
    assert more == begin + 1


@claim(
    steps.check_end,
    steps.split_start,
    sizes="grid",
    bounds="a running request of 16 known tokens, 0 or 2 placeholders, 12 to 18 of them computed; 1 to 5 new tokens of which 0 "
    "to 3 are drafts; up to two drafts are given, the model has 20 tokens",
    laws=("LV-9", "RQ-4"),
)
def a_chunk_ends_within_the_known_tokens_and_its_drafts(computed: int, new: int, drafts: int, later: bool) -> None:
    """A chunk is refused beyond the tokens that are known or to come, with more drafts than the drafter gives, with drafts that
    do not follow all of these behind a token of its own, and beyond the model length (T36).
    """
    assert 12 <= computed <= 18
    assert 1 <= new <= 5
    assert 0 <= drafts <= 3
    known = 18 if later else 16
    start, amount = pick((12, 13, 14, 15, 16, 17, 18), computed - 12), pick((1, 2, 3, 4, 5), new - 1)
    guessed = pick(((), (7,), (7, 8), (7, 8, 9)), drafts)
    request = evolve(holders.request_of(GroupState()), num_tokens=16, computed=start, placeholders=known - 16)
    asked = act.Allocate(0, amount, drafts=guessed)
    world = evolve(tiers.FULL_WORLD, config=DRAFTING)
    begin = steps.split_start(request, asked)
    no = refused(steps.check_end, world, request, asked, begin)
    before = start + amount - len(guessed)
    assert begin == start
    assert no == (
        len(guessed) > 2
        or before > known
        or (len(guessed) > 0 and (before < known or amount <= len(guessed)))
        or start + amount > 20
    )


@claim(
    steps.state_before_drafts,
    sizes="grid",
    bounds="states every 4 tokens, and attention alone; any start, up to two drafts behind one token or two",
    laws=("TB-7", "RQ-3"),
)
def the_state_before_drafts_has_a_column(start: int, drafts: int, wide: bool, running: bool, states: bool) -> None:
    """With states drafts follow one token: of a running request any, at an admission one in whose block they end, since the
    columns before the running one are null (3.6, C-58).
    """
    assert start >= 0
    assert 1 <= drafts <= 2
    amount = pick((1, 2), drafts - 1) + (2 if wide else 1)
    request = evolve(holders.request_of(), status=Status.RUNNING if running else Status.WAITING)
    allowed = steps.state_before_drafts(STATES if states else DRAFTING, request, start, amount, pick((1, 2), drafts - 1))
    same = start // 4 == (start + amount - 1) // 4
    assert allowed == (not states or (not wide and (running or same)))


@claim(steps.largest_prefill, sizes="all", bounds="any limits of a step and of long prefills")
def a_prefill_shares_its_step(chunk: int, limit: int, limited: bool) -> None:
    """The largest chunk of a prefill is what a step holds, or the limit of long prefills if that is less (T22.3)."""
    assert chunk >= 1
    assert limit >= 1
    most = steps.largest_prefill(evolve(tiers.FULL, max_chunk=chunk, long_prefill=limit if limited else None))
    assert most <= chunk
    assert not limited or most <= limit
    assert most == chunk or limited & (most == limit)


@claim(
    recovery.check,
    sizes="grid",
    bounds="a chunk with external tokens from 4 to 4, 8 or 12; 0 to 12 valid ones, outputs of its step taken or not",
    laws=("LV-9",),
)
def a_load_fails_only_within_its_tokens(end: int, valid: int, opened: bool) -> None:
    """A failed load is refused if all its tokens arrived or fewer than the local ones are left, and behind another output of
    its step, which may have read what did not arrive (T36.2).
    """
    assert 0 <= end < 3
    assert 0 <= valid <= 12
    start, right = pick((4, 8, 12), end), pick(NUMBERS, valid)
    entry = Scheduled(0, start, 4, True, 4)
    no = refused(recovery.check, Step((entry,), (), (), 0, (0,), opened=opened), entry, right)
    assert no == (opened or right < 4 or right >= start)
