"""The state around the action that breaks a law: before, after, and after it as the model without the fault would have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvproof.core.world import World
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import film as films
from kvproof.spec.report.film import Film, Names

HEADS = ("before", "after", "after, without the fault")
SAME = "the same"


def rows(example: Counterexample, film: Film) -> list[tuple[str, ...]]:
    """Return (what, before, after, after without the fault) of requests, tables, queues and transfers.

    Where nothing changed it says so; the last value is left out where no fault was planted.
    """
    number = films.violation_of(example)
    broken = film.moments[number - 1]
    states = [dict(_state(world, film.names)) for world in (broken.before, broken.after)]
    if film.sound is not None:
        states.append(dict(_state(film.sound.after, film.names)))
    found = []
    for name in dict.fromkeys(name for state in states for name in state):
        before, *others = (state.get(name, "-") for state in states)
        found.append((name, before, *(SAME if other == before else other for other in others)))
    return found


def _state(world: World, names: Names) -> Iterator[tuple[str, str]]:
    """Yield what a world holds, by what it is of."""
    yield "phase", films.PHASES[world.phase]
    for request in world.requests:
        name, _, what = films.said_of(request, names).partition(" ")
        yield name, what
        for group, state in enumerate(request.groups):
            yield f"{name}, table of g{group}", columns(state.table)
        running = _running(world, request.request)
        if running:
            yield f"{name}, worker's column of the running state", running
    yield "free queue", ", ".join(map(str, world.pool.free)) or "empty"
    yield from _transfers(world, names)


def _running(world: World, request: int) -> str:
    """Return in which column the worker has the running state of each recurrent group, "" where it has none."""
    if request not in world.worker.owners:
        return ""
    of_row = world.worker.columns[world.worker.owners.index(request)]
    return ", ".join(f"g{group} {column}" for group, column in enumerate(of_row) if column >= 0)


def _transfers(world: World, names: Names) -> Iterator[tuple[str, str]]:
    host = world.host
    if host is None:
        return
    yield "free queue of the host", ", ".join(f"h{block}" for block in host.pool.free) or "empty"
    for store in (*host.stores, *host.abandoned_stores):
        yield f"store {store.event}", f"{_pairs(store.device, store.host)} ({store.stage.name.lower()})"
    for at, queued in enumerate(host.queued):
        yield f"queued store {at}", _pairs(queued.device, queued.host)
    for load in (*host.loads, *host.abandoned_loads):
        moved = ", ".join(f"h{source} to {device}" for device, source in zip(load.device, load.host, strict=False))
        yield f"load of {names.request(load.request)}", f"{moved} ({load.stage.name.lower()})"
    for hit in host.pending:
        lists = [", ".join(f"h{block}" if block else "-" for block in blocks) for blocks in hit.lists]
        said = "; ".join(f"g{group} {blocks}" for group, blocks in enumerate(lists))
        yield f"hit of {names.request(hit.request)} on the host", f"{hit.length} tokens behind {hit.start}: {said}"


def columns(table: Sequence[int]) -> str:
    """Return a table as column:block, - for the null block."""
    return " ".join(f"{column}:{block or '-'}" for column, block in enumerate(table)) or "empty"


def _pairs(device: Sequence[int], host: Sequence[int]) -> str:
    return ", ".join(f"{one} to h{two}" for one, two in zip(device, host, strict=False))
