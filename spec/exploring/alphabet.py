"""What can be done in a world within the bounds of a scope: ``enabled`` narrowed down, and the submissions of the bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, permutations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.world import Phase, World
from kvproof.spec.engines import enabled as lists
from kvproof.spec.engines import flight, host, prompts
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.exploring import bounds as limiting
from kvproof.spec.exploring.bounds import Bounds, Budget

RUNNING = (act.Execute, act.RunStore, act.RunLoad)
"""What may happen beside an open plan."""


def enabled(world: World, budget: Budget, bounds: Bounds, limits: Limits) -> Iterator[tuple[Action, Budget]]:
    """Yield the legal actions of a world within the bounds, each with what is left after it; always in the same order."""
    for action in candidates(world, bounds, limits):
        left = limiting.spend(bounds, budget, action)
        if left is not None:
            yield action, left


def candidates(world: World, bounds: Bounds, limits: Limits) -> Iterator[Action]:
    """Yield the legal actions of a world that the bounds do not leave out, whatever is left of them."""
    if bounds.execution == "whole":
        part = begun(world)
        if part is not None:
            yield act.Execute(part)
            return
    if bounds.stores == "prompt" and world.phase is Phase.IDLE:
        due = store_on(world)
        if due is not None:
            yield due
            return
    # The prompts of the list are replaced by those of the bounds, which are the same in every world.
    listed = closed(lists.enabled(world, evolve(limits, max_live=0)), world, bounds)
    found = (action for action in listed if wanted(world, action, bounds))
    yield from found if bounds.chunks == "every" else longest(found)
    if world.phase is Phase.IDLE and len(world.requests) < bounds.live:
        number = prompts.free_id(world)
        for tokens, context in bounds.submissions():
            yield act.Submit(number, tokens, context)
            if bounds.skip_reading:
                yield act.Submit(number, tokens, context, skip_reading=True)


def closed(actions: Iterable[Action], world: World, bounds: Bounds) -> Iterator[Action]:
    """Yield the actions, and where the list has an example of some names all that differ from it in names alone.

    Worlds that differ in names are one orbit: what one of them can do, the others must be able to do, too. Appended rows need
    nothing here: no key has the ids in them. A report of a store that nobody knows may come before there was one, too.
    """
    for action in actions:
        if isinstance(action, act.EvictBlocks) and len(action.blocks) > 1:
            keyed = (block for block, node in enumerate(world.pool.key_node) if node >= 0)
            yield from (act.EvictBlocks(blocks) for blocks in combinations(keyed, len(action.blocks)))
        elif isinstance(action, act.Allocate) and len(set(action.drafts)) > 1:
            yield from (evolve(action, drafts=drafts) for drafts in alike(action.drafts, bounds.alphabet))
        else:
            yield action
            if isinstance(action, act.ReadCounters) and world.host is not None and not world.host.next_store:
                yield act.CompleteStore(host.unknown_event(world))


def alike(tokens: tuple[int, ...], alphabet: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the tokens, renamed in every way, of ways that come to the same but one."""
    names = list(dict.fromkeys(tokens))
    for others in permutations(alphabet, len(names)):
        renamed = dict(zip(names, others, strict=True))
        yield tuple(renamed[token] for token in tokens)


def begun(world: World) -> str | None:
    """Return the next part of a step that began to run and may run on, None if there is none."""
    step = flight.unexecuted(world)
    return flight.next_part(world) if step is not None and step.part > 0 else None


def store_on(world: World) -> Action | None:
    """Return what carries the stores on, the reports of workers one by one and ahead of the copy where they may be; or None."""
    report = next((act.CompleteStore(store.event, 1) for store, _ in host.acks_left(world)), None)
    event = host.next_store(world)
    return report if report is not None or event is None else act.RunStore(event)


def wanted(world: World, action: Action, bounds: Bounds) -> bool:
    """Tell whether the bounds keep an action that is legal here."""
    if bounds.left_out(type(action)):
        return False
    if bounds.execution == "whole" and world.phase is not Phase.IDLE and isinstance(action, RUNNING):
        return False
    if not bounds.failures and isinstance(action, act.Output | act.CompleteLoad) and action.failed:
        return False
    if bounds.starts == "behind" and isinstance(action, act.LookupExternal) and not asked_behind(world, action):
        return False
    stray = isinstance(action, act.CompleteStore) and action.event == host.unknown_event(world)
    return bounds.strays or not stray


def asked_behind(world: World, action: act.LookupExternal) -> bool:
    """Tell whether an external lookup begins behind what the lookup of its request just found, rounded down to S (T14.1)."""
    hit = world.hit
    return hit is not None and hit.request == action.request and action.start == host.aligned(world.config, hit)


def longest(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield the actions, of allocations that differ in the amount alone only the first: the list has the longest one there."""
    seen = set()
    for action in actions:
        if isinstance(action, act.Allocate) and not action.drafts:
            rest = evolve(action, new_tokens=0)
            if rest in seen:
                continue
            seen.add(rest)
        yield action
