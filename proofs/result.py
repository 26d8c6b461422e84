"""What a proof run came to, as a value, and its JSON form."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from attrs import frozen

from kvproof.proofs import catalogue, table
from kvproof.proofs.catalogue import Claim
from kvproof.proofs.lemma import Lemma
from kvproof.proofs.table import Row
from kvproof.proofs.verdicts import Verdict
from kvproof.proofs.work import Answer, Unit
from kvproof.spec import faults
from kvproof.spec.exits import ExitCode, UserError

FALSE = (Verdict.REFUTED, Verdict.RAISED)


@frozen(slots=True)
class Asked:
    """What to prove: a quick run or all, chosen claims (empty: all), on a model with this fault planted (empty: none)."""

    quick: bool = False
    claims: tuple[str, ...] = ()
    fault: str = ""


@frozen(slots=True)
class Result:
    """Every answer, and what is not as the table says.

    ``problems`` and ``unexpected``, the answers among them, are empty with a planted fault.
    """

    asked: Asked
    answers: tuple[Answer, ...]
    problems: tuple[str, ...]
    unexpected: tuple[Answer, ...] = ()

    @property
    def refuted(self) -> tuple[Answer, ...]:
        """The claims and ties that are false: on the model as it is, or on the faulty one that was asked for."""
        kinds = ("faulty", "tie") if self.asked.fault else ("claim", "tie")
        return tuple(answer for answer in self.answers if answer.unit.kind in kinds and answer.said.verdict in FALSE)

    @property
    def verdict(self) -> ExitCode:
        """Refuted if a claim is false; undetermined if anything else is not as expected, or a planted fault is not seen."""
        if self.refuted:
            return ExitCode.REFUTED
        return ExitCode.UNDETERMINED if self.problems or self.asked.fault else ExitCode.HOLDS


def units(asked: Asked) -> list[Unit]:
    """Return the questions of a run. Raises UserError for unknown claims and faults, and ClaimError."""
    chosen = [catalogue.by_name(name) for name in dict.fromkeys(asked.claims)]
    deep = [one.name for one in chosen if one.about.deep]
    if asked.quick and deep:
        raise UserError(f"{deep[0]} is deep, and --quick leaves out what is deep: leave --quick out")
    known = chosen or [one for one in catalogue.everything() if not (asked.quick and one.about.deep)]
    if asked.fault:
        return _with_fault(known, asked.fault)
    found: list[Unit] = []
    for one in known:
        found.append(Unit(one.name, "claim"))
        if isinstance(one, Lemma):
            found.append(Unit(one.name, "tie"))
        if not (isinstance(one, Claim) and one.setting):
            found.append(Unit(one.name, "twin"))
            found += [Unit(one.name, "faulty", fault) for fault in catalogue.faults_of(one)]
    return found


def _with_fault(known: Sequence[Claim | Lemma], fault: str) -> list[Unit]:
    """Return the questions about a faulty model: claims and ties, and lemmas of which the fault is a wrong formula."""
    here = [one for one in known if isinstance(one, Lemma) or not one.setting]
    if not here:
        raise UserError("--fault is planted in functions of the model, which claims in a wider setting do not ask anew")
    in_functions = bool(catalogue.patches(here[0], fault))  # so that an unknown fault is said before any process begins
    found: list[Unit] = []
    for one in here:
        if (isinstance(one, Claim) and in_functions) or (isinstance(one, Lemma) and fault in one.faulty):
            found.append(Unit(one.name, "faulty", fault))
        if isinstance(one, Lemma) and in_functions:
            found.append(Unit(one.name, "tie", fault))
    if not found:
        others = ", ".join(catalogue.all_faults()[fault])
        raise UserError(f"{fault!r} is a wrong formula of {others} alone: leave --claim out, or name one of these")
    return found


def of(asked: Asked, answers: Sequence[Answer], rows: Mapping[str, Row]) -> Result:
    """Compare answers with the table."""
    if asked.fault:
        return Result(asked, tuple(answers), ())
    problems = table.differences(answers, rows, asked.claims)
    return Result(asked, tuple(answers), tuple(problems), tuple(table.unexpected(answers, rows)))


def again(result: Result) -> str:
    """Return the command that shows the first of what is wrong again; empty if nothing is.

    Of a fault of the catalogue that no claim sees, that is the one that asks the engines for it.
    """
    if result.verdict is ExitCode.HOLDS:
        return ""
    asked, words = result.asked, ["kvproof", "prove"]
    if asked.fault and not result.refuted:
        return shlex.join(["kvproof", "check", "--fault", asked.fault]) if _catalogued(asked.fault) else ""
    wrong = result.refuted or result.unexpected
    claims = (wrong[0].unit.claim,) if wrong else asked.claims
    if asked.quick and not claims:
        words.append("--quick")
    for claim in claims:
        words += ["--claim", claim]
    return shlex.join(words + (["--fault", asked.fault] if asked.fault else []))


def _catalogued(fault: str) -> bool:
    return any(one.id == fault for one in faults.ALL)


def as_dict(result: Result, timing: bool = False) -> dict[str, object]:
    """Return the JSON form. Seconds are in it only if they are asked for: they are no result."""
    claims = []
    for answer in result.answers:
        said, unit = answer.said, answer.unit
        known = catalogue.by_name(unit.claim)
        entry: dict[str, object] = {
            "claim": unit.claim,
            "kind": unit.kind,
            "fault": unit.fault,
            "verdict": said.verdict.value,
            "as_expected": answer not in result.unexpected,
            "detail": said.detail,
            "sentence": known.sentence,
            "functions": [f"{function.__module__}.{function.__qualname__}" for function in known.about.of],
            "sizes": known.about.sizes,
            "bounds": known.about.bounds,
            "laws": list(known.about.laws),
        }
        claims.append({**entry, "seconds": round(said.seconds, 2)} if timing else entry)
    return {
        "verdict": result.verdict.name.lower(),
        "quick": result.asked.quick,
        "fault": result.asked.fault,
        "answers": claims,
        "problems": list(result.problems),
        "again": again(result),
    }
