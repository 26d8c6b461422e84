"""What prefixes, requests and transfers are called: after the request that brought them first.

``r0[4,8)`` are tokens 4 to 7 of request 0, ``r0@8`` is the state or key behind its first 8 tokens. A number that is submitted
again is ``r0.2``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from attrs import Factory, define

from kvproof.core.actions import Submit
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.core.offload.state import Load, PendingHit
from kvproof.core.world import World
from kvproof.spec import ground
from kvproof.spec.laws.base import Moment

MOST_RANGES = 8
"""Ranges of tokens that are named of one rank of a block."""

Transfer = tuple[int, tuple[object, ...], tuple[object, ...]]
"""What tells a load or a pinned hit from others as long as it is there: the number of its request and its blocks."""


@define(slots=True)
class Names:
    """Prefix nodes by the request that brought them first, and their depth in tokens; and what requests are called."""

    known: dict[int, tuple[str, int]] = Factory(dict)
    submitted: Counter[int] = Factory(Counter)
    transfers: dict[Transfer, str] = Factory(dict)
    """The requests of loads and pinned hits: one may go, and its number come again, before they end."""

    @classmethod
    def behind(cls, moments: Iterable[Moment]) -> Names:
        """Return what everything is called behind some actions."""
        names = cls()
        for moment in moments:
            names.see(moment)
        return names

    def see(self, moment: Moment) -> None:
        """Follow one action."""
        if isinstance(moment.action, Submit) and moment.refusal is None:
            self.submitted[moment.action.request] += 1
        self.learn(moment.after)

    def request(self, number: int) -> str:
        """Return what a request is called now."""
        count = self.submitted[number]
        return f"r{number}.{count}" if count > 1 else f"r{number}"

    def learn(self, world: World) -> None:
        """Give names to the prefixes of live requests, in the order of the world, and of what steps run."""
        for request in world.requests:
            self._path(world, request.tip, request.request)
        for entry in (*world.plan.scheduled, *(entry for step in world.steps for entry in step.scheduled)):
            self._path(world, entry.tip, entry.request)
        host = world.host
        if host is not None and (host.pending or host.loads or host.abandoned_loads or self.transfers):
            there: list[Load | PendingHit] = [*host.pending, *host.loads, *host.abandoned_loads]
            self.transfers = {_told(one): self.of(one) for one in there}

    def of(self, one: Load | PendingHit) -> str:
        """Return what the request of a load or of a pinned hit is called."""
        return self.transfers.get(_told(one)) or self.request(one.request)

    def _path(self, world: World, tip: int, request: int) -> None:
        if tip not in self.known:
            for depth, node in enumerate(ground.lineage(world.prefixes, tip)):
                self.known.setdefault(node, (self.request(request), depth))

    def at(self, node: int) -> str:
        """Return a prefix: ``r0@8`` is what request 0 is behind its first 8 tokens."""
        if node not in self.known:
            return f"prefix {node}"
        request, depth = self.known[node]
        return f"{request}@{depth}"

    def cell(self, node: int) -> str:
        """Return a single cell of a positional block: the token whose bytes lie there."""
        if node == UNWRITTEN:
            return "unwritten"
        if node == GARBAGE:
            return "garbage"
        if node not in self.known:
            return f"prefix {node}"
        request, depth = self.known[node]
        return f"{request}[{depth - 1}]"

    def cells(self, nodes: Sequence[int]) -> str:
        """Return the cells of one rank: runs of tokens of one request as one range, also where a rank has every other one."""
        out: list[str] = []
        run: list[tuple[str, int]] = []
        for node in nodes:
            known = self.known.get(node)
            if known is not None and _continues(run, known):
                run.append(known)
                continue
            out += _ranged(run)
            run = [] if known is None else [known]
            if known is None and (not out or out[-1] != self.cell(node)):
                out.append(self.cell(node))
        out += _ranged(run)
        if len(out) > MOST_RANGES:
            out = [*out[: MOST_RANGES - 1], f"... ({len(out) - MOST_RANGES} more)", out[-1]]
        return ", ".join(out)


def _told(one: Load | PendingHit) -> Transfer:
    return (one.request, one.device, one.host) if isinstance(one, Load) else (one.request, one.lists, ())


def _continues(run: Sequence[tuple[str, int]], known: tuple[str, int]) -> bool:
    """Tell whether a token goes on with a run: of the same request, behind it, and as far as the others are apart."""
    if not run or known[0] != run[-1][0] or known[1] <= run[-1][1]:
        return False
    return len(run) == 1 or known[1] - run[-1][1] == run[-1][1] - run[-2][1]


def _ranged(run: Sequence[tuple[str, int]]) -> list[str]:
    """Return a run as text; two tokens that are apart are two."""
    if not run:
        return []
    request, first = run[0]
    step = run[1][1] - first if len(run) > 1 else 1
    if len(run) == 1 or (len(run) == 2 and step > 1):
        return [f"{request}[{depth - 1}]" for _, depth in run]
    every = f" every {step}" if step > 1 else ""
    return [f"{request}[{first - 1},{run[-1][1]}){every}"]
