"""The laws, one module per family; no law imports the code it judges."""

from __future__ import annotations

from kvproof.spec.exits import UserError
from kvproof.spec.laws import boundaries, contents, copies, handoffs, liveness, pool, scaling, tables
from kvproof.spec.laws.base import Law

ALL: tuple[Law, ...] = (
    *tables.LAWS,
    *boundaries.LAWS,
    *scaling.LAWS,
    *copies.LAWS,
    *handoffs.LAWS,
    *pool.LAWS,
    *contents.LAWS,
    *liveness.LAWS,
)
"""Every law, in the order of the families in docs/semantics.md, section 5."""


def by_id(law: str) -> Law:
    """Return the law of this id. Raises UserError that lists the known ones."""
    for known in ALL:
        if known.id == law:
            return known
    raise UserError(f"no law {law!r}; known: {', '.join(known.id for known in ALL)}")
