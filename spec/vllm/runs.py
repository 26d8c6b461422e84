"""One case: a script run in the process of a release, its recording followed and judged by the laws.

What the release does to its process (a hang, a crash, an exception) is part of the outcome, never an exception of ours.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from attrs import evolve, frozen

from kvproof.core.config import VLLM_0_33_0
from kvproof.core.profiles import Profile
from kvproof.spec.exits import UserError
from kvproof.spec.laws.base import Law
from kvproof.spec.traces import read
from kvproof.spec.traces.errors import ReplayError, TraceError
from kvproof.spec.traces.format import Config
from kvproof.spec.traces.read import Recording
from kvproof.spec.vllm import follow as following
from kvproof.spec.vllm import scripts
from kvproof.spec.vllm.process import ReleaseFailure, ReleaseHung, ReleaseRaised, ReleaseUnusable, raised_at, raising
from kvproof.spec.vllm.scope_parts import Scope
from kvproof.spec.vllm.scripts import Script

LIVENESS = "LV-9"
"""The law that a hang, a crash and an exception break: what may be done returns without an error."""


FOLLOWED = VLLM_0_33_0
"""The profile that predicts what a recording does not say, and that explains known deviations."""

OLD_TAIL = evolve(FOLLOWED, name=f"{FOLLOWED.name} with prompt_tail = P", prompt_tail="P")
"""That of older releases: T9.2 took the tail of a prompt from all of its tokens, not from all but the last."""
FIRST_NEW_TAIL = (0, 32)
NUMBERS = re.compile(r"(\d+)\.(\d+)")


def followed(version: str) -> Profile:
    """Return the profile under which a release is followed; what has no number is taken for new."""
    found = NUMBERS.match(version)
    return OLD_TAIL if found and (int(found[1]), int(found[2])) < FIRST_NEW_TAIL else FOLLOWED


class Runner(Protocol):
    """What runs scripts: `process.ReleaseProcess`, or a stand-in for it."""

    def run(self, config: Mapping[str, Any], script: Sequence[Any], **options: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the lines of the recording, at last ``{"end": ...}``. Raises ReleaseFailure."""
        ...


@frozen(slots=True)
class Case:
    """A script under a scope. ``origin`` says how it came about, as options of the command: a seed, or a file."""

    scope: Scope
    script: Script
    origin: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the case as JSON values, for `from_json`."""
        return {
            "format": "kvproof-conform-case",
            "version": 1,
            "scope": self.scope.name,
            "config": self.scope.header(),
            "script": scripts.as_json(self.script),
        }


@frozen(slots=True)
class Breach:
    """A law that did not hold: ``operation`` is the index of the recording's line, -1: the run as a whole.

    ``values``: expected, actual and the places, as text. ``bent``: a field of the followed profile
    explains it. ``exact``: the model under that profile had predicted everything up to here. ``moment``: the place of the
    action in the run (-1: the run as a whole); a law is judged once per moment and may say several things about it.
    """

    law: str
    operation: int
    message: str
    values: tuple[tuple[str, str], ...] = ()
    bent: bool = False
    exact: bool = False
    moment: int = -1


@frozen(slots=True)
class Outcome:
    """What came of one case; all of it can be sent between processes.

    ``steps``: scheduler steps. ``premises``: per law how often it was judged; ``hidden``: (law, what) -> how often it was not,
    for what was hidden. ``differences``: kinds of what the release did and the model does not predict, with counts, no
    violation by themselves; ``difference``: the first. ``unsupported``: why the release cannot run the scope at all.
    ``failure``: how the release ended the run early (an exception's text with its ``traceback``, a hang, a crash), ``refused``:
    why the model does not allow what was done there either. ``problem``: why the run could not be recorded or followed to its
    end. ``lines``: the recording, kept where it is asked for.
    """

    case: Case
    steps: int = 0
    operations: int = 0
    premises: Mapping[str, int] = {}
    hidden: Mapping[tuple[str, str], int] = {}
    differences: Mapping[str, int] = {}
    difference: str = ""
    breaches: tuple[Breach, ...] = ()
    unsupported: str = ""
    failure: str = ""
    traceback: str = ""
    refused: str = ""
    problem: str = ""
    lines: bytes = b""

    def broken(self, law: str) -> Breach | None:
        """Return the first breach of a law."""
        return next((breach for breach in self.breaches if breach.law == law), None)


Play = Callable[[Case], Outcome]


def from_json(data: bytes, name: str) -> Case:
    """Read a case as `Case.as_json` writes it; ``name`` is what messages call it. Raises UserError."""
    try:
        found = msgspec.json.decode(data, type=_CaseFile)
    except msgspec.MsgspecError as error:
        raise UserError(f"{name}: {error}; a file of `kvproof conform vllm --report DIR` is needed") from error
    if (found.format, found.version) != ("kvproof-conform-case", 1):
        raise UserError(f"{name}: is {found.format!r} version {found.version}, need 'kvproof-conform-case' version 1")
    return Case(Scope(found.scope, found.config), scripts.checked(found.script), f"--script {name}")


class _CaseFile(msgspec.Struct, frozen=True):
    format: str
    version: int
    scope: str
    config: Config
    script: list[Any]


def play(runner: Runner, case: Case, laws: Sequence[Law], *, keep: bool = False, profile: Profile = FOLLOWED) -> Outcome:
    """Run a case and judge it. ``keep``: the outcome has the recording's lines.

    Raises ReleaseUnusable where the release cannot be driven at all.
    """
    outcome, lines = recorded(runner, case)
    if not lines or outcome.unsupported:
        return outcome
    text = b"".join(line.encode() + b"\n" for line in lines)
    kept = text if keep else b""
    try:
        recording = read.read_bytes(text, case.scope.name, check_sizes=False)
    except TraceError as error:
        return evolve(outcome, problem=f"its recording cannot be read: {error}", lines=kept)
    return evolve(_judged(outcome, recording, laws, profile), lines=kept)


def recorded(runner: Runner, case: Case) -> tuple[Outcome, list[str]]:
    """Run a case and return its outcome without any verdict of the laws, and the lines of the recording."""
    lines: list[str] = []
    outcome = Outcome(case)
    try:
        for answer in runner.run(case.scope.header(), scripts.as_json(case.script), call_states=True):
            if "line" in answer:
                lines.append(str(answer["line"]))
            else:
                outcome = _ended(outcome, answer["end"])
    except ReleaseUnusable:
        raise
    except ReleaseRaised as failure:
        return evolve(outcome, unsupported=raised_at(failure.text, failure.traceback)), []
    except ReleaseFailure as failure:
        how = "hung" if isinstance(failure, ReleaseHung) else "crashed"
        breach = Breach(LIVENESS, len(lines) - 1, f"the process {how}: {failure.what}", (("after", f"{len(lines)} lines"),))
        return evolve(outcome, breaches=(breach,), premises={LIVENESS: 1}, failure=failure.what), []
    return outcome, lines


def _ended(outcome: Outcome, end: Mapping[str, Any]) -> Outcome:
    """Return the outcome with what the process says at the end of a run."""
    return evolve(
        outcome,
        steps=int(end.get("steps", 0)),
        unsupported=str(end.get("unsupported", "")),
        failure=str(end.get("raised", "")),
        traceback=str(end.get("traceback", "")),
        problem=str(end.get("problem", "")),
    )


def _judged(outcome: Outcome, recording: Recording, laws: Sequence[Law], profile: Profile) -> Outcome:
    try:
        followed = following.follow(recording, laws, profile)
    except ReplayError as error:
        return evolve(outcome, problem=str(error))
    first = min((difference.operation for difference in followed.differences), default=len(recording.operations))
    breaches = [
        Breach(
            found.law,
            found.operation,
            found.violation.evidence.message,
            (*((name, _text(value)) for name, value in found.violation.evidence.values), *_raising(found, outcome)),
            found.violation.bent,
            (found.operation if found.operation >= 0 else len(recording.operations) - 1) < first,
            found.violation.position,
        )
        for found in followed.violations
    ]
    return evolve(
        outcome,
        operations=len(recording.operations),
        premises=dict(followed.premises),
        hidden={(law, what): count for law, reasons in followed.hidden.items() for what, count in reasons.items()},
        differences=dict(followed.counts),
        difference=str(followed.differences[0]) if followed.differences else "",
        breaches=tuple(breaches),
        refused=followed.refused,
        problem=outcome.problem or followed.ended,
    )


def _raising(found: following.Found, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Yield which function of the release raised what ended the run, and its statement: a recording has neither.

    Two exceptions of one type and without a message differ by nothing else.
    """
    if found.law != LIVENESS or not any(name == "raised" for name, _ in found.violation.evidence.values):
        return
    by, statement = raising(outcome.traceback)
    if by:
        yield "raised_by", by
    if statement:
        yield "statement", statement


def _text(value: object, most: int = 2000) -> str:
    text = repr(value)
    return text if len(text) <= most else text[:most] + "..."


def packed(lines: bytes) -> bytes:
    """Return a recording as its file is written: gzip without a time, so the same recording gives the same bytes."""
    return gzip.compress(lines, 9, mtime=0)
