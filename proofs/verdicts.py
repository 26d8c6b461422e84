"""What a prover says of a claim, a lemma, or one of their twins."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class Verdict(StrEnum):
    """Confirmed: true for everything within the bounds. Undetermined is never a pass."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    RAISED = "raised"
    """Something that the claim calls raised instead of answering."""
    UNDETERMINED = "undetermined"


@frozen(slots=True)
class Said:
    """A verdict, and in ``detail`` the counterexample or the prover's words. ``seconds`` of processor time are no result."""

    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0
