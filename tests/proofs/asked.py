"""What worker processes do in the tests of the runner, instead of asking a prover."""

from __future__ import annotations

import os
import signal
import tempfile
import threading

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


def last_waits(unit: Unit) -> Answer:
    """Answer all but the one named `last`."""
    return forever(unit) if unit.claim == "last" else surroundings(unit)
