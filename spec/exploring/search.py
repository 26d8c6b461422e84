"""Breadth-first search over all behaviours of a scope, judged by the laws at every edge: the first violation is a shortest one.

A level holds the worlds that so many actions lead to, one of each orbit that no shorter way reaches. What becomes of a world
under fairness is judged in every world between plans, of a whole level before any edge out of it is, so that a violation with
one action less comes first. Laws that look at a whole run are judged on the way to each orbit from which nothing new was found:
these ways cover the search tree.

An orbit is a world up to names, with what is left of the bounds and with whether the engine steps on by itself there: that
depends on what it was told last, and liveness on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from attrs import Factory, define, frozen

from kvproof.core.actions import Action, Finish
from kvproof.core.config import Config
from kvproof.core.world import Phase, World, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines import disabled, drain, players, rules
from kvproof.spec.engines import witnesses as wit
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.exploring import alphabet, canonical
from kvproof.spec.exploring import bounds as limiting
from kvproof.spec.exploring.bounds import Bounds, Budget
from kvproof.spec.exploring.graph import Graph
from kvproof.spec.judge import Judge, Violation
from kvproof.spec.laws.base import Law, Moment

NOTHING: frozenset[tuple[int, int]] = frozenset()


@frozen(slots=True)
class Place:
    """A world of the frontier: its orbit, what is left to do, whether the engine steps on by itself (``drain.told_after``).

    ``lost`` and ``inside`` are what the way there has lost and checkpointed (witnesses).
    """

    world: World
    left: Budget
    orbit: int
    told: bool = False
    lost: frozenset[tuple[int, int]] = NOTHING
    inside: frozenset[tuple[int, int]] = NOTHING


@frozen(slots=True)
class Found:
    """A violation and the actions that show it; ``legal``: whether the last one was listed as legal."""

    violation: Violation
    actions: tuple[Action, ...]
    legal: bool = True


@define(slots=True)
class Explored:
    """What a search came to.

    ``end``: every behaviour was seen, or the depth of the bounds, the budget of edges or a violation ended the search.
    ``levels`` are the orbits found first at each depth. ``witnesses`` maps a situation to the depth at which it was first
    reached, ``premises`` a law to how often it was judged; ``kinds`` counts edges by action. ``refusals`` are the attempts
    that had to be refused, ``runs`` the whole runs judged, ``closed`` the worlds in which liveness was judged.
    """

    graph: Graph
    end: Literal["complete", "depth", "edges", "violation"] = "complete"
    levels: list[int] = Factory(list)
    found: Found | None = None
    premises: dict[str, int] = Factory(dict)
    witnesses: dict[str, int] = Factory(dict)
    kinds: Counter[str] = Factory(Counter)
    refusals: int = 0
    runs: int = 0
    closed: int = 0


@define(slots=True)
class Options:
    """How to search: the laws, those laws and rules whose violations count (none: all, bent ones left out), and what is kept.

    ``runs_every``: of the orbits that end the search tree the first and every so many's whole run is judged (0: none); with
    ``all_runs`` the run to every orbit is, so that laws which look at a whole run break in the shortest one of the search tree.
    The laws named in ``at_finish`` are judged on the run to every orbit that a finish first reaches, if there is a host tier.
    ``kept``: blocks and tokens keep their names, for comparison. ``most_edges`` bounds the search (0: nothing does).
    """

    laws: Sequence[Law] = ()
    only: tuple[str, ...] = ()
    runs_every: int = 0
    all_runs: bool = False
    at_finish: tuple[str, ...] = ()
    ends: bool = True
    kept: bool = False
    most_edges: int = 0

    def counting(self, found: list[Violation]) -> list[Violation]:
        """Return the violations that end a search."""
        return [violation for violation in found if violation.law in self.only] if self.only else judges.refuted(found)


def violations(judge: Judge, moment: Moment, legal: bool, position: int) -> list[Violation]:
    """Judge one action by the laws and by the rule of generation that it falls under; ``legal``: from which list it came."""
    found = judge.moment(moment, position)
    judge.premises[rules.GUARD] += not legal
    return found + rules.violations(moment, legal, found, position)


@define(slots=True)
class Search:
    """A search under way."""

    config: Config
    bounds: Bounds
    limits: Limits
    options: Options
    judge: Judge
    tracker: wit.Tracker
    explored: Explored
    ended: int = 0

    @classmethod
    def of(cls, config: Config, bounds: Bounds, options: Options) -> Search:
        """Begin a search."""
        explored = Explored(Graph())
        return cls(config, bounds, bounds.limits(config), options, Judge(options.laws), wit.Tracker(), explored)

    def run(self, progress: Callable[[str], None] = lambda what: None) -> Explored:
        """Search level by level to the end, or to the first violation."""
        explored, graph = self.explored, self.explored.graph
        if not self._counts(self.judge.configuration(self.config), ()):
            first = new_world(self.config)
            left = self.bounds.start()
            graph.found(self._key(first, left, False), -1, None)
            level = [Place(first, left, 0)]
            while level:
                explored.levels.append(len(level))
                if not self._ends(level, progress):
                    break
                if self.bounds.depth is not None and len(explored.levels) > self.bounds.depth:
                    explored.end = "depth"
                    all(self._end_of_branch(place) for place in level)
                    break
                level = self._next(level, progress)
        # The rule is asked at every edge, whether or not the law of this name is among the laws.
        explored.premises = {**self.judge.premises, rules.TOTALITY: explored.kinds.total()}
        return explored

    def _key(self, world: World, left: Budget, told: bool) -> bytes:
        return canonical.key(world, (*left, told), self.options.kept)

    def _ends(self, level: Sequence[Place], progress: Callable[[str], None]) -> bool:
        """Judge what the worlds of a level come to under fairness; False if a law does not hold in one."""
        laws = [law for law in self.options.laws if law.check_end is not None]
        if not laws or not self.options.ends or self.config.offload is None:
            return True
        for number, place in enumerate(level):
            if number % 1024 == 1023:
                progress(f"depth {len(self.explored.levels) - 1}, {number} of {len(level)} worlds brought to an end")
            if place.world.phase is Phase.IDLE and not self._quiet(place, laws):
                return False
        return True

    def _next(self, level: Sequence[Place], progress: Callable[[str], None]) -> list[Place]:
        """Return the places first reached from a level."""
        explored = self.explored
        following: list[Place] = []
        for place in level:
            before = len(following)
            for reached in self._leave(place):
                following.append(reached)
            if explored.found is not None:
                return []
            if len(following) == before and not self._end_of_branch(place):
                return []
            if self.options.most_edges and explored.graph.edges >= self.options.most_edges:
                explored.end = "edges"
                return []
            if explored.graph.edges % 4096 < 8:
                progress(f"depth {len(explored.levels)}, {len(explored.graph)} orbits, {explored.graph.edges} edges")
        return following

    def _leave(self, place: Place) -> Iterator[Place]:
        """Follow every edge out of a place; yield where something new is."""
        world, graph = place.world, self.explored.graph
        accepted = self._refused(place) if self.bounds.refusals else []
        if accepted is None:
            return
        yield from accepted
        for action, left in alphabet.enabled(world, place.left, self.bounds, self.limits):
            moment = judges.attempt(world, action)
            lost, inside = self._observe(place, moment)
            self.explored.kinds[type(action).__name__] += 1
            graph.edges += 1
            if not self._judged(place, moment, True):
                return
            told = drain.told_after(place.told, moment)
            number, new = graph.found(self._key(moment.after, left, told), place.orbit, action)
            if new:
                reached = Place(moment.after, left, number, told, lost, inside)
                if self.options.all_runs and not self._whole_run(reached):
                    return
                if type(action) is Finish and not self._finished(reached):
                    return
                yield reached

    def _judged(self, place: Place, moment: Moment, legal: bool) -> bool:
        """Judge one action; False if it shows a violation."""
        position = self.explored.graph.depths[place.orbit]
        return not self._counts(violations(self.judge, moment, legal, position), (moment.action,), place, legal)

    def _refused(self, place: Place) -> list[Place] | None:
        """Try what must be refused in a place; None if a violation counts, else where it leads what is accepted all the same.

        A planted fault may open a guard: its laws are asked behind it, too, where the rule of the guard itself does not count.
        """
        accepted: list[Place] = []
        for action, _ in disabled.attempts(place.world, self.limits):
            self.explored.refusals += 1
            moment = judges.attempt(place.world, action)
            if moment.refusal is not None:  # what is accepted here is a violation, and shows no situation
                self._observe(place, moment)
            if not self._judged(place, moment, False):
                return None
            left = limiting.spend(self.bounds, place.left, action)
            if moment.refusal is None and left is not None:
                told = drain.told_after(place.told, moment)
                number, new = self.explored.graph.found(self._key(moment.after, left, told), place.orbit, action)
                if new:
                    accepted.append(Place(moment.after, left, number, told, place.lost, place.inside))
        return accepted

    def _quiet(self, place: Place, laws: Sequence[Law]) -> bool:
        """Judge what a place comes to under fairness; False if a law does not hold there."""
        drained = drain.drain(place.world)
        found: list[Violation] = []
        for law in laws:
            if law.check_end is not None:
                found += self.judge.found(law, law.check_end(drained), -1, self.config)
        return not self._counts(found, (), place)

    def _end_of_branch(self, place: Place) -> bool:
        """Judge the whole run to a place behind which nothing new was found; False if a law does not hold on it."""
        self.ended += 1
        every = self.options.runs_every
        if not every or (self.ended - 1) % every or self.options.all_runs:
            return True
        return self._whole_run(place)

    def _finished(self, place: Place) -> bool:
        """Judge what a finished request has left to the host tier on the way to a place; False if a law does not hold on it."""
        laws = [law for law in self.options.laws if law.id in self.options.at_finish]
        if not laws or self.config.offload is None or self.options.all_runs:
            return True
        return self._whole_run(place, laws)

    def _whole_run(self, place: Place, laws: Sequence[Law] = ()) -> bool:
        """Judge the whole run to a place, by all laws if none are given; False if one does not hold on it."""
        self.explored.runs += 1
        actions, start = self.explored.graph.path(place.orbit), players.Shared()
        found: list[Violation] = []
        for law in laws or self.options.laws:
            if law.check_run is not None:
                found += self.judge.found(law, law.check_run(self.config, actions, start), -1, self.config)
        return not self._counts(found, (), place)

    def _counts(self, found: list[Violation], last: tuple[Action, ...], place: Place | None = None, legal: bool = True) -> bool:
        """Keep the first violation that counts; tell whether there is one."""
        counting = self.options.counting(found)
        if counting:
            way = () if place is None else self.explored.graph.path(place.orbit)
            self.explored.found = Found(counting[0], (*way, *last), legal)
            self.explored.end = "violation"
        return bool(counting)

    def _observe(self, place: Place, moment: Moment) -> tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
        """Note the situations of an edge, and return what the way has lost and checkpointed after it."""
        tracker, depth = self.tracker, len(self.explored.levels)
        tracker.counts.clear()
        tracker.lost, tracker.inside = set(place.lost), set(place.inside)
        tracker.observe(moment)
        for name in tracker.counts:
            if tracker.counts[name]:
                self.explored.witnesses.setdefault(name, depth)
        lost = place.lost if len(tracker.lost) == len(place.lost) else frozenset(tracker.lost)
        inside = place.inside if len(tracker.inside) == len(place.inside) else frozenset(tracker.inside)
        return lost, inside


def explore(config: Config, bounds: Bounds, options: Options, progress: Callable[[str], None] = lambda what: None) -> Explored:
    """Search all behaviours of a configuration within bounds."""
    return Search.of(config, bounds, options).run(progress)
