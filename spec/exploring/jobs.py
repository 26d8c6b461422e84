"""The work of an exploration: one job per scope, or per fault and scope, each done by a process of its own.

A job is decided by what it holds alone, so that the result is the same however many processes share the work. What a job found
comes back as a small value; graphs stay in their process and go with it.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from attrs import evolve, frozen

from kvproof.core.config import Config
from kvproof.core.errors import ConfigError
from kvproof.spec import check, faults
from kvproof.spec import counterexample as examples
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import rules, shrink
from kvproof.spec.exits import UserError
from kvproof.spec.exploring import certificate as certificates
from kvproof.spec.exploring import kills, liveness, sample, scopes, search
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.certificate import Certificate, End
from kvproof.spec.exploring.graph import Graph
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.exploring.scope import Scope
from kvproof.spec.exploring.scopes import Which
from kvproof.spec.exploring.search import Explored, Found, Options
from kvproof.spec.faults import Fault

EXPLORER, SAMPLER = examples.EXPLORER, examples.SAMPLER
RUNS_EVERY = 512
"""Of the orbits that end the search tree, the first and every so many's whole run is judged: that costs hundreds of edges."""
AT_FINISH = ("LV-5", "LV-6")
"""Laws of what finished requests leave on the host: judged on the run to every orbit that a finish first reaches."""
SHRINK_RUNS = 1000
BATCH = 12
"""So many searches for faults share a process: most are shorter than its start."""

Doing = Callable[[str], None]


@frozen(slots=True)
class Asked:
    """What to explore: the named scopes, or the set ``which``.

    A fault is looked for in the named scopes, or in all of the set that is asked for; else in the scope that is pinned for it,
    or in the whole catalogue.

    Empty ``laws`` are all of them; ``fault`` is planted throughout, ``every_fault`` takes each in turn. ``depth`` replaces the
    bound of the scopes. ``full`` counts the worlds without the quotient by names, too. With ``runs``, so many random runs
    instead of the whole graph, the first with ``seed``.
    """

    scopes: tuple[str, ...] = ()
    which: Which = "catalogue"
    laws: tuple[str, ...] = ()
    fault: str = ""
    every_fault: bool = False
    depth: int | None = None
    full: bool = False
    runs: int = 0
    seed: int = 0
    processes: int = 2


@frozen(slots=True)
class Job:
    """One search: a scope, and the fault that is planted in it, if any."""

    asked: Asked
    scope: Scope
    fault: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse a job that would silently plant nothing. Raises UserError."""
        if self.asked.fault and self.asked.fault != self.fault:
            raise UserError(f"{self.asked.fault} is asked for and not planted: Job(asked, scope, fault={self.asked.fault!r})")

    @property
    def name(self) -> str:
        """What the progress display and the files of results call the job."""
        return "-".join(part for part in (self.fault, self.scope.name) if part)

    @property
    def bounds(self) -> Bounds:
        """The bounds of the scope, with the depth that was asked for."""
        bounds = self.scope.bounds
        return bounds if self.asked.depth is None else evolve(bounds, depth=self.asked.depth)

    @property
    def law_ids(self) -> tuple[str, ...]:
        """The laws and rules that are judged: those of a fault, the chosen ones, or all."""
        if self.fault:
            options = check.Options(laws=self.asked.laws)
            return check.expected_of(faults.by_id(self.fault), options)
        if self.asked.laws:
            return self.asked.laws
        ids = [law.id for law in all_laws.ALL if not law.later]
        return (*ids, *(rule for rule in rules.SENTENCES if rule not in ids))


@frozen(slots=True)
class Done:
    """What a job came to: the certificate, the violation that ended it, and how long it took (of this run, no result)."""

    job: Job
    certificate: Certificate
    example: Counterexample | None = None
    seconds: float = 0.0
    resumed: bool = False

    @property
    def of_scope(self) -> bool:
        """Tell whether the graph is the one that the scope's own bounds make, so that its size is the scope's."""
        asked, own = self.job.asked, self.job.scope.bounds.depth
        if self.job.fault or asked.runs:
            return False
        return asked.depth in (None, own) or (own is None and self.certificate.end == "complete")


# --- what to do ---------------------------------------------------------------------------------------------------


def jobs(asked: Asked) -> list[Job]:
    """Return the jobs of an exploration. Raises UserError for unknown names, and if there is nothing to do."""
    check.chosen_laws(check.Options(laws=asked.laws))
    named = tuple(scopes.by_name(name) for name in dict.fromkeys(asked.scopes))
    if asked.which != "catalogue":
        named = scopes.of(asked.which)
    if asked.fault:
        return _jobs_of(asked, _fault(asked.fault), named, kills.table())
    if asked.every_fault:
        known = kills.table()
        work = [job for fault in faults.ALL if fault.id in known for job in _jobs_of(asked, fault, named, known)]
        if not work:
            where = ", ".join(scope.name for scope in named)
            raise UserError(f"no fault is pinned in {where}: leave --scope out, or name a fault with --fault")
        return work
    return [Job(asked, scope) for scope in named or scopes.of(asked.which)]


def _fault(name: str) -> Fault:
    try:
        return faults.by_id(name)
    except faults.FaultError as error:
        raise UserError(str(error)) from error


def _jobs_of(asked: Asked, fault: Fault, named: Sequence[Scope], known: Mapping[str, Kill]) -> list[Job]:
    """Return where a fault is looked for: in the named scopes; else in the one that is pinned for it, or in all."""
    pinned = known.get(fault.id)
    if named:
        where = [scope for scope in named if asked.fault or (pinned is not None and scope.name == pinned.scope)]
    elif pinned is not None and not asked.laws:
        where = [scopes.by_name(pinned.scope)]
    else:
        where = list(scopes.CATALOGUE)
    return [Job(asked, scope, fault.id) for scope in where]


# --- doing it -----------------------------------------------------------------------------------------------------


def perform(job: Job, doing: Doing = lambda what: None) -> Done:
    """Do one job; nothing outside it decides what comes out."""
    began = time.monotonic()
    job.scope.check()
    done = _planted(job, faults.by_id(job.fault), doing) if job.fault else _search(job, job.scope.config(), doing)
    return evolve(done, seconds=time.monotonic() - began)


def _planted(job: Job, fault: Fault, doing: Doing) -> Done:
    with faults.planted(fault):
        config = _as_planted(job, fault)
        if isinstance(config, Config):
            return _search(job, config, doing)
    return _refused_configuration(job, config)


def _as_planted(job: Job, fault: Fault) -> Config | ConfigError:
    """Return the configuration of a job as its planted fault makes it, or why it is refused."""
    try:
        return faults.configured(fault, job.scope.config())
    except ConfigError as error:
        return error


def _search(job: Job, config: Config, doing: Doing) -> Done:
    options = options_of(job)
    end: End | None = None
    engine, seed = EXPLORER, 0
    if job.asked.runs:
        explored, seed = sample.sample(config, job.bounds, options, job.scope.name, job.asked.runs, job.asked.seed, doing)
        engine = SAMPLER
        end = None if explored.found is not None else "sampled"
    else:
        explored = search.explore(config, job.bounds, options, doing)
        _judge_liveness(job, config, explored, doing)
    certificate = certificates.certify(job.scope.name, job.fault, config, job.bounds, job.law_ids, explored, end)
    if job.asked.full and certificate.whole:
        counted = search.explore(config, job.bounds, Options(kept=True), lambda what: doing(f"worlds, {what}"))
        certificate = evolve(certificate, worlds=len(counted.graph))
    return Done(job, certificate, _example(job, config, options, explored, engine, seed))


def _judge_liveness(job: Job, config: Config, explored: Explored, doing: Doing) -> None:
    """Judge what becomes of every orbit under fairness; a lasso, or progress that is refused, is what the search found."""
    laws = liveness.LAWS & set(job.law_ids)
    if explored.end not in ("complete", "depth") or not laws or not liveness.owes(config):
        return
    doing("liveness")
    verdict = liveness.judge(explored, config, job.bounds, laws)
    for law, count in verdict.premises.items():
        explored.premises[law] = explored.premises.get(law, 0) + count
    explored.closed = verdict.worlds
    if verdict.refused is not None:
        explored.found = Found(verdict.refused.violation, verdict.refused.actions)
    elif verdict.found:
        explored.found = Found(verdict.found[0].violation, verdict.found[0].actions)


def options_of(job: Job) -> Options:
    """Return how a job searches: the laws of a fault alone, or the chosen laws with whole runs now and then."""
    if job.fault:
        return kills.options(job.law_ids)
    judged = [law for law in all_laws.ALL if law.id in job.law_ids]
    return Options(laws=judged, only=job.asked.laws, runs_every=RUNS_EVERY, at_finish=AT_FINISH)


def _example(job: Job, config: Config, options: Options, explored: Explored, engine: str, seed: int) -> Counterexample | None:
    """Make the counterexample of what a search found: as short as it is, unless a whole run or a random one shows it."""
    found = explored.found
    if found is None:
        return None
    actions, violation = found.actions, found.violation
    lasso = violation.law in liveness.LAWS and violation.position < 0
    by_run = violation.position < 0 and not options.all_runs and not _asked_at_end(violation.law) and not lasso
    if actions and (engine == SAMPLER or by_run):
        limits = job.bounds.limits(config)
        actions, violation = shrink.shrink(config, actions, violation, options.laws, limits, found.legal, SHRINK_RUNS)
    example = examples.build(
        config,
        actions,
        violation,
        check.sentence_of(violation.law),
        legal=found.legal,
        engine=engine,
        seed=seed,
        scope=job.scope.name,
        fault=job.fault,
    )
    if examples.replay(example, all_laws.ALL).violation is None:
        raise RuntimeError(f"{job.name}: {example.law} holds when its counterexample is run again: {example.actions}")
    return example


def _asked_at_end(law: str) -> bool:
    """Tell whether a law is asked in every world between plans, so that its first violation is a shortest one."""
    return any(known.id == law and known.check_end is not None for known in all_laws.ALL)


def _refused_configuration(job: Job, error: ConfigError) -> Done:
    """A fault that makes a legal configuration illegal breaks HB-1, and no other law."""
    config = job.scope.config()
    explored = Explored(Graph())
    example = None
    if "HB-1" in job.law_ids:
        example = check.refused_example(config, error, EXPLORER, job.scope.name, job.fault)
    end: End = "refused" if example is None else "violation"
    certificate = certificates.certify(job.scope.name, job.fault, config, job.bounds, job.law_ids, explored, end)
    return Done(job, certificate, example)


# --- in processes -------------------------------------------------------------------------------------------------


def perform_all(
    work: Sequence[Job],
    processes: int,
    finished: Callable[[Done], None] = lambda done: None,
    doing: Doing = lambda what: None,
) -> list[Done]:
    """Do all jobs, each graph in a process of its own, ``processes`` at a time; return what they came to, in their order.

    ``finished`` is told each as soon as it is done, in any order. Raises what a job raised; what else is under way ends.
    """
    if processes <= 1 or len(work) == 1:
        found = []
        for job in work:
            found.append(perform(job, _named(doing, job)))
            finished(found[-1])
        return found
    return _in_processes(work, processes, finished, doing)


def _named(doing: Doing, job: Job) -> Doing:
    return lambda what: doing(f"{job.name}: {what}")


def _in_processes(work: Sequence[Job], processes: int, finished: Callable[[Done], None], doing: Doing) -> list[Done]:
    context = multiprocessing.get_context("spawn")
    waiting = batches(work)
    running: dict[Connection, tuple[list[int], BaseProcess]] = {}
    found: dict[int, Done] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                batch = waiting.pop(0)
                here, there = context.Pipe()
                process: BaseProcess = context.Process(target=_serve, args=([work[at] for at in batch], there), daemon=True)
                process.start()
                there.close()
                running[here] = (batch, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                left, other = running[ready]
                message = _received(ready, other, work[left[0]])
                if isinstance(message, str):
                    _named(doing, work[left[0]])(message)
                    continue
                found[left.pop(0)] = message
                finished(message)
                if not left:
                    running.pop(ready)
                    ready.close()
                    other.join()
    finally:
        for _, under_way in running.values():
            under_way.terminate()
            under_way.join()
    return [found[at] for at in range(len(work))]


def batches(work: Sequence[Job]) -> list[list[int]]:
    """Return which jobs share a process: a whole graph has one of its own, short searches for faults go together."""
    found: list[list[int]] = []
    for at, job in enumerate(work):
        if job.fault and found and work[found[-1][0]].fault and len(found[-1]) < BATCH:
            found[-1].append(at)
        else:
            found.append([at])
    return found


def _received(connection: Connection, process: BaseProcess, job: Job) -> Done | str:
    """Return what a process says: how far it is, or what its job came to. Raises what it raised."""
    try:
        message: Done | str | Exception = connection.recv()
    except EOFError as error:
        process.join()
        raise UserError(
            f"{job.name}: its process ended with status {process.exitcode} and without a word; if memory is short, use "
            "fewer --processes, or bound the scope by --depth"
        ) from error
    if isinstance(message, Exception):
        raise message
    return message


def _serve(work: Sequence[Job], connection: Connection) -> None:
    """Do jobs in a process of their own. An interrupt is the parent's to notice: it ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):
        for job in work:
            connection.send(_done_or_raised(job, connection.send))
        connection.close()


def _done_or_raised(job: Job, doing: Doing) -> Done | Exception:
    try:
        return perform(job, doing)
    except BrokenPipeError:  # nobody is there any more
        raise
    except UserError as error:
        return error
    except Exception:
        return RuntimeError(f"{job.name}: {traceback.format_exc()}")
