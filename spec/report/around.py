"""The state around the action that breaks a law: before, after, and as it is in a run without the fault; where that departs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from attrs import evolve, frozen

from kvproof.core.config import Config
from kvproof.core.world import World
from kvproof.spec import counterexample as examples
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import twins
from kvproof.spec.laws.base import Moment
from kvproof.spec.report import blocks, departure, lines, window
from kvproof.spec.report.blocks import Block
from kvproof.spec.report.departure import Sound
from kvproof.spec.report.film import Film
from kvproof.spec.report.names import Names

SAME = "as before"
"""What stands in a column whose value is that of the first one."""
MOST = 12
"""Differences between two runs that are listed."""


@frozen(slots=True)
class Around:
    """A table of states: the heads of its columns, and (what, values) as rows; none if there is no action."""

    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@frozen(slots=True)
class Departure:
    """Where a run with a planted fault departs first from the run without it: a sentence, both answers, and what differs.

    ``rows`` are (what, here, without the fault). Where nothing can be said the sentence says why.
    """

    text: str
    here: str = ""
    sound: str = ""
    rows: tuple[tuple[str, str, str], ...] = ()


def around(example: Counterexample, film: Film) -> Around:
    """Return requests, tables, queues and transfers before and after the action that breaks the law, and without the fault.

    Where the law goes on behind the last action: at its end instead. Where nothing changed it says so.
    """
    if not film.moments:
        return Around()
    goes_on = len(film.moments) > film.told
    first = film.told if goes_on else film.broken - 1
    states = [(film.worlds[number], film.names_in(number)) for number in (first, film.broken)]
    heads = ["", "when the run ends", "after what follows"] if goes_on else ["", "before", "after"]
    beside = beside_it(film)
    if beside:
        states.append((beside[-1].after, Names.behind(beside)))
        heads.append(f"{heads[2]}, without the fault")
    told = [dict(_state(world, names)) for world, names in states]
    found = []
    for name in dict.fromkeys(name for state in told for name in state):
        before, *others = (state.get(name, "-") for state in told)
        found.append((name, before, *(SAME if other == before != "-" else other for other in others)))
    return Around(tuple(heads), tuple(found))


def beside_it(film: Film) -> tuple[Moment, ...]:
    """Return the run without the fault as far as it stands beside the one that breaks the law; nothing without one."""
    if film.sound is None:
        return ()
    return film.sound.moments if film.follows is not None else film.sound.moments[: film.broken]


def departed(example: Counterexample, film: Film) -> Departure | None:
    """Return where the run departs from one without the planted fault, None if none was planted."""
    sound = film.sound
    if sound is None:
        return None
    if sound.config is None:
        return Departure(sound.why)
    if sound.position == departure.CONFIGURATION:
        rows = _configurations(film.config, sound.config)
        return Departure("Without the fault the configuration is another one before any action.", rows=rows)
    if not film.moments:
        found = "; what the law finds is in no world" if film.breaks else ""
        return Departure(f"Without the fault the new world is the same one{found}.")
    if sound.position is None:
        which = "" if example.position < 0 or film.broken == len(film.moments) else " up to there"
        only = ": it shows only in what the law works out for itself" if film.breaks else ""
        return Departure(f"Every answer and every world of this run{which} is the same without the fault{only}.")
    return _departed(film, sound, sound.position)


def _departed(film: Film, sound: Sound, at: int) -> Departure:
    here = film.moments[at] if at < len(film.moments) else None
    there = sound.moments[at] if at < len(sound.moments) else None
    if here is None or there is None or here.action != there.action:
        done = ["ends" if one is None else f"goes on with {lines.action_text(one.action)}" for one in (here, there)]
        return Departure(
            f"Up to action {film.label(at - 1)} both runs are the same; "
            f"then this one {done[0]}, without the fault it {done[1]}."
        )
    where = f"action {film.label(at)}, {lines.action_text(here.action)}"
    same = examples.outcome_of(here) == examples.outcome_of(there)
    answers = ["" if same else lines.answer_text(examples.outcome_of(one)) or "done" for one in (here, there)]
    what = "the answer is the same, and the world behind it is not" if same else "the answer is another one"
    text = f"This run departs from one without the fault at {where}: {what}."
    names = (film.names_in(at + 1), Names.behind(sound.moments[: at + 1]))
    rows = _differing((here.after, names[0]), (there.after, names[1]))[:MOST]
    return Departure(text, answers[0], answers[1], tuple(rows))


def _differing(here: tuple[World, Names], there: tuple[World, Names]) -> list[tuple[str, str, str]]:
    """Return what two worlds differ in, (what, here, there): requests, tables and queues, then blocks, then anything else."""
    one, other = dict(_state(*here)), dict(_state(*there))
    found = [
        (name, one.get(name, "-"), other.get(name, "-"))
        for name in dict.fromkeys((*one, *other))
        if one.get(name) != other.get(name)
    ]
    rows = window.changed(here[0], there[0])[:MOST]
    frames = [blocks.frame_of(world, 0, names, rows) for world, names in (here, there)]
    for mine, its in zip(*(frame.blocks() for frame in frames), strict=True):
        for what, left, right in _of_block(mine, its):
            found.append((f"{'block ' if mine.tier == 'device' else 'host block '}{mine.name}, {what}", left, right))
    like_here = evolve(there[0], config=here[0].config)
    if not found and here[0] != like_here:
        place, mine, other_one = twins.narrowed(here[0], like_here, "world")
        found.append((f"{place} (a field of the model)", str(mine), str(other_one)))
    return found


def _of_block(one: Block, other: Block) -> Iterator[tuple[str, str, str]]:
    yield from (
        (what, left or "-", right or "-")
        for what, left, right in (
            ("references", str(one.refs), str(other.refs)),
            ("keys", ", ".join(claim.text for claim in one.claims), ", ".join(claim.text for claim in other.claims)),
            ("bytes", one.bytes, other.bytes),
            ("held by", ", ".join(one.pins), ", ".join(other.pins)),
        )
        if left != right
    )


def _configurations(here: Config, there: Config) -> tuple[tuple[str, str, str], ...]:
    """Return the sizes and settings in which two configurations differ."""
    pairs = ((field.name, getattr(here, field.name), getattr(there, field.name)) for field in attrs.fields(Config))
    return tuple((name, str(one), str(other)) for name, one, other in pairs if one != other and name != "profile")[:MOST]


def _state(world: World, names: Names) -> Iterator[tuple[str, str]]:
    """Yield what a world holds, by what it is of."""
    yield "phase", blocks.PHASES[world.phase]
    for request in world.requests:
        name, _, what = blocks.said_of(request, names).partition(" ")
        yield name, what
        for group, state in enumerate(request.groups):
            yield f"{name}, table of g{group}", columns(state.table)
        for part, value in _in_row(world, request.request):
            yield f"{name}, {part}", value
    yield "free queue", ", ".join(map(str, world.pool.free)) or "empty"
    yield from _transfers(world, names)


def _in_row(world: World, request: int) -> Iterator[tuple[str, str]]:
    """Yield what the worker's row of a request holds, if it has one: columns of running states, accepted tokens (T36)."""
    if request not in world.worker.owners:
        return
    row = world.worker.owners.index(request)
    running = [f"g{group} {column}" for group, column in enumerate(world.worker.columns[row]) if column >= 0]
    if running:
        yield "worker's column of the running state", ", ".join(running)
    if world.config.num_draft_tokens:
        yield "tokens of its last step that the worker counts as accepted", str(world.worker.accepted[row])


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
        yield f"load of {names.of(load)}", f"{moved} ({load.stage.name.lower()})"
    for track in host.tracks:
        state = [*(["finished"] if track.finished else []), *(f"waits for store {event}" for event in track.events)]
        yield f"what the store side knows of {names.request(track.request)}", ", ".join(state) or "running"
    for hit in host.pending:
        lists = [", ".join(f"h{block}" if block else "-" for block in blocks) for blocks in hit.lists]
        said = "; ".join(f"g{group} {blocks}" for group, blocks in enumerate(lists))
        yield f"hit of {names.of(hit)} on the host", f"{hit.length} tokens behind {hit.start}: {said}"


def columns(table: Sequence[int]) -> str:
    """Return a table as column:block, - for the null block."""
    return " ".join(f"{column}:{block or '-'}" for column, block in enumerate(table)) or "empty"


def _pairs(device: Sequence[int], host: Sequence[int]) -> str:
    return ", ".join(f"{one} to h{two}" for one, two in zip(device, host, strict=False))
