"""Each law on tables, copies, the pool and contents: a moment that keeps it, and the same moment tampered with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import execute
from kvproof.core.config import VLLM_0_33_0, Group, Profile, configure
from kvproof.core.world import World, new_world
from kvproof.spec import ground
from kvproof.spec.judge import attempt
from kvproof.spec.laws import contents, copies, demand, eviction, pool, rows, states, tables
from tests.spec.stories import (
    LAWS,
    Moments,
    Run,
    Tamper,
    acted,
    after,
    before,
    bites,
    broken,
    crashed,
    emptied,
    holds_throughout,
    judged,
    put,
    recorded,
    whole_step,
    with_content,
    with_pool,
    with_row,
    with_state,
    with_worker,
)

OWN = {law.id for module in (tables, states, rows, copies, demand, pool, eviction, contents) for law in module.LAWS}
ELSEWHERE = {"TB-5", "TB-10", "TB-12", "TB-15", "PC-12"}
"""Laws that have their own test, here or among those of the kinds and of steps in flight."""
PROMPT = (0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1)
PAIR = (Group("full_attention", 4), Group("mamba_align", 4))


@cache
def consumer() -> Moments:
    """Two ranks: request 0 computes 14 tokens and stays, request 1 shares 12 of them, which end inside a block."""
    run = Run(configure(PAIR, dcp_size=2, num_blocks=20))
    run.do(act.Submit(0, PROMPT))
    run.do(act.BeginStep())
    run.do(act.Lookup(0))
    run.do(act.Allocate(0, 12), "first")
    run.step("first", act.Output(0))
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 2), "second")
    run.step("second", act.Output(0, (1,)))
    run.do(act.Submit(1, (*PROMPT[:12], 1, 0, 0, 1)))
    run.do(act.BeginStep())
    run.do(act.Lookup(1))
    run.do(act.Allocate(1, 4, local=12), "admit")
    run.step("admit", act.Output(1, (1,)))
    run.do(act.Finish(0), "finish")
    run.do(act.Finish(1), "last")
    return run.named


@cache
def producer() -> Moments:
    """One rank, hash unit 1: the state at 2 is keyed inside its block, the next chunk moves its keys to a copy."""
    run = Run(configure(PAIR, hash_block_size=1, num_blocks=8))
    run.do(act.Submit(0, (0, 1, 1)))
    run.do(act.BeginStep())
    run.do(act.Lookup(0))
    run.do(act.Allocate(0, 2))
    run.step("first", act.Output(0))
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1), "move")
    run.step("move", act.Output(0, (1,)))
    return run.named


@cache
def refused() -> Moments:
    """A pool of four blocks: the running request takes all of them, another one does not fit."""
    run = Run(configure(PAIR, num_blocks=5))
    run.do(act.Submit(0, (0, 1, 1, 0, 1)))
    run.do(act.Submit(1, (1, 1, 1, 1)))
    run.do(act.BeginStep())
    run.do(act.Lookup(0))
    run.do(act.Allocate(0, 4))
    run.step("first", act.Output(0))
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1))
    run.do(act.Lookup(1))
    record = run.do(act.Allocate(1, 4), "refused").record
    assert record is not None
    assert record.admitted is False
    return run.named


def shorter_source(world: World) -> World:
    """Request 1 has other tokens than request 0 from the start."""
    (other,) = (request for request in world.requests if request.request == 1)
    changed = evolve(other, context=7)
    return evolve(world, requests=tuple(changed if request is other else request for request in world.requests))


def plan_copies(world: World, *queued: tuple[int, int, int]) -> World:
    return evolve(world, plan=evolve(world.plan, copies=queued))


def step_copies(world: World, *queued: tuple[int, int, int]) -> World:
    return evolve(world, steps=(evolve(world.steps[0], copies=queued), *world.steps[1:]))


def other_sequence(world: World) -> World:
    """Make every key on the newly taken blocks older than the allocation."""
    return with_pool(world, entries=tuple((node, group, 0, block) for node, group, _, block in world.pool.entries))


# Tables and blocks of the consumer story: request 0 has attention [1, 2] and states [0, 0, 3, 4]; request 1 gets
# attention [1, 5] (2 is copied to 5) and states [0, 0, 3, 6]. The producer story: attention [1], state [2], copy 3.
CASES: list[tuple[str, str, Callable[[], Moments], str, Tamper]] = [
    ("TB-1", "an id beyond the pool", consumer, "admit", after(lambda w: with_state(w, 1, 0, table=(1, 20)))),
    ("TB-1", "a negative id", consumer, "admit", after(lambda w: with_state(w, 1, 1, table=(0, 0, -1, 6)))),
    (
        "TB-2",
        "the copy appended instead of put in place",
        consumer,
        "admit",
        after(lambda w: with_state(w, 1, 0, table=(1, 2, 5))),
    ),
    ("TB-2", "an entry of a running request replaced", consumer, "second", after(lambda w: with_state(w, 0, 0, table=(1, 9)))),
    ("TB-2", "an entry of a running request dropped", consumer, "second", after(lambda w: with_state(w, 0, 0, table=(1,)))),
    ("TB-3", "a null in full attention", consumer, "admit", after(lambda w: with_state(w, 1, 0, table=(0, 5)))),
    ("TB-4", "a state column missing", consumer, "second Dispatch", after(lambda w: with_state(w, 0, 1, table=(0, 0, 3)))),
    ("TB-6", "three states kept", consumer, "second", after(lambda w: with_state(w, 0, 1, table=(0, 7, 3, 4)))),
    (
        "TB-7",
        "the column read from is wrong",
        consumer,
        "second Dispatch",
        after(lambda w: with_worker(w, w.steps[-1].scheduled[0].row, 1, 1)),
    ),
    ("TB-7", "the column written to is null", consumer, "second Dispatch", after(lambda w: with_row(w, 1, 0, (0, 0, 3, 0)))),
    ("TB-8", "one block in two groups", consumer, "admit", after(lambda w: with_state(w, 1, 1, table=(0, 0, 3, 5)))),
    ("TB-9", "shared under another context", consumer, "admit", after(shorter_source)),
    ("TB-9", "a shared block is still to be written", consumer, "admit", after(lambda w: with_state(w, 1, 0, table=(1, 2)))),
    (
        "TB-11",
        "a row past its end",
        consumer,
        "admit Dispatch",
        before(lambda w: evolve(w, config=evolve(w.config, row_capacity=(1, 4)))),
    ),
    ("TB-11", "another row written", consumer, "admit Dispatch", after(lambda w: with_row(w, 0, 5, (1,)))),
    ("TB-13", "a row replaced", consumer, "second Dispatch", after(lambda w: with_row(w, 0, 0, (9, 2)))),
    (
        "TB-13",
        "the table asks for another block in a sent column",
        consumer,
        "second Dispatch",
        after(lambda w: with_state(w, 0, 1, table=(0, 0, 9, 4))),
    ),
    ("TB-14", "a half full block counted", consumer, "second", after(lambda w: with_state(w, 0, 0, num_cached=2))),
    ("TB-14", "the count falls", consumer, "second", after(lambda w: with_state(w, 0, 1, num_cached=0))),
    (
        "COW-1",
        "a written block is in another table",
        consumer,
        "admit forward",
        before(lambda w: with_state(w, 0, 0, table=(1, 5))),
    ),
    ("COW-1", "a key claims another state", consumer, "admit forward", before(lambda w: with_pool(w, entries=((3, 1, 0, 6),)))),
    (
        "COW-1",
        "a key claims other positions",
        consumer,
        "admit forward",
        before(lambda w: with_pool(w, entries=((14, 0, 0, 5),))),
    ),
    ("COW-2", "no copy queued", consumer, "admit copy", before(lambda w: step_copies(w))),
    (
        "COW-2",
        "one rank not copied",
        consumer,
        "admit copy",
        after(lambda w: with_content(w, 5, (*w.contents[2][:5], *(-1,) * 4))),
    ),
    ("COW-2", "the table keeps the source", consumer, "admit copy", after(lambda w: with_state(w, 1, 0, table=(1, 2)))),
    ("COW-3", "a source without reference", consumer, "admit", after(lambda w: with_pool(w, ref=put(w.pool.ref, 2, 0)))),
    ("COW-3", "a source zeroed before the copy", consumer, "admit zero", after(lambda w: with_content(w, 2, ()))),
    (
        "COW-3",
        "a destination written before the copy",
        consumer,
        "admit zero",
        after(lambda w: with_content(w, 5, (0, *(3,) * 8))),
    ),
    ("COW-4", "a source that nobody wrote", consumer, "admit copy", before(lambda w: with_content(w, 2, ()))),
    ("COW-4", "a producer's source holds another state", producer, "move copy", before(lambda w: with_content(w, 2, (1, 3)))),
    ("COW-5", "the keys stay", producer, "move", after(lambda w: with_pool(w, entries=((2, 1, 0, 2),)))),
    ("COW-5", "the primary stays", producer, "move", after(lambda w: with_pool(w, key_node=put(w.pool.key_node, 3, -1)))),
    ("COW-5", "no copy queued", producer, "move", after(lambda w: plan_copies(w))),
    ("COW-5", "the copy holds another state", producer, "move copy", after(lambda w: with_content(w, 3, (1, 3)))),
    ("COW-6", "nothing reserved for the copy", consumer, "admit", recorded(demand=1)),
    ("COW-6", "nothing reserved for the producer", producer, "move", recorded(demand=0)),
    ("COW-7", "one destination twice", consumer, "admit Drain", recorded(copies=((0, 2, 5), (0, 1, 5)))),
    ("COW-7", "a destination is a source", consumer, "admit Drain", recorded(copies=((0, 2, 5), (0, 5, 7)))),
    (
        "PC-1",
        "a block twice in the queue",
        consumer,
        "admit",
        after(lambda w: with_pool(w, free=(*w.pool.free, w.pool.free[0]))),
    ),
    ("PC-1", "the null block in the queue", consumer, "admit", after(lambda w: with_pool(w, free=(0, *w.pool.free)))),
    ("PC-1", "a held block in the queue", consumer, "admit", after(lambda w: with_pool(w, free=(5, *w.pool.free)))),
    ("PC-2", "a block lost", consumer, "admit", after(lambda w: with_pool(w, free=w.pool.free[1:]))),
    ("PC-3", "a reference too many", consumer, "admit", after(lambda w: with_pool(w, ref=put(w.pool.ref, 1, 3)))),
    ("PC-3", "a copy's end not counted", consumer, "admit", after(lambda w: with_pool(w, ref=put(w.pool.ref, 5, 1)))),
    ("PC-4", "a count below zero", consumer, "finish", after(lambda w: with_pool(w, ref=put(w.pool.ref, 0, -1)))),
    ("PC-4", "a release that fails", consumer, "finish", crashed),
    ("PC-5", "an owner", consumer, "admit", before(lambda w: with_state(w, 0, 0, table=(1, 2, 5)))),
    ("PC-5", "an old key", consumer, "admit", after(other_sequence)),
    ("PC-5", "a key of another prefix", consumer, "admit", after(lambda w: with_pool(w, entries=((14, 0, 99, 5),)))),
    ("PC-6", "an adopted block taken", consumer, "admit", recorded(taken=(5, 1))),
    ("PC-7", "taking fails", consumer, "admit", emptied),
    ("PC-7", "reserved blocks taken", consumer, "admit", acted(reserved=1000)),
    ("PC-8", "the head before the tail", consumer, "last", after(lambda w: with_pool(w, free=w.pool.free[::-1]))),
    ("PC-8", "blocks from the back", consumer, "admit", before(lambda w: with_pool(w, free=w.pool.free[::-1]))),
    ("PC-8", "a dispatch turns the queue", consumer, "admit Dispatch", after(lambda w: with_pool(w, free=w.pool.free[::-1]))),
    ("PC-9", "a reference kept", refused, "refused", after(lambda w: with_pool(w, ref=put(w.pool.ref, 1, 2)))),
    ("PC-9", "a status changed", refused, "refused", after(lambda w: with_state(w, 1, 0, table=(1,)))),
    ("PC-9", "another request changed", refused, "refused", after(lambda w: with_state(w, 0, 0, num_cached=0))),
    ("PC-10", "a block never given back", consumer, "last", after(lambda w: with_pool(w, ref=put(w.pool.ref, 5, 1)))),
    ("PC-11", "a key of the other group", consumer, "admit", after(lambda w: with_pool(w, entries=((4, 1, 0, 1),)))),
    ("PC-11", "one block in tables of two groups", consumer, "admit", after(lambda w: with_state(w, 1, 1, table=(0, 0, 1, 6)))),
    (
        "CC-1",
        "a position of the prefix is unwritten",
        consumer,
        "admit forward",
        after(lambda w: with_content(w, 1, (0, *(-1,) * 8))),
    ),
    ("CC-1", "another group's bytes", consumer, "admit forward", after(lambda w: with_content(w, 5, w.contents[6]))),
    ("CC-1", "another context", consumer, "admit forward", before(shorter_source)),
    ("CC-2", "another state", consumer, "admit forward", before(lambda w: with_content(w, 6, (1, 3, 3)))),
    (
        "CC-2",
        "the state on one rank only",
        consumer,
        "admit forward",
        before(lambda w: with_content(w, 6, put(w.contents[6], 2, -1))),
    ),
    ("CC-2", "no state read", consumer, "admit forward", recorded(reads=())),
    (
        "CC-3",
        "a keyed attention block lost a position",
        consumer,
        "admit forward",
        after(lambda w: with_content(w, 2, put(w.contents[2], 1, -1))),
    ),
    ("CC-3", "a keyed state is another one", consumer, "admit forward", after(lambda w: with_content(w, 3, (1, 3, 3)))),
]


@pytest.mark.parametrize(("law", "what", "story", "name", "tamper"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_a_tampered_moment_breaks_the_law_and_the_true_one_keeps_it(
    law: str, what: str, story: Callable[[], Moments], name: str, tamper: Tamper
) -> None:
    bites(law, story()[name], tamper)


def test_every_law_has_a_case_or_its_own_test() -> None:
    assert {case[0] for case in CASES} | ELSEWHERE == OWN


@pytest.mark.parametrize("story", [consumer, producer, refused])
def test_no_law_is_broken_in_the_stories(story: Callable[[], Moments]) -> None:
    holds_throughout(story())


def test_tb_12_counts_the_column_of_the_last_position() -> None:
    config = configure(PAIR, dcp_size=2, max_model_len=100, append_expansion=2)
    check = LAWS["TB-12"].check_config
    assert check is not None
    assert check(config) == []
    assert check(evolve(config, row_capacity=(26, 49)))
    assert check(evolve(config, row_capacity=(25, 50)))
    assert check(evolve(config, row_capacity=(26, 50))) == []


def test_tb_11_judges_a_refused_append_by_what_it_leaves() -> None:
    blocks = ((1, 2, 3), tuple([4] * 26))
    sound = attempt(new_world(configure(PAIR, max_model_len=100)), act.AppendRows(0, blocks))
    assert sound.refusal is not None
    assert judged("TB-11", sound) == []
    bent = attempt(new_world(configure(PAIR, max_model_len=100, profile=VLLM_0_33_0)), act.AppendRows(0, blocks))
    assert bent.refusal is not None
    assert judged("TB-11", bent)
    assert ("append_guard", VLLM_0_33_0.append_guard) in LAWS["TB-11"].bent_by


def test_tb_11_judges_an_accepted_append_by_the_rows_behind() -> None:
    moment = attempt(new_world(configure(PAIR, max_model_len=100)), act.AppendRows(0, ((1, 2), (3,))))
    assert judged("TB-11", moment) == []
    assert judged("TB-11", after(lambda w: with_row(w, 0, 1, (2,)))(moment))
    narrow = evolve(moment, before=evolve(moment.before, config=evolve(moment.before.config, row_capacity=(1, 25))))
    assert judged("TB-11", narrow)
    # the order of the guard explains what a refusal leaves behind, never an append that went through
    assert not any(evidence.bendable for evidence in judged("TB-11", narrow) or ())


def test_a_law_whose_premise_is_not_true_is_not_judged() -> None:
    moment = consumer()["second copy"]
    assert judged("COW-2", moment) is None
    assert judged("COW-4", moment) is None
    assert judged("CC-1", moment) is None
    assert judged("PC-9", consumer()["admit"]) is None
    assert judged("PC-10", consumer()["finish"]) is None


def test_cc_2_wants_no_state_read_by_the_first_chunk() -> None:
    moment = consumer()["first forward"]
    assert judged("CC-2", moment) is None
    assert judged("CC-2", recorded(reads=((0, 1, 2, 3, 0),))(moment))


def test_two_consumers_of_one_step_bend_the_copy_laws_only_without_the_guard() -> None:
    """Requests 1 and 2 hit five tokens of request 0; 2 finds them in the block that 1 only now fills by its own copy."""
    first, longer = (0, 1, 1, 1, 1, 0), (0, 1, 1, 1, 1, 0, 0, 0, 1)
    actions = [act.Submit(0, first), act.BeginStep(), act.Lookup(0), act.Allocate(0, 4), *whole_step(act.Output(0))]
    actions += [act.BeginStep(), act.Allocate(0, 1), *whole_step(act.Output(0))]
    actions += [act.BeginStep(), act.Allocate(0, 1), *whole_step(act.Output(0, (0,)))]
    actions += [act.Submit(1, (*longer, 1, 1, 1, 0)), act.Submit(2, longer), act.BeginStep()]
    actions += [act.Lookup(1), act.Allocate(1, 3, local=5), act.Lookup(2), act.Allocate(2, 3, local=5), *whole_step()]
    config = configure(PAIR, hash_block_size=1, retention=0)
    assert broken(config, actions) == set()
    unguarded = configure(PAIR, hash_block_size=1, retention=0, profile=Profile("unguarded", copy_source_guard="recurrent"))
    assert broken(unguarded, actions) == {"COW-4", "COW-7", "CC-1", "CC-3"}


def test_kept_keys_of_a_withdrawn_step_bend_the_content_laws() -> None:
    prompt = (0, 0, 1, 1, 0, 1, 0, 1, 1)
    actions = [act.Submit(0, prompt), act.BeginStep(), act.Lookup(0), act.Allocate(0, 4), *whole_step(act.Output(0))]
    actions += [act.BeginStep(), act.Allocate(0, 4), act.Withdraw(0), *whole_step(), act.Submit(1, prompt), act.BeginStep()]
    actions += [act.Lookup(1)]
    kept = [*actions, act.Allocate(1, 1, local=8), *whole_step()]
    assert broken(configure(PAIR, profile=VLLM_0_33_0), kept) == {"CC-1", "CC-2", "CC-3"}
    assert broken(configure(PAIR), [*actions, act.Allocate(1, 4, local=4), *whole_step()]) == set()


def test_the_parts_of_a_step_are_those_of_the_model() -> None:
    assert ground.PARTS == execute.PARTS


@pytest.mark.parametrize("sharded", [True, False])
@pytest.mark.parametrize(("dcp_size", "interleave"), [(1, 1), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2)])
def test_dealt_cells_are_those_the_model_writes(dcp_size: int, interleave: int, sharded: bool) -> None:
    config = configure((Group("full_attention", 4, sharded), PAIR[1]), dcp_size=dcp_size, interleave=interleave)
    assert ground.cells(config, 0) == config.cells[0]
    assert ground.span(config, 0) == config.sizes[0]


def test_lineage_walks_parents_to_the_root() -> None:
    world = consumer()["admit"].after
    request = ground.request_of(world, 1)
    assert request is not None
    path = ground.lineage(world.prefixes, request.tip)
    assert [world.prefixes.token[node] for node in path] == [0, *PROMPT[:12], 1, 0, 0, 1]
    assert [world.prefixes.depth[node] for node in path] == list(range(17))
