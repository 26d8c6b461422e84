"""What was covered, scope by scope: the sizes of a graph, what was reached in it, and how often each law was asked.

A certificate is a plain value with an exact JSON form. It says what the bounds of its scope leave out, so that nobody reads
more into a pass than was explored.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import attrs
import msgspec
from attrs import frozen

from kvproof.core.config import Config
from kvproof.spec import counterexample as examples
from kvproof.spec.engines import witnesses
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.search import Explored

End = Literal["complete", "depth", "edges", "violation", "sampled", "refused"]

ENDS: dict[str, str] = {
    "complete": "every behaviour within the bounds was seen",
    "depth": "every behaviour of so many actions was seen",
    "edges": "the search was given up, larger than it may be",
    "violation": "the search ended with a violation",
    "sampled": "random runs: nothing was exhausted",
    "refused": "a planted fault makes the configuration illegal: there is nothing to explore",
}


@frozen(slots=True)
class Certificate:
    """What a search of one scope covered.

    ``settings`` are the arguments of ``configure`` and ``bounds`` the budgets of a run; ``leaves_out`` says what no run does.
    ``laws`` are the ids that were judged. ``levels`` are the orbits first reached after so many actions, ``depth`` the last of
    them; ``kinds`` counts edges by action. ``key_bytes`` is the sum over all orbits. ``witnesses`` maps a situation to the
    number of actions after which it was first reached, ``premises`` a law to how often it was judged. ``runs`` are the whole
    runs that were judged, ``refusals`` the attempts that had to be refused, ``closed`` the worlds in which liveness was judged
    (0: nothing is owed). ``worlds`` are the worlds that the orbits stand for, if they were counted: without the quotient by
    names. Of random runs, ``orbits`` are the distinct ones.
    """

    scope: str
    fault: str
    profile: str
    settings: dict[str, Any]
    bounds: dict[str, Any]
    leaves_out: tuple[str, ...]
    laws: tuple[str, ...]
    end: End
    orbits: int
    edges: int
    depth: int
    levels: tuple[int, ...]
    kinds: dict[str, int]
    key_bytes: int
    witnesses: dict[str, int]
    premises: dict[str, int]
    runs: int
    refusals: int
    closed: int
    worlds: int | None = None

    @property
    def not_reached(self) -> tuple[str, ...]:
        """The situations that no edge showed."""
        return tuple(name for name in witnesses.NAMES if name not in self.witnesses)

    @property
    def never(self) -> tuple[str, ...]:
        """The laws whose premise was never true."""
        return tuple(law for law in self.laws if not self.premises.get(law))

    @property
    def bytes_per_orbit(self) -> float:
        """The mean size of a key, before it is digested."""
        return self.key_bytes / self.orbits if self.orbits else 0.0

    @property
    def whole(self) -> bool:
        """Tell whether everything within the bounds was seen, so that the counts say something about the model."""
        return self.end in ("complete", "depth")


def certify(
    scope: str, fault: str, config: Config, bounds: Bounds, laws: tuple[str, ...], explored: Explored, end: End | None = None
) -> Certificate:
    """Make the certificate of a search; ``laws`` are the ids that were judged."""
    graph = explored.graph
    return Certificate(
        scope=scope,
        fault=fault,
        profile=config.profile.name,
        settings=_plain(examples.settings_of(config)),
        bounds=bounds_as_dict(bounds),
        leaves_out=bounds.leaves_out(config),
        laws=laws,
        end=end or explored.end,
        orbits=len(graph),
        edges=graph.edges,
        depth=max(graph.depths, default=0),
        levels=tuple(explored.levels),
        kinds=dict(sorted(explored.kinds.items())),
        key_bytes=graph.key_bytes,
        witnesses={name: explored.witnesses[name] for name in witnesses.NAMES if name in explored.witnesses},
        premises={law: explored.premises.get(law, 0) for law in laws},
        runs=explored.runs,
        refusals=explored.refusals,
        closed=explored.closed,
    )


def bounds_as_dict(bounds: Bounds) -> dict[str, Any]:
    """Return bounds as JSON knows them, kinds of action by name."""
    named = {kind.__name__: count for kind, count in bounds.at_most.items()}
    fields = {field.name: getattr(bounds, field.name) for field in attrs.fields(Bounds) if field.name != "at_most"}
    return _plain({**fields, "at_most": dict(sorted(named.items()))})


def _plain(value: object) -> dict[str, Any]:
    """Return a value as it comes back from JSON."""
    plain: dict[str, Any] = json.loads(msgspec.json.encode(value))
    return plain


def as_dict(certificate: Certificate) -> dict[str, Any]:
    """Return the JSON form; what follows from the rest (not reached, never judged, bytes of a key) is said, too."""
    found = _plain(certificate)
    found["not_reached"] = list(certificate.not_reached)
    found["premise_never_true"] = list(certificate.never)
    found["bytes_per_orbit"] = round(certificate.bytes_per_orbit, 1)
    return found


def from_dict(document: object) -> Certificate:
    """Read the JSON form. Raises ValueError that names the first wrong field."""
    made = msgspec.convert(document, Certificate)  # a ValidationError is a ValueError
    if as_dict(made) != document:
        raise ValueError("fields that follow from others do not agree with them")
    return made


def merged_premises(certificates: list[Certificate]) -> dict[str, int]:
    """Return per law how often it was judged in all of them."""
    total: dict[str, int] = {}
    for certificate in certificates:
        for law, count in certificate.premises.items():
            total[law] = total.get(law, 0) + count
    return total


def merged_witnesses(certificates: list[Certificate]) -> dict[str, int]:
    """Return per situation the least number of actions after which one of them reached it."""
    least: dict[str, int] = {}
    for certificate in certificates:
        for name, depth in certificate.witnesses.items():
            least[name] = min(depth, least.get(name, depth))
    return {name: least[name] for name in witnesses.NAMES if name in least}
