"""Replay recordings operation by operation: does the profile predict everything, and do the laws hold on it?

A manager-level operation becomes one action or a few. The recorded driver counts a step's output as processed at
``end_step`` and appends the sampled tokens later; the model processes both at once. Until then ``in_flight`` differs:
``DECLARED`` lists this and every other difference between the recorded driver and the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import VLLM_0_33_0, Config, Profile
from kvproof.core.errors import ConfigError
from kvproof.core.records import Record
from kvproof.core.world import Status, World, new_world
from kvproof.spec.exits import UserError
from kvproof.spec.judge import Judge, Violation, attempt
from kvproof.spec.laws.base import Law
from kvproof.spec.traces import project
from kvproof.spec.traces.read import Operation, Recording

DECLARED: tuple[tuple[str, str], ...] = (
    (
        "requests.in_flight",
        "the recorded driver counts outputs as processed at end_step, the model when the sampled tokens arrive (T36)",
    ),
    (
        "preempt before the first allocation of a step",
        "recorded behind begin_step; for the model it happens between plans, as in a cache reset (T31)",
    ),
)
NO_TOKEN = (1 << 31) - 1
"""A token that no recording contains: the value of a draft that was rejected."""
PROFILE_OF_ENGINE: dict[tuple[str, str], Profile] = {("vllm", "0.33.0"): VLLM_0_33_0}


class ReplayError(UserError):
    """A recording cannot be replayed: its engine has no profile, or the model does not cover what it contains."""


@frozen(slots=True)
class Divergence:
    """The first place where the profile does not predict what was recorded.

    ``operation`` is -1 for the header. ``what`` names the field, ``expected`` is the model's value, ``recorded`` the
    engine's.
    """

    recording: str
    operation: int
    op: str
    what: str
    expected: object
    recorded: object
    differences: tuple[str, ...] = ()


@define(slots=True)
class Replay:
    """What came of one recording. ``actions`` are the model's actions, for counterexamples."""

    recording: str
    config: Config
    operations: int = 0
    divergence: Divergence | None = None
    violations: list[Violation] = field(factory=list)
    premises: Counter[str] = field(factory=Counter)
    actions: list[Action] = field(factory=list)


class _Diverged(Exception):
    def __init__(self, what: str, expected: object, recorded: object, differences: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.what, self.expected, self.recorded, self.differences = what, expected, recorded, differences


def profile_for(recording: Recording) -> Profile:
    """Return the profile of the recorded engine. Raises ReplayError that lists the known engines."""
    engine = recording.header.engine
    profile = PROFILE_OF_ENGINE.get((engine.name, engine.version))
    if profile is None:
        known = ", ".join(f"{name} {version}" for name, version in PROFILE_OF_ENGINE)
        raise ReplayError(
            f"{recording.name}: no profile for {engine.name} {engine.version}; known engines: {known}; "
            "`--profile sound` compares with what the semantics ask for"
        )
    return profile


def replay(recording: Recording, laws: Sequence[Law] = (), profile: Profile | None = None) -> Replay:
    """Replay one recording under its engine's profile and judge every action by ``laws``.

    Stops at the first divergence. Raises ReplayError if the model does not cover the recording.
    """
    profile = profile or profile_for(recording)
    reason = project.uncovered(recording.header)
    if reason is not None:
        raise ReplayError(f"{recording.name}: the model does not cover {reason} yet")
    try:
        config = project.model_config(recording.header, profile)
    except ConfigError as error:
        raise ReplayError(f"{recording.name}: the recorded configuration is not legal: {error}") from error
    outcome = Replay(recording.name, config)
    for name, expected, recorded in project.resolved_differences(config, recording.config):
        outcome.divergence = Divergence(recording.name, -1, "header", name, expected, recorded)
        return outcome
    driver = _Driver(config, outcome, Judge(laws))
    outcome.violations += driver.judge.configuration(config)
    driver.outputs = _recorded_outputs(recording)
    for operation, state in recording.states():
        driver.index = operation.index
        try:
            driver.perform(operation)
            driver.compare(state.device, state.requests, state.step)
        except _Diverged as found:
            outcome.divergence = Divergence(
                recording.name,
                operation.index,
                operation.op,
                found.what,
                found.expected,
                found.recorded,
                found.differences,
            )
            break
        outcome.operations += 1
    raised = recording.operations[-1]
    if outcome.divergence is None and raised.change is None:
        outcome.divergence = Divergence(recording.name, raised.index, raised.op, "the engine raised", "a result", raised.raised)
    outcome.premises = driver.judge.premises
    return outcome


@define(slots=True)
class _Driver:
    """Performs recorded operations on the model and compares results and states."""

    config: Config
    outcome: Replay
    judge: Judge
    world: World = field(init=False)
    projector: project.Projector = field(factory=project.Projector)
    ids: dict[str, int] = field(factory=dict)
    finished: list[str] = field(factory=list)
    drained: bool = True
    opening: bool = False
    submitted: int = 0
    index: int = 0
    outputs: dict[str, list[tuple[int, list[int], int]]] = field(factory=dict)
    last_pool: object = None
    last_device: dict[str, Any] = field(factory=dict)
    rows: dict[str, tuple[object, dict[str, Any]]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.world = new_world(self.config)

    def id_of(self, operation: Operation) -> int:
        """Return the model's id of the request that an operation names. Raises ReplayError for an unknown one."""
        name = operation.args.request
        if name not in self.ids:
            raise ReplayError(
                f"{self.outcome.recording}:{operation.line}: {operation.op} names request {name!r}, which was never "
                "submitted; record again"
            )
        return self.ids[name]

    def drafts_of(self, name: str, count: int) -> tuple[int, ...]:
        """Return draft tokens that explain the recorded output: its first tokens were accepted, the others are no token's.

        A recording counts drafts and does not say what they were.
        """
        if count == 0:
            return ()
        tokens: list[int] = []
        for index, sampled, rejected in self.outputs.get(name, ()):
            if index > self.index:
                tokens = sampled[: count - rejected]
                break
        return (*tokens, *(NO_TOKEN,) * (count - len(tokens)))

    def act(self, action: Action) -> Record:
        """Apply an action and judge it; a refusal is a divergence, since the engine did it."""
        moment = attempt(self.world, action)
        if self.judge.laws:
            self.outcome.violations += self.judge.moment(moment, len(self.outcome.actions))
        self.outcome.actions.append(action)
        if moment.record is None:
            raise _Diverged("refusal", f"{action}: {moment.refusal}", "the engine did it")
        self.world = moment.after
        return moment.record

    def perform(self, operation: Operation) -> None:
        """Perform one operation and compare its result."""
        handler = _OPERATIONS.get(operation.op)
        if handler is None:
            raise _Diverged("operation", "an operation the model covers", operation.op)
        handler(self, operation)

    def compare(self, device: dict[str, Any], requests: dict[str, Any], step: dict[str, Any]) -> None:
        """Compare the whole state after an operation with the recorded one."""
        if self.world.pool is not self.last_pool:
            self.last_device = self.projector.device(self.world)
            self.last_pool = self.world.pool
        if self.last_device != device:
            _differ("device", self.last_device, device)
        if len(requests) != len(self.world.requests):
            raise _Diverged(
                "requests",
                sorted(self.projector.names[request.request] for request in self.world.requests),
                sorted(requests),
            )
        for request in self.world.requests:
            name = self.projector.names[request.request]
            cached = self.rows.get(name)
            if cached is None or cached[0] is not request:
                cached = (request, self.projector.request(request))
                self.rows[name] = cached
            row, recorded = cached[1], requests.get(name)
            if row != recorded:
                if recorded is None:
                    raise _Diverged(f"requests.{name}", row, None)
                if row | {"in_flight": 0} != recorded | {"in_flight": 0} or recorded["in_flight"] != 0:
                    _differ(f"requests.{name}", row, recorded)
        queued = self.projector.step(self.world, self.drained)
        if queued != step:
            _differ("step", queued, step)

    def settle_outputs(self) -> None:
        """Process the outputs that carry no sampled token, and those of requests that are gone."""
        for step in self.world.steps:
            for request in step.due:
                self.act(act.Output(request))


def _recorded_outputs(recording: Recording) -> dict[str, list[tuple[int, list[int], int]]]:
    """Return per request the (operation, sampled tokens, rejected drafts) of its outputs, in order."""
    found: dict[str, list[tuple[int, list[int], int]]] = {}
    for operation in recording.operations:
        if operation.op == "append_token":
            args = operation.args
            found.setdefault(args.request, []).append((operation.index, list(args.tokens), args.rejected))
    return found


def _differ(where: str, expected: dict[str, Any], recorded: dict[str, Any]) -> None:
    differences = tuple(
        f"{where}.{name}: expected {expected.get(name)!r}, recorded {recorded.get(name)!r}"
        for name in expected
        if expected.get(name) != recorded.get(name)
    )
    if differences:
        raise _Diverged(where, expected, recorded, differences)


def _equal(what: str, expected: object, recorded: object) -> None:
    if expected != recorded:
        raise _Diverged(what, expected, recorded)


def _lists(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(blocks) for blocks in groups]


def _init(driver: _Driver, operation: Operation) -> None:
    del driver, operation


def _submit(driver: _Driver, operation: Operation) -> None:
    name = operation.args.request
    request = driver.submitted
    driver.submitted += 1
    driver.ids[name] = request
    driver.projector.names[request] = name
    record = driver.act(act.Submit(request, tuple(operation.args.tokens)))
    _equal("hashes", record.num_tokens // driver.config.hash_block_size, operation.result.hashes)


def _begin_step(driver: _Driver, operation: Operation) -> None:
    del operation
    driver.settle_outputs()
    driver.opening = True


def _open_plan(driver: _Driver) -> None:
    """Open the plan with the first operation that is not a preemption: those before it came from outside (T31)."""
    if driver.opening:
        driver.act(act.BeginStep())
        driver.opening = driver.drained = False


def _lookup(driver: _Driver, operation: Operation) -> None:
    _open_plan(driver)
    record = driver.act(act.Lookup(driver.id_of(operation)))
    _equal("local", record.local, operation.result.local)
    _equal("blocks", _lists(record.lists), operation.result.blocks)
    _equal("junction", record.junction, operation.result.junction)


def _allocate(driver: _Driver, operation: Operation) -> None:
    _open_plan(driver)
    args = operation.args
    request = driver.id_of(operation)
    running = {live.request for live in driver.world.requests if live.status is Status.RUNNING}
    _equal("first", request not in running, args.first)
    _equal("async_load", False, args.async_load)
    drafts = driver.drafts_of(args.request, args.drafts)
    record = driver.act(act.Allocate(request, args.new_tokens, args.local, args.external, args.lookahead, drafts))
    _equal("admitted", record.admitted, operation.result.admitted)
    if record.admitted:
        _equal("new_blocks", _lists(record.new_blocks), operation.result.new_blocks)
        _equal("external_blocks", _lists(record.external_blocks), operation.result.external_blocks)


def _preempt(driver: _Driver, operation: Operation) -> None:
    request = driver.id_of(operation)
    scheduled = any(entry.request == request for entry in driver.world.plan.scheduled)
    driver.act(act.Withdraw(request) if scheduled else act.Preempt(request))


def _end_step(driver: _Driver, operation: Operation) -> None:
    _open_plan(driver)
    args, result = operation.args, operation.result
    drain = driver.act(act.Drain())
    driver.drained = True
    handoffs: dict[str, list[tuple[int, int, int]]] = {}
    for request, group, block, boundary in drain.handoffs:
        handoffs.setdefault(driver.projector.names[request], []).append((group, block, boundary))
    _equal("handoffs", handoffs, result.handoffs)
    _equal("copies", [(source, destination) for _, source, destination in drain.copies], result.copies)
    _equal("zeroed", list(drain.zeroed), result.zeroed)
    _equal("store", None, result.store)
    _equal("load", None, result.load)
    driver.act(act.BuildMetadata())
    dispatch = driver.act(act.Dispatch())
    names = driver.projector.names
    _equal("scheduled", sorted((names[request], amount) for request, amount in dispatch.scheduled), sorted(args.scheduled))
    _equal("finished", sorted(driver.finished), sorted(args.finished))
    driver.finished.clear()
    _equal("preempted", sorted(names[request] for request in dispatch.preempted), sorted(args.preempted))
    for part in driver.config.parts:
        driver.act(act.Execute(part))
    for step in driver.world.steps:
        known = {request.request: request.num_tokens for request in driver.world.requests}
        for entry in step.scheduled:
            if entry.start + entry.amount < known[entry.request]:
                driver.act(act.Output(entry.request))


def _append_token(driver: _Driver, operation: Operation) -> None:
    args = operation.args
    record = driver.act(act.Output(driver.id_of(operation), tuple(args.tokens)))
    _equal("rejected", record.rejected, args.rejected)
    _equal("num_tokens", record.num_tokens, operation.result.num_tokens)


def _finish(driver: _Driver, operation: Operation) -> None:
    driver.act(act.Finish(driver.id_of(operation)))
    driver.finished.append(operation.args.request)
    _equal("deferred", False, operation.result.deferred)
    _equal("blocks", None, operation.result.blocks)


def _reset(driver: _Driver, operation: Operation) -> None:
    done = driver.act(act.ResetCache()).done if operation.args.device else None
    _equal("device", done, operation.result.device)
    _equal("host", None, operation.result.host)


_OPERATIONS: dict[str, Callable[[_Driver, Operation], None]] = {
    "init": _init,
    "submit": _submit,
    "begin_step": _begin_step,
    "lookup": _lookup,
    "allocate": _allocate,
    "preempt": _preempt,
    "end_step": _end_step,
    "append_token": _append_token,
    "finish": _finish,
    "reset": _reset,
}
