"""The two rules of generation itself, judged at every moment: legal actions return, illegal ones are refused cleanly."""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.spec import judge as judges
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence, Moment

TOTALITY = "LV-9"
GUARD = "GUARD"

SENTENCES = {
    TOTALITY: "An action whose precondition holds returns without an error.",
    GUARD: "An action whose precondition does not hold is refused with a typed error and changes nothing.",
}


def violations(moment: Moment, legal: bool, found: Sequence[Violation], position: int) -> list[Violation]:
    """Judge a moment by the rule that its action falls under.

    ``legal`` says from which list the action came; ``found`` are the laws' own violations of this moment, which make
    the rule of totality superfluous.
    """
    refusal = moment.refusal
    name = type(moment.action).__name__
    if legal:
        if refusal is None or (found and judges.is_internal(refusal)):
            return []
        evidence = Evidence.of(f"{name} is legal here and is refused: {refusal}", code=refusal.code)
        return [Violation(TOTALITY, position, evidence)]
    if refusal is None:
        return [Violation(GUARD, position, Evidence.of(f"{name} must be refused here and is accepted"))]
    if judges.is_internal(refusal):
        text = f"{name} must be refused by a guard and fails inside: {refusal}"
        return [Violation(GUARD, position, Evidence.of(text, code=refusal.code))]
    if moment.after is not moment.before and moment.before.config.profile.append_guard == "all_groups":
        text = f"{name} is refused and leaves a changed world"
        return [Violation(GUARD, position, Evidence.of(text, code=refusal.code))]
    return []
