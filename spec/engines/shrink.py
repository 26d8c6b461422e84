"""Delta debugging of action lists: the shortest one found that still breaks the same law.

Candidates are run leniently: an action that is refused is left out, and an allocation or output whose amounts no longer
fit is fitted again. Whatever survives is a legal run of its own, and its last action shows the violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from attrs import define, evolve

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import Request, Status, World
from kvproof.spec import judge as judges
from kvproof.spec.engines import amounts, disabled, flight, host, players, rules
from kvproof.spec.engines import enabled as lists
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.judge import Judge, Violation
from kvproof.spec.laws.base import Law, Moment

MAX_RUNS = 1000


class Judges(Protocol):
    """Judges one candidate; see ``Judge``."""

    def configuration(self, config: Config) -> list[Violation]:
        """Judge the configuration alone."""
        ...

    def moment(self, moment: Moment, position: int) -> list[Violation]:
        """Judge one action by the laws."""
        ...

    def ruled(
        self, player: players.Player, moment: Moment, legal: bool, found: list[Violation], position: int
    ) -> list[Violation]:
        """Judge the action that a player has just performed by the rules of generation."""
        ...

    def run(self, config: Config, actions: Sequence[Action], start: players.Start) -> list[Violation]:
        """Judge the whole run."""
        ...


@define(slots=True)
class OfModel(Judge):
    """Judges a candidate that the model performs."""

    def ruled(
        self, player: players.Player, moment: Moment, legal: bool, found: list[Violation], position: int
    ) -> list[Violation]:
        """Judge an action by the rules of generation."""
        del player
        return rules.violations(moment, legal, found, position)


Judging = Callable[[Sequence[Law]], Judges]
"""Makes the judge of one candidate."""


@define(slots=True)
class Shrinker:
    """Runs candidates for one violation; ``runs`` counts them and is bounded by ``max_runs``, the actions by ``max_actions``.

    ``start`` begins a run of who is judged, ``judging`` makes the judge of a candidate; a candidate that ends with one of the
    ``ignored`` errors shows nothing.
    """

    config: Config
    limits: Limits
    law: str
    laws: Sequence[Law]
    legal: bool
    max_runs: int = MAX_RUNS
    max_actions: int | None = None
    start: players.Start = players.model
    judging: Judging = OfModel
    ignored: tuple[type[BaseException], ...] = ()
    bent: bool = False
    """Whether a violation that is bent counts: it does not in place of one that is not."""
    runs: int = 0
    performed: int = 0

    def run(self, actions: Sequence[Action]) -> tuple[tuple[Action, ...], Violation] | None:
        """Run a candidate; return the actions up to the violation, or None if the law holds.

        The last action of an illegal attempt (``legal`` False) counts only where it still must be refused.
        """
        self.runs += 1
        try:
            return self._run(actions)
        except self.ignored:
            return None

    def _run(self, actions: Sequence[Action]) -> tuple[tuple[Action, ...], Violation] | None:
        judge = self.judging(self.laws)
        configuration = self._matching(judge.configuration(self.config))
        if configuration is not None:
            return (), configuration
        player = self.start(self.config)
        kept: list[Action] = []
        for at, candidate in enumerate(actions):
            probe = at == len(actions) - 1 and not self.legal
            world = player.world
            action = candidate if probe else _fitted(world, candidate)
            if not probe and self._is_illegal(world, action):
                continue
            moment = player.act(action)
            self.performed += 1
            found = judge.moment(moment, len(kept))
            if probe and action in disabled.disabled(world, self.limits):
                found += judge.ruled(player, moment, False, found, len(kept))
            elif moment.refusal is not None and (
                judges.is_internal(moment.refusal) or action in lists.enabled(world, self.limits)
            ):
                found += judge.ruled(player, moment, True, found, len(kept))
            violation = self._matching(found)
            if violation is not None:
                return (*kept, action), violation
            if moment.refusal is None or player.world is not world:
                kept.append(action)
        if any(law.check_run is not None or law.check_end is not None for law in self.laws):
            self.performed += len(kept)  # they are performed once more at least
        whole = self._matching(judge.run(self.config, kept, self.start))
        return None if whole is None else (tuple(kept), whole)

    def _is_illegal(self, world: World, action: Action) -> bool:
        """Tell whether an implementation must not be asked for an action at all: the model refuses it in the followed world.

        The model itself is asked, since its refusal is judged; an implementation might perform it, and what comes of that is no
        counterexample.
        """
        if self.start is players.model:
            return False
        refusal = judges.attempt(world, action).refusal
        return refusal is not None and not judges.is_internal(refusal)

    def _matching(self, found: Sequence[Violation]) -> Violation | None:
        own = (violation for violation in found if violation.law == self.law)
        return next((violation for violation in own if self.bent or not violation.bent), None)

    def spent(self) -> bool:
        """Tell whether no run is left."""
        return self.runs >= self.max_runs or (self.max_actions is not None and self.performed >= self.max_actions)


def shrink(
    config: Config,
    actions: Sequence[Action],
    violation: Violation,
    laws: Sequence[Law],
    limits: Limits,
    legal: bool = True,
    max_runs: int = MAX_RUNS,
    *,
    max_actions: int | None = None,
    start: players.Start = players.model,
    judging: Judging = OfModel,
    ignored: tuple[type[BaseException], ...] = (),
    interrupted: Callable[[], None] | None = None,
) -> tuple[tuple[Action, ...], Violation]:
    """Return a minimal action list that breaks the same law, and the violation it shows.

    ``actions`` end with the action that broke the law; ``legal`` says whether that one was proposed as legal. The
    original comes back if it does not repeat under the lenient rules. ``interrupted`` takes an interrupt of the user, and the
    shortest list so far comes back; without it the interrupt goes on. For the rest see ``Shrinker``.
    """
    if violation.position < 0 and not actions:
        return tuple(actions), violation
    relevant = [law for law in laws if law.id == violation.law]
    shrinker = Shrinker(
        *(config, limits, violation.law, relevant, legal, max_runs, max_actions, start, judging, ignored),
        bent=violation.bent,
    )
    best: Result | None = None
    try:
        best = shrinker.run(actions)
        progress = best is not None
        while best is not None and progress and not shrinker.spent():
            before = _cost(best[0])
            for shorter in (_without_requests, _without_steps, _without_chunks, _simpler, _straightened):
                best = shorter(shrinker, best)
            progress = _cost(best[0]) < before
    except KeyboardInterrupt:
        if interrupted is None:
            raise
        interrupted()
    return (tuple(actions), violation) if best is None else best


Result = tuple[tuple[Action, ...], Violation]


def _better(shrinker: Shrinker, best: Result, candidate: tuple[Action, ...]) -> Result | None:
    """Return what a candidate shows if it shows the violation at a lower cost."""
    if shrinker.spent() or candidate == best[0]:
        return None
    result = shrinker.run(candidate)
    return result if result is not None and _cost(result[0]) < _cost(best[0]) else None


def _cost(actions: Sequence[Action]) -> tuple[int, int, int, int]:
    """Order candidates: fewer actions, fewer prompt tokens, smaller numbers, less executed while a plan is open."""
    prompts = sum(len(action.tokens) for action in actions if isinstance(action, act.Submit))
    numbers = 0
    for action in actions:
        if isinstance(action, act.Submit | act.Output):
            numbers += sum(action.tokens)
        if isinstance(action, act.Submit):
            numbers += action.context + action.skip_reading
        elif isinstance(action, act.Allocate):
            numbers += action.external + action.lookahead + action.full_sequence + action.reserved
            numbers += len(action.drafts) + sum(action.drafts) + action.load
        elif isinstance(action, act.Output):
            numbers += max(len(action.tokens) - 1, 0) + action.failed + action.valid
        elif isinstance(action, act.Preempt | act.Withdraw):
            numbers += action.drop_stale
        elif isinstance(action, act.Lookup):
            numbers += action.common
        elif isinstance(action, act.LookupExternal):
            numbers += action.start
        elif isinstance(action, act.CompleteLoad):
            numbers += action.failed + action.valid
    return len(actions), prompts, numbers, len(_crossed(actions))


def _crossed(actions: Sequence[Action]) -> list[tuple[int, int]]:
    """Return the places (at, begin) of what is executed at ``at``, in a plan that was opened at ``begin``."""
    found: list[tuple[int, int]] = []
    begin = -1
    for at, action in enumerate(actions):
        if isinstance(action, act.BeginStep):
            begin = at
        elif isinstance(action, act.Dispatch):
            begin = -1
        elif begin >= 0 and isinstance(action, act.Execute | act.RunStore | act.RunLoad):
            found.append((at, begin))
    return found


def _without_requests(shrinker: Shrinker, best: Result) -> Result:
    """Leave out whole requests, the last one first."""
    at = len(best[0]) - 1
    while at >= 0:
        actions = best[0]
        if at < len(actions) and isinstance(actions[at], act.Submit):
            number = _named(actions[at])
            again = (n for n in range(at + 1, len(actions)) if _names(actions[n], act.Submit, number))
            stop = next(again, len(actions))
            kept = [action for action in actions[at:stop] if _named(action) != number]
            best = _better(shrinker, best, (*actions[:at], *kept, *actions[stop:])) or best
        at -= 1
    return best


def _names(action: Action, kind: type[Action], number: int | None) -> bool:
    return isinstance(action, kind) and _named(action) == number


def _named(action: Action) -> int | None:
    number = getattr(action, "request", None)
    return number if isinstance(number, int) else None


def _without_steps(shrinker: Shrinker, best: Result) -> Result:
    """Leave out whole steps, the last one first."""
    at = len(best[0]) - 1
    while at >= 0:
        actions = best[0]
        if at < len(actions) and isinstance(actions[at], act.BeginStep):
            later = (n for n in range(at + 1, len(actions)) if isinstance(actions[n], act.BeginStep))
            best = _better(shrinker, best, (*actions[:at], *actions[next(later, len(actions) - 1) :])) or best
        at -= 1
    return best


def _without_chunks(shrinker: Shrinker, best: Result) -> Result:
    """Leave out runs of actions, long runs first, from the end to the start."""
    size = max(len(best[0]) // 2, 1)
    while True:
        stop = len(best[0])
        while stop > 0:
            actions = best[0]
            start = max(stop - size, 0)
            shorter = _better(shrinker, best, (*actions[:start], *actions[stop:]))
            best = shorter or best
            stop = min(start, len(best[0]))
        if size == 1:
            return best
        size //= 2


def _simpler(shrinker: Shrinker, best: Result) -> Result:
    """Shorten prompts and drafts, then zero tokens, contexts, external tokens, extra slots and flags."""
    at = 0
    while at < len(best[0]):
        better = None
        for simpler in _simpler_actions(best[0][at]):
            better = _better(shrinker, best, (*best[0][:at], simpler, *best[0][at + 1 :]))
            if better is not None:
                break
        if better is None:
            at += 1
        else:
            best = better
    return best


def _straightened(shrinker: Shrinker, best: Result) -> Result:
    """Execute before a plan what is executed while it is open."""
    tried = 0
    while len(crossed := _crossed(best[0])) > tried:
        at, begin = crossed[tried]
        actions = best[0]
        moved = (*actions[:begin], actions[at], *actions[begin:at], *actions[at + 1 :])
        better = _better(shrinker, best, moved)
        if better is None:
            tried += 1
        else:
            best = better
    return best


def _simpler_actions(action: Action) -> Iterator[Action]:
    if isinstance(action, act.Submit):
        length = len(action.tokens)
        for shorter in dict.fromkeys((length // 2, length - 4, length - 2, length - 1)):
            if 0 < shorter < length:
                yield evolve(action, tokens=action.tokens[:shorter])
        if any(action.tokens):
            yield evolve(action, tokens=(0,) * length)
        if action.context:
            yield evolve(action, context=0)
        if action.skip_reading:
            yield evolve(action, skip_reading=False)
    elif isinstance(action, act.Output):
        if action.failed:
            yield evolve(action, failed=False, valid=0)
            yield from (evolve(action, valid=valid) for valid in (0, action.valid - 1) if 0 <= valid < action.valid)
        if len(action.tokens) > 1:
            yield evolve(action, tokens=action.tokens[1:])
            yield evolve(action, tokens=action.tokens[:-1])
        if any(action.tokens):
            yield evolve(action, tokens=(0,) * len(action.tokens))
    elif isinstance(action, act.Allocate):
        yield from _simpler_allocations(action)
    elif isinstance(action, act.Preempt | act.Withdraw) and action.drop_stale:
        yield evolve(action, drop_stale=False)
    elif isinstance(action, act.Lookup) and action.common:
        yield evolve(action, common=False)
    elif isinstance(action, act.LookupExternal) and action.start:
        yield evolve(action, start=0)
    elif isinstance(action, act.CompleteLoad) and action.failed:
        yield evolve(action, failed=False, valid=0)
        if action.valid:
            yield evolve(action, valid=0)


def _simpler_allocations(action: act.Allocate) -> Iterator[Action]:
    drafts = action.drafts
    for kept in dict.fromkeys((0, len(drafts) - 1)):
        if 0 <= kept < len(drafts):
            yield evolve(action, drafts=drafts[:kept], new_tokens=action.new_tokens - len(drafts) + kept)
    if any(drafts):
        yield evolve(action, drafts=(0,) * len(drafts))
    if action.external:
        yield evolve(action, external=0)
    if action.lookahead:
        yield evolve(action, lookahead=0)
    if action.reserved:
        yield evolve(action, reserved=0)
    if action.full_sequence:
        yield evolve(action, full_sequence=False)


def _fitted(world: World, action: Action) -> Action:
    """Return the action with what fits this world: chunk, drafts, adopted or pinned hit, sampled tokens, event."""
    if isinstance(action, act.Output) and action.request in flight.outputs_due(world) and not action.failed:
        return evolve(action, tokens=_fitted_tokens(world, action))
    if world.host is not None and not isinstance(action, act.Allocate):
        return _fitted_transfer(world, action)
    if isinstance(action, act.Allocate) and action.load:
        return _fitted_load(world, action)
    if not isinstance(action, act.Allocate) or action.new_tokens <= 0:
        return action
    request = flight.live(world, action.request)
    return action if request is None else _fitted_chunk(world, request, action)


def _fitted_chunk(world: World, request: Request, action: act.Allocate) -> Action:
    if request.status is Status.RUNNING:
        start = request.computed
        drafts = action.drafts[: amounts.most_drafts(world.config, request)]
        if action.drafts:
            action = evolve(action, drafts=drafts, new_tokens=1 + len(drafts))
        if drafts:
            return action
    elif request.loaded:
        action = evolve(action, local=0, external=0, full_sequence=False)
        start = request.computed
    elif world.hit is not None and world.hit.request == request.request:
        local = amounts.adoptable(world.config, world.hit)[0] if action.external else world.hit.local
        action = evolve(action, local=local)
        start = local + action.external
    else:
        return action
    left = amounts.left_of(world.config, request, start)
    if action.new_tokens in amounts.amounts(world.config, request, start):
        return action
    chunks = [
        amounts.chunk(world.config, request, start, min(wanted, left)) for wanted in (action.new_tokens, left) if left > 0
    ]
    fitting = [amount for amount in chunks if amount]
    return evolve(action, new_tokens=fitting[0]) if fitting and action.new_tokens not in fitting else action


def _fitted_load(world: World, action: act.Allocate) -> Action:
    """Return a load of what is pinned now, if it was to load something else; a part of it stays a part, legal or not."""
    if world.hit is None or world.hit.request != action.request:
        return action
    pin = host.pinned(world, action.request)
    if pin is None:
        return action
    external = action.external if 0 < action.external < pin.length else pin.length
    return evolve(
        action, local=pin.start if pin.start == action.local else host.aligned(world.config, world.hit), external=external
    )


def _fitted_transfer(world: World, action: Action) -> Action:
    """Return a copy or report of the transfer that is next, if that of the action is not there; a lookup behind the hit."""
    if isinstance(action, act.RunStore):
        event = host.next_store(world)
        return action if event is None else act.RunStore(event)
    if isinstance(action, act.RunLoad):
        event = host.next_load(world)
        return action if event is None else act.RunLoad(event)
    if isinstance(action, act.CompleteStore):
        reports = {store.event: most for store, most in host.acks_left(world)}
        if reports and action.event not in reports:
            action = evolve(action, event=min(reports))
        return evolve(action, acks=min(action.acks, reports[action.event])) if action.event in reports else action
    if isinstance(action, act.LookupExternal) and world.hit is not None and world.hit.request == action.request:
        behind = (host.aligned(world.config, world.hit), world.hit.local)
        return action if action.start in behind else evolve(action, start=behind[0])
    return action


def _fitted_tokens(world: World, action: act.Output) -> tuple[int, ...]:
    """Return what an output may bring that is closest to what it brought: its last token behind as many accepted drafts."""
    most = flight.most_delivered(world, action.request)
    if most <= 0:
        return ()
    tokens = action.tokens or (0,)
    accepted = min(len(tokens), most) - 1
    return (*flight.due_share(world, action.request).drafts[:accepted], tokens[-1])
