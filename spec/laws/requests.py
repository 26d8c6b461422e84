"""Laws of what is in flight, late outputs, drafts and delivered tokens: family RQ (semantics 5.14).

Which share of a step an output belongs to, and whether the request was preempted since, is read off the dispatched steps.
"""

from __future__ import annotations

from kvproof.core.actions import Output, Submit
from kvproof.core.world import Request, Scheduled, Status, Step, World
from kvproof.spec import ground
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def answered(moment: Moment) -> tuple[Step, Scheduled] | None:
    """Return the step and the share whose output was processed, None if the action was not an accepted output."""
    if moment.record is None or not isinstance(moment.action, Output):
        return None
    return next(ground.shares(moment.before, moment.action.request), None)


def is_late(moment: Moment, share: tuple[Step, Scheduled]) -> bool:
    """Tell whether a processed output was dispatched before its request's last preemption, or the request is gone (T36)."""
    step, entry = share
    return ground.is_stale(moment.before, entry, step)


# --- RQ-1 -----------------------------------------------------------------------------------------------------------


def _in_flight_adds_up(moment: Moment) -> Findings:
    world = moment.after
    if moment.record is None or (world.requests is moment.before.requests and world.steps is moment.before.steps):
        return None
    judged = False
    found = []
    for request in world.requests:
        shares = list(ground.shares(world, request.request))
        numbers = (request.in_flight, request.stale, request.placeholders)
        judged = judged or bool(shares) or any(numbers)
        amount = sum(entry.amount for _, entry in shares)
        late = sum(entry.amount for step, entry in shares if ground.is_stale(world, entry, step))
        unknown = 0
        if world.config.async_outputs:
            sampling = [entry for step, entry in shares if entry.samples and not ground.is_stale(world, entry, step)]
            unknown = sum(1 + len(entry.drafts) for entry in sampling)
        expected = (amount, late, unknown)
        if numbers != expected:
            found.append(
                Evidence.of(
                    "tokens in flight, stale ones and placeholders are not those of the dispatched, unprocessed steps",
                    request=request.request,
                    in_flight=request.in_flight,
                    stale=request.stale,
                    placeholders=request.placeholders,
                    expected=expected,
                )
            )
        if min(numbers) < 0 or request.stale > request.in_flight:
            found.append(
                Evidence.of("a count is negative, or more is stale than in flight", request=request.request, counts=numbers)
            )
    return found if judged else None


# --- RQ-2 -----------------------------------------------------------------------------------------------------------


def _late_changes_nothing(moment: Moment) -> Findings:
    share = answered(moment)
    if share is None or not is_late(moment, share) or ground.reports_failure(moment.action):
        return None
    before, after = moment.before, moment.after
    found = []
    if before.pool.entries != after.pool.entries or before.pool.key_node != after.pool.key_node:
        found.append(Evidence.of("a late output changes keys", request=share[1].request, step=share[1]))
    if before.contents != after.contents:
        found.append(Evidence.of("a late output changes contents", request=share[1].request, step=share[1]))
    old, new = ground.request_of(before, share[1].request), ground.request_of(after, share[1].request)
    if old is None:
        if before.requests != after.requests or before.prefixes != after.prefixes:
            found.append(Evidence.of("the output of a finished request changes something", request=share[1].request))
        return found
    if new is None:
        return [*found, Evidence.of("a late output ends its request", request=old.request)]
    kept = ["status", "computed", "placeholders", "groups"]
    if old.drop_stale:
        kept += ["tip", "num_tokens"]
    found += [
        Evidence.of(
            f"a late output changes {name}",
            request=old.request,
            before=getattr(old, name),
            after=getattr(new, name),
            step=share[1],
        )
        for name in kept
        if getattr(old, name) != getattr(new, name)
    ]
    return found


# --- RQ-3 -----------------------------------------------------------------------------------------------------------


def _drafts_are_settled(moment: Moment) -> Findings:
    share = answered(moment)
    if share is None or is_late(moment, share) or not isinstance(moment.action, Output):
        return None
    old, new = ground.request_of(moment.before, share[1].request), ground.request_of(moment.after, share[1].request)
    if old is None or new is None or new.status is not Status.RUNNING:
        return None
    _, entry = share
    tokens = moment.action.tokens
    rejected = len(entry.drafts) - max(len(tokens) - 1, 0)
    found = []
    if new.computed != old.computed - rejected:
        found.append(
            Evidence.of(
                "an output lowers the computed tokens by something else than its rejected drafts",
                request=new.request,
                before=old.computed,
                after=new.computed,
                rejected=rejected,
            )
        )
    return found + _selected_states(moment.after, new, entry)


def _selected_states(world: World, request: Request, entry: Scheduled) -> list[Evidence]:
    """The column that the worker will read holds, by what the forward wrote, the state of the confirmed tokens.

    Not judged once a later step of the request has moved its running state.
    """
    moved = ground.parts(world.config).index("precopy")
    if world.worker.owners[entry.row] != request.request or any(
        step.part > moved and other.request == request.request for step in world.steps for other in step.scheduled
    ):
        return []
    confirmed = request.computed - request.in_flight
    found = []
    for group in ground.recurrent_groups(world.config):
        selected = world.worker.columns[entry.row][group] + world.worker.accepted[entry.row] - 1
        written = [column for column, n in ground.states_written(world.config.groups[group], entry) if n == confirmed]
        if selected not in written:
            found.append(
                Evidence.of(
                    "the selected state is not that of the confirmed tokens",
                    request=request.request,
                    group=group,
                    confirmed=confirmed,
                    column=selected,
                    expected=written,
                    step=entry,
                )
            )
    return found


# --- RQ-4 -----------------------------------------------------------------------------------------------------------


def _spelled(world: World, request: Request) -> tuple[int, ...]:
    """Return the context and the tokens of a request, token by token."""
    return tuple(world.prefixes.token[node] for node in ground.lineage(world.prefixes, request.tip))


def _delivered(moment: Moment) -> tuple[tuple[int, ...], list[Evidence]]:
    """Return the tokens that an output delivers, and what is wrong with where they were sampled."""
    share = answered(moment)
    action = moment.action
    old = ground.request_of(moment.before, action.request) if isinstance(action, Output) else None
    if share is None or old is None or not isinstance(action, Output) or not action.tokens:
        return (), []
    if is_late(moment, share) and old.drop_stale:
        return (), []
    _, entry = share
    position = entry.start + entry.amount - len(entry.drafts)
    found = []
    if position != old.num_tokens:
        found.append(
            Evidence.of(
                "a token is delivered for another position than it was sampled for",
                request=old.request,
                sampled=position,
                num_tokens=old.num_tokens,
                step=entry,
            )
        )
    accepted = action.tokens[:-1]
    if accepted != entry.drafts[: len(accepted)]:
        found.append(
            Evidence.of("accepted tokens are not the drafts", request=old.request, accepted=accepted, drafts=entry.drafts)
        )
    return action.tokens, found


def _tokens_in_order(moment: Moment) -> Findings:
    if moment.record is None or moment.before.requests is moment.after.requests:
        return None
    delivered, found = _delivered(moment)
    judged = bool(delivered)
    known = {request.request: request for request in moment.before.requests}
    for request in moment.after.requests:
        old = known.get(request.request)
        if old is request:
            continue
        expected: tuple[int, ...]
        if old is not None:
            expected = _spelled(moment.before, old)
            if isinstance(moment.action, Output) and moment.action.request == request.request:
                expected += delivered
        elif isinstance(moment.action, Submit):
            expected = (moment.action.context, *moment.action.tokens)
        else:
            continue
        judged = True
        actual = _spelled(moment.after, request)
        if actual != expected or request.num_tokens != len(actual) - 1:
            found.append(
                Evidence.of(
                    "a request's tokens are not its prompt and what was delivered, in order",
                    request=request.request,
                    expected=expected,
                    actual=actual,
                    num_tokens=request.num_tokens,
                )
            )
    return found if judged else None


LAWS: tuple[Law, ...] = (
    Law(
        "RQ-1",
        "S",
        "A request's tokens in flight are its amounts in dispatched, unprocessed steps; stale ones those dispatched before its "
        "last preemption; placeholders the sampled and draft tokens of the others; no count is negative.",
        "vLLM 0.33.0",
        ("M-INF-1",),
        check=_in_flight_adds_up,
    ),
    Law(
        "RQ-2",
        "S",
        "An output dispatched before its request's last preemption changes neither computed tokens, placeholders, tables nor "
        "keys; the output of a finished request changes nothing.",
        "vLLM 0.33.0, #49620",
        ("M-LATE-1",),
        on=(Output,),
        check=_late_changes_nothing,
    ),
    Law(
        "RQ-3",
        "S",
        "An output lowers the computed tokens by its rejected drafts, and the recurrent state that the worker then selects is "
        "that of the confirmed tokens.",
        "vLLM 0.33.0",
        ("M-SPEC-2", "M-SPEC-3"),
        on=(Output,),
        check=_drafts_are_settled,
    ),
    Law(
        "RQ-4",
        "S",
        "The tokens of a request are its prompt and every delivered token once, in order, each for the position that it was "
        "sampled for.",
        "vLLM 0.33.0",
        ("M-LATE-2",),
        check=_tokens_in_order,
    ),
)
