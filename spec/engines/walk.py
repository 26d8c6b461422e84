"""A fast random walker over the enabled actions, bounded by steps, the same on every machine for the same seed.

The walker draws one action at a time instead of listing all of them. Each walk first draws its habits (how often it
preempts, evicts, resends, ...), so that a set of walks covers very different loads (swarm testing).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import Factory, define, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import Phase, Request, World, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines import disabled, rules
from kvproof.spec.engines import enabled as lists
from kvproof.spec.engines import witnesses as wit
from kvproof.spec.engines.enabled import Limits
from kvproof.spec.judge import Judge, Violation
from kvproof.spec.laws.base import Law, Moment

DISABLED_EVERY = 7

Prompt = tuple[tuple[int, ...], int]


@frozen(slots=True)
class WalkResult:
    """What a walk did and found.

    ``actions`` lead from the new world to the end, refused attempts left out; if a violation was found, the last one
    showed it (``legal``: whether it was proposed as a legal one). ``premises`` and ``witnesses`` count, by law id and
    by name; ``steps`` counts actions tried.
    """

    actions: tuple[Action, ...]
    violations: tuple[Violation, ...]
    premises: dict[str, int]
    witnesses: dict[str, int]
    steps: int
    legal: bool = True


@frozen(slots=True)
class Habits:
    """Probabilities of one walk; ``memory`` of taking a known prompt, ``whole`` of wanting all that is left."""

    finish: float
    evict: float
    reset: float
    append: float
    early: float
    submit: float
    burst: float
    preempt: float
    pause: float
    withdraw: float
    defer: float
    external: float
    tight: float
    memory: float
    resend: float
    whole: float
    skip: float


def draw_habits(random: Random) -> Habits:
    """Draw the habits of a walk; every disturbance is off in some walks and frequent in others."""

    def rate(*choices: float) -> float:
        return choices[random.randrange(len(choices))]

    return Habits(
        finish=rate(0.02, 0.1, 0.3),
        evict=rate(0.0, 0.02, 0.1),
        reset=rate(0.0, 0.0, 0.03),
        append=rate(0.0, 0.02, 0.05),
        early=rate(0.0, 0.02, 0.08),
        submit=rate(0.3, 0.6, 0.9),
        burst=rate(0.0, 0.4, 0.8),
        preempt=rate(0.0, 0.03, 0.15),
        pause=rate(0.0, 0.0, 0.03),
        withdraw=rate(0.0, 0.05, 0.2),
        defer=rate(0.0, 0.05, 0.2),
        external=rate(0.0, 0.3, 0.7),
        tight=rate(0.0, 0.5, 0.9),
        memory=rate(0.5, 0.8, 0.95),
        resend=rate(0.2, 0.4, 0.7),
        whole=rate(0.2, 0.6, 0.9),
        skip=rate(0.0, 0.0, 0.1),
    )


@define(slots=True)
class Walker:
    """Draws actions for a world.

    Remembers the prompts it submitted, whether the last allocation was refused (``short``) and whether the last action
    was a submission (``submitted``), which a sibling may follow at once.
    """

    config: Config
    limits: Limits
    random: Random
    habits: Habits
    sizes: tuple[int, ...]
    past: list[Prompt] = Factory(list)
    short: bool = False
    submitted: bool = False

    @classmethod
    def of(cls, config: Config, limits: Limits, seed: str) -> Walker:
        """Return the walker of a seed."""
        random = Random(seed)
        return cls(config, limits, random, draw_habits(random), lists.lengths(config, limits))

    def chance(self, probability: float) -> bool:
        """Tell whether something of this probability happens now."""
        return self.random.random() < probability

    def propose(self, world: World) -> Action:
        """Return one legal action of this world."""
        if world.phase is Phase.IDLE:
            return self._idle(world)
        if world.phase is Phase.DRAINED:
            return act.BuildMetadata()
        if world.phase is Phase.BUILT:
            return act.Dispatch()
        if world.phase is Phase.PLAN_RUNNING:
            return self._running(world)
        return self._waiting(world)

    def disabled(self, world: World) -> Action:
        """Return one action that must be refused in this world."""
        actions = disabled.disabled(world, self.limits)
        return actions[self.random.randrange(len(actions))]

    def observe(self, moment: Moment) -> None:
        """Remember what the last action came to."""
        record = moment.record
        self.submitted = isinstance(moment.action, act.Submit)
        self.short = record is not None and record.admitted is False

    def _idle(self, world: World) -> Action:
        room = len(world.requests) < self.limits.max_live
        if self.submitted and room and self.chance(self.habits.burst):
            return self._submit(world, sibling=True)
        part = lists.next_part(world)
        if part is not None and not self.chance(self.habits.early):
            return act.Execute(part)
        due = lists.outputs_due(world)
        if due and not self.chance(self.habits.early):
            request = due[self.random.randrange(len(due))]
            return act.Output(request, (self._token(),) if lists.samples(world, request) else ())
        disturbance = self._disturb(world)
        if disturbance is not None:
            return disturbance
        if room and (not world.requests or self.chance(self.habits.submit / (1 + len(world.requests)))):
            return self._submit(world)
        if part is not None:
            return act.Execute(part)
        if due:
            return act.Output(due[0], (self._token(),) if lists.samples(world, due[0]) else ())
        at_limit = [request for request in world.requests if request.computed == world.config.max_model_len]
        if at_limit and self.chance(0.7):
            return act.Finish(at_limit[0].request)
        return act.BeginStep()

    def _disturb(self, world: World) -> Action | None:
        draw = self.random.random()
        habits = self.habits
        if world.requests and draw < habits.finish:
            return act.Finish(world.requests[self.random.randrange(len(world.requests))].request)
        draw -= habits.finish
        if 0 <= draw < habits.evict:
            keyed = [block for block, node in enumerate(world.pool.key_node) if node >= 0]
            if keyed:
                count = 1 + self.random.randrange(min(2, len(keyed)))
                return act.EvictBlocks(tuple(sorted(self.random.sample(keyed, count))))
        draw -= habits.evict
        if 0 <= draw < habits.reset:
            return act.ResetCache()
        draw -= habits.reset
        if 0 <= draw < habits.pause:
            resting = lists.at_rest(world)
            if resting:
                return act.Preempt(resting[self.random.randrange(len(resting))].request)
        draw -= habits.pause
        if 0 <= draw < habits.append:
            rows = lists.free_rows(world)
            choices = lists.appends(world, rows[self.random.randrange(len(rows))]) if rows else []
            if choices:
                return choices[self.random.randrange(len(choices))]
        return None

    def _token(self) -> int:
        return self.limits.alphabet[self.random.randrange(len(self.limits.alphabet))]

    def _size(self, low: int, high: int) -> int:
        """Return an interesting length in [low, high], or any length if there is none."""
        fitting = [size for size in self.sizes if low <= size <= high]
        if fitting and self.chance(0.8):
            return fitting[self.random.randrange(len(fitting))]
        return self.random.randint(low, high)

    def _submit(self, world: World, sibling: bool = False) -> Action:
        tokens, context = self._vary(*self.past[-1]) if sibling else self._prompt(world)
        self.past.append((tokens, context))
        if len(self.past) > 12:
            del self.past[self.random.randrange(len(self.past) - 1)]
        return act.Submit(lists.free_id(world), tokens, context, self.chance(self.habits.skip))

    def _prompt(self, world: World) -> Prompt:
        limit = self.limits.max_prompt
        if not self.past or not self.chance(self.habits.memory):
            tokens = tuple(self._token() for _ in range(self._size(1, limit)))
            return tokens, self.limits.contexts[self.random.randrange(len(self.limits.contexts))]
        if self.chance(0.3) and world.prefixes.parent:
            nodes = len(world.prefixes.parent)
            tokens, context = lists.spelled(world, nodes - 1 - self.random.randrange(min(nodes, 24)))
            tokens = tokens[:limit] or (self._token(),)
        else:
            tokens, context = self.past[self.random.randrange(len(self.past))]
        return self._vary(tokens, context)

    def _vary(self, tokens: tuple[int, ...], context: int) -> Prompt:
        limit, draw = self.limits.max_prompt, self.random.random()
        if self.chance(self.habits.resend):
            return tokens, context
        if draw < 0.15:
            return tokens, self.limits.contexts[self.random.randrange(len(self.limits.contexts))]
        if draw < 0.5 and len(tokens) < limit:
            more = self._size(len(tokens) + 1, limit) - len(tokens)
            return tokens + tuple(self._token() for _ in range(more)), context
        cut = self._size(1, len(tokens))
        if draw < 0.7:
            return tokens[:cut], context
        rest = self._size(cut, limit) - cut
        return tokens[:cut] + tuple(self._token() for _ in range(rest)), context

    def _amount(self, request: Request, start: int) -> int:
        """Return a legal chunk; a drawn budget that would skip the step is raised to everything, 0 if that skips it too."""
        left = min(request.num_tokens - start, self.config.max_chunk)
        if left <= 0:
            return 0
        if not self.chance(self.habits.whole):
            amount = lists.chunk(self.config, request, start, self.random.randint(1, left))
            if amount:
                return amount
        return lists.chunk(self.config, request, start, left)

    def _lookahead(self) -> int:
        return self.limits.lookahead[self.random.randrange(len(self.limits.lookahead))]

    def _running(self, world: World) -> Action:
        open_requests = lists.unscheduled(world)
        taken = sorted(lists.scheduled(world))
        if taken and self.chance(0.4 if self.short else self.habits.withdraw):
            return act.Withdraw(taken[self.random.randrange(len(taken))])
        if open_requests and self.chance(0.8 if self.short else self.habits.preempt):
            return act.Preempt(open_requests[self.random.randrange(len(open_requests))].request)
        if open_requests and not self.short and not self.chance(self.habits.defer):
            request = open_requests[self.random.randrange(len(open_requests))]
            amount = self._amount(request, request.computed)
            if amount:
                return act.Allocate(request.request, amount, lookahead=self._lookahead())
        return self._admit_next(world)

    def _waiting(self, world: World) -> Action:
        hit = world.hit
        if hit is not None and lists.rows_left(world):
            request = next(live for live in world.requests if live.request == hit.request)
            action = self._first(world, request)
            if action is not None:
                return action
        if self.short and self.chance(0.7):
            return act.Drain()
        return self._admit_next(world)

    def _first(self, world: World, request: Request) -> Action | None:
        hit = world.hit
        assert hit is not None
        if self.limits.external and (hit.diverged or self.chance(self.habits.external)):
            local = lists.adoptable(self.config, hit)[0]
            choices = lists.external_amounts(self.config, request, local)
            if choices and self.chance(self.habits.tight):
                return self._tight(world, request, local, choices)
            if choices:
                external = choices[self.random.randrange(len(choices))]
                amount = self._amount(request, local + external)
                if amount:
                    return act.Allocate(request.request, amount, local=local, external=external)
        if hit.diverged or hit.local >= request.num_tokens:
            return None
        amount = self._amount(request, hit.local)
        if not amount:
            return None
        return act.Allocate(request.request, amount, local=hit.local, lookahead=self._lookahead())

    def _tight(self, world: World, request: Request, local: int, choices: Sequence[int]) -> Action:
        """Return the admission with the most external tokens that still fits, so that the pool is used up to its end."""
        action: Action = act.Lookup(request.request)
        for external in reversed(choices[-5:]):
            start = local + external
            amount = lists.chunk(self.config, request, start, min(request.num_tokens - start, self.config.max_chunk))
            if amount:
                action = act.Allocate(request.request, amount, local=local, external=external)
                record = judges.attempt(world, action).record
                if record is not None and record.admitted:
                    break
        return action

    def _admit_next(self, world: World) -> Action:
        hit = world.hit
        taken = lists.scheduled(world)
        candidates = [
            request
            for request in lists.waiting(world)
            if (hit is None or hit.request != request.request) and request.request not in taken
        ]
        if candidates and lists.rows_left(world) and not self.chance(0.12 + self.habits.defer):
            return act.Lookup(candidates[self.random.randrange(len(candidates))].request)
        return act.Drain()


def walk(
    config: Config,
    seed: str,
    steps: int,
    laws: Sequence[Law] = (),
    limits: Limits | None = None,
    disabled_every: int = DISABLED_EVERY,
    only: str = "",
) -> WalkResult:
    """Walk ``steps`` actions from the new world; stop at the first violation that no profile field explains.

    ``seed`` is any text. Every ``disabled_every``-th attempt is one that must be refused (0: none). ``only`` names the
    one law or rule whose violations count, bent ones included; everything else is passed over.
    """
    walker = Walker.of(config, limits or lists.limits_for(config), seed)
    judge = Judge(laws)
    tracker = wit.Tracker()
    found = _counting(judge.configuration(config), only)
    world = new_world(config)
    actions: list[Action] = []
    tried = 0
    legal = True
    while tried < steps and not _ends(found, only):
        tried += 1
        legal = not (disabled_every and tried % disabled_every == 0)
        action = walker.propose(world) if legal else walker.disabled(world)
        moment = judges.attempt(world, action)
        here = judge.moment(moment, len(actions)) if laws else []
        here += rules.violations(moment, legal, here, len(actions))
        here = _counting(here, only)
        tracker.observe(moment)
        judge.premises[rules.TOTALITY if legal else rules.GUARD] += 1
        if legal:
            walker.observe(moment)
        if here or moment.after is not world:
            actions.append(action)
        found += here
        world = moment.after
    if laws and not _ends(found, only):
        legal = True
        found += _counting(judge.run(config, actions), only)
    return WalkResult(tuple(actions), tuple(found), dict(judge.premises), dict(tracker.counts), tried, legal)


def _counting(found: list[Violation], only: str) -> list[Violation]:
    return [violation for violation in found if violation.law == only] if only else found


def _ends(found: list[Violation], only: str) -> bool:
    return bool(found) if only else bool(judges.refuted(found))
