"""What a proof run came to, as a value, and its JSON form."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from attrs import frozen

from kvproof.proofs import catalogue, table
from kvproof.proofs.table import Row
from kvproof.proofs.verdicts import Verdict
from kvproof.proofs.work import Answer, Unit
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
        """The claims that are false: on the model as it is, or on the faulty one that was asked for."""
        kind = "faulty" if self.asked.fault else "claim"
        return tuple(answer for answer in self.answers if answer.unit.kind == kind and answer.said.verdict in FALSE)

    @property
    def verdict(self) -> ExitCode:
        """Refuted if a claim is false; undetermined if anything else is not as expected, or a planted fault is not seen."""
        if self.refuted:
            return ExitCode.REFUTED
        return ExitCode.UNDETERMINED if self.problems or self.asked.fault else ExitCode.HOLDS


def units(asked: Asked) -> list[Unit]:
    """Return the questions of a run. Raises UserError for unknown claims and faults."""
    chosen = [catalogue.by_name(name) for name in dict.fromkeys(asked.claims)]
    known = chosen or [one for one in catalogue.everything() if not (asked.quick and one.about.deep)]
    if asked.fault:
        claims = [one for one in known if isinstance(one, catalogue.Claim) and not one.setting]
        if not claims:
            raise UserError("--fault is planted in functions of the model, which lemmas and wider settings do not ask anew")
        catalogue.patches(claims[0], asked.fault)  # so that an unknown fault is said before any process begins
        return [Unit(claim.name, "faulty", asked.fault) for claim in claims]
    found: list[Unit] = []
    for one in known:
        found.append(Unit(one.name, "claim"))
        if not (isinstance(one, catalogue.Claim) and one.setting):
            found.append(Unit(one.name, "twin"))
            found += [Unit(one.name, "faulty", fault) for fault in catalogue.faults_of(one)]
    return found


def of(asked: Asked, answers: Sequence[Answer], rows: Mapping[str, Row]) -> Result:
    """Compare answers with the table."""
    if asked.fault:
        return Result(asked, tuple(answers), ())
    problems = table.differences(answers, rows, asked.claims)
    return Result(asked, tuple(answers), tuple(problems), tuple(table.unexpected(answers, rows)))


def again(result: Result) -> str:
    """Return the command that shows the first of what is wrong again; empty if nothing is."""
    if result.verdict is ExitCode.HOLDS:
        return ""
    asked, words = result.asked, ["kvproof", "prove"]
    wrong = result.refuted or result.unexpected
    claims = (wrong[0].unit.claim,) if wrong else asked.claims
    if asked.quick and not claims:
        words.append("--quick")
    for claim in claims:
        words += ["--claim", claim]
    return shlex.join(words + (["--fault", asked.fault] if asked.fault else []))


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
