"""The table of expected verdicts (``data/expected.json``): what each claim must come to, and why if it is not confirmed.

Vacuity twins and faulty twins must be refuted, all of them; the table names the faulty twins, so that one that goes is noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from kvproof.proofs import catalogue
from kvproof.proofs.verdicts import Verdict
from kvproof.proofs.work import Answer, Unit
from kvproof.spec import datafile
from kvproof.spec.exits import UserError

FILE = Path(__file__).parent / "data" / "expected.json"
FORMAT = "kvproof-expected-verdicts"
VERSION = 1

NOT_SAID = "not said yet"
"""The reason that `updated` gives until somebody writes one; a test finds it."""


@frozen(slots=True)
class Row:
    """What a claim must come to, with the names of its faulty twins. ``why`` says why it is not confirmed, if it is not."""

    verdict: Verdict
    faulty: tuple[str, ...]
    why: str = ""


def read(file: Path | None = None) -> dict[str, Row]:
    """Return the table by claim. Raises UserError if the file is none."""
    return datafile.read(file or FILE, (FORMAT, VERSION), "claims", Row, "is no table of expected verdicts")


def write(rows: Mapping[str, Row], file: Path | None = None) -> None:
    """Write the table. Raises OutputError."""
    entries = {name: _as_dict(row) for name, row in rows.items()}
    datafile.write(file or FILE, (FORMAT, VERSION), "claims", entries)


def _as_dict(row: Row) -> dict[str, object]:
    found: dict[str, object] = {"verdict": row.verdict.value, "faulty": list(row.faulty)}
    return {**found, "why": row.why} if row.why else found


def unexpected(answers: Sequence[Answer], rows: Mapping[str, Row]) -> list[Answer]:
    """Return the answers that are not as expected."""
    return [answer for answer in answers if expected_of(answer.unit, rows) is not answer.said.verdict]


def differences(answers: Sequence[Answer], rows: Mapping[str, Row], chosen: Collection[str] = ()) -> list[str]:
    """Return what is not as expected: verdicts; claims and faulty twins that are new to the table, or gone; missing reasons.

    If only ``chosen`` claims are asked, nothing is said of others.
    """
    found = [
        f"{answer.unit.name}: {answer.said.verdict.value}, expected {expected_of(answer.unit, rows).value}"
        + (f" ({answer.said.detail})" if answer.said.verdict in (Verdict.RAISED, Verdict.UNDETERMINED) else "")
        for answer in unexpected(answers, rows)
    ]
    known = {one.name: catalogue.faults_of(one) for one in catalogue.everything() if not chosen or one.name in chosen}
    for name, faulty in known.items():
        if name not in rows:
            found.append(f"{name}: not in the table of expected verdicts (kvproof prove --update adds it)")
        elif faulty != rows[name].faulty:
            found.append(
                f"{name}: faulty twins {', '.join(faulty) or 'none'}, expected {', '.join(rows[name].faulty) or 'none'}"
            )
        elif rows[name].why == NOT_SAID:
            found.append(f"{name}: {rows[name].verdict.value}, and the table does not say why: write it into {FILE.name}")
    return found + [
        f"{name}: in the table of expected verdicts, but there is no such claim (kvproof prove --update takes it out)"
        for name in rows
        if not chosen and name not in known
    ]


def expected_of(unit: Unit, rows: Mapping[str, Row]) -> Verdict:
    """Return what a question must come to.

    Twins of both kinds must be refuted; a tie must be confirmed, and a claim that is new.
    """
    if unit.kind == "tie":
        return Verdict.CONFIRMED
    if unit.kind != "claim":
        return Verdict.REFUTED
    row = rows.get(unit.claim)
    return Verdict.CONFIRMED if row is None else row.verdict


def unasked(units: Sequence[Unit], rows: Mapping[str, Row]) -> list[str]:
    """Return the claims that are neither in the table nor asked: an update would not know what they come to."""
    asked = {unit.claim for unit in units if unit.kind == "claim"}
    return [one.name for one in catalogue.everything() if one.name not in rows and one.name not in asked]


def hindering(answers: Sequence[Answer], rows: Mapping[str, Row]) -> list[Answer]:
    """Return the answers that have no place in the table: false claims, and twins and ties that are not as expected."""
    return [
        answer
        for answer in answers
        if (answer.unit.kind == "claim" and answer.said.verdict in (Verdict.REFUTED, Verdict.RAISED))
        or (answer.unit.kind != "claim" and answer.said.verdict is not expected_of(answer.unit, rows))
    ]


def updated(answers: Sequence[Answer], rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return the table with what was found; reasons stay, and what was not asked keeps its row.

    Raises UserError for a claim that was never asked, for one that is false, and for a twin or a tie that is not as expected.
    """
    for answer in hindering(answers, rows):
        raise UserError(
            f"{answer.unit.name}: {answer.said.verdict.value}: a claim that is false has no place in the table, nor has one "
            "with a twin or a tie that is not as expected; mend it or the model"
        )
    found = {answer.unit.claim: answer.said.verdict for answer in answers if answer.unit.kind == "claim"}
    new: dict[str, Row] = {}
    for known in catalogue.everything():
        before, verdict = rows.get(known.name), found.get(known.name)
        if verdict is None:
            if before is None:
                raise UserError(f"{known.name} was not asked and is not in the table: run kvproof prove --update as a whole")
            new[known.name] = before
            continue
        why = before.why if before is not None and verdict is not Verdict.CONFIRMED else ""
        if verdict is Verdict.UNDETERMINED and not why:
            why = NOT_SAID
        new[known.name] = Row(verdict, catalogue.faults_of(known), why)
    return new


def changes(before: Mapping[str, Row], after: Mapping[str, Row]) -> list[str]:
    """Say what an update changed, a line for each claim."""
    said = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            said.append(f"{name}: {'gone' if new is None else f'new, {new.verdict.value}'}")
        elif old.verdict is not new.verdict:
            said.append(f"{name}: {old.verdict.value} before, now {new.verdict.value}")
        elif old != new:
            said.append(f"{name}: other faulty twins" if old.faulty != new.faulty else f"{name}: another reason")
    return said
