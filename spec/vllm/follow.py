"""Judge a recording of any release by the laws to its end, whatever differs from the model on the way.

A replay ends where the model predicts something else. A follower takes over what was recorded and goes on: differences are
information, the laws decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from attrs import define, evolve, field, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import VLLM_0_33_0, Config, Profile
from kvproof.core.errors import ConfigError, Refusal
from kvproof.core.offload.state import Load, Stage, Store
from kvproof.core.world import new_world
from kvproof.spec.conformance import watching
from kvproof.spec.conformance.adapter import AdapterError, Geometry, Shows
from kvproof.spec.conformance.hidden import NotShown
from kvproof.spec.conformance.oracle import Oracle
from kvproof.spec.conformance.watching import Playback
from kvproof.spec.engines import twins
from kvproof.spec.judge import Judge, Violation, attempt, describe_crash, is_internal
from kvproof.spec.laws import events
from kvproof.spec.laws.base import Evidence, Law
from kvproof.spec.traces import project
from kvproof.spec.traces.errors import ReplayError
from kvproof.spec.traces.following import Following, Noted
from kvproof.spec.traces.format import Config as RecordedConfig
from kvproof.spec.traces.read import Operation, Recording
from kvproof.spec.traces.scheduler import Scheduler, recorded_samples
from kvproof.spec.vllm import windows

SHOWN = frozenset(Shows) - {Shows.ROWS, Shows.EVENTS}
"""What a recording of a scheduler shows; cache events only where they are on."""

INTERNAL_ERRORS = "LV-9"
"""The law that an exception of the engine breaks."""


@frozen(slots=True)
class Found:
    """A violation, and the operation of the recording in which it was seen (-1: the configuration or the run as a whole)."""

    violation: Violation
    operation: int
    op: str

    @property
    def law(self) -> str:
        """The id of the law."""
        return self.violation.law


@define(slots=True)
class Followed:
    """What came of one recording.

    ``differences`` are the first values that the model predicts otherwise and ``counts`` all of them by kind: information, no
    violation. ``premises`` counts how often each law was judged, ``hidden`` what it would have needed to see, ``unjudged`` says
    why it could not be judged at all. ``raised`` is the exception with which the engine ended the recording, ``refused`` why
    the model refuses that operation, too (empty: it does not, or cannot tell). ``ended`` says why the recording could not be
    followed to its end, empty if it was.
    """

    recording: str
    config: Config
    operations: int = 0
    violations: list[Found] = field(factory=list)
    differences: list[Noted] = field(factory=list)
    counts: Counter[str] = field(factory=Counter)
    premises: Counter[str] = field(factory=Counter)
    hidden: dict[str, Counter[str]] = field(factory=dict)
    unjudged: dict[str, str] = field(factory=dict)
    actions: list[Action] = field(factory=list)
    declared: Counter[str] = field(factory=Counter)
    raised: str | None = None
    refused: str = ""
    ended: str = ""

    @property
    def refuted(self) -> list[Found]:
        """The violations that no field of the profile explains."""
        return [found for found in self.violations if not found.violation.bent]


def follow(recording: Recording, laws: Sequence[Law], profile: Profile = VLLM_0_33_0) -> Followed:
    """Judge a scheduler-level recording by laws; ``profile`` predicts what was not recorded.

    Raises ReplayError if the model does not cover the recording's configuration.
    """
    reason = project.uncovered(recording.header)
    if reason is None and recording.header.engine.level != "scheduler":
        reason = f"recordings at {recording.header.engine.level} level when following"
    if reason is not None:
        raise ReplayError(f"{recording.name}: the model does not cover {reason} yet")
    try:
        config = project.model_config(recording.header, profile)
    except ConfigError as error:
        raise ReplayError(f"{recording.name}: the recorded configuration is not legal: {error}") from error
    shows = SHOWN | ({Shows.EVENTS} if config.events else frozenset())
    oracle = Oracle(laws, config, shows, partial=True)
    start = oracle.shadow.world
    driver = Following(recording.name, config, Judge(()), early_outputs=False, oracle=oracle)
    for name, expected, recorded in project.resolved_differences(config, recording.config):
        driver.differ(name, expected, recorded)
    try:
        oracle.configuration(recorded_geometry(recording.config))
    except AdapterError as error:
        raise ReplayError(f"{recording.name}: the sizes in its header cannot be read: {error}") from error
    outcome = Followed(recording.name, config)
    performer = Scheduler(driver, recording.config, recorded_samples(recording))
    _perform(performer, recording, outcome)
    _leave_out(driver)
    _judge_events(driver, recording)
    _judge_run(driver, recording, Playback(start, [watching.completed(moment) for moment in driver.moments]), outcome)
    _judge_exception(driver, recording, outcome)
    _unbend(driver, recording)
    _collect(driver, recording, outcome)
    return outcome


def recorded_geometry(config: RecordedConfig) -> Geometry:
    """Return the sizes that the engine resolved, as its header has them."""
    return Geometry(
        sizes=tuple(config.group_block_sizes),
        scheduler_block_size=config.scheduler_block_size,
        fine_grained=config.fine_grained_hits,
    )


def _perform(performer: Scheduler, recording: Recording, outcome: Followed) -> None:
    """Perform all operations. What cannot be followed ends this, and the outcome says why."""
    driver = performer.driver
    for operation, inside, end in recording.states_of_calls():
        driver.index = operation.index
        try:
            if operation.raised is not None:
                outcome.raised = operation.raised
                outcome.refused = refused(performer, operation)
                return
            assert end is not None
            performer.perform(operation, inside, end)
            performer.compare(end)
        except (ReplayError, AdapterError) as error:
            outcome.ended = f"operation {operation.index} ({operation.op}): {error}"
            return
        except Exception as error:  # a follower that fails must not pass for a run that holds
            outcome.ended = f"operation {operation.index} ({operation.op}) cannot be followed: {describe_crash(error)}"
            return
        outcome.operations += 1


def _unbend(driver: Following, recording: Recording) -> None:
    """Take back that a profile explains a violation, where the model under that profile does not break the law in the same run.

    A field of the profile that bends a law says how one release breaks it; another one may break it in its own way.
    """
    oracle = driver.oracle
    bent = [finding for finding in oracle.findings() if any(violation.bent for violation in finding.violations)]
    if not bent or not driver.counts:
        return
    moments = list(twins.moments(driver.config, driver.actions))
    judge = Judge([finding.law for finding in bent])
    broken = {found.law for at, moment in enumerate(moments) for found in judge.moment(moment, at)}
    run = Playback(new_world(driver.config), moments)
    for finding in bent:
        if finding.law.id in broken or _broken_by(finding.law, driver.config, run, at_rest(recording)):
            continue
        finding.violations[:] = [evolve(violation, bent=False) for violation in finding.violations]


def _broken_by(law: Law, config: Config, run: Playback, rest: bool) -> bool:
    """Tell whether the model's own run breaks a law of whole runs."""
    if law.check_run is None and law.check_end is None:
        return False
    try:
        return bool(watching.judge_run(law, config, run, rest))
    except Exception:  # the run led to a state of which the law makes no sense, so it says nothing
        return False


def _collect(driver: Following, recording: Recording, outcome: Followed) -> None:
    """Put together what the oracle found, and in which operations."""
    ops = [operation.op for operation in recording.operations]
    for finding in driver.oracle.findings():
        law = finding.law.id
        outcome.premises[law] += finding.judged
        if finding.hidden:
            outcome.hidden[law] = finding.hidden
        if finding.unjudged:
            outcome.unjudged[law] = finding.unjudged
        for violation in finding.violations:
            place = -1 if violation.position < 0 else (*driver.places, len(ops) - 1)[violation.position]
            outcome.violations.append(Found(violation, place, ops[place] if place >= 0 else ""))
    outcome.violations.sort(key=lambda found: found.violation.position)
    outcome.differences, outcome.counts = driver.noted, driver.counts
    outcome.actions, outcome.declared = driver.actions, driver.met


def _leave_out(driver: Following) -> None:
    """Leave laws undetermined that need what a recording does not say of an engine whose own way this is."""
    for kind, ids in UNSAID.items():
        times = sum(count for name, count in driver.counts.items() if name.rpartition(".")[2] == kind)
        for law in driver.oracle.laws if times else ():
            if law.id in ids:
                finding = driver.oracle.finding(law.id)
                finding.violations.clear()
                finding.hidden[f"{kind}, table by table"] += times


UNSAID: dict[str, frozenset[str]] = {"deferred frees": frozenset({"PC-12"})}
"""Kinds of differences, and the laws that need more about them than a recording says: from which tables blocks come that wait
to be freed, and what else than a step they wait for.
"""


# --- events ---------------------------------------------------------------------------------------------------------------


def _judge_events(driver: Following, recording: Recording) -> None:
    """Where other events were handed out than the model announced, judge their sum in place of every action's."""
    oracle = driver.oracle
    known = {law.id: oracle.finding(law.id) for law in oracle.laws if law.id in EVENT_LAWS}
    if not driver.config.events or not driver.announced or not known:
        return
    for window in windows.windows(recording):
        within = range(window.first, window.last + 1)
        if not driver.announced.intersection(within):
            continue
        for finding in known.values():
            kept = [found for found in finding.violations if driver.places[found.position] not in within]
            finding.violations[:] = kept
            finding.hidden[windows.HIDDEN] += 1
        if windows.SUM in known:
            last = max((at for at, place in enumerate(driver.places) if place in within), default=-1)
            oracle.add(windows.SUM, windows.replayed(window), last)


EVENT_LAWS = frozenset(law.id for law in events.LAWS)


# --- whole runs -----------------------------------------------------------------------------------------------------------


def _judge_run(driver: Following, recording: Recording, run: Playback, outcome: Followed) -> None:
    """Judge the run as a whole by the laws that can be, in the form that only watches."""
    oracle = driver.oracle
    rest = not outcome.ended and outcome.raised is None and at_rest(recording)
    for law in oracle.laws:
        if law.check_run is None and law.check_end is None:
            continue
        if law.id in EVENT_LAWS and driver.config.events and driver.announced:
            oracle.finding(law.id).hidden[windows.HIDDEN] += 1
            continue
        try:
            findings = watching.judge_run(law, driver.config, run, rest)
        except NotShown as missing:
            oracle.finding(law.id).hidden[missing.what] += 1
            continue
        except Exception as error:  # as the oracle does: the run led to a state of which a law makes no sense
            oracle.finding(law.id).hidden[f"a run that it can make sense of ({type(error).__name__}: {error})"] += 1
            continue
        if findings is not None:
            oracle.add(law.id, findings)
        if law.check is None:
            oracle.cannot(law.id, "" if findings is not None else watching.why_not(law, rest))


def at_rest(recording: Recording) -> bool:
    """Tell whether a recording ends at rest: no request lives, every step is updated, every transfer that was announced is
    complete, and a step was made behind all of this that had nothing to do.

    Of the script alone: what the engine still holds then, it holds for ever.
    """
    live: set[str] = set()
    steps: set[int] = set()
    stores: dict[int, int] = {}
    loads: set[str] = set()
    idle = False
    host = recording.config.host
    for operation in recording.operations:
        op, args, result = operation.op, operation.args, operation.result
        if operation.raised is not None:
            return False
        if op != "update":
            idle = False
        if op == "submit":
            live.add(args.request)
        elif op == "step":
            steps.add(operation.index)
            if result.store is not None and host is not None:
                stores[result.store.event] = host.workers
            if result.load is not None:
                loads.update(result.load.requests)
            idle = not (result.scheduled or result.store or result.load)
        elif op == "update":
            steps.discard(args.step)
            live.difference_update(result.finished)
            idle = idle and not result.finished
        elif op == "abort":
            live.discard(args.request)
        elif op == "complete_store" and args.event in stores:
            stores[args.event] -= args.acks
        elif op == "complete_load":
            loads.discard(args.request)
    return idle and not (live or steps or loads or any(left > 0 for left in stores.values()))


# --- an exception of the engine -------------------------------------------------------------------------------------------


def _judge_exception(driver: Following, recording: Recording, outcome: Followed) -> None:
    """Report the exception that ended a recording, unless the model does not allow that operation either (LV-9)."""
    if outcome.raised is None or outcome.refused or not any(law.id == INTERNAL_ERRORS for law in driver.oracle.laws):
        return
    last = recording.operations[-1]
    values = (
        ("operation", last.index),
        ("op", last.op),
        ("raised", outcome.raised),
        ("model", MODEL_VIEW.get(last.op, PERFORMS)),
    )
    driver.oracle.add(
        INTERNAL_ERRORS, [Evidence("the engine ends in an exception", values, bendable=False)], len(driver.actions)
    )


PERFORMS = "the model performs this operation"
MODEL_VIEW: Mapping[str, str] = {"step": "which calls the step had made is not recorded"}


def refused(performer: Scheduler, operation: Operation) -> str:
    """Say why the model does not allow an operation in which the engine raised; empty if it does, or cannot tell."""
    world = performer.driver.world
    for action in _attempted(performer, operation):
        if isinstance(action, str):
            return action
        moment = attempt(world, action)
        if moment.refusal is not None:
            return "" if is_internal(moment.refusal) else _words(action, moment.refusal)
        world = moment.after
    return ""


def _words(action: Action, refusal: Refusal) -> str:
    return f"{action}: {refusal}"


def _attempted(performer: Scheduler, operation: Operation) -> Iterator[Action | str]:
    """Yield the actions of an operation as far as its arguments alone give them; a text says why there are none."""
    driver, args = performer.driver, operation.args
    name = getattr(args, "request", None)
    if operation.op in ("abort", "complete_load") and name not in driver.ids:
        yield f"request {name} was never submitted"
    elif operation.op == "submit":
        yield act.Submit(len(driver.ids), tuple(args.tokens))
    elif operation.op == "abort":
        yield act.Finish(driver.ids[args.request])
    elif operation.op == "complete_load":
        yield from (act.RunLoad(event) for event in _not_copied(driver.host.loads))
        yield act.CompleteLoad(driver.ids[args.request])
    elif operation.op == "complete_store":
        yield from (act.RunStore(event) for event in _not_copied(driver.host.stores) if event <= args.event)
        yield act.CompleteStore(args.event, args.acks)
    elif operation.op == "update" and not performer.awaited:
        yield "no step waits for its update"
    elif operation.op == "update":
        for request in performer.awaited[0].requests:
            yield act.Output(request, tuple(args.sampled.get(driver.name_of(request), ())))


def _not_copied(transfers: Sequence[Load | Store]) -> list[int]:
    """Return the events of transfers that were handed to the worker and whose bytes did not move yet, the oldest first."""
    return sorted({transfer.event for transfer in transfers if transfer.stage is Stage.SUBMITTED})
