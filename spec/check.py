"""The main job: laws by walk and by Hypothesis over the scopes, faults, recordings; one result with three values.

The work is a list of jobs, each bounded by steps and decided by the seed, run by a few processes and merged in the
order of the list: the same seed gives the same result, however many processes there are.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from random import Random
from typing import Any

from attrs import define, evolve, field, frozen

from kvproof.core.config import SOUND, Config
from kvproof.core.errors import ConfigError
from kvproof.spec import counterexample as examples
from kvproof.spec import faults, near
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import machine, rules, scopes, shrink, walk, witnesses
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.engines.scopes import Scope
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.faults import Fault
from kvproof.spec.judge import Violation, refuted
from kvproof.spec.laws.base import Evidence, Law

WALK_STEPS = 300
HOST_WALK_STEPS = 600
"""With a host tier it takes longer until something was stored, lost on the device and asked for again."""
WHOLE_EVERY = 3
"""Every so many walks the laws that run the actions again are judged, too: one of them costs as much as all others together."""
TRACE_JOBS = 4
SHRINK_RUNS = 4000


@frozen(slots=True)
class Options:
    """What to check. Empty ``laws`` means all of them; with ``scope`` only that one; ``fault`` is planted throughout."""

    seed: int = 0
    quick: bool = False
    laws: tuple[str, ...] = ()
    fault: str = ""
    scope: str = ""
    processes: int = 2


@frozen(slots=True)
class Budget:
    """How much is tried: walks per scope, examples and steps of the machine.

    For a fault and law: walks in each scope that the fault names, then in each other one. They end with the first find.
    """

    walks: int
    examples: int
    machine_steps: int
    named_walks: int
    fault_walks: int


FULL = Budget(walks=20, examples=24, machine_steps=50, named_walks=250, fault_walks=60)
QUICK = Budget(walks=12, examples=10, machine_steps=30, named_walks=250, fault_walks=30)


@frozen(slots=True)
class Job:
    """One piece of work: ``kind`` is walk, machine, fault or traces; ``part`` numbers the slices of the traces."""

    kind: str
    options: Options
    scope: str = ""
    fault: str = ""
    part: int = 0

    @property
    def name(self) -> str:
        """What the progress display and messages call the job."""
        return f"{self.kind} {self.fault or self.scope or self.part}"


@frozen(slots=True)
class Done:
    """What a job found. ``killed`` maps a fault's laws to the scope where each broke."""

    job: Job
    steps: int
    premises: dict[str, int]
    witnesses: dict[str, int] = field(factory=dict)
    found: tuple[Counterexample, ...] = ()
    killed: tuple[tuple[str, str], ...] = ()
    recordings: int = 0
    problems: tuple[str, ...] = ()


@define(slots=True)
class Result:
    """Everything a check found, merged in the order of the jobs."""

    options: Options
    laws: tuple[Law, ...]
    done: list[Done] = field(factory=list)

    def of(self, kind: str) -> list[Done]:
        """Return what the jobs of one kind found."""
        return [done for done in self.done if done.job.kind == kind]

    def steps(self, kind: str) -> int:
        """Return the actions tried by one engine (for traces: recorded operations)."""
        return sum(done.steps for done in self.of(kind))

    def premises(self, *kinds: str) -> Counter[str]:
        """Return per law how often its premise was true, over these engines."""
        total: Counter[str] = Counter()
        for done in self.done:
            if done.job.kind in kinds:
                total.update(done.premises)
        return total

    def witnesses(self, *kinds: str) -> Counter[str]:
        """Return how often each situation was reached."""
        total: Counter[str] = Counter()
        for done in self.done:
            if done.job.kind in kinds:
                total.update(done.witnesses)
        return total

    @property
    def found(self) -> list[Counterexample]:
        """All counterexamples, the shortest first; those of one length by law, then in the order of the jobs."""
        every = [example for done in self.done for example in done.found]
        return sorted(every, key=lambda example: (len(example.actions), example.law))

    @property
    def problems(self) -> list[str]:
        """Refutations that have no counterexample: divergences and violations in recordings."""
        return [problem for done in self.done for problem in done.problems]

    @property
    def judged_ids(self) -> list[str]:
        """The ids that were judged: the chosen laws, then the chosen rules of generation that are no laws."""
        ids = [law.id for law in self.laws]
        extra = [rule for rule in rules.SENTENCES if rule not in ids]
        return ids + [rule for rule in extra if not self.options.laws or rule in self.options.laws]

    @property
    def never(self) -> list[str]:
        """Laws whose premise was never true, those that wait for a later part left out."""
        if not self.of("walk"):
            return []
        seen = self.premises("walk", "machine", "traces")
        later = {law.id for law in self.laws if law.later}
        return [law for law in self.judged_ids if not seen[law] and law not in later]

    @property
    def unreached(self) -> list[str]:
        """Situations that no engine reached; asked only of a check over the whole matrix."""
        if self.options.scope or self.options.fault or not self.of("walk"):
            return []
        seen = self.witnesses("walk", "machine")
        return [name for name in witnesses.NAMES if not seen[name]]

    @property
    def survivors(self) -> list[tuple[str, list[str]]]:
        """Faults with the laws that should have caught them and did not."""
        found = []
        for done in self.of("fault"):
            caught = {law for law, _ in done.killed}
            missing = [law for law in expected_of(faults.by_id(done.job.fault), self.options) if law not in caught]
            if missing:
                found.append((done.job.fault, missing))
        return found

    @property
    def verdict(self) -> ExitCode:
        """Refuted by a counterexample to a law; undetermined if something was not tried or a fault survived."""
        if self.options.fault:
            return ExitCode.REFUTED if self.found else ExitCode.UNDETERMINED
        if self.found or self.problems:
            return ExitCode.REFUTED
        if self.never or self.unreached or self.survivors:
            return ExitCode.UNDETERMINED
        return ExitCode.HOLDS


# --- what to do ---------------------------------------------------------------------------------------------------


def chosen_laws(options: Options) -> tuple[Law, ...]:
    """Return the laws to judge. Raises UserError for an unknown id, with the nearest ones."""
    known = {law.id: law for law in all_laws.ALL}
    for name in options.laws:
        if name not in known and name not in rules.SENTENCES:
            raise UserError(near.unknown("law", name, list(dict.fromkeys([*known, *rules.SENTENCES])), "kvproof laws"))
    if not options.laws:
        return tuple(all_laws.ALL)
    return tuple(known[name] for name in options.laws if name in known)


def laws_of(fault: Fault, options: Options) -> tuple[str, ...]:
    """Return the laws that must catch a fault, those left out by ``--law`` excepted."""
    return tuple(law for law in fault.laws if not options.laws or law in options.laws)


def expected_of(fault: Fault, options: Options) -> tuple[str, ...]:
    """Return the laws that are asked about a fault: its own among the chosen ones, or else the chosen ones themselves."""
    return laws_of(fault, options) or options.laws


def one_fault(names: Sequence[str]) -> str:
    """Return the id of the one fault that is named, in any case, or "" for none. Raises UserError for several."""
    chosen = list(dict.fromkeys(_as_known(name, [fault.id for fault in faults.ALL]) for name in names))
    if len(chosen) > 1:
        raise UserError(f"one fault at a time, not {len(chosen)} ({', '.join(chosen)}): run the command once for each")
    return chosen[0] if chosen else ""


def named_laws(names: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of laws that are named in any case, once each, a family as its laws; an unknown name stays as it is."""
    known = [*(law.id for law in all_laws.ALL), *rules.SENTENCES]
    ids = (own for name in names for own in [law.id for law in all_laws.family(name)] or [_as_known(name, known)])
    return tuple(dict.fromkeys(ids))


def _as_known(name: str, known: Sequence[str]) -> str:
    return next((own for own in known if own.casefold() == name.casefold()), name)


def jobs(options: Options) -> list[Job]:
    """Return the jobs of a check, the long ones first. Raises UserError for unknown names."""
    chosen_laws(options)
    if options.scope:
        scopes.by_name(options.scope)
    if options.fault:
        return [Job("fault", options, fault=_known_fault(options.fault).id)]
    where = [scopes.by_name(options.scope)] if options.scope else list(scopes.chosen(options.quick))
    found: list[Job] = []
    if not options.scope:
        found += [Job("traces", options, part=part) for part in range(TRACE_JOBS)]
    found += [Job("walk", options, scope=scope.name) for scope in where]
    found += [Job("machine", options, scope=scope.name) for scope in where]
    if not options.scope:
        found += [Job("fault", options, fault=fault.id) for fault in faults.ALL if laws_of(fault, options)]
    return found


def _known_fault(name: str) -> Fault:
    try:
        return faults.by_id(name)
    except faults.FaultError as error:
        raise UserError(str(error)) from error


def run(
    options: Options,
    progress: Callable[[Job], None] = lambda job: None,
    doing: Callable[[str], None] = lambda what: None,
) -> Result:
    """Run a check. Raises UserError for unknown names.

    ``progress`` is told each finished job, in any order; ``doing`` what is begun, as far as it runs in this process.
    """
    work = jobs(options)
    result = Result(options, chosen_laws(options))
    result.done = list(_perform_all(work, options.processes, progress, doing))
    return result


def _perform_all(
    work: Sequence[Job], processes: int, progress: Callable[[Job], None], doing: Callable[[str], None]
) -> Iterator[Done]:
    if processes <= 1 or len(work) == 1:
        for job in work:
            doing(job.name)
            yield _fault(job, doing) if job.kind == "fault" else perform(job)
            progress(job)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(work)), mp_context=context) as pool:
        futures: list[Future[Done]] = [pool.submit(perform, job) for job in work]
        places = {future: at for at, future in enumerate(futures)}
        try:
            for future in as_completed(futures):
                future.result()
                progress(work[places[future]])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        yield from (future.result() for future in futures)


def perform(job: Job) -> Done:
    """Do one job; nothing outside it decides what comes out."""
    return {"walk": _walk, "machine": _machine, "fault": _fault, "traces": _traces}[job.kind](job)


# --- the jobs -----------------------------------------------------------------------------------------------------


def _budget(options: Options) -> Budget:
    return QUICK if options.quick else FULL


def sentence_of(law: str) -> str:
    """Return the sentence of a law or a rule of generation."""
    for known in all_laws.ALL:
        if known.id == law:
            return known.sentence
    return rules.SENTENCES.get(law, "")


def _walk(job: Job) -> Done:
    options, scope = job.options, scopes.by_name(job.scope)
    laws, config = chosen_laws(options), scope.config()
    limits = scope.limits(config)
    premises: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    steps = 0
    count, length = walks_of(options, config)
    for number in range(count):
        seed = f"{options.seed}/{scope.name}/{number}"
        whole = bool(_only(options)) or number % WHOLE_EVERY == 0
        walked = walk.walk(config, seed, length, laws, limits, only=_only(options), whole=whole)
        premises.update(walked.premises)
        seen.update(walked.witnesses)
        steps += walked.steps
        wrong = walked.violations if _only(options) else tuple(refuted(walked.violations))
        if wrong:
            example = _example(job, config, limits, walked.actions, wrong[0], laws, walked.legal, "walk")
            return Done(job, steps, dict(premises), dict(seen), (example,))
    return Done(job, steps, dict(premises), dict(seen))


def walks_of(options: Options, config: Config) -> tuple[int, int]:
    """Return how many walks a scope gets and their length in actions: with a host tier fewer and twice as long."""
    walks = _budget(options).walks
    return (walks, WALK_STEPS) if config.offload is None else (walks // 4 + 2, HOST_WALK_STEPS)


def _only(options: Options) -> str:
    """With one chosen law or rule nothing else ends a walk, so that a named violation is found again."""
    return options.laws[0] if len(options.laws) == 1 else ""


def _machine(job: Job) -> Done:
    options, scope = job.options, scopes.by_name(job.scope)
    laws, config, budget = chosen_laws(options), scope.config(), _budget(options)
    limits = scope.limits(config)
    seed = Random(f"{options.seed}/{scope.name}").getrandbits(32)
    ran = machine.run_machine(config, laws, seed, budget.examples, budget.machine_steps, limits, _only(options))
    found: tuple[Counterexample, ...] = ()
    if ran.violation is not None:
        found = (_example(job, config, limits, ran.actions, ran.violation, laws, ran.legal, "hypothesis"),)
    return Done(job, ran.steps, ran.premises, ran.witnesses, found)


def _example(
    job: Job,
    config: Config,
    limits: Limits,
    actions: Sequence[Any],
    violation: Violation,
    laws: Sequence[Law],
    legal: bool,
    engine: str,
    scope: str = "",
) -> Counterexample:
    """Shrink what an engine found and make the counterexample of it."""
    short, shown = shrink.shrink(config, actions, violation, laws, limits, legal, SHRINK_RUNS)
    return examples.build(
        config,
        short,
        shown,
        sentence_of(shown.law),
        legal=legal,
        engine=engine,
        seed=job.options.seed,
        scope=scope or job.scope,
        fault=job.fault,
        quick=job.options.quick,
    )


@contextmanager
def _as_planted(fault: Fault, scope: Scope) -> Iterator[Config]:
    with faults.planted(fault):
        settings = dict(scope.settings)
        if fault.profile is not None:
            changes: dict[str, Any] = dict([fault.profile])
            settings["profile"] = evolve(settings.get("profile", SOUND), **changes)
        yield evolve(scope, settings=settings).config()


def _fault(job: Job, doing: Callable[[str], None] = lambda what: None) -> Done:
    """Let generation find a planted fault by each of its laws in turn, each for itself."""
    fault, options = faults.by_id(job.fault), job.options
    premises: Counter[str] = Counter()
    found: list[Counterexample] = []
    killed: list[tuple[str, str]] = []
    steps = 0
    for law in expected_of(fault, options):
        used, example = _hunt(job, fault, law, premises, doing)
        steps += used
        if example is not None:
            killed.append((law, example.scope))
            if options.fault:
                found.append(example)
    return Done(job, steps, dict(premises), found=tuple(found), killed=tuple(killed))


def _fault_scopes(fault: Fault, options: Options) -> list[tuple[int, list[Scope]]]:
    """Return the scopes in which to look for a fault, with walks for each: those it names, then the others."""
    budget = _budget(options)
    named = [scope for name in fault.scopes for scope in scopes.ALL if scope.name == name]
    rest = [scope for scope in scopes.ALL if scope not in named]
    if options.scope:
        chosen = scopes.by_name(options.scope)
        return [(budget.named_walks if chosen in named else budget.fault_walks, [chosen])]
    return [(budget.named_walks, named), (budget.fault_walks, rest)]


def _hunt(
    job: Job, fault: Fault, law: str, premises: Counter[str], doing: Callable[[str], None]
) -> tuple[int, Counterexample | None]:
    """Walk with the fault planted until the law breaks: one walk in each scope, then a second one, and so on.

    A walk depends on its scope and number alone, so that a search in one scope finds the same counterexample.
    """
    judged = [known for known in all_laws.ALL if known.id == law]
    steps = tried = 0
    where = _fault_scopes(fault, job.options)
    most = sum(walks * len(group) for walks, group in where)
    for walks, group in where:
        for number in range(walks if group else 0):
            for scope in group:
                tried += 1
                doing(f"{fault.id}, {law}: walk {tried} of at most {most}")
                used, example = _fault_walk(job, fault, law, judged, scope, number, premises)
                steps += used
                if example is not None:
                    return steps, example
    return steps, None


def _fault_walk(
    job: Job, fault: Fault, law: str, judged: Sequence[Law], scope: Scope, number: int, premises: Counter[str]
) -> tuple[int, Counterexample | None]:
    try:
        with _as_planted(fault, scope) as config:
            limits = scope.limits(config)
            seed = f"{job.options.seed}/{fault.id}/{scope.name}/{number}"
            length = WALK_STEPS if config.offload is None else HOST_WALK_STEPS
            walked = walk.walk(config, seed, length, judged, limits, only=law)
            premises.update(walked.premises)
            if not walked.violations:
                return walked.steps, None
            shown = judged if job.options.fault else ()
            return walked.steps, _found_fault(job, config, limits, walked, walked.violations[0], shown, scope)
    except ConfigError as error:
        return 0, _refused_configuration(job, scope, law, error)


def _found_fault(
    job: Job,
    config: Config,
    limits: Limits,
    walked: walk.WalkResult,
    violation: Violation,
    judged: Sequence[Law],
    scope: Scope,
) -> Counterexample:
    if job.options.fault:
        return _example(job, config, limits, walked.actions, violation, judged, walked.legal, "walk", scope.name)
    return examples.build(
        config,
        (),
        violation,
        sentence_of(violation.law),
        legal=walked.legal,
        engine="walk",
        seed=job.options.seed,
        scope=scope.name,
        fault=job.fault,
        quick=job.options.quick,
    )


def _refused_configuration(job: Job, scope: Scope, law: str, error: ConfigError) -> Counterexample | None:
    if law != "HB-1":
        return None
    example = refused_example(scope.config(), error, "walk", scope.name, job.fault)
    return evolve(example, seed=job.options.seed, quick=job.options.quick)


def _traces(job: Job) -> Done:
    """Replay every n-th recording of the selection."""
    from kvproof.spec.traces import archive, summary

    entries = archive.selection()[job.part :: TRACE_JOBS]
    if job.options.quick:
        entries = entries[::4]
    ran = summary.replay_all((recording for _, recording in archive.recordings(entries)), chosen_laws(job.options))
    problems = [f"{found.recording}, operation {found.operation}: differs in {found.what}" for found in ran.divergences]
    problems += [
        f"{name}, action {violation.position}: {violation.law}: {violation.evidence.message}"
        for name, violation in ran.violations
    ]
    return Done(job, ran.operations, dict(ran.premises), recordings=ran.recordings, problems=tuple(problems))


# --- showing one again --------------------------------------------------------------------------------------------


def replay(example: Counterexample) -> examples.Replayed:
    """Run a counterexample again with its fault planted. Raises CounterexampleError if that is impossible."""
    if not example.fault:
        return examples.replay(example, all_laws.ALL)
    try:
        fault = faults.by_id(example.fault)
    except faults.FaultError as error:
        raise examples.CounterexampleError(str(error)) from error
    legal = _refused(example) is None
    with faults.planted(fault):
        refused = _refused(example)
        if legal and refused is not None and example.law == "HB-1":
            return examples.Replayed(Violation("HB-1", -1, _legal_refused(refused)), ())
        return examples.replay(example, all_laws.ALL)


def refused_example(config: Config, error: ConfigError, engine: str, scope: str, fault: str) -> Counterexample:
    """Return the counterexample of a fault that makes a legal configuration illegal: it breaks HB-1, and no other law.

    The caller plants nothing. The match unit is stated, since the fault may come to another one by itself.
    """
    violation = Violation("HB-1", -1, _legal_refused(error))
    sentence = sentence_of("HB-1")
    example = examples.build(config, (), violation, sentence, legal=True, engine=engine, seed=0, scope=scope, fault=fault)
    return evolve(example, settings=evolve(example.settings, hash_block_size=config.hash_block_size))


def _refused(example: Counterexample) -> ConfigError | None:
    """Return why the configuration of a counterexample is refused now, None if it is legal."""
    try:
        example.settings.config(example.profile)
    except ConfigError as error:
        return error
    return None


def _legal_refused(error: ConfigError) -> Evidence:
    return Evidence.of(f"a legal configuration is refused: {error}")
