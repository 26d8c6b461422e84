"""What an exploration came to: one verdict with three values, and everything that keeps it from holding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import define, field, frozen

from kvproof.spec import counterexample as examples
from kvproof.spec import distribution, faults
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import witnesses
from kvproof.spec.exits import ExitCode
from kvproof.spec.exploring import certificate as certificates
from kvproof.spec.exploring import kills, pins, scopes
from kvproof.spec.exploring.jobs import Asked, Done
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.exploring.pins import Difference, Pin


@frozen(slots=True)
class Killed:
    """How one fault was found (None: it was not), how many edges that took, and what is pinned for it."""

    fault: str
    kill: Kill | None
    edges: int
    seconds: float
    pinned: Kill | None

    @property
    def as_pinned(self) -> bool:
        """Tell whether the fault was found, and as the table says."""
        return self.kill is not None and self.kill == self.pinned


@define(slots=True)
class Result:
    """Everything that the jobs came to, in their order, and the pins that they are compared with."""

    asked: Asked
    done: list[Done]
    pinned: Mapping[str, Pin] = field(factory=dict)
    kills: Mapping[str, Kill] = field(factory=dict)

    @property
    def whole(self) -> bool:
        """Tell whether the whole catalogue was explored, so that what nothing reached is a finding."""
        return self.asked.which == "catalogue" and self._whole_set

    @property
    def _whole_set(self) -> bool:
        """Tell whether a set of scopes was explored from end to end."""
        asked = self.asked
        return asked.which != "quick" and not (
            asked.scopes or asked.fault or asked.every_fault or asked.runs or asked.depth is not None
        )

    @property
    def found(self) -> list[Counterexample]:
        """All counterexamples, the shortest first; those of one length in the order of the jobs."""
        every = [done.example for done in self.done if done.example is not None]
        return sorted(every, key=lambda example: len(example.actions))

    @property
    def premises(self) -> dict[str, int]:
        """Per law how often it was judged, over all scopes."""
        return certificates.merged_premises([done.certificate for done in self.done])

    @property
    def witnesses(self) -> dict[str, int]:
        """Per situation the least number of actions after which a scope reached it."""
        return certificates.merged_witnesses([done.certificate for done in self.done])

    @property
    def never(self) -> list[str]:
        """Laws whose premise was true in no scope: asked of the whole catalogue, and of laws that were named."""
        return [law for law, count in self.premises.items() if not count] if self.asks_premises else []

    @property
    def asks_premises(self) -> bool:
        """Tell whether a law that was never judged is a finding."""
        return not (self.asked.fault or self.asked.every_fault) and (self.whole or bool(self.asked.laws))

    @property
    def unreached(self) -> list[str]:
        """Situations that no scope reached; asked only of the whole catalogue."""
        seen = self.witnesses
        return [name for name in witnesses.NAMES if name not in seen] if self.whole else []

    @property
    def differences(self) -> list[Difference]:
        """Scopes whose graphs are not as pinned; pins without a scope are asked for where a whole set was explored."""
        compared = [done.certificate for done in self.done if done.of_scope]
        return pins.differences(compared, self.pinned, [scope.name for scope in scopes.every()] if self._whole_set else [])

    @property
    def given_up(self) -> list[str]:
        """Scopes whose search was given up."""
        return [done.job.name for done in self.done if done.certificate.end == "edges"]

    @property
    def killed(self) -> list[Killed]:
        """How each fault was found."""
        found = []
        for name in dict.fromkeys(done.job.fault for done in self.done if done.job.fault):
            searched = [done for done in self.done if done.job.fault == name]
            hits = [(len(done.example.actions), done.example) for done in searched if done.example is not None]
            best = min(hits, key=lambda hit: hit[0], default=None)
            kill = None if best is None else Kill(best[1].scope, best[1].law, best[0])
            edges = sum(done.certificate.edges for done in searched)
            seconds = sum(done.seconds for done in searched)
            found.append(Killed(name, kill, edges, seconds, self.kills.get(name)))
        return found

    @property
    def unpinned(self) -> list[str]:
        """Faults that the table of kills does not name; asked only when all faults are looked for."""
        if not self.asked.every_fault or self.asked.scopes:
            return []
        return [fault.id for fault in faults.ALL if fault.id not in self.kills]

    @property
    def problems(self) -> list[str]:
        """One line for everything that keeps an exploration from holding."""
        said = []
        if self.given_up:
            said.append(f"given up, too large: {', '.join(self.given_up)}")
        if self.never:
            said.append(f"premise true in no scope: {', '.join(self.never)}")
        if self.unreached:
            said.append(f"situations that no scope reaches: {', '.join(self.unreached)}")
        said += [f"not as pinned: {difference}" for difference in self.differences]
        if self.asked.every_fault:
            said += [f"not as pinned: {said_of(killed)}" for killed in self.killed if not killed.as_pinned]
        if self.unpinned:
            said.append(f"no scope is pinned for {', '.join(self.unpinned)}")
        return said

    @property
    def verdict(self) -> ExitCode:
        """Refuted by a counterexample; undetermined if something is not covered or not as pinned."""
        if self.asked.fault:
            return ExitCode.REFUTED if self.found else ExitCode.UNDETERMINED
        if self.found and not self.asked.every_fault:
            return ExitCode.REFUTED
        return ExitCode.UNDETERMINED if self.problems else ExitCode.HOLDS

    def verdict_of(self, done: Done) -> str:
        """Return the verdict of one scope."""
        if done.example is not None:
            return "refuted"
        differing = {difference.scope for difference in self.differences}
        if done.certificate.end == "edges" or (done.of_scope and done.certificate.scope in differing):
            return "undetermined"
        return "undetermined" if done.job.fault else "holds"


def said_of(killed: Killed) -> str:
    """Say how a fault was found and how it is pinned."""
    return f"{killed.fault}: {_said(killed.kill, 'not found')}, pinned {_said(killed.pinned, 'nowhere')}"


def _said(kill: Kill | None, none: str) -> str:
    return none if kill is None else f"{kill.law} in {kill.scope} after {kill.length} actions"


def of(asked: Asked, done: list[Done]) -> Result:
    """Return the result of jobs, compared with the pins and the table of kills."""
    return Result(asked, done, pins.every(), kills.table())


def as_dict(result: Result) -> dict[str, Any]:
    """Return everything for machines; the same question gives the same value."""
    document: dict[str, Any] = {
        "format": "kvproof-certificate",
        "version": 1,
        "kvproof": distribution.version(),
        "verdict": result.verdict.name.lower(),
        "problems": result.problems,
        "scopes": [{**certificates.as_dict(done.certificate), "verdict": result.verdict_of(done)} for done in result.done],
        "premises": result.premises,
        "premise_never_true": result.never if result.asks_premises else None,
        "witnesses": result.witnesses,
        "situations_never_reached": result.unreached if result.whole else None,
        "pins": [{"scope": one.scope, "pinned": _pin(one.pinned), "found": _pin(one.found)} for one in result.differences],
        "faults": [
            {"fault": one.fault, "found": _kill(one.kill), "pinned": _kill(one.pinned), "edges": one.edges}
            for one in result.killed
        ],
        "faults_without_a_scope": result.unpinned,
        "counterexamples": [json.loads(examples.dumps(example)) for example in result.found],
    }
    return document


def _pin(pin: Pin | None) -> dict[str, Any] | None:
    return None if pin is None else pins.as_dict(pin)


def _kill(kill: Kill | None) -> dict[str, Any] | None:
    return None if kill is None else {"scope": kill.scope, "law": kill.law, "length": kill.length}
