"""``reviewer.md``: what a reviewer has to know of one counterexample, in the order in which it is asked.

The property, what was done step by step, what was expected and what came, why nothing shorter shows it, how to see it again,
and what a test has to bring about to see it at all.
"""

from __future__ import annotations

from kvproof.core.config import SOUND
from kvproof.spec import counterexample as examples
from kvproof.spec import faults
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import EXPLORER, SAMPLER, Counterexample
from kvproof.spec.engines.witnesses import Tracker
from kvproof.spec.exploring import liveness
from kvproof.spec.report import around, fields, legend, lineage, lines, markdown
from kvproof.spec.report import film as films
from kvproof.spec.report.film import Film

MOST_EVENTS = 8
"""Events of a block's life that are told, the last ones."""


NOTATION = (
    "`r0[4,8)` are tokens 4 to 7 of request 0, `r0@8` its prefix of 8 tokens, as a key or as a recurrent state; `r0.2` is a "
    "second request with the number 0.",
    "`g1` is group 1, `h2` host block 2, all other block numbers are of the device; block 0 is the null block, which nobody "
    "holds. The free queue is listed from its front, which is reused first.",
    "What lies on several DCP ranks is separated by `|`. A key that a plan registers claims bytes that the step writes later.",
    "N: DCP ranks. I: interleave, tokens in turn on one rank. S: scheduler block, H: hash unit, A: alignment of hits, in "
    "tokens. "
    "`block`: tokens of a block on one rank. E: tokens under one column of a block table. `row`: columns of a worker's row.",
)
"""How to read a page; reviewers have no other page at hand."""


def render(example: Counterexample, file: str | None = None) -> str:
    """Return the text. Raises CounterexampleError for what cannot be run again."""
    try:
        film = films.shoot(example)
    except films.NoWorld:
        film = None
    out = [f"# {example.law}: {example.message}", "", *_in_short(example)]
    out += ["", "## Property", "", f"> {example.sentence}", ""]
    source = next((law.source for law in all_laws.ALL if law.id == example.law), "")
    if source:
        out += [
            f"Source: {source.replace('#', 'vllm#')}. The law and its words: docs/laws.md, docs/semantics.md ({example.law})."
        ]
    out += ["", "## Configuration", "", *markdown.configuration(example)]
    if film is not None:
        out += _around(example, film)
        out += _lives(example, film)
        out += _claims(example, film)
    out += _actions(example)
    out += ["", "## Notation", "", *(f"- {text}" for text in NOTATION)]
    out += [f"- {name}: {meaning}." for name, meaning in fields.used(lines.answers(example))]
    out += ["", "## Why nothing shorter shows it", "", minimal(example)]
    out += ["", "## See it again", "", f"    {lines.reproduce(example, file)}", "", f"{lines.origin(example)}."]
    if example.fault:
        out += ["", f"The fault is planted: {lines.fault_text(example.fault)}."]
    out += ["", "## What a test has to bring about", "", missed(example, film)]
    return "\n".join(out) + "\n"


def _in_short(example: Counterexample) -> list[str]:
    """Return the finding in a paragraph: where it breaks, and the values of the evidence."""
    out = [f"It breaks at {markdown.text(lines.place(example))}: {example.message}.", ""]
    out += [
        f"- {name} = `{markdown.code(value)}`" + (f" ({owner})" if owner else "")
        for name, value, owner in legend.values(example)
    ]
    out += [f"- {meaning}" for meaning in legend.meanings(example)]
    if example.profile != SOUND:
        out += ["", f"Its configuration departs from the sound one: {lines.profile_text(example.profile)}."]
    return out


def _actions(example: Counterexample) -> list[str]:
    """Return the table of the actions, the breaking one marked."""
    if not example.actions:
        return []
    out = ["", "## What happens", "", "| | action | answer |", "|---|---|---|"]
    return out + [_row(line, example.position in actions) for line, actions in lines.whole(example)]


def _around(example: Counterexample, film: Film) -> list[str]:
    """Return the state before and after the action that breaks the law, and as it should be after it."""
    if not film.moments:
        return []
    heads = [f"| | {' | '.join(around.HEADS[: 3 if film.sound is not None else 2])} |"]
    heads.append(f"|{'---|' * (len(heads[0].split('|')) - 2)}")
    rows = [f"| {name} | {' | '.join(map(markdown.text, values))} |" for name, *values in around.rows(example, film)]
    out = ["", "## Before and after", "", *heads, *rows]
    if film.sound is not None:
        answer = lines.answer_text(examples.outcome_of(film.sound))
        out += ["", f"Without the fault, from the same world, the answer is: {markdown.text(answer) or 'nothing but done'}."]
    return out


def _row(line: lines.Line, broken: bool) -> str:
    mark = " **the law breaks here**" if broken else ""
    return f"| {line.number} | `{markdown.code(line.action)}`{mark} | {markdown.text(line.answer)} |"


def _lives(example: Counterexample, film: Film) -> list[str]:
    out = ["", "## What became of the blocks in question"]
    for life in lineage.lives(example, film):
        out += ["", f"Block {life.name} ({life.why}):", ""]
        left_out = len(life.events) - MOST_EVENTS
        if left_out > 0:
            out.append(f"- {left_out} earlier events left out")
        out += [
            f"- {event.position}, `{markdown.code(lines.action_text(example.actions[event.position]))}`: {event.text}"
            for event in life.events[-MOST_EVENTS:]
        ]
    return out


def _claims(example: Counterexample, film: Film) -> list[str]:
    wrong = film.frames[films.violation_of(example)].wrong
    if not wrong:
        return []
    rows = [f"| {block.name} | {claim.text} | {block.bytes} | {claim.wrong} |" for block, claim in wrong]
    return ["", "## Keys and bytes then", "", "| block | key claims | bytes | not so |", "|---|---|---|---|", *rows]


def minimal(example: Counterexample) -> str:
    """Say why the list of actions is short, and what that is worth."""
    count = len(example.actions)
    if not count:
        return "No action is needed: the configuration alone breaks the law."
    if example.engine == EXPLORER and example.law in liveness.LAWS and "cycle" in dict(example.values):
        return (
            f"It was found by enumerating all behaviours of scope {example.scope}: the cycle is reached by a shortest way. "
            "Around it there may be a shorter one."
        )
    if example.engine == EXPLORER:
        return (
            f"It was found breadth first among all behaviours of scope {example.scope}: no run of less than {count} actions "
            "there breaks this law by an action or by what a world comes to. Another scope may have a shorter one."
        )
    how = "a random run of the explorer" if example.engine == SAMPLER else f"a run of the {example.engine}"
    return (
        f"It was found in {how} and shrunk: without any one of its {count} actions, or with shorter prompts and chunks, the "
        "law was not seen to break. Another run may be shorter."
    )


def missed(example: Counterexample, film: Film | None) -> str:
    """Say which situations the run brings about, without which no test sees the fault, and who else judges it."""
    if film is None or not example.actions:
        return "Nothing but this configuration: a test that never resolves it cannot see the fault."
    tracker = Tracker()
    for moment in film.moments:
        tracker.observe(moment)
    seen = [name for name, count in tracker.counts.items() if count]
    said = f"This run brings about: {', '.join(seen)}. " if seen else ""
    said += f"A test without them, or one that does not judge {example.law}, passes: the wrong state is silent"
    fault = examples.fault_of_model(example)
    others = [law for law in faults.by_id(fault).laws if law != example.law] if fault else []
    return said + (f". {', '.join(others)} can see the same fault in other runs." if others else ".")
