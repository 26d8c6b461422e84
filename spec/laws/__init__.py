"""The laws, one module per family; no law imports the code it judges."""

from __future__ import annotations

from kvproof.spec import near
from kvproof.spec.exits import UserError
from kvproof.spec.laws import (
    boundaries,
    capability,
    contents,
    copies,
    counters,
    demand,
    draining,
    equivalences,
    events,
    eviction,
    forgetting,
    handoffs,
    hits,
    host_pool,
    host_queue,
    liveness,
    loads,
    metadata,
    native,
    outputs,
    pool,
    registering,
    requests,
    rows,
    scaling,
    states,
    stores,
    tables,
    transfers,
)
from kvproof.spec.laws.base import Law

FAMILIES: dict[str, str] = {
    "TB": "Block tables",
    "HB": "Hash boundaries",
    "DS": "DCP scaling",
    "COW": "Copy-on-write",
    "HO": "Handoffs",
    "IP": "Index-parallel metadata",
    "PC": "Pool conservation",
    "CP": "Host pool",
    "LD": "Load mapping",
    "CA": "Capability and divergence",
    "CC": "Content correctness",
    "CN": "Counters",
    "LV": "Liveness",
    "RQ": "Requests",
    "EV": "Events",
}
"""The families in the order of docs/semantics.md, section 5."""


def _in_order(laws: tuple[Law, ...]) -> tuple[Law, ...]:
    families = list(FAMILIES)

    def place(law: Law) -> tuple[int, int]:
        family, _, number = law.id.partition("-")
        return families.index(family), int(number)

    return tuple(sorted(laws, key=place))


ALL: tuple[Law, ...] = _in_order(
    (
        *tables.LAWS,
        *states.LAWS,
        *rows.LAWS,
        *boundaries.LAWS,
        *registering.LAWS,
        *hits.LAWS,
        *capability.LAWS,
        *scaling.LAWS,
        *native.LAWS,
        *equivalences.LAWS,
        *copies.LAWS,
        *demand.LAWS,
        *handoffs.LAWS,
        *stores.LAWS,
        *metadata.LAWS,
        *pool.LAWS,
        *eviction.LAWS,
        *forgetting.LAWS,
        *host_queue.LAWS,
        *host_pool.LAWS,
        *loads.LAWS,
        *contents.LAWS,
        *transfers.LAWS,
        *counters.LAWS,
        *outputs.LAWS,
        *liveness.LAWS,
        *draining.LAWS,
        *requests.LAWS,
        *events.LAWS,
    )
)
"""Every law, by family and number."""


def by_id(law: str) -> Law:
    """Return the law of this id. Raises UserError that names the nearest ones and the command that lists all."""
    for known in ALL:
        if known.id == law:
            return known
    raise UserError(near.unknown("law", law, [known.id for known in ALL], "kvproof laws"))


def family(name: str) -> tuple[Law, ...]:
    """Return the laws of the family of these letters, in any case (`HO`: HO-1 and on); none if there is no such family."""
    return tuple(law for law in ALL if law.id.partition("-")[0].casefold() == name.casefold())
