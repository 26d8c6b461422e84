"""Judging an implementation in one call: ``check_all_laws(adapter)``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from attrs import evolve

from kvproof.spec import judge, near
from kvproof.spec import laws as all_laws
from kvproof.spec.conformance import examples, reports, settings
from kvproof.spec.conformance.adapter import Adapter, AdapterError, Shows
from kvproof.spec.conformance.budget import Budget
from kvproof.spec.conformance.isolation import LIMIT, Died, guarded
from kvproof.spec.conformance.judging import GUARD
from kvproof.spec.conformance.oracle import LawFinding, Verdict
from kvproof.spec.conformance.play import Unrepeatable
from kvproof.spec.conformance.reports import DifferenceGroup, LawVerdict, Refuted, Report, ScopeRun, counted
from kvproof.spec.conformance.search import Broken, Search, Searched
from kvproof.spec.conformance.settings import Setting
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import scopes as all_scopes
from kvproof.spec.engines.scopes import Scope
from kvproof.spec.exits import UserError
from kvproof.spec.judge import refuted
from kvproof.spec.laws.base import Law

__all__ = [
    "DifferenceGroup",
    "LawVerdict",
    "Refuted",
    "Report",
    "ScopeRun",
    "Verdict",
    "check_all_laws",
    "chosen_laws",
    "chosen_scopes",
]

NOT_TRIED = LawVerdict(
    law=GUARD.id,
    sentence=GUARD.sentence,
    verdict=Verdict.UNDETERMINED,
    why="nothing that must be refused was tried: name GUARD with the laws if your preconditions are those of the model",
)
"""What is said of the rule GUARD where nobody asks for it: it is not judged, and not passed either."""
QUICK, ALL = "quick", "all"
"""Names for the scopes of the quick matrix and for every scope."""
LONGEST = 200
"""Characters of a value in a difference."""


def check_all_laws(
    adapter: Adapter,
    *,
    laws: Sequence[str] | None = None,
    scopes: Sequence[str] | None = None,
    seed: int = 0,
    walks: int | None = None,
    steps: int | None = None,
    policies: Sequence[str] = (),
    isolation: bool = True,
    limit: float = LIMIT,
    progress: Callable[[str], None] = lambda doing: None,
    announce: Callable[[str], None] = lambda refuted: None,
    known: Sequence[str] = (),
    interruptible: bool = False,
) -> Report:
    """Judge an implementation by generated runs and return a verdict for every law.

    ``laws`` are ids or letters of families (None: all; the rule GUARD has to be named), ``scopes`` names of scopes, ``quick``
    or ``all`` (None: all, as far as the adapter supports their configuration); ``walks`` per scope and ``steps``, actions per
    walk, are the budget.
    ``policies`` are settings that the implementation declares, as ``field=value``, beside the ``profile`` and ``policies`` of
    the adapter. With ``isolation`` the adapter runs in a forked process, so that a hang of more than ``limit`` seconds or a
    crash is a verdict (LV-9). ``progress`` is told what is being done, ``announce`` of each law as soon as it is refuted.
    ``known`` are ids of judged laws that are known to be refuted: they come last in the report. If it is ``interruptible``, an
    interrupt of the user (KeyboardInterrupt) ends the search, and the report is of what was judged up to there. Raises
    UserError for unknown names and a budget with which nothing can be tried, AdapterError if the adapter does not show what it
    declares. If it broke a law before that, the report is of what was judged up to there, and the error is one of its problems.
    """
    _check(adapter)
    _check_budget(walks, steps, limit)
    _check_names("laws", laws, "HB-9")
    _check_names("scopes", scopes, "fa4")
    judged, where = chosen_laws(laws), chosen_scopes(scopes)
    check_known(known, judged)
    declared = settings.declared_by(adapter, policies)
    behind = guarded(adapter, isolation, limit)
    try:
        search = Search(behind, judged, declared, seed, Budget(walks, steps), progress, announce, interruptible)
        done: list[Searched] = []
        for scope in where:
            if not search.halted:
                done.append(search.scope(scope))
        problems = [f"{one.scope.name}: a walk ended early: {why}" for one in done for why in one.stopped]
        ended = [
            f"{one.scope.name}: {counted(count, 'walk')} ended early behind a violation of {broken}: {why}"
            for one in done
            for (why, broken), count in one.followed.items()
        ]
        found = {
            law: _counterexample(search, search.broken[law], problems)
            for law in sorted(search.broken, key=lambda law: (law in known, reports.MARKS.index(reports.mark(law))))
        }
        problems[:0] = [search.halted] if search.halted else []
    finally:
        behind.close()
    found = {law: (_asked(example, walks, steps, policies), explained) for law, (example, explained) in found.items()}
    return Report(
        adapter=adapter.name,
        seed=seed,
        shows=tuple(shown.value for shown in Shows if shown in adapter.shows),
        laws=(
            *(_verdict(law, done, search.broken.get(law.id), found.get(law.id)) for law in judged),
            *(() if laws is not None else (NOT_TRIED,)),
        ),
        scopes=tuple(ScopeRun(one.scope.name, one.walks, one.actions, one.skipped) for one in done),
        differences=tuple(_differences(search, declared)),
        problems=tuple(dict.fromkeys(problems)),
        ended=tuple(ended),
        known=tuple(known),
    )


def _check(adapter: object) -> None:
    """Refuse what is no adapter, with what is missing. Raises AdapterError."""
    if isinstance(adapter, type):
        raise AdapterError(f"{adapter.__name__} is a class: an adapter is an object, such as {adapter.__name__}()")
    missing = [name for name in ("name", "shows", "null_block", "start", "perform") if not _has(adapter, name)]
    if missing:
        raise AdapterError(
            f"{type(adapter).__name__} is no adapter: it has no {', no '.join(missing)} (kvproof.spec.conformance)"
        )
    shows = getattr(adapter, "shows", None)
    if not isinstance(shows, frozenset) or not all(isinstance(shown, Shows) for shown in shows):
        raise AdapterError(
            f"the adapter's shows are {shows!r}: a frozenset of Shows is needed, such as frozenset({{Shows.TABLES}})"
        )
    name, null_block = getattr(adapter, "name", None), getattr(adapter, "null_block", None)
    if not isinstance(name, str) or not name:
        raise AdapterError(f"the adapter's name is {name!r}: a text is needed, reports and files are named by it")
    if not isinstance(null_block, int):
        raise AdapterError(
            f"the adapter's null_block is {null_block!r}: the id of the placeholder in tables is needed, a number"
        )
    for method in ("start", "perform"):
        if not callable(getattr(adapter, method, None)):
            raise AdapterError(f"the adapter's {method} is {getattr(adapter, method, None)!r}: a method is needed")


def _check_budget(walks: object, steps: object, limit: object) -> None:
    """Refuse a budget with which nothing could be tried. Raises UserError."""
    for name, count in (("walks", walks), ("steps", steps)):
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise UserError(f"{name} is {count!r}: a whole number from 1 on is needed, or None for the usual one")
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not limit > 0:
        raise UserError(f"limit is {limit!r}: seconds are needed, more than 0")


def _check_names(what: str, names: Sequence[str] | None, example: str) -> None:
    """Refuse what is no list of names, or an empty one, with which nothing would be tried. Raises UserError."""
    if names is None:
        return
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{what} is {names!r}: a list of names is needed, such as [{example!r}]")
    if not names:
        raise UserError(f"{what} is {names!r}: name at least one, or give None for all")


def _has(adapter: object, name: str) -> bool:
    try:
        return hasattr(adapter, name)
    except Exception as error:
        words = f"{type(adapter).__name__} is no adapter: its {name} raises {judge.describe_crash(error)}"
        raise AdapterError(words) from error


# --- what to do ---------------------------------------------------------------------------------------------------


def chosen_laws(names: Sequence[str] | None) -> tuple[Law, ...]:
    """Return the laws to judge, in their order: all, or those of these ids and families. Raises UserError.

    The rule GUARD has to be named, and is undetermined otherwise (``NOT_TRIED``): which calls an implementation must refuse is
    its own contract, unless it says that its preconditions are those of the model, the sub-phases of the worker and the ends of
    chunks included.
    """
    known = (*all_laws.ALL, GUARD)
    if names is None:
        return all_laws.ALL
    wanted: set[str] = set()
    for name in names:
        family = {law.id for law in all_laws.family(name)} or {law.id for law in known if law.id.casefold() == name.casefold()}
        if not family:
            raise UserError(near.unknown("law", name, [law.id for law in known], "kvproof laws"))
        wanted |= family
    return tuple(law for law in known if law.id in wanted)


def check_known(known: Sequence[str], judged: Sequence[Law]) -> None:
    """Check that laws that are known to be refuted are judged. Raises UserError."""
    for name in known:
        if all(law.id != name for law in judged):
            ids = [law.id for law in (*all_laws.ALL, GUARD)]
            if name in ids:
                raise UserError(
                    f"{name} is known to be refuted and is not judged: name it among the laws, too, or leave it out"
                )
            raise UserError(near.unknown("law", name, ids, "kvproof laws"))


def chosen_scopes(names: Sequence[str] | None) -> tuple[Scope, ...]:
    """Return the scopes to search, in their order: all, or those of these names. Raises UserError."""
    if names is None or ALL in names:
        return all_scopes.ALL
    wanted = {scope.name for scope in all_scopes.chosen(True)} if QUICK in names else set()
    wanted |= {all_scopes.by_name(name).name for name in names if name != QUICK}
    return tuple(scope for scope in all_scopes.ALL if scope.name in wanted)


# --- what was found -----------------------------------------------------------------------------------------------


def _counterexample(search: Search, broken: Broken, problems: list[str]) -> tuple[Counterexample, tuple[str, ...]]:
    """Return the shortened counterexample of a broken law, and the undeclared fields that would bend the law."""
    actions, violation = search.shrunk(broken)
    try:
        run = search.runs.begin(broken.config)
        example = examples.build(broken, actions, violation, run, search.adapter.name, search.seed)
    except (Died, Unrepeatable, AdapterError) as error:
        if actions or not isinstance(error, Died):  # one that dies in its start shows nothing: that is what is broken
            problems.append(f"{broken.law.id}: its counterexample lacks what was shown: {error}")
        example = examples.build(broken, actions, violation, None, search.adapter.name, search.seed)
    bending = settings.bending(broken.law, broken.config, actions, violation)
    return example, tuple(setting.text for setting in bending)


def _asked(example: Counterexample, walks: int | None, steps: int | None, policies: Sequence[str]) -> Counterexample:
    """Return a counterexample that knows what the search was asked for: without it the same call finds another run."""
    assert example.implementation is not None, "what an adapter breaks names the adapter"
    asked = evolve(example.implementation, walks=walks, steps=steps, policies=tuple(policies))
    return evolve(example, implementation=asked)


def _verdict(
    law: Law, done: Sequence[Searched], broken: Broken | None, found: tuple[Counterexample, tuple[str, ...]] | None
) -> LawVerdict:
    """Return the verdict on one law over all scopes."""
    findings = [finding for one in done if not one.skipped for finding in one.findings if finding.law.id == law.id]
    hidden: Counter[str] = Counter()
    for finding in findings:
        hidden.update(finding.hidden)
    violations = [violation for finding in findings for violation in finding.violations]
    verdict = LawVerdict(
        law=law.id,
        sentence=law.sentence,
        verdict=Verdict.UNDETERMINED,
        why="",
        judged=sum(finding.judged for finding in findings),
        hidden=tuple(sorted(hidden.items())),
        bent=len(violations) - len(refuted(violations)),
    )
    if broken is not None:
        example, explained = found or (None, ())
        what = example.message if example is not None else broken.violation.evidence.message
        times = f"{counted(len(refuted(violations)), 'violation')} in {counted(verdict.judged, 'judgement')}"
        where = f"{times}, the first in {broken.scope.name}: {what}"
        return evolve(verdict, verdict=Verdict.REFUTED, why=where, counterexample=example, explained=explained)
    why = _undetermined(law, verdict, findings, done)
    if why:
        return evolve(verdict, why=why)
    bent = f"; {counted(verdict.bent, 'violation')} that a declared setting stands for" if verdict.bent else ""
    return evolve(verdict, verdict=Verdict.HOLDS, why=f"judged {counted(verdict.judged, 'time')}{bent}")


def _undetermined(law: Law, verdict: LawVerdict, findings: Sequence[LawFinding], done: Sequence[Searched]) -> str:
    """Return why a law is undetermined, empty if it holds."""
    if verdict.hidden:
        parts = ", ".join(f"{what} ({count} times)" for what, count in verdict.hidden)
        return f"it needs what is not shown: {parts}; judged {verdict.judged} times without it"
    if verdict.judged and not any(finding.unjudged for finding in findings):
        return ""
    reasons = dict.fromkeys(finding.unjudged for finding in findings if finding.unjudged)
    if not verdict.judged:
        reasons |= dict.fromkeys(one.cannot[law.id] for one in done if law.id in one.cannot)
    if reasons:
        return "; ".join(reasons)
    tried = [one for one in done if not one.skipped]
    if not tried:
        return "no scope could be searched"
    actions = counted(sum(one.actions for one in tried), "action")
    return f"its premise was never true in {actions} in {counted(len(tried), 'scope')}"


def _differences(search: Search, declared: Sequence[Setting]) -> Iterator[DifferenceGroup]:
    """Yield the kinds of difference, the most frequent first."""
    for kind, count in search.counted.most_common():
        action, what, found = kind
        first = search.first[kind]
        yield DifferenceGroup(
            what=what,
            action=action,
            count=count,
            scope=first.scope,
            position=first.position,
            predicted=_text(first.difference.predicted),
            observed=_text(first.difference.observed),
            settings=tuple(setting.text for setting in found),
            declared=any(setting in declared for setting in found),
        )


def _text(value: object) -> str:
    text = str(examples.visible(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
