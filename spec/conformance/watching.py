"""Laws of whole runs on a run that cannot be driven: its moments are all there is (recordings of a scheduler).

A law that only follows a run is given its moments again by a ``Playback``. A law that experiments at the end of a run (sends
prompts again, lets everything end) is judged where the run itself made the experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, evolve, fields_dict

from kvproof.core.actions import Action, LookupExternal
from kvproof.core.config import Config
from kvproof.core.offload.state import Counters
from kvproof.core.world import World
from kvproof.spec import ground, ground_host, naive_hits
from kvproof.spec.conformance.hidden import is_hidden
from kvproof.spec.engines.drain import Drained
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment
from kvproof.spec.laws.draining import Prompts


class NotRecorded(Exception):
    """A law wants to go on behind the end of a run that was only recorded."""


@define(slots=True)
class Playback:
    """A run that was recorded, as a player: it performs the recorded actions in their order and nothing else."""

    start: World
    moments: Sequence[Moment]
    place: int = 0

    @property
    def world(self) -> World:
        """The world that the run has come to."""
        return self.moments[self.place - 1].after if self.place else self.start

    @property
    def shown(self) -> World:
        """The same world: moments have only what is shown."""
        return self.world

    def act(self, action: Action) -> Moment:
        """Return the next moment. Raises NotRecorded for an action that is not the next one."""
        if self.place >= len(self.moments) or self.moments[self.place].action != action:
            raise NotRecorded(f"{action} at {self.place} of {len(self.moments)} recorded actions")
        self.place += 1
        return self.moments[self.place - 1]

    def again(self) -> Playback:
        """Return a playback at the same point."""
        return Playback(self.start, self.moments, self.place)


# --- what a record leaves out ---------------------------------------------------------------------------------------------


def completed(moment: Moment) -> Moment:
    """Return a moment in which what a record leaves out is read off the worlds, as far as laws of whole runs ask for it.

    Which blocks an allocation took: those that lost a key; the others promised nothing. What became of handoffs: with no drop
    counted none was dropped, else any may have been.
    """
    record, before, after = moment.record, moment.before, moment.after
    if record is None:
        return moment
    if is_hidden(record.taken):
        lost = {entry[3] for entry in before.pool.entries} - {entry[3] for entry in after.pool.entries}
        lost |= {entry[3] for entry in set(before.pool.entries) - set(after.pool.entries)}
        record = evolve(record, taken=tuple(sorted(lost)))
    if is_hidden(record.outcomes):
        rows = () if before.host is None or dropped(before) == dropped(after) else before.plan.drained
        record = evolve(record, outcomes=tuple((*row, "dropped_unknown") for row in rows))
    return moment if record is moment.record else evolve(moment, record=record)


def dropped(world: World) -> int:
    """Return how many handoffs were counted as dropped."""
    counters = ground_host.host_of(world).counters
    return sum(getattr(counters, name) for name in DROPS)


DROPS = tuple(name for name in fields_dict(Counters) if name.startswith("dropped"))


# --- LV-6 -----------------------------------------------------------------------------------------------------------------


@define(slots=True)
class HostResends:
    """Follows a run and judges every host lookup of a prompt that was computed and stored undisturbed before (LV-6).

    The premise is that of the law: every store has ended, and nothing that belongs to the prompt was lost on the host. Whether
    the device has forgotten it does not matter where the lookup begins at the start of the prompt.
    """

    config: Config
    prompts: Prompts
    judged: int = 0
    found: list[Evidence] | None = None

    def see(self, moment: Moment) -> None:
        """Judge a lookup, and take in the action."""
        if isinstance(moment.action, LookupExternal) and moment.record is not None:
            self.judge(moment.action, moment, moment.record.external)
        self.prompts.see(moment)

    def judge(self, action: LookupExternal, moment: Moment, actual: int) -> None:
        """Compare the external hit of a resent prompt with its checkpoint."""
        world, sent = moment.before, self.prompts.live.get(action.request)
        request = ground.request_of(world, action.request)
        host = ground_host.host_of(world)
        if sent is None or request is None or action.start or request.skip_reading:
            return
        if request.num_tokens != len(sent.tokens) or ground_host.all_stores(host) or host.queued:
            return
        same = [old for old in self.prompts.finished if (old.context, old.tokens) == (sent.context, sent.tokens)]
        expected = max((self.prompts.promised(old) for old in same), default=0)
        if not expected:
            return
        self.judged += 1
        exact = ground_host.is_fine(self.config) and bool(naive_hits.facts(self.config).attention)
        if actual < expected or (exact and actual != expected):
            evidence = Evidence.of(
                "an identical resend does not find its checkpoint on the host",
                request=action.request,
                prompt=sent.tokens,
                expected=expected,
                actual=actual,
            )
            self.found = [*(self.found or ()), evidence]


def resends_are_loaded(config: Config, run: Playback) -> Findings:
    """LV-6: an identical prompt that is sent again after its stores have ended finds its checkpoint on the host."""
    if config.offload is None or config.offload.mode != "eager" or not naive_hits.facts(config).classes:
        return None
    if ground.snapshot_groups(config) and config.clip_block_size % config.hash_block_size:
        return None  # chunks then end where nothing is hashed
    resends = HostResends(config, Prompts(config))
    for moment in run.moments:
        resends.see(moment)
    return (resends.found or ()) if resends.judged else None


# --- the end of a run -----------------------------------------------------------------------------------------------------


def judge_end(law: Law, run: Playback) -> Findings:
    """Judge the end of a run that has come to rest (LV-2 to LV-4): from the last point at which the law's premise was true."""
    assert law.check_end is not None
    end = run.moments[-1].after if run.moments else run.start
    for moment in reversed(run.moments):
        findings = law.check_end(Drained(moment.after, end))
        if findings is not None:
            return findings
    return None


WATCHED: dict[str, Callable[[Config, Playback], Findings]] = {"LV-6": resends_are_loaded}
"""Laws of runs that experiment at their end, in the form that watches for the experiment."""

PLAYED: frozenset[str] = frozenset({"LV-10", "EV-3", "LV-5", "HB-16", "HB-17"})
"""Laws of runs that follow them, and at most look at an end at rest."""


def judge_run(law: Law, config: Config, run: Playback, at_rest: bool) -> Findings:
    """Judge a recorded run by a law of whole runs or of their ends; None where it cannot be, or its premise was not true."""
    if law.id in WATCHED:
        return WATCHED[law.id](config, run)
    if law.check_end is not None:
        return judge_end(law, run) if at_rest and config.offload is not None else None
    if law.check_run is None or law.id not in PLAYED:
        return None
    try:
        return law.check_run(config, [moment.action for moment in run.moments], lambda _: run.again())
    except NotRecorded:
        return None  # it is not at rest


def why_not(law: Law, at_rest: bool) -> str:
    """Say why a recorded run says nothing about a law of whole runs."""
    if law.check_end is not None and not at_rest:
        return "the run does not end at rest"
    if law.check_run is not None and law.id not in PLAYED and law.id not in WATCHED:
        return "it needs a run that can be driven"
    return "the run does not make its experiment"
