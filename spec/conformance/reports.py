"""What came of judging an adapter: a verdict per law with its reason, counterexamples, and what differs from the model."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import field, frozen

from kvproof.spec import distribution
from kvproof.spec import laws as all_laws
from kvproof.spec.conformance import settings
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.counterexample import dumps as as_json
from kvproof.spec.laws.base import WRONG_CONTENT, Mark
from kvproof.spec.report import legend
from kvproof.spec.report import lines as words

MARKS: tuple[Mark, ...] = ("S", "C", "D")
"""The marks of laws, the worst violation first."""
KEY_ROWS = "; keys are rows of prefix number, group, block, whether it is the primary one"
MOST_NAMED = 3
"""Scopes that were left out for one reason are named up to so many; all of them are in the JSON."""
WIDTH = 120
"""Characters of a line of the report that lists the ids of laws."""


@frozen(slots=True)
class LawVerdict:
    """What is known about one law (or rule of generation) on this implementation.

    ``why`` is a sentence for people: the evidence, or why nothing can be said. ``judged`` counts how often the premise was
    true and all that the law asks for was shown; ``hidden`` how often it asked for something that is not shown, by its name
    (``Shows``). ``bent`` counts violations that a declared profile field explains, ``explained`` are the undeclared fields that
    would bend the law, as ``field = value``.
    """

    law: str
    sentence: str
    verdict: Verdict
    why: str
    judged: int = 0
    hidden: tuple[tuple[str, int], ...] = ()
    bent: int = 0
    explained: tuple[str, ...] = ()
    counterexample: Counterexample | None = None


@frozen(slots=True)
class ScopeRun:
    """What was done in one scope; ``skipped`` says why nothing was (the adapter does not support its configuration)."""

    name: str
    walks: int = 0
    actions: int = 0
    skipped: str = ""


@frozen(slots=True)
class DifferenceGroup:
    """Differences of one kind: where the implementation shows something else than the model predicts. No violation by itself.

    ``action`` is the type of the action, ``what`` the part that differs; the example is the first one. ``settings`` are the
    declared or declarable settings under which the prediction is what was shown; empty: none of them explains it.
    ``declared`` says that the adapter names one of them as its policy.
    """

    what: str
    action: str
    count: int
    scope: str
    position: int
    predicted: str
    observed: str
    settings: tuple[str, ...] = ()
    declared: bool = False

    @property
    def explanation(self) -> str:
        """Return in words which setting explains it."""
        if not self.settings:
            return "no declared setting explains it"
        return f"explained by {' or '.join(self.settings)}" + (" (declared)" if self.declared else "")


def worst_first(laws: Sequence[LawVerdict]) -> list[LawVerdict]:
    """Return refuted laws as they are to be read: those of soundness first, then of completeness, then of definitions; among
    them by the length of their counterexamples, in actions: the shortest is the easiest to understand.
    """

    def size(law: LawVerdict) -> tuple[int, bool, int, str]:
        actions = 0 if law.counterexample is None else len(law.counterexample.actions)
        return MARKS.index(mark(law.law)), law.counterexample is None, actions, law.law

    return sorted(laws, key=size)


class Refuted(AssertionError):
    """An adapter is refuted; the message is the report."""


@frozen(slots=True)
class Report:
    """Everything that judging an adapter found. The same adapter, scopes, budget and seed give the same report."""

    adapter: str
    seed: int
    shows: tuple[str, ...]
    laws: tuple[LawVerdict, ...]
    scopes: tuple[ScopeRun, ...] = ()
    differences: tuple[DifferenceGroup, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """What went wrong with the judging itself: what the adapter shows cannot be read, or a run does not repeat."""
    ended: tuple[str, ...] = field(default=())
    """Walks that ended early because what was shown has no next state, behind a violation of a law, which is named."""
    known: tuple[str, ...] = ()
    """Laws that were said to be refuted beforehand."""

    @property
    def refuted(self) -> tuple[LawVerdict, ...]:
        """The laws that are refuted, those that are known to be included."""
        return tuple(law for law in self.laws if law.verdict is Verdict.REFUTED)

    @property
    def unexpected(self) -> tuple[LawVerdict, ...]:
        """The laws that are refuted and not known to be."""
        return tuple(law for law in self.refuted if law.law not in self.known)

    @property
    def mended(self) -> tuple[LawVerdict, ...]:
        """The laws that are known to be refuted and hold."""
        return tuple(law for law in self.laws if law.law in self.known and law.verdict is Verdict.HOLDS)

    @property
    def in_order(self) -> tuple[LawVerdict, ...]:
        """The refuted laws as they are to be read: the worst first, those that are known last."""
        known = tuple(law for law in self.refuted if law.law in self.known)
        return (*worst_first(self.unexpected), *worst_first(known))

    @property
    def counterexamples(self) -> tuple[Counterexample, ...]:
        """The counterexamples of the refuted laws, in the order in which they are to be read."""
        return tuple(law.counterexample for law in self.in_order if law.counterexample is not None)

    @property
    def actions(self) -> int:
        """The actions that were performed and judged, over all scopes."""
        return sum(scope.actions for scope in self.scopes)

    def __iter__(self) -> Iterator[LawVerdict]:
        """Iterate over the verdicts, in the order of the laws."""
        return iter(self.laws)

    def of(self, law: str) -> LawVerdict:
        """Return the verdict on one law. Raises KeyError if it was not asked for."""
        for verdict in self.laws:
            if verdict.law == law:
                return verdict
        raise KeyError(f"{law} was not judged; judged: {', '.join(verdict.law for verdict in self.laws)}")

    def raise_if_refuted(self) -> None:
        """Raise Refuted with the refuted laws and their counterexamples, if there is one that is not known."""
        if self.unexpected:
            raise Refuted(self.text())

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON knows it; counterexamples are in the form of their files."""
        return {
            "adapter": self.adapter,
            "kvproof": distribution.version(),
            "seed": self.seed,
            "shows": list(self.shows),
            "laws": [
                {
                    "law": law.law,
                    "sentence": law.sentence,
                    "verdict": law.verdict.value,
                    "why": law.why,
                    "judged": law.judged,
                    "hidden": dict(law.hidden),
                    "bent": law.bent,
                    "explained": list(law.explained),
                    "counterexample": None if law.counterexample is None else json.loads(as_json(law.counterexample)),
                }
                for law in self.laws
            ],
            "scopes": [
                {"name": scope.name, "walks": scope.walks, "actions": scope.actions, "skipped": scope.skipped}
                for scope in self.scopes
            ],
            "differences": [
                {
                    "what": group.what,
                    "action": group.action,
                    "count": group.count,
                    "scope": group.scope,
                    "position": group.position,
                    "predicted": group.predicted,
                    "observed": group.observed,
                    "settings": list(group.settings),
                    "declared": group.declared,
                }
                for group in self.differences
            ],
            "problems": list(self.problems),
            "ended": list(self.ended),
            "known": list(self.known),
        }

    def text(self) -> str:
        """Return the report as plain text: refuted laws first, then what is undetermined, differences, and scopes left out."""
        return "\n".join(_lines(self))


def _lines(report: Report) -> Iterator[str]:
    count = {verdict: sum(law.verdict is verdict for law in report.laws) for verdict in Verdict}
    tried = [scope for scope in report.scopes if not scope.skipped]
    yield (
        f"{report.adapter}: {counted(count[Verdict.REFUTED], 'law')} refuted, {count[Verdict.UNDETERMINED]} undetermined, "
        f"{count[Verdict.HOLDS]} hold; {counted(report.actions, 'action')} in {counted(len(tried), 'scope')}, "
        f"seed {report.seed}"
    )
    yield f"shows {', '.join(report.shows) or 'nothing'}"
    for problem in report.problems:
        yield f"problem: {problem}"
    for law in report.in_order:
        yield ""
        yield from law_lines(law, law.law in report.known)
    yield from _section("undetermined", _folded(report))
    any_keys = any(group.what.endswith("keys") for group in report.differences)
    yield from _section(
        f"differences from the model (no violation by themselves{KEY_ROWS if any_keys else ''})",
        [
            f"{group.action}, {group.what}: {counted(group.count, 'time')}, first in {group.scope} at action {group.position}: "
            f"predicted {group.predicted}, shown {group.observed}; {group.explanation}"
            for group in report.differences
        ],
    )
    yield from _section("ended early", report.ended)
    skipped: dict[str, list[str]] = {}
    for scope in report.scopes:
        if scope.skipped:
            skipped.setdefault(scope.skipped, []).append(scope.name)
    yield from _section("skipped", [_skipped(names, why) for why, names in skipped.items()])


def counted(number: int, what: str) -> str:
    """Return a number and what is counted, in the plural unless it is one."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _folded(report: Report) -> list[str]:
    """Return the undetermined laws by reason, the most frequent first, as lines of at most ``WIDTH`` characters.

    How often each part was asked for is in the JSON.
    """
    reasons: dict[str, list[str]] = {}
    for law in report.laws:
        if law.verdict is Verdict.UNDETERMINED:
            hidden = ", ".join(what for what, _ in law.hidden)
            why = f"it needs what is not shown: {hidden}" if hidden else law.why
            reasons.setdefault(why, []).append(law.law)
    found = [f"{', '.join(laws)}: {why}" for why, laws in sorted(reasons.items(), key=lambda item: -len(item[1]))]
    return [line for text in found for line in wrapped(text)]


def wrapped(text: str) -> list[str]:
    """Return a text as lines of at most ``WIDTH`` characters, broken between words; all but the first are indented."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) or [""]


def _skipped(names: Sequence[str], why: str) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{counted(len(names), 'scope')} ({', '.join(names[:MOST_NAMED])}{more}): {why}"


WEIGHTS = {
    "C": "a law of completeness and progress: nothing wrong is read, but something usable is not found, or something does not "
    "end; a policy that gives up hits on purpose breaks it as well",
    "D": "a law of definitions: a decision, an order or a size is another than vLLM's; no output need be wrong, and another "
    "policy breaks it as well",
}
"""What the violation of a law means that is not one of soundness, by its mark (semantics, section 5)."""


def mark(law: str) -> Mark:
    """Return the mark of a law (semantics, section 5); the rule GUARD is one of soundness."""
    marks: dict[str, Mark] = {known.id: known.mark for known in all_laws.ALL}
    return marks.get(law, "S")


def weight(law: str) -> str:
    """Return what a violation of a law means, empty if it is one of soundness."""
    return WEIGHTS.get(mark(law), "")


def declarable(law: LawVerdict) -> str:
    """Return what could be declared about a violation and what that would mean, empty if there is nothing.

    A free policy permits it. With a profile field the model breaks the law in the same way: that explains the violation and
    does not make it right.
    """
    found = []
    for text in law.explained:
        name, _, value = text.partition("=")
        if name in settings.FREE:
            found.append(f"{text} would permit it: declare that if this is your policy")
            continue
        wrong = ", and wrong content may be read" if (name, value) in WRONG_CONTENT else ""
        found.append(
            f"with {text}, as releases of vLLM have or had it, the model breaks the law, too{wrong}: declare that only to take "
            "it over on purpose"
        )
    return "; ".join(found)


def law_lines(law: LawVerdict, known: bool = False) -> Sequence[str]:
    """Return the verdict on one law as lines of text, with the counterexample if there is one."""
    said = " (known)" if known else ""
    lines = [f"{law.law} {law.verdict.value}{said}: {law.sentence}", f"  {law.why}"]
    if weight(law.law):
        lines.append(f"  {weight(law.law)}")
    if law.explained:
        lines.append(f"  not declared: {declarable(law)}")
    if law.counterexample is not None:
        lines += [f"  {line}" for line in story(law.counterexample)]
    return lines


def story(example: Counterexample) -> list[str]:
    """Return the actions of a counterexample with what was shown after each, one a line."""
    found = [f"{words.sizes_text(example)}; profile {words.profile_text(example.profile)}", f"at {words.place(example)}"]
    found += words.evidence(example)
    found += [f"({legend.HOW})"] if any(legend.changes(example)) else []
    for line, broken in words.told(example):
        mark = f"  ✗ breaks {example.law}" if broken else ""
        found.append(f"{line.number:>5} {line.action}{mark}" + (f" -> {line.answer}" if line.answer else ""))
    return found
