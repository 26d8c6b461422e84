"""A counterexample as one HTML file that needs nothing else: a picture over time, a step player, the lives of blocks.

The same counterexample gives the same bytes. Nothing is fetched: style, script and data stand in the file, and its policy
allows no other source.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from kvproof.core.actions import Action
from kvproof.spec import counterexample as examples
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import around, candidates, legend, lineage, lines, templating
from kvproof.spec.report import film as films
from kvproof.spec.report.film import Block, Film
from kvproof.spec.report.standing import Standing, look


def render(example: Counterexample, file: str | None = None, standing: Standing | None = None) -> str:
    """Return the page. ``file`` is where the JSON form lies. Raises CounterexampleError for what cannot be run again."""
    standing = standing or look(example)
    film = standing.world()
    lives = () if film is None else lineage.lives(example, film)
    broken = None if film is None else film.frames[films.violation_of(example)]
    return templating.render(
        "counterexample.html.j2",
        example=example,
        standing=standing,
        place=lines.place(example),
        values=legend.values(example),
        meanings=legend.meanings(example),
        fault=lines.fault_text(example.fault) if example.fault else "",
        sizes=lines.sizes_text(example),
        profile=lines.profile_text(example.profile),
        groups=lines.groups(example),
        origin=lines.origin(example),
        reproduce=lines.reproduce(example, file),
        story=[(line, actions) for line, actions in lines.whole(example)],
        lives=lives,
        broken=broken,
        lookup=None if film is None else candidates.last_lookup(example, film),
        data=None if film is None else Markup(embedded(film_data(example, film, lives))),
        style=Markup(templating.source("style.css")),
        script=Markup(templating.source("player.js")),
        heads=around.HEADS,
        around=[] if film is None or not film.moments else around.rows(example, film),
        sound="" if film is None or film.sound is None else lines.answer_text(examples.outcome_of(film.sound)),
        jump="Jump to the violation",
        jump_short="violation",
        jump_where="where the law breaks",
        text=lines.action_text,
    )


def film_data(example: Counterexample, film: Film, lives: tuple[lineage.Life, ...]) -> dict[str, Any]:
    """Return what the player needs of a counterexample."""
    mark = f"✗ breaks {example.law}" if example.position >= 0 else f"✗ {example.law} does not hold on this run"
    named = [f"{life.tier[0]}{life.block}" for life in lives]
    answers = [f"{mine} | the model answers: {model}" if model else mine for mine, model in _both(example)]
    return played(film, example.actions, answers, films.violation_of(example), mark, named, wrong=True)


def _both(example: Counterexample) -> list[tuple[str, str]]:
    """Return what was answered to each action; of an implementation with its name, and what the model answers beside it."""
    if example.implementation is None:
        return [(answer, "") for answer in lines.answers(example)]
    who = example.implementation.adapter
    model = [lines.answer_text(outcome) or "done" for outcome in example.outcomes]
    return [
        (f"{who} showed: {mine or 'nothing new'}", other) for mine, other in zip(lines.answers(example), model, strict=True)
    ]


def played(
    film: Film,
    actions: Sequence[Action],
    answers: Sequence[str],
    marked: int,
    mark: str,
    named: Sequence[str] = (),
    *,
    wrong: bool,
) -> dict[str, Any]:
    """Return what the player needs: of each frame the blocks that changed, by d1 or h1.

    ``marked`` is the frame at which it opens, ``mark`` what is said of it; ``wrong``: it is a violation. ``named`` are blocks
    that get a frame of their own.
    """
    frames = []
    known: dict[str, Any] = {}
    for at, frame in enumerate(film.frames):
        now = {_key(block): _block(block) for block in frame.blocks()}
        frames.append(
            {
                "position": frame.position,
                "action": lines.action_text(actions[frame.position]) if frame.position >= 0 else "",
                "answer": answers[at - 1] if at else "",
                "phase": frame.phase,
                "settled": frame.settled,
                "requests": frame.requests,
                "free": frame.free,
                "hostFree": frame.host_free,
                "blocks": {key: value for key, value in now.items() if known.get(key) != value},
                "changed": [f"{tier[0]}{block}" for tier, block in lineage.touched(film, at)],
            }
        )
        known = now
    return {
        "mark": mark,
        "wrong": wrong,
        "actions": len(actions),
        "violation": marked,
        "host": bool(film.frames[0].host),
        "order": [_key(block) for block in film.frames[0].blocks()],
        "named": list(named),
        "frames": frames,
    }


def _key(block: Block) -> str:
    return f"{block.tier[0]}{block.block}"


def _block(block: Block) -> dict[str, Any]:
    return {
        "refs": block.refs,
        "place": block.place,
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
