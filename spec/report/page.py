"""A counterexample as one HTML file that needs nothing else: a picture over time, a step player, the lives of blocks.

The same counterexample gives the same bytes. Nothing is fetched: style, script and data stand in the file, and its policy
allows no other source.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from kvproof.spec import counterexample as examples
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import around, candidates, further, lineage, lines, templating, words
from kvproof.spec.report.film import Block, Film
from kvproof.spec.report.rerun import Rerun, run_again

MOST_FREE = 240
"""Blocks of a free queue that are listed; of those further behind only the places of shown blocks are there."""
MOST_LINES, MOST_ROWS, MOST_REQUESTS = 400, 200, 24
"""Lines of the table of actions, rows of the states around the violation, and requests of a step that are told."""
LONGEST = 600
"""Characters of a single value."""
MOST_BYTES = 1_000_000
"""What the player is given: where it would be more, fewer worlds are shown."""


def render(example: Counterexample, file: str | None = None, seen: Rerun | None = None) -> str:
    """Return the page. ``file`` is where the JSON form lies."""
    seen = seen or run_again(example)
    example, film = seen.here, seen.film
    data = None
    if film is not None:
        film, data = _fitting(example, film, seen)
    states = around.Around() if film is None else around.around(example, film)
    return templating.render(
        "counterexample.html.j2",
        example=example,
        seen=seen,
        mark=seen.mark,
        place=lines.cut(lines.place(example), LONGEST),
        values=[(name, lines.cut(value, LONGEST), why) for name, value, why in words.values(example, film)],
        fault=lines.fault_text(example.fault) if example.fault else "",
        sizes=lines.sizes_text(example),
        profile=lines.profile_text(example.profile),
        groups=lines.groups(example),
        origin=lines.origin(example),
        reproduce=lines.reproduce(example, file),
        notation=words.notation(example, film),
        story=lines.windowed(example, MOST_LINES),
        further=[] if film is None else further.told(example, film, MOST_LINES),
        follows="" if film is None else further.sentence(example, film),
        left=() if film is None else further.left(film),
        questioned=0 if film is None else len(lineage.in_question(example, film)),
        heads=states.heads,
        same=around.SAME,
        around=[tuple(lines.cut(cell, LONGEST) for cell in row) for row in states.rows[:MOST_ROWS]],
        around_left_out=len(states.rows[MOST_ROWS:]),
        departed=None if film is None else around.departed(example, film),
        data=data,
        **_of_film(example, film),
        style=Markup(templating.source("style.css")),
        script=Markup(templating.source("player.js")),
        jump="Jump to where the file has it" if seen.gone else "Jump to the violation",
        jump_short="where the file has the violation" if seen.gone else "violation",
        jump_where="where the law breaks by the file, and does not break here" if seen.gone else "where the law breaks",
        cut=lambda value: lines.cut(value, LONGEST),
        text=lines.action_text,
    )


def _fitting(example: Counterexample, film: Film, seen: Rerun) -> tuple[Film, Markup]:
    """Return what the player is given, and the film of it: with fewer worlds where it would be too much."""
    while True:
        text = embedded(film_data(example, film, seen))
        fewer = film.shorter()
        if len(text.encode()) <= MOST_BYTES or fewer is film:
            return film, Markup(text)
        film = fewer


def _of_film(example: Counterexample, film: Film | None) -> dict[str, Any]:
    """Return what a page has of the worlds, nothing where there are none."""
    if film is None:
        return {"film": None, "lives": (), "broken": None, "lookup": None, "left_out": ""}
    return {
        "film": film,
        "lives": lineage.lives(example, film),
        "broken": film.frame(film.broken),
        "lookup": candidates.last_lookup(example, film),
        "left_out": film.window.said,
    }


def film_data(example: Counterexample, film: Film, seen: Rerun) -> dict[str, Any]:
    """Return what the player needs of a counterexample."""
    named = [f"{tier[0]}{block}" for tier, block in lineage.in_question(example, film)]
    answers = [f"{mine} | the model answers: {model}" if model else mine for mine, model in _both(example)]
    answers += [lines.answer_text(examples.outcome_of(moment)) for moment in film.moments[film.told :]]
    data = played(film, answers, seen.mark, named, wrong=not seen.gone)
    return {**data, "left": list(further.left(film))}


def _both(example: Counterexample) -> list[tuple[str, str]]:
    """Return what was answered to each action; of an implementation with its name, and what the model answers beside it."""
    if example.implementation is None:
        return [(answer, "") for answer in lines.answers(example)]
    who = example.implementation.adapter
    model = [lines.answer_text(outcome) or "done" for outcome in example.outcomes]
    return [
        (f"{who} showed: {mine or 'nothing new'}", other) for mine, other in zip(lines.answers(example), model, strict=True)
    ]


def played(film: Film, answers: Sequence[str], mark: str, named: Sequence[str] = (), *, wrong: bool) -> dict[str, Any]:
    """Return what the player needs: of each frame the blocks that changed, by d1 or h1.

    ``answers`` are those to all moments, ``mark`` is what is said of the frame at which it opens; ``wrong``: it is a violation.
    ``named`` are blocks that get a frame of their own.
    """
    frames = []
    known: dict[str, Any] = {}
    for at, frame in enumerate(film.frames, film.window.first):
        now = {_key(block): _block(block) for block in frame.blocks()}
        more = len(frame.requests) - MOST_REQUESTS
        requests = [*frame.requests[:MOST_REQUESTS], *([f"and {more} more requests"] if more > 0 else [])]
        frames.append(
            {
                "position": frame.position,
                "label": film.label(frame.position) if at else "",
                "follows": frame.position >= film.told,
                "action": lines.cut(lines.action_text(film.moments[at - 1].action), LONGEST) if at else "",
                "answer": lines.cut(answers[at - 1], LONGEST) if at else "",
                "phase": frame.phase,
                "settled": frame.settled,
                "requests": requests,
                "free": frame.free[:MOST_FREE],
                "hostFree": frame.host_free[:MOST_FREE],
                "count": len(frame.free),
                "hostCount": len(frame.host_free),
                "far": {_key(block): block.place for block in frame.blocks() if (block.place or 0) >= MOST_FREE},
                "blocks": {key: value for key, value in now.items() if known.get(key) != value},
                "changed": [f"{tier[0]}{block}" for tier, block in lineage.touched(film, at)],
            }
        )
        known = now
    return {
        "mark": mark,
        "wrong": wrong,
        "left": [],
        "actions": film.told,
        "following": len(film.moments) - film.told,
        "first": film.window.first,
        "violation": film.broken - film.window.first,
        "host": film.config.offload is not None,
        "order": [f"{tier[0]}{block}" for tier, block in film.window.rows],
        "named": list(named),
        "frames": frames,
    }


def _key(block: Block) -> str:
    return f"{block.tier[0]}{block.block}"


def _block(block: Block) -> dict[str, Any]:
    """Return a block for the player; its place in the queue, which changes with every other block, is read off the queue."""
    return {
        "refs": block.refs,
        "free": block.place is not None,
        "glyph": block.glyph_at("#"),
        "owners": block.owners,
        "pins": block.pins,
        "keys": [{"text": claim.text, "primary": claim.primary, "wrong": claim.wrong} for claim in block.claims],
        "group": block.group,
        "ranks": block.ranks,
    }


def embedded(value: object) -> str:
    """Return a value as JSON that may stand in a script element: nothing in it ends the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
