"""What worker processes do in the tests of the runner, instead of asking a prover."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path

from kvproof.proofs import symbolic, work
from kvproof.proofs.verdicts import Said, Verdict
from kvproof.proofs.work import Answer, Unit


def surroundings(unit: Unit) -> Answer:
    """Say how an interrupt is taken here, and where files go."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return Answer(unit, Said(Verdict.CONFIRMED, f"{'ignored' if ignored else 'taken'} {tempfile.mkdtemp()}"))


def end(unit: Unit) -> Answer:
    """End the process without an answer."""
    os._exit(3)


def refuse(unit: Unit) -> Answer:
    """Raise."""
    raise ZeroDivisionError(unit.claim)


def forever(unit: Unit) -> Answer:
    """Never answer."""
    threading.Event().wait()
    raise AssertionError


def endless(unit: Unit) -> Answer:
    """Ask CrossHair about a claim that computes for ever between two of its steps; answer all others at once."""
    if unit.kind != "claim":
        return surroundings(unit)
    file = Path(tempfile.mkdtemp()) / "endless.py"
    file.write_text(ENDLESS, encoding="utf-8")
    return Answer(unit, symbolic.check(symbolic.load(file, "endless").forever, 60))


ENDLESS = """
def spin(n: int) -> int:
    while True:
        pass


def forever(n: int) -> None:
    assert n >= 0
    m = spin(1)
    assert m >= 0
"""


def leave(unit: Unit) -> Answer:
    """Ask about a claim during which the process ends itself as if all were well."""

    def said(unit: Unit) -> Said:
        raise SystemExit(0)

    work._said = said
    return work.answer(unit)


def odd_error(unit: Unit) -> Answer:
    """Raise what cannot be sent to another process."""
    raise ZeroDivisionError(lambda: unit)


def last_waits(unit: Unit) -> Answer:
    """Answer all but the one with the fault `last`."""
    return forever(unit) if unit.fault == "last" else surroundings(unit)


def spin(unit: Unit) -> Answer:
    """Compute for ever, and say before that which process does."""
    print(os.getpid(), flush=True)
    while True:
        pass


PARENT = """
from kvproof.proofs import work
from kvproof.proofs.work import Unit
from tests.proofs import asked

if __name__ == "__main__":
    work.answer = asked.spin
    work.answers([Unit("geometry.ceiling_covers_and_is_least", "claim")], 1)
"""
"""A program whose only question never ends."""
