"""Liveness on an explored graph: what an engine does by itself ends every obligation, or a lasso shows how it does not (5.13).

From every orbit that a search found, a second search follows *progress* alone: what an engine or its worker does by itself,
once nobody asks for anything any more. That is every way to execute steps, to process outputs, to close the open plan, to
begin steps in which nothing is scheduled, to move copies and to report them, to promote loaded requests, and to finish
requests. Nothing is submitted, looked up, allocated, preempted or withdrawn, and nothing is reset or evicted: all that may
happen before, on the way to the orbit. This *closed system* is finite, since requests only go and nothing is scheduled any
more.

The budgets of the scope end where the closed system begins. Its worlds have keys without a budget, so that an output is there
although the scope has no token left for it, and no run ends only because it may not go on. What else the bounds leave out
(execution beside an open plan, failures) stays left out.

Fairness is strong for each kind of progress: a kind that is possible again and again is done again and again. Which of several
copies is done is not asked: only stores are made again without end (in lazy mode), and they end in the order in which they
began. Requests may live on for ever, except where an obligation says otherwise. ``asked`` obligations are about an engine that
stops stepping: there, without a request, a step begins only if the last dispatch, finish or completion said that work is
pending. The others take for granted that steps go on.

A counterexample is a *lasso*, a way from the new world to a fair cycle in which the obligation is never met; or a *maximal
run*, a way to a world in which it is open and nothing that has to happen can. The cycle leads back to the same world up to
names and past times, so that it can go on for ever.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b

from attrs import Factory, define, evolve, field, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import World, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines import drain, host, rules
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.exploring import alphabet, canonical, fairness
from kvproof.spec.exploring import obligations as obliging
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.graph import DIGEST_BYTES, Graph
from kvproof.spec.exploring.obligations import Obligation
from kvproof.spec.exploring.search import Explored
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence, Moment

PROGRESS: tuple[type[Action], ...] = (
    act.Execute,
    act.Output,
    act.Drain,
    act.BuildMetadata,
    act.Dispatch,
    act.BeginStep,
    act.RunStore,
    act.RunLoad,
    act.CompleteStore,
    act.CompleteLoad,
    act.Promote,
    act.Finish,
)
"""What an engine and its worker do by themselves; a report of a store that nobody knows is none of it."""

BITS: dict[type[Action], int] = {kind: 1 << at for at, kind in enumerate(PROGRESS)}
UNASKED = 1 << len(PROGRESS)
"""A step that nobody asked for: no request is there, and the engine was told that nothing is pending."""
EVERY = 2 * UNASKED - 1

LAWS = frozenset({rules.TOTALITY, *(obligation.law for obligation in obliging.ALL)})
"""The laws that are judged here: those of the obligations, and that progress is never refused."""


@frozen(slots=True)
class Node:
    """A world of the closed system, and whether the engine steps on by itself there (``drain.told_after``)."""

    world: World
    told: bool

    def key(self) -> bytes:
        """Return the digest of the key without a budget."""
        return blake2b(canonical.key(self.world) + bytes([self.told]), digest_size=DIGEST_BYTES).digest()


@frozen(slots=True)
class Lasso:
    """An obligation that is never met: a way from the new world, and the cycle that goes on for ever (empty: nothing can).

    ``left`` is what is open at the end.
    """

    obligation: Obligation
    way: tuple[Action, ...]
    cycle: tuple[Action, ...]
    left: tuple[int, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """The whole run: the way, and the cycle once."""
        return (*self.way, *self.cycle)

    @property
    def violation(self) -> Violation:
        """The violation of the law, told so that a reader sees the lasso (actions are counted from 0)."""
        first, last = len(self.way), len(self.way) + len(self.cycle) - 1
        if self.cycle:
            again = f"actions {first} to {last} lead back to the same world up to names, so that they can go on for ever, and"
            text = f"{self.obligation.message}: {again} leave out nothing that can happen again and again"
        else:
            text = f"{self.obligation.message}: behind the last action nothing that has to happen can"
        values = {"obligation": self.obligation.name, "left": self.left, "way": first, "cycle": len(self.cycle)}
        return Violation(self.obligation.law, -1, Evidence.of(text, **values))


@frozen(slots=True)
class Refused:
    """Progress that the model refuses, and the actions that show it: the last one is legal (LV-9)."""

    violation: Violation
    actions: tuple[Action, ...]


@frozen(slots=True)
class Verdict:
    """What became of the obligations: per obligation at most one lasso, the shortest first; sizes of the closed system.

    ``premises`` maps a law to the worlds of the closed system in which an obligation of it is open.
    """

    found: tuple[Lasso, ...] = ()
    refused: Refused | None = None
    worlds: int = 0
    edges: int = 0
    premises: dict[str, int] = field(factory=dict)


@define(slots=True)
class Closed:
    """The closed system behind the orbits of a graph.

    Per world, ``roots`` is the least orbit that it stands in (-1: none), ``open`` the bits of its open obligations,
    ``enabled`` the kinds that leave it, and ``edges`` its edges. Per edge, ``ended`` are the bits of the obligations that it
    ends. The first progress that was ``refused`` is kept with the world where it was.
    """

    bounds: Bounds
    limits: Limits
    numbers: dict[bytes, int] = Factory(dict)
    roots: array[int] = Factory(lambda: array("l"))
    open: array[int] = Factory(lambda: array("l"))
    enabled: array[int] = Factory(lambda: array("l"))
    edges: list[range] = Factory(list)
    targets: array[int] = Factory(lambda: array("l"))
    kinds: array[int] = Factory(lambda: array("l"))
    ended: array[int] = Factory(lambda: array("l"))
    refused: tuple[int, Violation, Action] | None = None

    @classmethod
    def of(cls, config: Config, bounds: Bounds) -> Closed:
        """Begin with nothing."""
        # Whatever the scope spends, nothing is submitted any more, and only what is known is reported.
        closed = evolve(bounds, live=0, strays=False, at_most={})
        return cls(closed, bounds.limits(config))

    def add(self, root: Node, orbit: int) -> None:
        """Add the world of an orbit and whatever progress leads to from it."""
        number, new = self._found(root)
        if self.roots[number] < 0:
            self.roots[number] = orbit
        left = [(number, root)] if new else []
        while left:
            number, node = left.pop()
            begin = len(self.targets)
            for action, kind in progress(node, self.bounds, self.limits):
                moment = judges.attempt(node.world, action)
                if moment.refusal is not None:  # what cannot be done leads nowhere, and ends nothing
                    self._refuse(number, rules.violations(moment, True, (), -1), action)
                    continue
                self.enabled[number] |= kind
                reached = after(node, moment)
                target, new = self._found(reached)
                self.targets.append(target)
                self.kinds.append(kind)
                self.ended.append(_ended(self.open[number], node.world, reached.world))
                if new:
                    left.append((target, reached))
            self.edges[number] = range(begin, len(self.targets))

    def _found(self, node: Node) -> tuple[int, bool]:
        key = node.key()
        known = self.numbers.get(key)
        if known is not None:
            return known, False
        number = self.numbers[key] = len(self.open)
        self.roots.append(-1)
        self.open.append(sum(1 << at for at, obligation in enumerate(obliging.ALL) if obligation.left(node.world)))
        self.enabled.append(0)
        self.edges.append(range(0))
        return number, True

    def _refuse(self, number: int, violations: list[Violation], action: Action) -> None:
        if violations and self.refused is None:
            self.refused = (number, violations[0], action)


def _ended(open_bits: int, before: World, now: World) -> int:
    """Return the bits of the open obligations that an action ends although more of them may be open."""
    ended = 0
    for at, obligation in enumerate(obliging.ALL):
        if open_bits >> at & 1 and obligation.ended is not None and obligation.ended(before, now):
            ended |= 1 << at
    return ended


# --- the closed system ----------------------------------------------------------------------------------------------


def progress(node: Node, bounds: Bounds, limits: Limits) -> Iterator[tuple[Action, int]]:
    """Yield what an engine or its worker may do by itself, each with the bit of its kind."""
    world = node.world
    known = {store.event for store in host.stores(world)}
    for action in alphabet.candidates(world, bounds, limits):
        kind = BITS.get(type(action), 0)
        if kind and not (isinstance(action, act.CompleteStore) and action.event not in known):
            yield action, kind if node.told or type(action) is not act.BeginStep else UNASKED


def possible_in(node: Node, bounds: Bounds, limits: Limits) -> dict[Action, int]:
    """Return the progress of a world that the model does not refuse, each with the bit of its kind."""
    return {
        action: kind for action, kind in progress(node, bounds, limits) if judges.attempt(node.world, action).refusal is None
    }


def after(node: Node, moment: Moment) -> Node:
    """Return where an action led, and whether the engine steps on by itself there."""
    return Node(moment.after, drain.told_after(node.told, moment))


def close(explored: Explored, config: Config, bounds: Bounds) -> Closed:
    """Return the closed system behind every orbit that a search found, whose worlds are run through once more."""
    graph, closed = explored.graph, Closed.of(config, bounds)
    names = graph.names
    nodes: dict[int, Node] = {}
    oldest = 0
    for orbit in range(len(graph)):
        parent = graph.parents[orbit]
        if parent < 0:
            node = Node(new_world(config), False)
        else:
            # Orbits are numbered as they are found: nothing before this parent leads to one that is still to come.
            for gone in range(oldest, parent):
                del nodes[gone]
            oldest = parent
            before = nodes[parent]
            node = after(before, judges.attempt(before.world, names[graph.actions[orbit]]))
        nodes[orbit] = node
        closed.add(node, orbit)
    return closed


# --- judging --------------------------------------------------------------------------------------------------------


def judge(explored: Explored, config: Config, bounds: Bounds, laws: Collection[str] = LAWS) -> Verdict:
    """Judge the obligations of these laws in the closed system behind an explored graph.

    A search that a violation ended says nothing.
    """
    if explored.found is not None:
        return Verdict()
    closed = close(explored, config, bounds)
    premises: Counter[str] = Counter()
    for bits in closed.open:
        premises.update({o.law for at, o in enumerate(obliging.ALL) if bits >> at & 1 and o.law in laws})
    ways = Ways.of(closed, explored.graph)
    asked = [at for at, obligation in enumerate(obliging.ALL) if obligation.law in laws]
    found = [lasso for at in asked if (lasso := _judged(closed, ways, config, at)) is not None]
    found.sort(key=lambda lasso: len(lasso.actions))
    refused = None
    if closed.refused is not None and rules.TOTALITY in laws:
        number, violation, action = closed.refused
        refused = Refused(violation, (*ways.played(config, number)[0], action))
    return Verdict(tuple(found), refused, len(closed.open), len(closed.targets), dict(premises))


def owes(config: Config) -> bool:
    """Tell whether anything can be owed: without a host tier and deferred frees, every reference goes with its table (PC-3)."""
    return config.offload is not None or config.defer_block_free


def _judged(closed: Closed, ways: Ways, config: Config, at: int) -> Lasso | None:
    """Return the lasso or maximal run of an obligation that is reached first, None if it is always met."""
    obligation, bit = obliging.ALL[at], 1 << at
    allowed, fair = _kinds(obligation)
    nodes = [number for number, bits in enumerate(closed.open) if bits & bit]
    enabled = {number: closed.enabled[number] & allowed for number in nodes}
    stopped = min((number for number in nodes if not enabled[number] & fair), key=ways.rank, default=None)
    arrows = {
        number: [
            (closed.targets[edge], closed.kinds[edge], edge)
            for edge in closed.edges[number]
            if closed.kinds[edge] & allowed and closed.targets[edge] in enabled and not closed.ended[edge] & bit
        ]
        for number in nodes
    }
    sets = list(fairness.fair_sets(arrows, enabled, fair))
    first = min(((min(found, key=ways.rank), found) for found in sets), key=lambda pair: ways.rank(pair[0]), default=None)
    if stopped is None and first is None:
        return None
    if first is None or (stopped is not None and ways.rank(stopped) <= ways.rank(first[0])):
        assert stopped is not None
        way, node = ways.played(config, stopped)
        return Lasso(obligation, way, (), obligation.left(node.world))
    start, found = first
    way, node = ways.played(config, start)
    edges = fairness.cycle(arrows, found, start, enabled, fair)
    cycle, end = ways.enacted(node, edges)
    return Lasso(obligation, way, cycle, obligation.left(end.world))


def _kinds(obligation: Obligation) -> tuple[int, int]:
    """Return the kinds of progress that runs take while an obligation is open, and those that they must not ignore for ever."""
    allowed = EVERY & ~UNASKED if obligation.asked else EVERY
    return allowed, allowed if obligation.finishing else allowed & ~BITS[act.Finish]


def shown_again(config: Config, actions: Sequence[Action], violation: Violation) -> Lasso | None:
    """Return the lasso or maximal run that actions are by a violation that speaks of one, None if they are none here.

    They are run again: the obligation must be open from the beginning of the cycle to its end, which is the same world, nothing
    in between may end it, and no fair kind of progress that is possible on the cycle may be missing there.
    """
    values = dict(violation.evidence.values)
    asked, first = (violation.law, values.get("obligation")), values.get("way")
    obligation = next((known for known in obliging.ALL if (known.law, known.name) == asked), None)
    if obligation is None or not isinstance(first, int) or not 0 <= first <= len(actions):
        return None
    allowed, fair = _kinds(obligation)
    bounds = Bounds(("a",), execution="any", live=0)
    limits = bounds.limits(config)
    node = Node(new_world(config), False)
    key, possible, taken = node.key(), 0, 0
    for at, action in enumerate(actions):
        kinds = possible_in(node, bounds, limits) if at >= first else {}
        if at == first:
            key = node.key()
        reached = after(node, judges.attempt(node.world, action))
        if at >= first:
            if action not in kinds or not obligation.left(node.world):
                return None
            if obligation.ended is not None and obligation.ended(node.world, reached.world):
                return None
            taken |= kinds[action]
            possible |= _union(kinds)
        node = reached
    left = obligation.left(node.world)
    if first == len(actions):
        open_for_ever = not _union(possible_in(node, bounds, limits)) & fair
    else:
        open_for_ever = node.key() == key and not taken & ~allowed and not possible & fair & ~taken
    return Lasso(obligation, tuple(actions[:first]), tuple(actions[first:]), left) if left and open_for_ever else None


def _union(kinds: Mapping[Action, int]) -> int:
    """Return the kinds of some actions in one number."""
    found = 0
    for kind in kinds.values():
        found |= kind
    return found


@define(slots=True)
class Ways:
    """Shortest ways from the new world to the worlds of a closed system, through an orbit of the graph."""

    closed: Closed
    graph: Graph
    lengths: list[int]
    came: dict[int, tuple[int, int]]
    digests: list[bytes]

    @classmethod
    def of(cls, closed: Closed, graph: Graph) -> Ways:
        """Find the shortest ways: to each orbit as the search found it, then along progress."""
        count = len(closed.open)
        lengths = [-1] * count
        came: dict[int, tuple[int, int]] = {}
        waiting: dict[int, list[int]] = {}
        for number, orbit in enumerate(closed.roots):
            if orbit >= 0:
                waiting.setdefault(graph.depths[orbit], []).append(number)
        length = 0
        while waiting:
            for number in waiting.pop(length, ()):
                if lengths[number] >= 0:
                    continue
                lengths[number] = length
                for edge in closed.edges[number]:
                    target = closed.targets[edge]
                    root = closed.roots[target]
                    late = root < 0 or graph.depths[root] > length + 1
                    if lengths[target] < 0 and late and target not in came:
                        came[target] = (number, edge)
                        waiting.setdefault(length + 1, []).append(target)
            length += 1
        return cls(closed, graph, lengths, came, list(closed.numbers))

    def rank(self, number: int) -> tuple[int, int]:
        """Order worlds by the length of the way to them, and among those of one length by number."""
        return self.lengths[number], number

    def played(self, config: Config, number: int) -> tuple[tuple[Action, ...], Node]:
        """Return the actions of a shortest way to a world, and the node to which they lead."""
        edges: list[int] = []
        while number in self.came:
            number, edge = self.came[number]
            edges.append(edge)
        way = self.graph.path(self.closed.roots[number])
        node = Node(new_world(config), False)
        for action in way:
            node = after(node, judges.attempt(node.world, action))
        further, node = self.enacted(node, edges[::-1])
        return (*way, *further), node

    def enacted(self, node: Node, edges: list[int]) -> tuple[tuple[Action, ...], Node]:
        """Do edges in a concrete world: at each, the action whose result has the key of the edge's target.

        Names differ from those of the world at which an edge was found.
        """
        done = []
        for edge in edges:
            wanted = self.digests[self.closed.targets[edge]]
            for action, kind in progress(node, self.closed.bounds, self.closed.limits):
                if kind != self.closed.kinds[edge]:
                    continue
                moment = judges.attempt(node.world, action)
                reached = after(node, moment)
                if moment.refusal is None and reached.key() == wanted:
                    done.append(action)
                    node = reached
                    break
            else:
                raise AssertionError("a world of the same key can do the same: the key leaves out something that matters")
        return tuple(done), node
