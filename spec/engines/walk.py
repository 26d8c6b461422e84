"""A fast random walker over the enabled actions, bounded by steps, the same on every machine for the same seed.

The walker draws one action at a time instead of listing all of them. Each walk first draws its habits (how often it
preempts, evicts, resends, ...), so that a set of walks covers very different loads (swarm testing). Actions that must be
refused come from a stream of their own: they never change what the legal ones will be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from attrs import Factory, define, evolve, frozen

from kvproof.core import actions as act
from kvproof.core import prefixes
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import Refusal
from kvproof.core.world import Phase, Request, Status, World, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines import amounts, disabled, flight, host, prompts, rules
from kvproof.spec.engines import enabled as lists
from kvproof.spec.engines import witnesses as wit
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.engines.host_walk import HostWalker
from kvproof.spec.engines.prompts import Prompt
from kvproof.spec.judge import Judge, Violation
from kvproof.spec.laws.base import Law, Moment

DISABLED_EVERY = 7


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
    """Probabilities of one walk; ``memory`` of taking a known prompt, ``whole`` of wanting all that is left.

    With two steps in flight: ``busy`` of doing something else than carrying them on, ``ahead`` of opening the next plan now,
    ``meanwhile`` of executing while a plan is open, ``strike`` of preempting a request that has a step in flight, ``late`` of
    executing the next step before an output, ``drop`` of dropping a late one. ``draft`` is that of a decode with drafts,
    ``accept`` that of accepting one more of them.
    """

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
    ahead: float
    meanwhile: float
    busy: float
    strike: float
    drop: float
    late: float
    draft: float
    accept: float


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
        ahead=rate(0.02, 0.2, 0.7, 1.0),
        meanwhile=rate(0.0, 0.1, 0.4),
        strike=rate(0.0, 0.05, 0.2),
        busy=rate(0.05, 0.15, 0.35),
        drop=rate(0.0, 0.3, 0.7),
        late=rate(0.2, 0.7, 1.0),
        draft=rate(0.3, 0.7, 0.95),
        accept=rate(0.2, 0.5, 0.8),
    )


@define(slots=True)
class Walker:
    """Draws actions for a world.

    Remembers the prompts it submitted, how often it asked for which refusal, whether the last allocation was refused
    (``short``) and whether the last action was a submission (``submitted``), which a sibling may follow at once. With
    probability ``keep`` an allocation leaves blocks free for others, drawn from a stream of its own (``keeping``).
    """

    config: Config
    limits: Limits
    random: Random
    refused: Random
    habits: Habits
    sizes: tuple[int, ...]
    keeping: Random
    keep: float
    past: list[Prompt] = Factory(list)
    asked: Counter[type[Refusal]] = Factory(Counter)
    short: bool = False
    submitted: bool = False
    host: HostWalker | None = None

    @classmethod
    def of(cls, config: Config, limits: Limits, seed: str) -> Walker:
        """Return the walker of a seed."""
        random = Random(seed)
        refused = Random(f"{seed}/refused")
        keeping = Random(f"{seed}/reserved")
        keep = (0.0, 0.0, 0.1, 0.3)[keeping.randrange(4)] if len(limits.reserved) > 1 else 0.0
        sizes = amounts.lengths(config, limits)
        habits = draw_habits(random)
        if limits.missing:
            habits = evolve(habits, external=0.7, finish=0.1)
        walker = cls(config, limits, random, refused, habits, sizes, keeping, keep)
        if config.offload is not None:
            walker.host = HostWalker.of(config, limits, seed)
        return walker

    def chance(self, probability: float) -> bool:
        """Tell whether something of this probability happens now."""
        return self.random.random() < probability

    def propose(self, world: World) -> Action:
        """Return one legal action of this world."""
        action = self._next(world)
        if isinstance(action, act.Allocate) and self.keeping.random() < self.keep:
            return evolve(action, reserved=self.keeping.choice(self.limits.reserved[1:]))
        return action

    def _next(self, world: World) -> Action:
        beside = None if self.host is None else self.host.propose(world, self.past)
        if beside is not None:
            return beside
        if world.phase is Phase.IDLE:
            return self._idle(world)
        part = flight.next_part(world)
        if part is not None and self.chance(self.habits.meanwhile):
            return act.Execute(part)
        if world.phase is Phase.DRAINED:
            return act.BuildMetadata()
        if world.phase is Phase.BUILT:
            return act.Dispatch()
        if world.phase is Phase.PLAN_RUNNING:
            return self._running(world)
        return self._waiting(world)

    def disabled(self, world: World) -> Action:
        """Return one action that must be refused in this world, by the refusal that was asked for least often so far."""
        known: dict[type[Refusal], list[Action]] = {}
        for action, expected in disabled.attempts(world, self.limits):
            known.setdefault(expected[0], []).append(action)
        least = min(self.asked[refusal] for refusal in known)
        rarest = [refusal for refusal in known if self.asked[refusal] == least]
        refusal = rarest[self.refused.randrange(len(rarest))]
        self.asked[refusal] += 1
        return known[refusal][self.refused.randrange(len(known[refusal]))]

    def observe(self, moment: Moment) -> None:
        """Remember what the last action came to."""
        record = moment.record
        if self.host is not None:
            self.host.observe(moment)
        self.submitted = isinstance(moment.action, act.Submit)
        self.short = record is not None and record.admitted is False

    def _idle(self, world: World) -> Action:
        room = len(world.requests) < self.limits.max_live
        if self.submitted and room and self.chance(self.habits.burst):
            return self._submit(world, sibling=True)
        if world.steps and lists.may_begin(world) and self.chance(self.habits.ahead):
            if plannable(world) or self.chance(self.habits.late / 2):
                return act.BeginStep()
        on = self._on(world)
        # With two steps in flight there is hardly a moment without one: what happens between steps must happen early.
        if on is not None and not self.chance(self.habits.busy if self.config.max_steps_in_flight > 1 else self.habits.early):
            return on
        if self.host is not None and room and (self.host.resend or self.host.waits_for_rival(world)):
            return self._submit(world)
        disturbance = self._disturb(world)
        if disturbance is not None:
            return disturbance
        if room and (not world.requests or self.chance(self.habits.submit / (1 + len(world.requests)))):
            return self._submit(world)
        if on is not None:
            return on
        at_limit = [request for request in world.requests if request.computed == world.config.max_model_len]
        if at_limit and self.chance(0.7):
            return act.Finish(at_limit[0].request)
        return act.BeginStep()

    def _on(self, world: World) -> Action | None:
        """Return what carries a step in flight on: its next part, or an output that is due."""
        part, due = flight.next_part(world), flight.outputs_due(world)
        if part is not None and (not due or self.chance(self._lateness(world))):
            return act.Execute(part)
        # Whether a connector's tokens arrived is reported before anything else (T36.2).
        brought = [number for number in due if flight.missing_from(world, number)]
        due = tuple(brought) if brought and self.chance(0.8) else due
        return self._output(world, due[self.random.randrange(len(due))]) if due else None

    def _lateness(self, world: World) -> float:
        """Return the probability of executing on while an output is due: high if that ends an empty step."""
        step = flight.unexecuted(world)
        return self.habits.late if step is None or step.scheduled else max(self.habits.late, 0.9)

    def _output(self, world: World, number: int) -> Action:
        missing = flight.missing_from(world, number)
        rival = self.host is not None and self.host.waits_for_rival(world)
        if missing and self.chance(0.9 if rival else self.habits.external / 2):
            return self._missing(world, number, missing)
        most = flight.most_delivered(world, number)
        if most <= 0:
            return act.Output(number)
        drafts, accepted = flight.due_share(world, number).drafts, 0
        while accepted < most - 1 and self.chance(self.habits.accept):
            accepted += 1
        return act.Output(number, (*drafts[:accepted], self._token()))

    def _missing(self, world: World, number: int, valid: range) -> Action:
        """Return a report that a connector's tokens did not arrive, or before it a preemption of another who read them."""
        count = valid[0] if self.chance(0.4) else valid[self.random.randrange(len(valid))]
        gone = prefixes.ancestor(world.prefixes, flight.due_share(world, number).tip, count + 1)
        readers = [
            request
            for request in lists.preemptable(world)
            if request.request != number and request.in_flight and request.computed > count
            if prefixes.ancestor(world.prefixes, request.tip, count + 1) == gone
        ]
        if readers and self.chance(0.4):
            return act.Preempt(readers[self.random.randrange(len(readers))].request)
        return act.Output(number, failed=True, valid=count)

    def _disturb(self, world: World) -> Action | None:
        draw = self.random.random()
        habits = self.habits
        ending = list(world.requests) if self.host is None else self.host.not_rivalled(world)
        if ending and draw < habits.finish:
            return act.Finish(ending[self.random.randrange(len(ending))].request)
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
            resting = lists.preemptable(world)
            if resting:
                return self._preempt(resting[self.random.randrange(len(resting))])
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
        return act.Submit(prompts.free_id(world), tokens, context, self.chance(self.habits.skip))

    def _prompt(self, world: World) -> Prompt:
        limit = self.limits.max_prompt
        known = None if self.host is None else self.host.known_prompt(world, self.past)
        if known is not None:
            return known
        if not self.past or not self.chance(self.habits.memory):
            tokens = tuple(self._token() for _ in range(self._size(1, limit)))
            return tokens, self.limits.contexts[self.random.randrange(len(self.limits.contexts))]
        if self.chance(0.3) and world.prefixes.parent:
            nodes = len(world.prefixes.parent)
            tokens, context = prompts.spelled(world, nodes - 1 - self.random.randrange(min(nodes, 24)))
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
        left = amounts.left_of(self.config, request, start)
        if left <= 0:
            return 0
        if not self.chance(self.habits.whole):
            amount = amounts.chunk(self.config, request, start, self.random.randint(1, left))
            if amount:
                return amount
        return amounts.chunk(self.config, request, start, left)

    def _lookahead(self) -> int:
        return self.limits.lookahead[self.random.randrange(len(self.limits.lookahead))]

    def _gate(self) -> bool:
        return self.limits.gates[self.random.randrange(len(self.limits.gates))]

    def _drafts(self, request: Request) -> tuple[int, ...]:
        return self._guesses(amounts.most_drafts(self.config, request))

    def _guesses(self, most: int) -> tuple[int, ...]:
        if not most or not self.chance(self.habits.draft):
            return ()
        return tuple(self._token() for _ in range(self.random.randint(1, most)))

    def _preempt(self, request: Request) -> Action:
        return act.Preempt(request.request, drop_stale=bool(request.in_flight) and self.chance(self.habits.drop))

    def _running(self, world: World) -> Action:
        open_requests = lists.unscheduled(world)
        victims = lists.preemptable(world)
        taken = lists.scheduled(world)
        planned = [request for request in victims if request.request in taken]
        if planned and self.chance(0.4 if self.short else self.habits.withdraw):
            request = planned[self.random.randrange(len(planned))]
            return act.Withdraw(request.request, drop_stale=bool(request.in_flight) and self.chance(self.habits.drop))
        others = [request for request in victims if request.request not in taken]
        if others and self.chance(0.8 if self.short else self.habits.preempt):
            return self._preempt(others[self.random.randrange(len(others))])
        flying = [request for request in others if request.in_flight]
        if flying and self.chance(self.habits.strike):
            return self._preempt(flying[self.random.randrange(len(flying))])
        late = [request for request in world.requests if request.request in world.plan.preempted and request.stale]
        if late and not taken and self.chance(self.habits.late):
            # An empty step makes room for the next plan while the output is still to come.
            return act.Drain()
        if open_requests and not self.short and not self.chance(self.habits.defer):
            action = self._continue(open_requests[self.random.randrange(len(open_requests))])
            if action is not None:
                return action
        return self._admit_next(world)

    def _continue(self, request: Request) -> Action | None:
        drafts = self._drafts(request)
        if drafts:
            return act.Allocate(request.request, 1 + len(drafts), lookahead=self._lookahead(), drafts=drafts)
        amount = self._amount(request, request.computed)
        return act.Allocate(request.request, amount, lookahead=self._lookahead()) if amount else None

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
        rival = self.host is not None and self.host.waits_for_rival(world)
        instead = (rival or host.pinned(world, request.request) is not None) and self.chance(0.8 if rival else 0.5)
        if self.limits.external and (hit.diverged or instead or self.chance(self.habits.external)):
            local = amounts.adoptable(self.config, hit)[0]
            choices = amounts.external_amounts(self.config, request, local, hit.local - local)
            if choices and self.chance(self.habits.tight):
                return self._tight(world, request, local, choices)
            if choices:
                external = choices[self.random.randrange(len(choices))]
                amount = self._amount(request, local + external)
                if amount:
                    return act.Allocate(request.request, amount, local=local, external=external, full_sequence=self._gate())
        if hit.diverged:
            return act.Lookup(request.request, common=True)
        if hit.local >= request.num_tokens:
            return None
        amount = self._amount(request, hit.local)
        if not amount:
            return None
        padding = self._guesses(amounts.most_padding(self.config, request, hit.local))
        return act.Allocate(
            request.request,
            1 + len(padding) if padding else amount,
            local=hit.local,
            lookahead=self._lookahead(),
            drafts=padding,
            full_sequence=self._gate(),
        )

    def _tight(self, world: World, request: Request, local: int, choices: Sequence[int]) -> Action:
        """Return the admission with the most external tokens that still fits, so that the pool is used up to its end."""
        action: Action = act.Lookup(request.request)
        for external in reversed(choices[-5:]):
            start = local + external
            amount = amounts.chunk(self.config, request, start, amounts.left_of(self.config, request, start))
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
        fits = lists.rows_left(world) or self.chance(0.1)
        if candidates and fits and not self.chance(0.12 + self.habits.defer):
            return act.Lookup(candidates[self.random.randrange(len(candidates))].request)
        return act.Drain()


def plannable(world: World) -> bool:
    """Tell whether a plan opened now could schedule something: a running request has tokens left, or one waits (T0)."""
    running = [request for request in world.requests if request.status is Status.RUNNING]
    if any(amounts.left_of(world.config, request, request.computed) > 0 for request in running):
        return True
    behind = any(request.loaded for request in world.requests) or bool(host.promotable(world))
    return lists.rows_left(world) and (behind or bool(lists.waiting(world)))


def walk(
    config: Config,
    seed: str,
    steps: int,
    laws: Sequence[Law] = (),
    limits: Limits | None = None,
    disabled_every: int = DISABLED_EVERY,
    only: str = "",
    whole: bool = True,
) -> WalkResult:
    """Walk ``steps`` actions from the new world; stop at the first violation that no profile field explains.

    ``seed`` is any text. Every ``disabled_every``-th attempt is one that must be refused (0: none). ``only`` names the
    one law or rule whose violations count, bent ones included; everything else is passed over. ``whole``: the laws that run
    the actions again, under another configuration or without a cache, are judged at the end, too.
    """
    walker = Walker.of(config, limits or amounts.limits_for(config), seed)
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
    if laws and whole and not _ends(found, only):
        legal = True
        found += _counting(judge.run(config, actions), only)
    return WalkResult(tuple(actions), tuple(found), dict(judge.premises), dict(tracker.counts), tried, legal)


def _counting(found: list[Violation], only: str) -> list[Violation]:
    return [violation for violation in found if violation.law == only] if only else found


def _ends(found: list[Violation], only: str) -> bool:
    return bool(found) if only else bool(judges.refuted(found))
