"""Steps in flight: which part may run, which outputs are due, and what they may deliver (T0, T31.3, T36, T37.1).

From the fields of the world alone, as in ``enabled``.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvproof.core.world import Request, Scheduled, Step, World

WAITING_PARTS = ("precopy", "forward")
"""The parts that need to know where a chunk really starts and what its tokens are."""


def live(world: World, number: int) -> Request | None:
    """Return the live request of an id, None if it is gone."""
    return next((request for request in world.requests if request.request == number), None)


def unexecuted(world: World) -> Step | None:
    """Return the oldest step that is not executed to its end, None if there is none (T0)."""
    return next((step for step in world.steps if step.part < len(world.config.parts)), None)


def due_part(world: World) -> str | None:
    """Return the execute sub-phase that the oldest unexecuted step is at (T0)."""
    step = unexecuted(world)
    return None if step is None else world.config.parts[step.part]


def shares(world: World, number: int) -> Iterator[tuple[Step, Scheduled]]:
    """Yield the dispatched shares of a request whose output is still due, the oldest first, each with its step."""
    for step in world.steps:
        if number in step.due:
            yield from ((step, entry) for entry in step.scheduled if entry.request == number)


def is_stale(world: World, request: Request, share: Scheduled) -> bool:
    """Tell whether a dispatched share stems from before the request's last preemption (T31.3): the oldest ones do."""
    passed = 0
    for _, entry in shares(world, request.request):
        passed += entry.amount
        if entry is share:
            return passed <= request.stale
    return False


def owes_output(request: Request) -> bool:
    """Tell whether a late output of a request is still to be delivered (T37.1)."""
    return request.stale > 0 and not request.drop_stale


def waits_for_output(world: World) -> bool:
    """Tell whether the oldest unexecuted step needs tokens that the output of an earlier step still has to bring (T36).

    A share waits for nothing if its request is gone or drops late outputs: nobody takes its own, and where it starts never
    becomes known. One that was preempted and takes them needs right states and bytes as before (C-85).
    """
    step = unexecuted(world)
    if step is None:
        return False
    for entry in step.scheduled:
        request = live(world, entry.request)
        if entry.pending and request is not None and not (request.drop_stale and is_stale(world, request, entry)):
            return True
    return False


def next_part(world: World) -> str | None:
    """Return the execute sub-phase that may run now, None if no step waits for one (T0) or it waits for an output (T36)."""
    part = due_part(world)
    return None if part in WAITING_PARTS and waits_for_output(world) else part


def outputs_due(world: World) -> tuple[int, ...]:
    """Return the requests whose output may be processed now: those of the oldest step, once it is executed (T36)."""
    if world.steps and world.steps[0].part == len(world.config.parts):
        return world.steps[0].due
    return ()


def due_share(world: World, number: int) -> Scheduled:
    """Return what a due request computed in the oldest step."""
    return next(entry for entry in world.steps[0].scheduled if entry.request == number)


def missing_from(world: World, number: int) -> range:
    """Return how many leading tokens of a due request may be valid although what a connector brought did not all arrive.

    Empty where none brought any, and behind another output of the step, which may have read them (T36.2).
    """
    share = due_share(world, number)
    return range(0) if world.steps[0].opened else range(share.loaded_from, share.start)


def most_delivered(world: World, number: int) -> int:
    """Return the most tokens that the due output of a request may bring (T36).

    None inside a prompt, at the model length or for a request that is gone; else the accepted drafts and one token more, as
    far as the model length goes. A late output tells by its share whether its chunk reached the end of what was known then.
    """
    request, share = live(world, number), due_share(world, number)
    if request is None:
        return 0
    reached = share.start + share.amount - len(share.drafts) == request.num_tokens
    if not (share.samples if request.stale else reached):
        return 0
    return min(len(share.drafts) + 1, world.config.max_model_len - request.num_tokens)


def deliveries(world: World, number: int, alphabet: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return what the due output of a request may bring: no, some or all drafts accepted and one token more (T36)."""
    most = most_delivered(world, number)
    if most <= 0:
        return [()]
    drafts = due_share(world, number).drafts
    return [(*drafts[:accepted], token) for accepted in range(most) for token in alphabet]
