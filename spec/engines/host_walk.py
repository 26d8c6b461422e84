"""The walker's habits around a host tier: when copies run, when workers report, what is looked up there and loaded.

Everything here draws from a stream of its own, so that walks without a host tier are what they are without this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import define, evolve, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.offload.state import Stage
from kvproof.core.world import Hit, Phase, Request, Status, World
from kvproof.spec.engines import amounts, flight, host, prompts
from kvproof.spec.engines import enabled as lists
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.engines.prompts import Prompt
from kvproof.spec.laws.base import Moment


@frozen(slots=True)
class HostHabits:
    """Probabilities of one walk: of a store's or load's copy to run now, of a report, of an early one, of a failed load.

    ``look`` is that of asking the host behind a lookup, ``take`` of loading what it has, ``less`` of loading only a part,
    ``stray`` of asking at another place, ``promote`` of considering a completed load now. ``wipe`` is that of evicting every
    key of the device after a store is complete, which a resend follows, ``again`` that of resending what the host knows
    without that. ``reset``, ``read`` and ``strange`` are those of a reset, a reading and a report of an unknown event,
    ``abort`` of finishing a request that loads or waits behind a load. ``rival`` is that of sending a prompt again while it
    is loaded, so that another connector brings the same tokens at once, if there is one.
    """

    store: float
    load: float
    report: float
    early: float
    fail: float
    look: float
    take: float
    less: float
    stray: float
    promote: float
    wipe: float
    again: float
    reset: float
    read: float
    strange: float
    abort: float
    rival: float


def draw_habits(random: Random) -> HostHabits:
    """Draw the habits of a walk; copies and reports are prompt in some walks and late in others, each direction by itself."""

    def rate(*choices: float) -> float:
        return choices[random.randrange(len(choices))]

    return HostHabits(
        store=rate(0.02, 0.2, 0.5, 0.9),
        load=rate(0.02, 0.2, 0.5, 0.9),
        report=rate(0.1, 0.4, 0.9),
        early=rate(0.0, 0.1, 0.4),
        fail=rate(0.0, 0.0, 0.1, 0.4),
        look=rate(0.4, 0.8, 1.0),
        take=rate(0.3, 0.8, 1.0),
        less=rate(0.0, 0.2, 0.5),
        stray=rate(0.0, 0.02, 0.1),
        promote=rate(0.3, 0.8, 1.0),
        wipe=rate(0.0, 0.1, 0.3, 0.7),
        again=rate(0.0, 0.3, 0.7),
        reset=rate(0.0, 0.0, 0.01, 0.04),
        read=rate(0.0, 0.02),
        strange=rate(0.0, 0.01),
        abort=rate(0.0, 0.02, 0.1),
        rival=rate(0.0, 0.9),
    )


@define(slots=True)
class HostWalker:
    """Draws the host's actions for a world.

    ``asked`` is the request that was asked for at the host since it was looked up, ``short`` tells that a chunk behind a load
    did not fit in the open plan. ``stored`` tells that a store was completed
    since the device's keys were evicted last, ``resend`` that they were and nothing was submitted since. ``rivalled`` is a
    request that loads what another connector is to bring to somebody else meanwhile.
    """

    config: Config
    limits: Limits
    random: Random
    habits: HostHabits
    asked: int | None = None
    short: bool = False
    stored: bool = False
    resend: bool = False
    rivalled: int | None = None

    @classmethod
    def of(cls, config: Config, limits: Limits, seed: str) -> HostWalker:
        """Return the walker of a seed."""
        random = Random(f"{seed}/host")
        habits = draw_habits(random)
        if limits.missing:
            habits = evolve(habits, rival=1.0, look=1.0, take=1.0, store=0.9, report=0.9, wipe=0.7, fail=0.0, reset=0.0)
        return cls(config, limits, random, habits)

    def chance(self, probability: float) -> bool:
        """Tell whether something of this probability happens now."""
        return self.random.random() < probability

    def one_of(self, actions: Sequence[Action]) -> Action:
        """Return one of some actions."""
        return actions[self.random.randrange(len(actions))]

    def observe(self, moment: Moment) -> None:
        """Remember who was looked up, who was asked for, and that a prompt was submitted."""
        action = moment.action
        if isinstance(action, act.BeginStep):
            self.asked, self.short = None, False
        elif isinstance(action, act.Lookup):
            self.asked = None
        elif isinstance(action, act.Allocate) and moment.record is not None:
            self.short = self.short or not moment.record.admitted
            if action.load and moment.record.admitted and self.config.connectors and self.chance(self.habits.rival):
                self.rivalled = action.request
        elif isinstance(action, act.Output) and action.failed:
            self.rivalled = None
        elif isinstance(action, act.LookupExternal) and action.start % self.config.scheduler_block_size == 0:
            self.asked = action.request
        elif isinstance(action, act.Submit):
            self.resend = False
        elif isinstance(action, act.CompleteStore):
            self.stored = self.stored or (moment.record is not None and moment.record.done)

    def waits_for_rival(self, world: World) -> bool:
        """Tell whether a request loads, or waits behind its load, until another connector brought the same to somebody else."""
        request = None if self.rivalled is None else flight.live(world, self.rivalled)
        return request is not None and (request.loaded or request.status is Status.LOADING)

    def not_rivalled(self, world: World) -> list[Request]:
        """Return the requests but for one that waits for its rival."""
        waits = self.waits_for_rival(world)
        return [request for request in world.requests if not waits or request.request != self.rivalled]

    def propose(self, world: World, past: Sequence[Prompt]) -> Action | None:
        """Return what happens on the host's side now, None if nothing does. ``past`` are the prompts submitted so far."""
        stuck = world.phase is Phase.IDLE and not world.steps and idles(world)
        for action in host.copies(world):
            habit = self.habits.load if isinstance(action, act.RunLoad) else self.habits.store
            if self.chance(max(habit, 0.5) if stuck else habit):
                return action
        if world.phase is Phase.IDLE:
            return self._idle(world, stuck, past)
        if world.phase is Phase.PLAN_WAITING or (world.phase is Phase.PLAN_RUNNING and self._turns_to_waiting(world)):
            return self._planning(world)
        return None

    def _turns_to_waiting(self, world: World) -> bool:
        """Tell whether the waiting requests come now: when no running one is left, or at times before them."""
        return not lists.unscheduled(world) or self.chance(0.1)

    def _idle(self, world: World, stuck: bool, past: Sequence[Prompt]) -> Action | None:
        report = self._report(world, stuck)
        if report is not None:
            return report
        habits, draw = self.habits, self.random.random()
        if draw < habits.reset:
            return act.ResetHost()
        draw -= habits.reset
        if 0 <= draw < habits.read:
            return act.ReadCounters()
        draw -= habits.read
        if 0 <= draw < habits.strange and world.host is not None and world.host.next_store:
            return act.CompleteStore(host.unknown_event(world))
        draw -= habits.strange
        loading = [request for request in self.not_rivalled(world) if request.status is Status.LOADING or request.loaded]
        if loading and 0 <= draw < habits.abort:
            return act.Finish(loading[self.random.randrange(len(loading))].request)
        draw -= habits.abort
        if self.stored and 0 <= draw < habits.wipe:
            gone = self._forgotten(world)
            if gone and (self.chance(0.1) or self._best(world, past)[0] == len(cached_groups(self.config))):
                self.stored, self.resend = False, True
                return act.EvictBlocks(gone)
        waits, ending = self.waits_for_rival(world), self.not_rivalled(world)
        if (self.resend or waits) and len(world.requests) >= self.limits.max_live and self.chance(0.2 if waits else 0.5):
            return act.Finish(ending[self.random.randrange(len(ending))].request)
        return None

    def _forgotten(self, world: World) -> tuple[int, ...]:
        """Return device blocks to evict: all that are keyed, or those with keys behind some boundary, so that a hit is left."""
        keyed = {block: tokens for block, tokens in enumerate(world.pool.key_tokens) if world.pool.key_node[block] >= 0}
        kept = self.random.choice(sorted(set(keyed.values()))) if keyed and self.chance(0.5) else 0
        return tuple(block for block, tokens in keyed.items() if tokens > kept)

    def known_prompt(self, world: World, past: Sequence[Prompt]) -> Prompt | None:
        """Return a prompt whose beginning the host has, as it was or longer, to be sent now; None for another one."""
        if self.rivalled is not None and self.waits_for_rival(world) and self.chance(0.8):
            request = flight.live(world, self.rivalled)
            assert request is not None
            tokens, context = prompts.spelled(world, request.tip)
            return tokens[: request.num_prompt], context
        if world.host is None or not (self.resend or self.chance(self.habits.again)):
            return None
        groups, best = self._best(world, past)
        if not groups:
            return None
        tokens, context = best[self.random.randrange(len(best))]
        more = self.random.randint(0, min(2, self.limits.max_prompt - len(tokens)))
        return (*tokens, *(self.limits.alphabet[0],) * more), context

    def _best(self, world: World, past: Sequence[Prompt]) -> tuple[int, list[Prompt]]:
        """Return the prompts of which the host has something in the most groups, and the number of these groups."""
        known = [(len(held_of(world, prompt)), prompt) for prompt in past]
        most = max((groups for groups, _ in known), default=0)
        return most, [prompt for groups, prompt in known if groups == most]

    def _report(self, world: World, stuck: bool) -> Action | None:
        """Return a report of a worker: of a store, early or not, or of a load, done or failed."""
        prompt = max(self.habits.report, 0.6) if stuck else self.habits.report
        for store, most in host.acks_left(world):
            if self.chance(prompt if store.stage is Stage.COPIED else self.habits.early * prompt):
                return act.CompleteStore(store.event, 1 + self.random.randrange(most))
        reports = host.load_reports(world)
        if reports and self.chance(0.2 * prompt if self.waits_for_rival(world) else prompt):
            failed = [action for action in reports if isinstance(action, act.CompleteLoad) and action.failed]
            done = [action for action in reports if action not in failed]
            return self.one_of(list(failed if failed and self.chance(self.habits.fail) else done))
        return None

    def _planning(self, world: World) -> Action | None:
        if world.plan.preempted:
            return None
        waits = self.waits_for_rival(world)
        for request in host.promotable(world):
            if self.chance(0.3 * self.habits.promote if waits else self.habits.promote):
                return act.Promote(request.request)
        hit = world.hit
        if hit is not None:
            action = self._load(world, hit) or self._ask(world, hit)
            if action is not None:
                return action
        behind = [request for request in world.requests if request.loaded]
        if behind and not self.short and lists.rows_left(world) and self.chance(0.3 if waits else 0.8):
            return self._behind(behind[self.random.randrange(len(behind))])
        waiting = lists.waiting(world)
        if waiting and self.chance(self.habits.stray):
            request = waiting[self.random.randrange(len(waiting))]
            places = host.starts(world, request)
            return act.LookupExternal(request.request, places[self.random.randrange(len(places))])
        return None

    def _load(self, world: World, hit: Hit) -> Action | None:
        choices = host.loading(world, hit, self.limits)
        if choices and self.waits_for_rival(world) and self.chance(0.8):
            return None  # another connector brings it
        if not choices or not self.chance(self.habits.take):
            return None
        return self.one_of(choices) if self.chance(self.habits.less) else choices[0]

    def _ask(self, world: World, hit: Hit) -> Action | None:
        if self.asked == hit.request or not self.chance(self.habits.look):
            return None
        start = host.aligned(self.config, hit)
        if start != hit.local and self.chance(0.3):
            start = hit.local  # nothing may be offered there (CP-6); the walker asks again behind whole blocks
        return act.LookupExternal(hit.request, start)

    def _behind(self, request: Request) -> Action | None:
        left = amounts.left_of(self.config, request, request.computed)
        for wanted in (self.random.randint(1, left), left) if left > 0 else ():
            amount = amounts.chunk(self.config, request, request.computed, wanted)
            if amount:
                return act.Allocate(request.request, amount)
        return None


def cached_groups(config: Config) -> list[int]:
    """Return the groups that a hit needs."""
    return [index for index, group in enumerate(config.groups) if group.prefix_cacheable]


def held_of(world: World, prompt: Prompt) -> set[int]:
    """Return the groups of which the host has something of a prompt."""
    assert world.host is not None
    nodes = set(prompts.nodes_of(world, *prompt))
    return {group for node, group, _, _ in world.host.pool.entries if node in nodes}


def idles(world: World) -> bool:
    """Tell whether every request waits for a load, or there is none: nothing happens until a transfer goes on."""
    return all(request.status is Status.LOADING for request in world.requests)
