"""Laws of boundary handoffs on the device side: family HO (semantics 5.5)."""

from __future__ import annotations

from collections import Counter

from kvproof.core.actions import Allocate, BeginStep, Dispatch, Drain, Finish, Output, Preempt, Promote, Withdraw
from kvproof.core.pool import NO_KEY, NULL_BLOCK
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def _published_state_is_keyed(moment: Moment) -> Findings:
    """HO-1: what an allocation or an output publishes is keyed there and then, for the boundary it is published for."""
    before, after = moment.before.plan.handoffs, moment.after.plan.handoffs
    published = Counter(after) - Counter(before)
    if not published and not before:
        return None
    pool, prefixes = moment.after.pool, moment.after.prefixes
    found = []
    if after[: len(before)] != before:
        found.append(Evidence.of("a caching call loses or changes handoffs that wait", waited=before, waiting=after))
    if isinstance(moment.action, Allocate | Output | Promote):
        others = tuple(handoff for handoff in after[len(before) :] if handoff[0] != moment.action.request)
        if others:
            found.append(Evidence.of("a caching call publishes for another request", handoffs=others))
    for request, group, block, boundary in published:
        place = {"request": request, "group": group, "block": block, "boundary": boundary}
        if block == NULL_BLOCK or pool.key_node[block] == NO_KEY:
            found.append(Evidence.of("a handoff of a block without a key", **place))
        elif (pool.key_tokens[block], prefixes.depth[pool.key_node[block]]) != (boundary, boundary):
            found.append(
                Evidence.of(
                    "a handoff for another boundary than the block is keyed for",
                    **place,
                    tokens=pool.key_tokens[block],
                    key_boundary=prefixes.depth[pool.key_node[block]],
                )
            )
        elif pool.key_group[block] != group:
            found.append(Evidence.of("a handoff of another group's block", **place, key_group=pool.key_group[block]))
    return found


def _drained_once(moment: Moment) -> Findings:
    """HO-2: a drain hands out everything that waits, once; only outputs publish between two plans, and a plan keeps that."""
    waiting = moment.before.plan.handoffs
    if moment.record is None:
        return None
    if isinstance(moment.action, BeginStep):
        if waiting != moment.after.plan.handoffs:
            return [Evidence.of("a new plan loses handoffs", waited=waiting, waiting=moment.after.plan.handoffs)]
        return ()
    if isinstance(moment.action, Dispatch):
        return [Evidence.of("handoffs wait behind a plan", handoffs=moment.after.plan.handoffs)] if waiting else ()
    if not waiting and not moment.record.handoffs and not moment.after.plan.handoffs:
        return None
    found = []
    if moment.after.plan.handoffs:
        found.append(Evidence.of("handoffs wait after the drain", handoffs=moment.after.plan.handoffs))
    # group by group, and within a group in the order of publication (T23)
    groups = sorted({handoff[1] for handoff in waiting})
    expected = tuple(handoff for group in groups for handoff in waiting if handoff[1] == group)
    if moment.record.handoffs != expected:
        found.append(Evidence.of("the drain does not hand out what waits", expected=expected, actual=moment.record.handoffs))
    return found


def _freeing_forgets(moment: Moment) -> Findings:
    """HO-7: a freed request has no undrained handoff; those of others stay."""
    action = moment.action
    if moment.record is None or not isinstance(action, Finish | Preempt | Withdraw):
        return None
    waiting = moment.before.plan.handoffs
    if not any(handoff[0] == action.request for handoff in waiting):
        return None
    expected = tuple(handoff for handoff in waiting if handoff[0] != action.request)
    if moment.after.plan.handoffs != expected:
        return [
            Evidence.of(
                "freeing a request leaves or loses handoffs",
                request=action.request,
                expected=expected,
                actual=moment.after.plan.handoffs,
            )
        ]
    return ()


LAWS: tuple[Law, ...] = (
    Law(
        id="HO-1",
        mark="S",
        sentence="A published handoff names a block that is keyed at publication, for exactly the published boundary.",
        source="vLLM 0.33.0",
        faults=("M-HO-1", "M-HO-6", "M-HASH-2"),
        on=(Allocate, Output, Promote),
        check=_published_state_is_keyed,
        bent_by=(("publish_unkeyed", "yes"),),
    ),
    Law(
        id="HO-2",
        mark="S",
        sentence="Every handoff is drained exactly once, by the step it is published in or, if an output published it, the "
        "next one; the queue is empty after the drain.",
        source="vLLM 0.33.0",
        faults=("M-HO-2",),
        on=(Drain, Dispatch, BeginStep),
        check=_drained_once,
    ),
    Law(
        id="HO-7",
        mark="S",
        sentence="Freeing a request leaves no undrained handoff of it and keeps those of others.",
        source="vLLM 0.33.0",
        faults=("M-HO-5",),
        on=(Finish, Preempt, Withdraw),
        check=_freeing_forgets,
    ),
)
