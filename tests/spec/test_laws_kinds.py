"""Laws of windows, positionally stable states, scratch blocks, relocation, checkpoints and EAGLE: true and tampered moments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import SOUND, VLLM_0_33_0, Config, Group, Profile, configure
from kvproof.core.contents import GARBAGE
from kvproof.core.world import Scheduled, World
from kvproof.spec import ground, naive, naive_hits
from tests.spec.stories import (
    LAWS,
    Moments,
    Run,
    Tamper,
    acted,
    after,
    answer,
    before,
    bites,
    holds_throughout,
    judged,
    put,
    recorded,
    run_law,
    with_content,
    with_pool,
    with_row,
    with_state,
    with_worker,
)

FULL = Group("full_attention", 4)
WINDOW = Group("sliding_window", 2, sharded=False, window=4)
PROMPT = (0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1)


@cache
def windows() -> Moments:
    """A window of four tokens beside full attention: request 0 leaves it twice, request 1 hits 12 tokens of it."""
    run = Run(configure((FULL, WINDOW), num_blocks=24))
    run.do(act.Submit(0, PROMPT))
    run.compute(0, 8, 6)
    run.do(act.Submit(1, (*PROMPT[:13], 0, 0)))
    run.compute(1, 3)
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1), "next")
    return run.named


@cache
def chunks() -> Moments:
    """Chunks of six tokens in blocks of two: a resend needs nothing before the chunk in which its hit lies."""
    run = Run(configure((FULL, Group("chunked_local", 2, window=6)), num_blocks=24))
    run.do(act.Submit(0, PROMPT))
    run.compute(0, 8, 6)
    run.do(act.Submit(1, PROMPT[:11]))
    run.compute(1, 3)
    return run.named


@cache
def stable() -> Moments:
    """A state for every two tokens, and a scratch block per request."""
    run = Run(configure((FULL, Group("mamba_stable", 2), Group("scratch", 4)), num_blocks=24))
    run.do(act.Submit(0, PROMPT[:11]))
    run.compute(0, 7, 4)
    run.do(act.Submit(1, (*PROMPT[:9], 0)))
    run.compute(1, 2)
    run.do(act.Finish(0), "finish")
    return run.named


@cache
def moving() -> Moments:
    """A speculative state block behind the running one: when the state moves on by several columns it moves along."""
    run = Run(configure((Group("full_attention", 2), Group("mamba_align", 2, speculative_blocks=1)), num_blocks=40))
    run.do(act.Submit(0, (*PROMPT, 0, 1, 0, 1)))
    run.compute(0, 2, 8, 6, 2)
    return run.named


@cache
def exported() -> Moments:
    """EAGLE and a backend that exports the state inside a chunk: one chunk of 12 tokens keeps the state at 10 in column 1."""
    groups = (Group("full_attention", 8), Group("mamba_align", 4))
    run = Run(configure(groups, hash_block_size=2, num_blocks=20, use_eagle=True, checkpoint_alignment=2, retention=0))
    run.do(act.Submit(0, PROMPT[:12]))
    run.compute(0, 12)
    run.do(act.Submit(1, PROMPT[:12]))
    run.compute(1, 2)
    return run.named


@cache
def eagle() -> Moments:
    """EAGLE over full attention, a window and states: the resend gives up one hash unit and matches what it gives up."""
    groups = (Group("full_attention", 8), Group("sliding_window", 2, sharded=False, window=4), Group("mamba_align", 4))
    run = Run(configure(groups, hash_block_size=2, num_blocks=40, use_eagle=True, retention=0))
    run.do(act.Submit(0, PROMPT))
    run.compute(0, 8, 4, 2)
    run.do(act.Submit(1, PROMPT))
    run.compute(1, 2)
    return run.named


def entries_without(node: int, group: int) -> Tamper:
    return before(lambda w: with_pool(w, entries=tuple(e for e in w.pool.entries if e[:2] != (node, group))))


def with_entry(*entry: int) -> Tamper:
    return after(lambda w: with_pool(w, entries=(*w.pool.entries, entry)))


def table(world: World, request: int, group: int) -> tuple[int, ...]:
    found = ground.request_of(world, request)
    assert found is not None
    return found.groups[group].table


def replaced(request: int, group: int, column: int, block: int) -> Tamper:
    return after(lambda w: with_state(w, request, group, table=put(table(w, request, group), column, block)))


def garbled(request: int, group: int, column: int) -> Callable[[World], World]:
    def change(world: World) -> World:
        block = table(world, request, group)[column]
        return with_content(world, block, (group, *(GARBAGE,) * (len(world.contents[block]) - 1)))

    return change


# The blocks of the stories. windows: request 0 has attention 1, 2, 7, 8 and at last window entries 0, 0, 0, 0, 0, 10, 11, 15;
# request 1 gets 1, 2, 7, 12 and 0, 0, 0, 0, 9, 10, 13, 14. chunks: request 1 hits 8: attention 1, 2, chunk 0, 0, 0, 6. stable:
# request 1 hits 8: attention 1, 2, states 0, 0, 0, 6, 11, scratch 12. moving: block 3 goes from column 1 to 4, 8 from 5 to 7.
# exported: states 3 at 10 in column 1, 4 at 12. eagle: the resend hits 12 of 14 tokens, nodes 1 to 14.
CASES: list[tuple[str, str, Callable[[], Moments], str, Tamper]] = [
    ("TB-2", "a window entry replaced", windows, "next", replaced(0, 1, 6, 20)),
    ("TB-2", "a stable state moved", stable, "allocate 0 1", replaced(0, 1, 3, 20)),
    ("TB-4", "too few stable states", stable, "0 1 Dispatch", after(lambda w: with_state(w, 0, 1, table=(0, 0, 0, 6, 8)))),
    ("TB-5", "a window entry kept", windows, "next", replaced(0, 1, 4, 9)),
    ("TB-5", "an entry of the window lost", windows, "next", replaced(0, 1, 5, 0)),
    ("TB-5", "an adopted entry lost", windows, "allocate 1 0", replaced(1, 1, 5, 0)),
    ("TB-5", "an entry of the chunk lost", chunks, "allocate 1 0", replaced(1, 1, 3, 0)),
    ("TB-5", "an entry before the chunk kept", chunks, "allocate 1 0", replaced(1, 1, 2, 5)),
    ("TB-5", "a stable state kept", stable, "allocate 0 1", replaced(0, 1, 2, 5)),
    ("TB-5", "a snapshot kept", moving, "allocate 0 2", replaced(0, 1, 0, 2)),
    ("TB-6", "more states than the spare ones", moving, "allocate 0 2", after(lambda w: with_state(w, 0, 1, table=(0, 30, 31, 0, 3, 0, 0, 8, 12)))),
    ("TB-7", "no spare block behind the running state", moving, "0 1 Dispatch", after(lambda w: with_row(w, 1, 0, (2, 3, 0, 0, 3, 0)))),
    ("TB-7", "a column of an edge missing", stable, "0 0 Dispatch", after(lambda w: with_row(w, 1, 0, (3, 4, 0, 6)))),
    ("TB-7", "another column is read", moving, "0 2 Dispatch", after(lambda w: with_worker(w, 0, 1, 3))),
    ("TB-10", "a shared block moved", moving, "allocate 0 1", before(lambda w: with_pool(w, ref=put(w.pool.ref, 3, 2)))),
    ("TB-10", "a keyed block moved", moving, "allocate 0 1", before(lambda w: with_pool(w, key_node=put(w.pool.key_node, 3, 1)))),
    ("TB-10", "a move not reported", moving, "allocate 0 1", recorded(relocated=())),
    ("TB-10", "a block moved and stayed", moving, "allocate 0 1", replaced(0, 1, 1, 3)),
    ("TB-15", "no scratch block", stable, "allocate 1 0", after(lambda w: with_state(w, 1, 2, table=()))),
    ("TB-15", "two scratch blocks", stable, "allocate 1 0", after(lambda w: with_state(w, 1, 2, table=(12, 13)))),
    ("TB-15", "another's scratch block", stable, "allocate 1 0", replaced(1, 2, 0, 7)),
    ("TB-15", "a scratch block keyed", stable, "allocate 1 0", with_entry(4, 2, 99, 12)),
    ("TB-15", "a scratch block with a primary", stable, "allocate 1 0", after(lambda w: with_pool(w, key_node=put(w.pool.key_node, 12, 4)))),
    ("HB-3", "a checkpoint's key of another boundary", exported, "allocate 0 0", after(lambda w: with_state(w, 0, 1, checkpoint_position=8))),
    ("HB-10", "a window entry not keyed", windows, "lookup 1", entries_without(12, 1)),
    ("HB-10", "a window entry null", windows, "lookup 1", recorded(lists=((1, 2, 7), (0, 0, 0, 0, 9, 0)))),
    ("HB-10", "a chunk entry of another prefix", chunks, "lookup 1", recorded(lists=((1, 2), (0, 0, 0, 5)))),
    ("HB-10", "another stable state", stable, "lookup 1", recorded(lists=((1, 2), (0, 0, 0, 5), ()))),
    ("HB-10", "a list for scratch", stable, "lookup 1", recorded(lists=((1, 2), (0, 0, 0, 6), (7,)))),
    ("HB-13", "a partial key of a window", eagle, "allocate 0 2", with_entry(13, 1, 99, 4)),
    ("HB-13", "another boundary than the whole prompt's", eagle, "allocate 0 2", with_entry(12, 0, 99, 3)),
    ("HB-15", "a window entry missing", windows, "lookup 1", entries_without(12, 1)),
    ("HB-15", "a chunk entry missing", chunks, "lookup 1", entries_without(8, 1)),
    ("HB-15", "a stable state missing", stable, "lookup 1", entries_without(8, 1)),
    ("HB-15", "nothing behind the hit to drop in attention", eagle, "lookup 1", entries_without(14, 0)),
    ("HB-15", "nothing behind the hit to drop in the window", eagle, "lookup 1", entries_without(14, 1)),
    ("HB-15", "an EAGLE hit without its drop", eagle, "lookup 1", recorded(local=14)),
    ("COW-6", "nothing reserved for a copy beside a window", eagle, "allocate 1 0", recorded(demand=2)),
    ("PC-8", "a window's tail behind its head", windows, "next", after(lambda w: with_pool(w, free=w.pool.free[::-1]))),
    ("CC-1", "a window position is garbage", windows, "1 0 forward", after(garbled(1, 1, 5))),
    ("CC-1", "a chunk position is garbage", chunks, "1 0 forward", after(garbled(1, 1, 3))),
    ("CC-2", "another stable state is read", stable, "1 0 forward", before(garbled(1, 1, 3))),
    ("CC-3", "a stable state is not what its key says", stable, "0 0 forward", after(garbled(0, 1, 1))),
    ("CC-3", "a window block lost a position", windows, "0 1 forward", after(garbled(0, 1, 4))),
    ("CC-3", "the checkpoint was not written", exported, "0 0 forward", after(garbled(0, 1, 1))),
    ("COW-1", "a stable state is written over another key", stable, "0 0 forward", before(lambda w: with_pool(w, entries=((3, 1, 0, 3),)))),
]  # fmt: skip


@pytest.mark.parametrize(("law", "what", "story", "name", "tamper"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_a_tampered_moment_breaks_the_law_and_the_true_one_keeps_it(
    law: str, what: str, story: Callable[[], Moments], name: str, tamper: Tamper
):
    bites(law, story()[name], tamper)


@pytest.mark.parametrize("story", [windows, chunks, stable, moving, exported, eagle])
def test_no_law_is_broken_in_the_stories(story: Callable[[], Moments]):
    holds_throughout(story())


def test_what_a_window_has_left_behind_may_be_anything():
    moment = windows()["0 1 forward"]
    assert table(moment.after, 0, 1)[:4] == (0, 0, 5, 6)
    assert judged("CC-1", after(lambda w: with_content(w, 4, (1, 7, 7)))(moment)) == []
    assert judged("CC-1", after(garbled(0, 1, 2))(moment))
    # the chunk begins at 8, and its first query reads from 5 on: position 4 of the same block does not matter
    content = moment.after.contents[5]
    assert judged("CC-1", after(lambda w: with_content(w, 5, put(content, 1, GARBAGE)))(moment)) == []
    assert judged("CC-1", after(lambda w: with_content(w, 5, put(content, 2, GARBAGE)))(moment))


def test_hb_10_and_hb_15_need_nothing_before_the_window_or_chunk():
    for story, entry in ((windows, (8, 1)), (chunks, (6, 1))):
        moment = entries_without(*entry)(story()["lookup 1"])
        assert judged("HB-10", moment) == []
        assert judged("HB-15", moment) == ()


def test_hb_3_excuses_a_checkpoint_behind_its_column_only():
    moment = exported()["allocate 0 0"]
    checkpoint = [entry for entry in moment.after.pool.entries if entry[1] == 1]
    assert [moment.after.prefixes.depth[entry[0]] for entry in checkpoint] == [10]
    assert table(moment.after, 0, 1).index(checkpoint[0][3]) == 1
    assert judged("HB-3", moment) == []


@pytest.mark.parametrize(
    ("group", "tokens", "expected"),
    [
        (Group("sliding_window", 4, window=4), 7, 4),
        (Group("chunked_local", 4, window=8), 13, 8),
        (Group("chunked_local", 4, window=8), 8, 8),
        (Group("chunked_local", 4, window=8), 7, 0),
        (Group("mamba_align", 4), 7, 6),
        (Group("mamba_stable", 4), 0, 0),
        (Group("full_attention", 4), 7, 0),
        (Group("scratch", 4), 7, 0),
    ],
)
def test_what_is_read_no_more_is_found_by_asking_each_position(group: Group, tokens: int, expected: int):
    assert ground.unread(group, tokens) == expected


@pytest.mark.parametrize(
    ("group", "start", "amount", "drafts", "expected"),
    [
        (Group("mamba_align", 4), 0, 9, (), [(2, 9)]),
        (Group("mamba_align", 4, speculative_blocks=3), 5, 3, (7, 7), [(1, 6), (2, 7), (3, 8)]),
        (Group("mamba_align", 4, speculative_blocks=3), 7, 2, (7,), [(2, 8), (3, 9), (1, 8)]),
        (Group("mamba_stable", 4), 3, 7, (), [(0, 4), (1, 8), (2, 10)]),
    ],
)
def test_the_states_that_a_chunk_writes(group: Group, start: int, amount: int, drafts: tuple[int, ...], expected: list[object]):
    entry = Scheduled(0, start, amount, False, start, drafts)
    assert ground.states_written(group, entry) == expected


MANY = (
    Group("full_attention", 2),
    Group("full_attention", 2, draft=True),
    Group("full_attention", 4, sharded=False),
    Group("sliding_window", 4, sharded=False, window=6),
    Group("mamba_align", 4, speculative_blocks=2),
    Group("mamba_stable", 8),
    Group("scratch", 2),
)


@pytest.mark.parametrize(
    ("config", "nothing_to_judge"),
    [
        (configure(MANY, dcp_size=2, use_eagle=True), []),
        (configure((*MANY, Group("chunked_local", 8, window=16)), hash_block_size=2), []),
        (configure((FULL, WINDOW, Group("mamba_align", 4)), dcp_size=2, use_eagle=True, hash_block_size=2), []),
        # No group has keys, so the native connector moves nothing: the premises of DS-6 and of its part of LV-9 are false.
        (configure((Group("scratch", 4),)), ["DS-6", "LV-9"]),
        (configure((Group("mamba_stable", 4), Group("scratch", 3)), use_eagle=True), []),
    ],
    ids=["two ranks", "one rank", "fine-grained", "scratch alone", "no attention"],
)
def test_the_laws_of_a_configuration_hold_and_its_facts_are_counted(config: Config, nothing_to_judge: list[str]):
    judged = {law.id: law.check_config(config) for law in LAWS.values() if law.check_config is not None}
    assert sorted(law for law, findings in judged.items() if findings is None) == nothing_to_judge
    assert {law: findings for law, findings in judged.items() if findings} == {}
    facts = naive_hits.facts(config)
    assert facts.spans == config.sizes
    assert facts.gate == config.fine_grained
    assert {frozenset(members) for members in facts.classes} == {frozenset(members) for members in config.classes}
    assert tuple(group in facts.eagle for group in range(len(config.groups))) == config.eagle
    assert (facts.recurrent, facts.attention) == (config.recurrent, config.positional)
    assert tuple(ground.snapshot_groups(config)) == config.snapshots


def test_a_flagged_group_draws_its_class_into_the_eagle_set():
    config = configure(MANY, dcp_size=2, use_eagle=True)
    assert ground.eagle_groups(config) == {0, 1}
    assert naive_hits.margin(config, (0, 1)) == 4
    assert naive_hits.margin(config, (4,)) == 0
    assert [ground.cacheable_tokens(config, group, 15) for group in (0, 4)] == [12, 8]
    assert ground.cacheable_tokens(config, 0, 7) == 0


def test_a_positionally_stable_recurrent_group_needs_blocks_of_a_hash_unit_for_fine_grained_hits():
    groups = (naive.GateGroup("full", 4), naive.GateGroup("mamba_align", 4), naive.GateGroup("mamba_stable", 4))
    assert not naive.gate(groups, caching=True, allow=True, dcp_size=1, hash_block=2)
    assert naive.gate(groups, caching=True, allow=True, dcp_size=2, hash_block=4)


def test_tb_12_counts_speculative_columns_and_one_of_scratch():
    config = configure(MANY, dcp_size=2, max_model_len=100)
    check = LAWS["TB-12"].check_config
    assert check is not None
    assert check(config) == []
    assert config.row_capacity[4:] == (27, 13, 1)
    assert check(evolve(config, row_capacity=put(config.row_capacity, 4, 26)))
    assert check(evolve(config, row_capacity=put(config.row_capacity, 6, 0)))


# --- LV-8 ---------------------------------------------------------------------------------------------------------------


def gated(num_blocks: int, prompt: int, amount: int, busy: int = 0) -> Moments:
    """Ask the admission gate for one request, while another one holds blocks if there are ``busy`` tokens of it."""
    groups = (FULL, WINDOW)
    run = Run(configure(groups, num_blocks=num_blocks, max_model_len=40, max_chunk=4))
    run.do(act.BeginStep())
    run.step()
    if busy:
        run.do(act.Submit(1, (1,) * busy))
        run.compute(1, busy)
    run.do(act.Submit(0, (0,) * prompt))
    run.do(act.BeginStep())
    run.do(act.Lookup(0))
    run.do(act.Allocate(0, amount, full_sequence=True), "gate")
    run.do(act.Lookup(0)) if not answer(run.named["gate"]).admitted else None
    return run.named


def test_lv_8_judges_the_admission_gate_by_the_windows():
    # 30 tokens: 8 blocks of attention, and of the window at most 3 tokens behind and 4 ahead: ceil(7 / 2) + 1 blocks
    let_in, refused = gated(14, 30, 4)["gate"], gated(13, 30, 4)["gate"]
    assert (answer(let_in).admitted, answer(refused).admitted) == (True, False)
    assert judged("LV-8", let_in) == ()
    assert judged("LV-8", refused) == ()
    assert judged("LV-8", recorded(admitted=False)(let_in))
    assert judged("LV-8", recorded(admitted=True, free_before=11)(let_in))


def test_lv_8_wants_a_request_admitted_that_is_alone_and_fits():
    moment = windows()["allocate 0 1"]
    assert judged("LV-8", moment) == ()
    assert judged("LV-8", recorded(admitted=False)(moment))
    assert judged("LV-8", windows()["next"]) is None
    tight = before(lambda w: evolve(w, config=evolve(w.config, num_blocks=8)))
    assert judged("LV-8", tight(moment)) is None
    assert judged("LV-8", acted(full_sequence=True)(moment)) is None


# --- LV-10 and the internal checkpoint ----------------------------------------------------------------------------------


def resent_behind_a_checkpoint(profile: Profile) -> Run:
    """EAGLE, a backend that exports at multiples of 8, P = 13: the chunk to ck(13, 2) = 10 also exports the state at 8."""
    groups = (Group("full_attention", 8), Group("mamba_align", 8))
    config = configure(
        groups, hash_block_size=2, num_blocks=20, use_eagle=True, checkpoint_alignment=8, retention=None, profile=profile
    )
    run = Run(config)
    run.do(act.Submit(0, PROMPT[:13]))
    run.compute(0, 10, 3)
    run.do(act.Submit(1, PROMPT[:13]))
    run.do(act.BeginStep())
    run.do(act.Lookup(1), "resend")
    return run


def test_a_chunk_with_an_internal_checkpoint_keeps_the_prompt_checkpoint_at_its_end():
    run = resent_behind_a_checkpoint(SOUND)
    assert answer(run.named["resend"]).local == 10
    assert run_law("LV-10", run.world.config, run.actions) == []
    run = resent_behind_a_checkpoint(VLLM_0_33_0)
    assert answer(run.named["resend"]).local == 8
    found = run_law("LV-10", run.world.config, run.actions)
    assert found
    assert dict(found[0].values)["expected"] == 10
    assert ("checkpoint_tail", VLLM_0_33_0.checkpoint_tail) in LAWS["LV-10"].bent_by
