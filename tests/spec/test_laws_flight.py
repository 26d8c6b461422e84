"""Laws of drafts, two steps in flight, late outputs and deferred frees: true and tampered moments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Group, configure
from kvproof.core.world import DeferredFree, Status, World
from kvproof.spec import ground
from kvproof.spec.laws import requests
from kvproof.spec.laws.base import Moment
from tests.spec.stories import (
    Change,
    Moments,
    Run,
    Tamper,
    after,
    before,
    bites,
    holds_throughout,
    judged,
    put,
    recorded,
    with_content,
    with_plan,
    with_pool,
    with_request,
    with_share,
    with_state,
    with_worker,
)

FULL = Group("full_attention", 4)
SPARE = Group("mamba_align", 4, speculative_blocks=2)
PROMPT = (0, 0, 1, 1, 0, 1, 0, 1, 1)


@cache
def drafts() -> Moments:
    """Two drafts, of which one is accepted, then two of two; the state is read behind them."""
    run = Run(configure((FULL, SPARE), num_blocks=20, num_draft_tokens=2))
    run.do(act.Submit(0, PROMPT[:6]))
    run.compute(0, 4, 2, token=0)
    for name, sampled in (("one", (1, 1)), ("two", (1, 0, 1)), ("three", (0,))):
        run.do(act.BeginStep())
        run.do(act.Allocate(0, 3, drafts=(1, 0)), name)
        run.step(name, act.Output(0, sampled))
    run.do(act.Finish(0), "finish")
    return run.named


@cache
def ahead() -> Moments:
    """Asynchronous outputs: the second plan is made before the first output, its chunk begins where drafts were rejected."""
    run = Run(
        configure((FULL, SPARE), num_blocks=24, num_draft_tokens=2, async_outputs=True, max_steps_in_flight=2),
    )
    run.do(act.Submit(0, PROMPT))
    run.compute(0, 8, 1, token=0)
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 3, drafts=(1, 0)), "first")
    run.dispatch("first")
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 3, drafts=(1, 1)), "second")
    run.dispatch("second")
    run.execute("first")
    run.do(act.Output(0, (1, 0)), "output 1")
    run.execute("second")
    run.do(act.Output(0, (1, 1, 0)), "output 2")
    return run.named


@cache
def preempted_ahead() -> Moments:
    """As before, and the request is preempted before the second step runs; both outputs are delivered late.

    The first output keeps one draft: the second chunk starts at 11, and its state stands in the second slot of the first.
    """
    run = Run(
        configure((FULL, SPARE), num_blocks=24, num_draft_tokens=2, async_outputs=True, max_steps_in_flight=2),
    )
    run.do(act.Submit(0, PROMPT))
    run.compute(0, 8, 1, token=0)
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 3, drafts=(1, 0)))
    run.dispatch("first")
    run.execute("first")
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1))
    run.dispatch("second")
    run.do(act.Preempt(0))
    run.do(act.Output(0, (1, 0)), "output 1")
    run.execute("second")
    run.do(act.Output(0, (0,)), "output 2")
    return run.named


@cache
def left_behind() -> Moments:
    """Blocks of one token: both drafts of a step are rejected while the next one is in flight, which then runs in column 2.

    The worker's row still has block 4 there; the table has it in column 4, where it moved with the drafts' plan (T21.4).
    """
    groups = (Group("full_attention", 8), Group("mamba_align", 1, speculative_blocks=2))
    run = Run(configure(groups, num_blocks=20, num_draft_tokens=2, async_outputs=True, max_steps_in_flight=2))
    run.do(act.Submit(0, PROMPT[:1]))
    run.compute(0, 1, token=0)
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 3, drafts=(0, 0)), "first")
    run.dispatch()
    run.execute()
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1), "second")
    run.dispatch()
    run.do(act.Output(0, (0,)), "rejected")
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 3, drafts=(0, 0)), "third")
    run.dispatch()
    run.execute("second")
    run.do(act.Output(0, (1,)))
    run.execute("third")
    return run.named


@cache
def late() -> Moments:
    """A request is preempted while its decode is in flight; the output comes late and is delivered."""
    run = _preempted(drop=False)
    run.do(act.Output(0, (1, 1)), "late")
    return run.named


@cache
def dropped() -> Moments:
    """The late output is to be dropped: the request is resumed before it comes, and finished before the next one."""
    run = _preempted(drop=True)
    run.execute()
    run.do(act.BeginStep())
    run.admit(0, 2, "resume")
    run.dispatch("resume")
    run.do(act.Output(0, (1, 1)), "late")
    run.execute()
    run.do(act.Finish(0))
    run.do(act.Output(0), "gone")
    return run.named


def _preempted(drop: bool) -> Run:
    run = Run(configure((FULL, SPARE), num_blocks=24, num_draft_tokens=2, max_steps_in_flight=2))
    run.do(act.Submit(0, PROMPT))
    run.compute(0, 8, 1, token=0)
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 3, drafts=(1, 0)))
    run.dispatch("step")
    run.do(act.BeginStep())
    run.do(act.Preempt(0, drop_stale=drop), "preempt")
    run.dispatch("empty")
    run.execute("step")
    return run


@cache
def deferred() -> Moments:
    """Freeing is deferred: request 0 is finished while its step is in flight, an output of that step releases its blocks."""
    run = Run(configure((FULL, Group("mamba_align", 4)), num_blocks=20, max_steps_in_flight=2, defer_block_free=True))
    run.do(act.Submit(0, PROMPT))
    run.do(act.Submit(1, (1, 1, 1)))
    run.compute(0, 8, 1)
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1))
    run.admit(1, 3)
    run.dispatch("step")
    run.do(act.Finish(0), "finish")
    run.do(act.Submit(2, (0, 1)))
    run.do(act.BeginStep())
    run.admit(2, 2, "other")
    run.dispatch("other")
    run.execute("step")
    run.do(act.Output(0), "release")
    run.do(act.Output(1, (0,)))
    run.execute()
    run.do(act.Output(2, (0,)))
    run.do(act.Finish(2))
    run.do(act.Finish(1), "last")
    return run.named


def requested(request: int = 0, **changes: object) -> Tamper:
    return after(lambda w: with_request(w, request, **changes))


def allocating_three(moment: Moment) -> Moment:
    assert isinstance(moment.action, act.Allocate)
    return evolve(moment, action=evolve(moment.action, new_tokens=3))


def shared(step: int = 0, share: int = 0, **changes: object) -> Tamper:
    return before(lambda w: with_share(w, step, share, **changes))


def with_entry(*entry: int) -> Change:
    return lambda w: with_pool(w, entries=(*w.pool.entries, entry))


def waiting(*frees: DeferredFree) -> Change:
    return lambda w: evolve(w, deferred=frees)


def refenced(fence: int) -> Change:
    return lambda w: evolve(w, deferred=tuple(evolve(entry, fence=fence) for entry in w.deferred))


def shorter(world: World) -> World:
    """Take the last token of request 0 away."""
    (request,) = world.requests
    return with_request(world, 0, tip=world.prefixes.parent[request.tip], num_tokens=request.num_tokens - 1)


# drafts: "one" computes [6, 9) with drafts at 7 and 8, of which the first is accepted: states 4, 6, 8 in columns 2 to 4 hold
# those at 7, 8 and 9. ahead: [9, 12) is in flight when [12, 15) is planned; the first output moves it to [11, 14).
CASES: list[tuple[str, str, Callable[[], Moments], str, Tamper]] = [
    ("TB-6", "more states than chunks in flight leave", ahead, "second", after(lambda w: with_state(w, 0, 1, table=(2, 3, 4, 5, 7, 9)))),
    ("TB-6", "a state that neither row nor table needs", left_behind, "third", after(lambda w: with_state(w, 0, 1, table=(0, 0, 0, 3, 9, 5, 6, 2)))),
    ("TB-7", "a speculative column missing", drafts, "one Dispatch", after(lambda w: with_worker_row(w, (2, 3, 4, 6)))),
    ("TB-7", "the column of an accepted draft missing", ahead, "second Dispatch", after(lambda w: with_worker_row(w, (0, 3, 4, 5, 0, 9)))),
    ("TB-7", "the accepted draft is not counted", drafts, "two Dispatch", after(lambda w: with_worker(w, 0, 1, 2))),
    ("TB-14", "drafts counted as registered", drafts, "one Output 0", after(lambda w: with_state(w, 0, 0, num_cached=3))),
    ("HB-14", "an allocation keys what it does not compute", drafts, "allocate 0 0", allocating_three),
    ("HB-14", "an output keys a rejected draft", drafts, "one Output 0", requested(computed=7)),
    ("HB-14", "an output keys what is in flight", drafts, "one Output 0", requested(in_flight=1)),
    ("HB-14", "an output of a preempted request keys", drafts, "one Output 0", requested(status=Status.PREEMPTED)),
    ("HO-1", "an output publishes an unkeyed block", drafts, "one Output 0", after(lambda w: with_plan(w, handoffs=((0, 1, 9, 8),)))),
    ("COW-1", "a speculative state under a key", drafts, "one forward", before(lambda w: with_pool(w, entries=((5, 1, 0, 6),)))),
    ("CC-1", "a draft reads something else than itself", drafts, "one forward", after(lambda w: with_content(w, 7, (0, 3, 3, 3, 3)))),
    ("CC-2", "the state before the accepted draft is read", drafts, "two forward", recorded(reads=((0, 1, 2, 4, 8),))),
    ("CC-2", "a chunk runs before the drafts before it are judged", ahead, "second forward", shared(pending=1)),
    ("CC-2", "a preempted request's chunk, too", preempted_ahead, "second forward", shared(pending=1)),
    ("CC-2", "a late output does not tell which state is kept", preempted_ahead, "second forward", recorded(reads=((0, 1, 2, 4, 9),))),
    ("CC-3", "the state at the edge is not where its key says", drafts, "one Output 0", after(lambda w: with_content(w, 3, (1, 3)))),
    ("RQ-1", "an amount not in flight", drafts, "one Dispatch", requested(in_flight=2)),
    ("RQ-1", "placeholders without asynchronous outputs", drafts, "one Dispatch", requested(placeholders=3)),
    ("RQ-1", "a placeholder too few", ahead, "second Dispatch", requested(placeholders=5)),
    ("RQ-1", "an output still in flight", ahead, "output 1", requested(in_flight=6)),
    ("RQ-1", "nothing stale", late, "preempt", requested(stale=0)),
    ("RQ-1", "the resumed chunk stale", dropped, "resume Dispatch", requested(stale=5)),
    ("RQ-2", "computed falls", dropped, "late", requested(computed=8)),
    ("RQ-2", "tokens are delivered that are to be dropped", dropped, "late", requested(num_tokens=11)),
    ("RQ-2", "a placeholder is settled", late, "late", before(lambda w: with_request(w, 0, placeholders=1))),
    ("RQ-2", "a key is registered", late, "late", after(with_entry(9, 0, 99, 2))),
    ("RQ-2", "a state is copied", late, "late", after(lambda w: with_content(w, 3, (1, 3)))),
    ("RQ-2", "a gone request comes back", dropped, "gone", after(lambda w: evolve(w, requests=late()["late"].after.requests))),
    ("RQ-3", "a rejected draft stays computed", drafts, "one Output 0", requested(computed=9)),
    ("RQ-3", "an accepted draft is taken back", drafts, "two Output 0", requested(computed=10)),
    ("RQ-3", "the first state is selected", drafts, "one Output 0", after(lambda w: with_worker(w, 0, 1, 2))),
    ("RQ-3", "the state of a rejected draft is selected", ahead, "output 1", after(lambda w: with_worker(w, 0, 1, 2, 3))),
    ("RQ-4", "a token lost", drafts, "one Output 0", after(shorter)),
    ("RQ-4", "a token out of nowhere", drafts, "two", before(shorter)),
    ("RQ-4", "another position was sampled", drafts, "one Output 0", shared(start=5)),
    ("RQ-4", "the accepted token is no draft", drafts, "one Output 0", shared(drafts=(0, 0))),
    ("RQ-4", "a late token lost", late, "late", after(shorter)),
    ("RQ-4", "a late token for another position", late, "late", shared(start=10)),
    ("PC-3", "a deferred free holds nothing", deferred, "finish", after(waiting())),
    ("PC-5", "a held-back block handed out", deferred, "other", before(waiting(DeferredFree(9, ((8,), (0, 5)))))),
    ("PC-10", "a deferred free left behind", deferred, "last", after(lambda w: with_pool(w, ref=put(w.pool.ref, 7, 1)))),
    ("PC-12", "released in another order", deferred, "release", after(lambda w: with_pool(w, free=w.pool.free[::-1]))),
    ("PC-12", "released before its fence", deferred, "release", before(refenced(9))),
    ("PC-12", "not released at its fence", deferred, "release", after(lambda w: evolve(w, deferred=deferred()["finish"].after.deferred))),
    ("PC-12", "released by something else", deferred, "other Dispatch", after(waiting())),
    ("PC-12", "a step not counted", deferred, "other Dispatch", after(lambda w: evolve(w, issued=w.issued - 1))),
]  # fmt: skip


def with_worker_row(world: World, ids: tuple[int, ...]) -> World:
    return evolve(world, worker=evolve(world.worker, rows=(world.worker.rows[0], put(world.worker.rows[1], 0, ids))))


@pytest.mark.parametrize(("law", "what", "story", "name", "tamper"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_a_tampered_moment_breaks_the_law_and_the_true_one_keeps_it(
    law: str, what: str, story: Callable[[], Moments], name: str, tamper: Tamper
):
    bites(law, story()[name], tamper)


@pytest.mark.parametrize("story", [drafts, ahead, preempted_ahead, left_behind, late, dropped, deferred])
def test_no_law_is_broken_in_the_stories(story: Callable[[], Moments]):
    holds_throughout(story())


def test_a_step_behind_rejected_drafts_runs_through_the_old_column_of_a_block_that_moved():
    (request,) = left_behind()["third"].after.requests
    assert request.groups[1].table == (0, 0, 0, 3, 4, 5, 6, 2)
    assert left_behind()["second precopy"].after.worker.columns[0][1] == 2
    assert left_behind()["third"].after.worker.rows[1][0][2] == 4


def test_every_law_of_requests_has_a_case():
    assert {law.id for law in requests.LAWS} <= {case[0] for case in CASES}


def test_a_share_is_stale_if_its_request_was_preempted_or_admitted_since():
    world = dropped()["resume Dispatch"].after
    first, second = world.steps
    assert ground.is_stale(world, first.scheduled[0], first)
    assert not ground.is_stale(world, second.scheduled[0], second)
    world = late()["preempt"].after
    assert ground.is_stale(world, world.steps[0].scheduled[0], world.steps[0])
    world = late()["step Dispatch"].after
    assert not ground.is_stale(world, world.steps[0].scheduled[0], world.steps[0])
    assert ground.is_stale(evolve(world, requests=()), world.steps[0].scheduled[0], world.steps[0])


def test_a_chunk_whose_tokens_never_came_is_not_judged_by_what_it_reads():
    """The request is preempted with two steps in flight: the second one computes garbage, and nobody uses it."""
    run = Run(configure((FULL, SPARE), num_blocks=24, num_draft_tokens=2, async_outputs=True, max_steps_in_flight=2))
    run.do(act.Submit(0, PROMPT))
    run.compute(0, 8, 1, token=0)
    for _ in range(2):
        run.do(act.BeginStep())
        run.do(act.Allocate(0, 1))
        run.dispatch()
    run.execute()
    run.do(act.Finish(0))
    run.execute("second")
    share = run.named["second forward"].before.steps[-1].scheduled[0]
    assert share.pending == 1
    assert judged("CC-2", run.named["second forward"]) is None
    holds_throughout(run.named)


def test_what_a_later_step_will_write_may_be_keyed_before():
    """Two chunks of a prompt are in flight: the first one writes a state into a block that the second plan has keyed."""
    run = Run(configure((FULL, Group("mamba_stable", 4)), num_blocks=24, max_steps_in_flight=2))
    run.do(act.Submit(0, (*PROMPT, 1, 1, 1)))
    run.do(act.BeginStep())
    run.admit(0, 6)
    run.dispatch()
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 6))
    run.dispatch()
    run.execute("first")
    moment = run.named["first forward"]
    keyed = {(moment.before.prefixes.depth[node], block) for node, group, _, block in moment.before.pool.entries if group == 1}
    assert keyed == {(4, 3), (8, 4), (12, 6)}
    assert judged("COW-1", moment) == []
    # the same key without the step that will make it true
    alone = before(lambda w: evolve(w, steps=w.steps[:1]))
    assert judged("COW-1", alone(moment))
    run.do(act.Output(0))
    run.execute("second")
    holds_throughout(run.named)


def test_a_freed_block_may_belong_to_somebody_whose_step_runs_later():
    """Request 0 is finished before its step runs; request 1 gets its blocks in the next plan."""
    run = Run(configure((FULL,), num_blocks=4, max_steps_in_flight=2))
    run.do(act.Submit(0, PROMPT[:6]))
    run.do(act.BeginStep())
    run.admit(0, 6)
    run.dispatch()
    run.do(act.Finish(0))
    run.do(act.Submit(1, (1,) * 9))
    run.do(act.BeginStep())
    run.admit(1, 9)
    run.dispatch()
    run.execute("first")
    moment = run.named["first forward"]
    assert set(moment.before.requests[0].groups[0].table) == {1, 2, 3}
    assert judged("COW-1", moment) == []
    run.do(act.Output(0))
    run.execute("second")
    holds_throughout(run.named)


def test_lv_1_excuses_a_state_that_only_this_plan_could_register():
    """Asynchronous outputs: the state at 11 was computed in the step before, its tokens are known since; request 1 has to wait."""
    run = Run(configure((Group("mamba_stable", 1),), num_blocks=40, async_outputs=True, max_steps_in_flight=2))
    run.do(act.Submit(0, PROMPT))
    run.do(act.Submit(1, (*PROMPT, 0, 1, 1, 1)))
    run.compute(0, 9, token=0)
    for _ in range(2):
        run.do(act.BeginStep())
        run.do(act.Allocate(0, 1))
        run.dispatch()
    run.execute()
    run.do(act.Output(0, (1,)))
    run.execute()
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1))
    assert run.admit(1, 2, "wait").local == 11
    assert run.named["wait"].record is not None
    assert run.named["wait"].record.admitted is False
    assert judged("LV-1", run.named["wait"]) is None
    # without the registrations of this plan nothing excuses it
    assert judged("LV-1", before(lambda w: with_plan(w, undo=()))(run.named["wait"]))
