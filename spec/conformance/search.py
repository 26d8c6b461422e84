"""Generation against an adapter: the walker draws actions for the world that the shadow follows, the adapter performs them.

The budget is walks per scope and actions per walk; the same adapter and seed give the same search. A walk ends with the first
violation of a law that was not refuted before; laws that were do not end it, so that one deviation does not hide the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from functools import cache
from random import Random

from attrs import define, evolve, field, frozen

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import ConfigError
from kvproof.core.world import Phase, World
from kvproof.spec.conformance import certainty, closing, settings
from kvproof.spec.conformance.adapter import AdapterError, Shows, Unsupported
from kvproof.spec.conformance.budget import Budget
from kvproof.spec.conformance.differences import Difference
from kvproof.spec.conformance.hidden import NotShown, guessed
from kvproof.spec.conformance.isolation import Died, Direct, Isolated
from kvproof.spec.conformance.judging import GUARD, Judging, crashed
from kvproof.spec.conformance.oracle import LawFinding
from kvproof.spec.conformance.play import Crash, Point, Run, Runs, crash_of
from kvproof.spec.conformance.settings import Explainer, Setting
from kvproof.spec.conformance.shadow import Shadow
from kvproof.spec.engines import disabled, enabled, rules, shrink
from kvproof.spec.engines.scopes import Scope
from kvproof.spec.engines.walk import DISABLED_EVERY, Walker
from kvproof.spec.judge import Violation, refuted
from kvproof.spec.laws.base import Law, Moment

OVERLONG_EVERY = 9
"""So often a row is appended to past its end, if rows are shown."""
ROWS_LAW = "TB-11"
HUNG = "hung"
MOST_HANGS = 3
"""After so many hangs, each of which takes the whole limit, nothing more is tried."""
HUNG_RUNS = 10
"""Candidates that are tried to shorten the way to a hang."""


@frozen(slots=True)
class Broken:
    """A law that an implementation broke, and the actions that show it; the last one broke it, unless the position is -1."""

    law: Law
    scope: Scope
    config: Config
    actions: tuple[Action, ...]
    violation: Violation
    legal: bool


@frozen(slots=True)
class Differing:
    """One difference from the model, where it was seen, and the settings that explain it."""

    scope: str
    position: int
    action: str
    difference: Difference
    settings: tuple[Setting, ...]


@define(slots=True)
class Searched:
    """What was done in one scope, and found."""

    scope: Scope
    walks: int = 0
    actions: int = 0
    skipped: str = ""
    findings: tuple[LawFinding, ...] = ()
    cannot: dict[str, str] = field(factory=dict)
    stopped: Counter[str] = field(factory=Counter)
    """Why walks ended early, without a violation before."""
    followed: Counter[tuple[str, str]] = field(factory=Counter)
    """Why walks ended early, and the laws that were broken before in the same walk: what it shows has no next state then."""

    def ended(self, why: str, broken: Iterable[str]) -> None:
        """Note that a walk ended early; ``broken`` are the laws that it broke before."""
        laws = ", ".join(broken)
        if laws:
            self.followed[why, laws] += 1
        else:
            self.stopped[why] += 1


@define(slots=True)
class Going:
    """One walk on its way: what it performed, without what was refused and changed nothing, and the laws that it broke."""

    searched: Searched
    config: Config
    judging: Judging
    run: Run
    kept: list[Action] = field(factory=list)
    broken: dict[str, None] = field(factory=dict)
    guess: bool = False
    """Whether what came of the last action is a guess."""


@define(slots=True)
class Closer:
    """A walk that is brought to its end, as a player: what cannot be followed or judged any further ends it."""

    search: Search
    going: Going

    @property
    def world(self) -> World:
        """The followed world."""
        return self.going.run.world

    @property
    def shown(self) -> World:
        """The same: here nothing is judged."""
        return self.world

    def act(self, action: Action) -> Moment:
        """Perform and judge an action. Raises closing.Ended."""
        if certainty.unsure(self.world, action, self.search.adapter.shows):
            raise closing.Ended
        if not self.search.perform(self.going, action, True):
            raise closing.Ended
        return self.going.run.followed

    def again(self) -> Closer:
        """Nobody asks for it: an end is made once."""
        raise NotImplementedError


@define(slots=True)
class Search:
    """A search over scopes. ``broken`` has the first violation of each law, ``counted`` the differences of each kind."""

    adapter: Isolated | Direct
    laws: Sequence[Law]
    declared: Sequence[Setting] = ()
    seed: int = 0
    budget: Budget = field(factory=Budget)
    progress: Callable[[str], None] = lambda doing: None
    announce: Callable[[str], None] = lambda refuted: None
    """Is told of each law as soon as it is refuted, before its counterexample is shortened."""
    interruptible: bool = False
    """Whether an interrupt of the user ends the search, and what there is is kept."""
    runs: Runs = field(init=False)
    broken: dict[str, Broken] = field(factory=dict, init=False)
    first: dict[tuple[str, str, tuple[Setting, ...]], Differing] = field(factory=dict, init=False)
    counted: Counter[tuple[str, str, tuple[Setting, ...]]] = field(factory=Counter, init=False)
    explainer: Explainer = field(factory=Explainer, init=False)
    hangs: int = field(default=0, init=False)
    halted: str = field(default="", init=False)
    """Why nothing more is tried: what the adapter shows cannot be judged, or the user has interrupted it. Empty until then."""
    interrupted: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        adapter = self.adapter
        self.runs = Runs(adapter, lambda config: Shadow(config, adapter.shows, adapter.null_block))

    # --- scopes -------------------------------------------------------------------------------------------------------

    def scope(self, scope: Scope) -> Searched:
        """Search in one scope. Raises AdapterError if nothing was refuted before; else the search is ``halted``."""
        searched = Searched(scope)
        try:
            config = settings.configured(scope.config(), self.declared)
            if not certainty.TELLING & self.adapter.shows:
                config = certainty.roomy(config, scope.limits(config))
        except ConfigError as error:
            searched.skipped = f"not with what is declared: {error}"
            return searched
        judging = Judging.of(self.laws, config, self.runs, self._own())
        walks, steps = self.budget.of(config)
        try:
            self.runs.forget()
            self.runs.begin(config)
            self._note(scope, config, (), judging.configuration(config), True)
            for number in range(walks):
                if self.hangs >= MOST_HANGS:
                    searched.stopped[f"the implementation hung {self.hangs} times, so no more is tried"] += 1
                    break
                self.progress(f"{scope.name}: walk {number + 1} of {walks}")
                self._walk(searched, config, judging, number, steps)
        except Unsupported as error:
            searched.skipped = str(error) or "not supported"
        except Died as died:
            self.hangs += died.how == HUNG
            self._note(scope, config, (), self._stillborn(judging, died), True)
        except AdapterError as error:
            if not self.broken:
                raise
            # What was shown up to here was judged: an error behind it takes no violation back.
            self.halted = f"{scope.name}: the adapter could not be judged any further: {error}"
        except KeyboardInterrupt:
            self.interrupt(f"in {scope.name}")
        searched.findings, searched.cannot = judging.findings(), judging.cannot
        return searched

    def interrupt(self, where: str) -> None:
        """Take an interrupt of the user: nothing more is tried or shortened, what there is is reported. A second one ends all.

        Raises KeyboardInterrupt if the search is not to be interrupted in this way.
        """
        if not self.interruptible or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self.halted = self.halted or f"interrupted {where}: what follows is of what was judged up to there"
        self.adapter.close()  # an answer may be under way that nobody waits for any more
        self.runs.forget()

    def _own(self) -> frozenset[str]:
        return frozenset(setting.name for setting in self.declared if setting.kind == "free")

    def _stillborn(self, judging: Judging, died: Died) -> list[Violation]:
        if all(law.id != rules.TOTALITY for law in self.laws):
            return []
        crash = Crash(f"{died.words} when it was started", ended=died.how)
        return judging.oracle.add(rules.TOTALITY, [crashed(crash)])

    def _walk(self, searched: Searched, config: Config, judging: Judging, number: int, steps: int) -> None:
        """Walk once: actions of the walker, refused ones in between; then its end, and the laws on the whole run."""
        scope = searched.scope
        self.runs.forget()
        going = Going(searched, config, judging, self.runs.begin(config))
        limits = scope.limits(config)
        walker = Walker.of(config, limits, f"{self.seed}/{scope.name}/{number}")
        offer = certainty.Offer(walker, self.adapter.shows)
        rows = Random(f"{self.seed}/{scope.name}/{number}/rows")
        searched.walks += 1
        for tried in range(1, steps + 1):
            legal = not (self._probes() and tried % DISABLED_EVERY == 0)
            world = going.run.world
            try:
                overlong = self._overlong(world, rows) if legal and tried % OVERLONG_EVERY == 0 else None
                probe = overlong if legal else offer.disabled(world)
                legal = probe is None
                action = probe or offer.propose(world)
            except certainty.NothingToOffer:
                break
            except Exception as error:
                why = f"no action could be drawn for the followed world: {type(error).__name__}: {error}"
                searched.ended(why, going.broken)
                return
            searched.actions += 1
            if not self.perform(going, action, legal):
                if going.guess:
                    break
                return
            if legal:
                walker.observe(going.run.followed)
        kept = tuple(going.kept)
        if not self._close(going):
            judging.not_carried_on(going.run.point.dead)
            return
        self._whole(scope, config, judging, kept)
        if len(going.kept) > len(kept):
            self._note(scope, config, going.kept, judging.run(config, going.kept, laws=closing.FOLLOWING), True)

    def perform(self, going: Going, action: Action, legal: bool) -> bool:
        """Perform and judge one action of a walk; tell whether the walk goes on behind it."""
        searched, judging, run = going.searched, going.judging, going.run
        scope, world, before, at = searched.scope, run.world, run.point, len(going.kept)
        moment = run.act(action)
        found = judging.moment(moment, at)
        if guessed(moment):
            going.guess = True
            return False
        if not legal:
            found += judging.guard(run.point, at)
        self._differences(scope, before, run.point, at)
        new = self._note(scope, going.config, (*going.kept, action), found, legal)
        crash = crash_of(moment)
        if crash is not None:
            self.hangs += crash.values.get("ended") == HUNG
        if crash is not None or new:
            return False
        going.broken |= dict.fromkeys(violation.law for violation in refuted(found))
        if run.point.seen is not None and run.point.seen.problems:
            searched.ended(run.point.seen.problems[0], going.broken)
            return False
        if run.followed.refusal is None or run.world is not world:
            going.kept.append(action)
        return True

    def _close(self, going: Going) -> bool:
        """Bring a walk to its end, beyond the budget; tell whether the implementation is alive behind that."""
        if not going.guess:
            with suppress(closing.Ended):
                closing.close(Closer(self, going), tuple(going.kept))
        return not going.run.point.dead

    def _whole(self, scope: Scope, config: Config, judging: Judging, kept: Sequence[Action]) -> None:
        """Judge a whole run; a crash while it is carried on is shown by the actions that led to it."""
        before = len(self.runs.crashes)
        found = judging.run(config, kept)
        for violation in found:
            crash = self.runs.crashes[before] if violation.position >= 0 else None
            self._note(scope, config, kept if crash is None else crash.actions(), [violation], True)

    def _overlong(self, world: World, random: Random) -> Action | None:
        """Return an append past the end of a worker's row, if rows are shown and there is one: it must be refused (TB-11)."""
        if Shows.ROWS not in self.adapter.shows or world.phase is not Phase.IDLE or ROWS_LAW in self.broken:
            return None
        rows = enabled.free_rows(world)
        if not rows or all(law.id != ROWS_LAW for law in self.laws):
            return None
        return random.choice(disabled.overlong(world, random.choice(rows)))

    def _probes(self) -> bool:
        """Tell whether actions are tried that must be refused: not if nobody asks, or it is known that they are not."""
        return GUARD.id not in self.broken and any(law.id == GUARD.id for law in self.laws)

    def _note(self, scope: Scope, config: Config, actions: Sequence[Action], found: Iterable[Violation], legal: bool) -> bool:
        """Keep the first violation of each law; tell whether there was one."""
        new = False
        for violation in refuted(found):
            if violation.law not in self.broken:
                law = next(law for law in self.laws if law.id == violation.law)
                self.broken[violation.law] = Broken(law, scope, config, tuple(actions), violation, legal)
                self.announce(f"{law.id} is refuted in {scope.name}, by {len(actions)} actions: {violation.evidence.message}")
                new = True
        return new

    # --- differences --------------------------------------------------------------------------------------------------

    def _differences(self, scope: Scope, before: Point, point: Point, position: int) -> None:
        """Note what differs from the model at an action, and which settings explain it."""
        if point.seen is None or point.moment is None or not point.seen.differences:
            return
        name = type(point.moment.action).__name__
        # Several things that differ at one action are explained by the same settings or by none.
        differing = cache(lambda config: self._differing(before, point, config))
        for difference in point.seen.differences:
            if settings.reordered(difference.what, difference.predicted, difference.observed):
                found: tuple[Setting, ...] = (Setting("free", settings.EVICTION, settings.OWN),)
            else:
                found = self.explainer.explain(name, difference.what, before.config, differing)
            kind = (name, difference.what, found)
            self.counted[kind] += 1
            self.first.setdefault(kind, Differing(scope.name, position, name, difference, found))

    def _differing(self, before: Point, point: Point, config: Config) -> frozenset[str] | None:
        """Return what would differ at an action if the model ran under another configuration; None if it cannot."""
        shadow = self.runs.shadow
        if shadow is None or point.moment is None or point.shown is None:
            return None
        # A copy shares the names of blocks and prefixes, which only grow, and nothing else that changes.
        other = copy(shadow)
        other.config, other.world = config, evolve(before.world, config=config)
        try:
            return frozenset(difference.what for difference in other.observe(point.moment.action, point.shown).differences)
        except Exception:
            return None

    # --- counterexamples ----------------------------------------------------------------------------------------------

    def shrunk(self, broken: Broken) -> tuple[tuple[Action, ...], Violation]:
        """Return a shorter action list that breaks the same law on a fresh start, and the violation it shows.

        How much is tried is bounded, see ``Budget``. After an interrupt the shortest list found so far comes back.
        """
        if self.interrupted:
            return broken.actions, broken.violation
        self.progress(f"{broken.law.id}: shortening its counterexample of {len(broken.actions)} actions")
        self.runs.forget()
        hung = dict(broken.violation.evidence.values).get("ended") == HUNG
        return shrink.shrink(
            broken.config,
            broken.actions,
            broken.violation,
            self.laws,
            broken.scope.limits(broken.config),
            broken.legal,
            HUNG_RUNS if hung else self.budget.shrink_runs,
            max_actions=self.budget.share(len(self.broken)),
            start=self.runs.begin,
            judging=lambda laws: Judging.of(laws, broken.config, self.runs, self._own()),
            ignored=(Exception, NotShown),
            interrupted=lambda: self.interrupt(f"while the counterexample of {broken.law.id} was shortened"),
        )
