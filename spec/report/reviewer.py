"""``reviewer.md``: what a reviewer has to know of one counterexample, in the order in which it is asked.

The property, what was done step by step, what was expected and what came, why nothing shorter shows it, how to see it again,
and what a test has to bring about to see it at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvproof.core.config import SOUND
from kvproof.spec import counterexample as examples
from kvproof.spec import faults
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import EXPLORER, SAMPLER, Counterexample
from kvproof.spec.engines.witnesses import Tracker
from kvproof.spec.report import around, candidates, further, legend, lineage, lines, markdown, words
from kvproof.spec.report.film import Film
from kvproof.spec.report.legible import legible
from kvproof.spec.report.rerun import Rerun, run_again

ENGINES = {
    SAMPLER: "a random run of the explorer",
    "walk": "a random walk",
    "hypothesis": "a run of Hypothesis",
    "conformance": "a random walk with the adapter",
}
"""How a counterexample came about that is not a shortest one, in words."""
MOST_EVENTS = 8
"""Events of a block's life that are told, the last ones."""
MOST_LINES, MOST_FOLLOWING, MOST_ROWS, LONGEST = 400, 40, 60, 600
"""Lines of the actions and of what follows, rows of a table, and characters of a cell."""


NOTATION = (
    "`r0[4,8)` are tokens 4 to 7 of request 0, `r0@8` its prefix of 8 tokens, as a key or as a recurrent state; `r0.2` is a "
    "second request with the number 0.",
    "`g1` is group 1, `h2` host block 2, all other block numbers are of the device; block 0 is the null block, which nobody "
    "holds. The free queue is listed from its front, which is reused first.",
    "What lies on several DCP ranks is separated by `|`. A key that a plan registers claims bytes that the step writes later.",
    "`+1`, `+2`, ...: what the law lets happen behind the last action of the run.",
    "N: DCP ranks. I: interleave, tokens in turn on one rank. S: scheduler block, H: hash unit, A: alignment of hits, in "
    "tokens. "
    "`block`: tokens of a block on one rank. E: tokens under one column of a block table. `row`: columns of a worker's row.",
    "A hit is the longest prefix of a request that lies in the cache; it is joint if every group can resume behind it. A group "
    "is a set of layers that share block tables. `replicated`: every rank has all of it. `mamba`: a recurrent state, one block "
    "for a whole prefix. Profile `sound`: nothing is done as some release of vLLM has it wrong.",
)
"""How to read a page; reviewers have no other page at hand."""


def render(example: Counterexample, file: str | None = None, seen: Rerun | None = None) -> str:
    """Return the text."""
    seen = seen or run_again(example)
    example, film = seen.here, seen.film
    head = seen.head if seen.gone else f"{example.law}: {example.message}"
    out = [f"# {markdown.text(head)}", "", *markdown.notes(seen), *_in_short(seen)]
    out += ["## Property", "", f"> {markdown.text(example.sentence)}", ""]
    source = next((law.source for law in all_laws.ALL if law.id == example.law), "")
    if source:
        out.append(f"Source: {_source(source)}. The law and its words: docs/laws.md, docs/semantics.md ({example.law}).")
    out += [] if film is None else _departed(example, film)
    out += ["", "## Configuration", "", *markdown.configuration(example)]
    out += _actions(seen)
    if film is not None:
        out += _model(example)
        out += _follows(example, film)
        out += _around(example, film)
        out += _lookup(example, film)
        out += _lives(example, film)
        out += _claims(example, film)
    out += [
        "",
        "## Notation",
        "",
        *(f"- {text}" for text in NOTATION),
        *(f"- {name}: {meaning}." for name, meaning in words.notation(example, film)),
    ]
    # What the file has otherwise was not what was found and made short.
    out += [] if seen.notes else ["", "## Why nothing shorter shows it", "", markdown.text(minimal(example))]
    out += ["", "## See it again", "", *_again(example, file)]
    if example.fault:
        out += ["", f"The fault is planted: {lines.fault_text(example.fault)}."]
    out += [] if seen.gone else ["", "## Why earlier checking missed it", "", missed(example, film)]
    return legible("\n".join(out) + "\n")


def _in_short(seen: Rerun) -> list[str]:
    """Return the finding in a paragraph: where it breaks, and the values of the evidence with what they are."""
    example, film = seen.here, seen.film
    if seen.gone:
        return []
    out = [f"It breaks at {markdown.text(lines.place(example))}: {markdown.text(example.message)}.", ""]
    for name, value, behind in words.values(example, film):
        out.append(f"- {markdown.text(name)} = `{markdown.code(value)}`" + (f" ({markdown.text(behind)})" if behind else ""))
    out += [f"- {markdown.text(meaning)}" for meaning in legend.meanings(example)]
    numbers = words.of_numbers(example, film) if film is not None and example.implementation is None else ""
    out += [f"- {numbers}"] if numbers else []
    if example.profile != SOUND:
        departs = markdown.text(lines.profile_text(example.profile))
        out += ["", f"Its configuration departs from the sound one: {departs}."]
    return [*out, ""]


def _source(source: str) -> str:
    """Return the source of a law; a number alone is one of vLLM's issues or pull requests."""
    said = source.replace("#", "vllm#")
    return said + (" (issues and pull requests of vLLM)" if "#" in source else "")


def _again(example: Counterexample, file: str | None) -> list[str]:
    """Return how to see it: from the file that lies beside the page, and without it."""
    beside = file and (example.implementation is None or example.engine == examples.TENSORS)
    found = [f"    {lines.reproduce(example, Path(file).name)}".replace("\n", " "), ""] if file and beside else []
    without = "Without the JSON file that lies beside this page:" if found else ""
    return [
        *found,
        *([without, ""] if without else []),
        f"    {markdown.again(example)}",
        "",
        f"{markdown.text(lines.origin(example))}.",
    ]


def _actions(seen: Rerun) -> list[str]:
    """Return the table of the actions, the breaking one marked."""
    example = seen.here
    if not example.actions:
        return []
    told = lines.told(example, MOST_LINES)
    how = ["", f"{legend.HOW[0].upper()}{legend.HOW[1:]}."] if any(legend.changes(example)) else []
    return ["", "## What happens", "", *markdown.steps(told, seen), *how]


def _model(example: Counterexample) -> list[str]:
    """Say whose worlds the sections behind this are, if an implementation broke the law."""
    if example.implementation is None:
        return []
    who = markdown.text(example.implementation.adapter)
    if example.engine == examples.TENSORS:
        return ["", f"What follows is the model under the same actions, not {who}; block numbers are the same on both."]
    return [
        "",
        f"What follows is the model under the same actions, not {who}: it chooses its own blocks, and shows what could have "
        f"been done. Block numbers up to here are those of {who}, from here on those of the model.",
    ]


def _follows(example: Counterexample, film: Film) -> list[str]:
    """Return what the law lets happen behind the last action, and what is left open at the end."""
    said = further.sentence(example, film)
    if not said:
        return []
    out = ["", f"## What follows{_of_model(example)}", "", said]
    if further.told(example, film):
        out += ["", "| | action | answer |", "|---|---|---|"]
        for line, numbers in further.told(example, film, MOST_FOLLOWING):
            done = f"`{markdown.code(line.action)}`" if numbers else line.action
            out.append(f"| {line.number} | {done} | {markdown.text(line.answer)} |")
    left = further.left(film)
    return [*out, "", "Left open at the end:", "", *(f"- {markdown.text(one)}" for one in left)] if left else out


def _around(example: Counterexample, film: Film) -> list[str]:
    """Return the state before and after the action that breaks the law, and as it is without the fault."""
    found = around.around(example, film)
    out = _table(found.heads, found.rows)
    return ["", f"## Before and after{_of_model(example)}", "", *out] if out else []


def _departed(example: Counterexample, film: Film) -> list[str]:
    """Return where the run departs from one without the planted fault: a reviewer asks that first."""
    departed = around.departed(example, film)
    if departed is None:
        return []
    out = ["", f"## Without the fault{_of_model(example)}", "", markdown.text(departed.text)]
    if departed.sound:
        out += [
            "",
            f"- here the answer is: {markdown.text(departed.here)}",
            f"- without the fault: {markdown.text(departed.sound)}",
        ]
    return [*out, "", *_table(("", "here", "without the fault"), departed.rows)] if departed.rows else out


def _table(heads: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    cut = [[markdown.text(lines.cut(cell, LONGEST)) for cell in row] for row in rows[:MOST_ROWS]]
    out = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {' | '.join(row)} |" for row in cut)]
    return [*out, "", f"{len(rows) - MOST_ROWS} more rows left out."] if len(rows) > MOST_ROWS else out


def _of_model(example: Counterexample) -> str:
    return "" if example.implementation is None else " (the model)"


def _lookup(example: Counterexample, film: Film) -> list[str]:
    """Return what the last lookup could hit, by the rules, if the law breaks there."""
    found = candidates.last_lookup(example, film)
    if found is None or found.position != example.position:
        return []
    out = ["", f"## What the lookup could hit{_of_model(example)}", ""]
    out.append(
        f"By the rules every group can resume {found.request} at {found.joint} tokens and no later; the answer was "
        f"{found.answered}. Which boundary a group can resume at, and the rule that removed the others:"
    )
    out += ["", "| groups | boundary | rule | the case at hand |", "|---|---|---|---|"]
    for one in found.classes:
        names = " ".join(f"g{group}" for group in one.groups)
        out += [f"| {names} | {each.boundary} | {each.rule} | {markdown.text(each.text)} |" for each in one.candidates]
    return out


def _lives(example: Counterexample, film: Film) -> list[str]:
    told = lineage.lives(example, film)
    if not told:
        return []
    out = ["", f"## What became of the blocks in question{_of_model(example)}"]
    more = len(lineage.in_question(example, film)) - len(told)
    out += ["", f"The first {len(told)} of them; {more} more are in question."] if more else []
    out += ["", film.window.said] if film.window.said else []
    for life in told:
        out += ["", f"Block {life.name} ({life.why}):", ""]
        left_out = len(life.events) - MOST_EVENTS
        if left_out > 0:
            out.append(f"- {left_out} earlier events left out")
        if not life.events:
            out.append("- nothing happened to it")
        for event in life.events[-MOST_EVENTS:]:
            done = markdown.code(lines.action_text(film.moments[event.position].action))
            out.append(f"- {film.label(event.position)}, `{done}`: {event.text}")
    return out


def _claims(example: Counterexample, film: Film) -> list[str]:
    wrong = film.frame(film.broken).wrong
    if not wrong:
        return []
    rows = [f"| {block.name} | {claim.text} | {markdown.text(block.bytes)} | {claim.wrong} |" for block, claim in wrong]
    head = f"## Keys and bytes then{_of_model(example)}"
    return ["", head, "", "| block | key claims | bytes | not so |", "|---|---|---|---|", *rows]


def minimal(example: Counterexample) -> str:
    """Say why the list of actions is short, and what that is worth."""
    count = len(example.actions)
    if not count:
        return "No action is needed: the configuration alone breaks the law."
    if example.engine == EXPLORER and examples.lasso_of(example) is not None:
        return (
            f"It was found by enumerating all behaviours of scope {example.scope}: the cycle is reached by a shortest way. "
            "Around it there may be a shorter one."
        )
    if example.engine == EXPLORER:
        return (
            f"It was found breadth first among all behaviours of scope {example.scope}: no run of less than {count} actions "
            "there breaks this law by an action or by what a world comes to. Another scope may have a shorter one."
        )
    if example.engine == examples.TENSORS:
        return "It is a run up to its first difference, made shorter where that could be tried. Another run may be shorter."
    how = ENGINES.get(example.engine, f"a run of {example.engine}")
    return (
        f"It was found in {how} and made shorter step by step: without any one of its {count} actions, or with shorter prompts "
        "and chunks, the law was not seen to break. Another run may be shorter."
    )


def missed(example: Counterexample, film: Film | None) -> str:
    """Say which situations the run brings about, without which no test sees the fault, and who else judges it."""
    if not example.actions:
        return "Nothing but this configuration: a test that never resolves it cannot see the fault."
    tracker = Tracker()
    for moment in () if film is None else film.own:
        tracker.observe(moment)
    seen = [name for name, count in tracker.counts.items() if count]
    silent = f"that does not judge {example.law}"
    said = f"A test {silent} passes: the wrong state is silent"
    if seen:
        known = f"This run brings about: {', '.join(seen)} (docs/check.md)"
        said = f"{known}. A test without them passes, and so does one {silent}: the wrong state is silent"
    fault = examples.fault_of_model(example)
    others = [law for law in faults.by_id(fault).laws if law != example.law] if fault else []
    return said + (f". {', '.join(others)} can see the same fault in other runs." if others else ".")
