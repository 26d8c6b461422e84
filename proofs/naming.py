"""From a law to the claims and lemmas that name it: those that settle it, and those that say a part of it."""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.proofs import catalogue, exhausted
from kvproof.proofs.exhausted import Exhausted
from kvproof.spec import check, laws
from kvproof.spec.exits import UserError


def claims(names: Sequence[str], quick: bool) -> tuple[str, ...]:
    """Return the claims that name any of some laws, in the order of the catalogue, without the deep ones if ``quick``.

    A law may be named in any case, or by its family, of which some may have no claim. Raises UserError for an unknown law, and
    for one of which nothing that is asked says anything.
    """
    found: set[str] = set()
    for name in names:
        ids = [laws.by_id(law).id for law in check.named_laws([name])]
        naming = [one for one in catalogue.everything() if not set(ids).isdisjoint(one.about.laws)]
        if not naming:
            raise UserError(f"{name}: no claim or lemma names it; {'; '.join(_otherwise(law) for law in ids)}")
        asked = [one.name for one in naming if not (quick and one.about.deep)]
        if not asked:
            raise UserError(f"{name}: all claims that name it are deep, and --quick leaves out what is deep: leave --quick out")
        found |= set(asked)
    return tuple(one.name for one in catalogue.everything() if one.name in found)


def _otherwise(law: str) -> str:
    """Return what a law rests on that nothing is claimed of, and the command that asks for it."""
    known = exhausted.read().get(law, Exhausted(0, 0))
    if known.judged:
        scopes = "one scope" if known.scopes == 1 else f"{known.scopes} scopes"
        return f"{law} is exhausted, on all behaviours of {scopes}: kvproof explore --law {law}"
    return f"{law} is tested, by walks, Hypothesis and recordings: kvproof check --law {law}"
