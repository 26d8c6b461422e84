"""Laws of keys that are taken back: resets of the prefix cache (T5) and evictions by id (T4), seen in the key map and in hits.

What the key map shows and what is served are judged apart: who shows no keys is judged by hits, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import define, field

from kvproof.core.actions import Action, EvictBlocks, Lookup, ResetCache
from kvproof.core.config import Config
from kvproof.core.pool import Pool
from kvproof.core.world import World
from kvproof.spec import ground, naive_hits
from kvproof.spec.engines import players, twins
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment

Named = set[tuple[str, int, int, int]]
"""(where, node, group, block) of keys: in the ``map``, or as what a ``block`` stands for by itself."""


def _named(pool: Pool) -> Named:
    """Return all keys of a pool, without the order in which they came."""
    own = enumerate(zip(pool.key_node, pool.key_group, strict=True))
    found: Named = {("block", node, group, block) for block, (node, group) in own if node != ground.MISSING}
    return found | {("map", node, group, block) for node, group, _, block in pool.entries}


def _taken_back(moment: Moment) -> Findings:
    """PC-13: a reset that says so leaves no key, one that says no leaves all; T4 takes all keys of its blocks and no other."""
    action, record = moment.action, moment.record
    if record is None:
        return None
    before, after = _named(moment.before.pool), _named(moment.after.pool)
    if isinstance(action, ResetCache):
        what = "a reset that was done" if record.done else "a reset that was not done"
        expected: Named = set() if record.done else before
    elif isinstance(action, EvictBlocks):
        what, expected = "an eviction by id", {key for key in before if key[3] not in action.blocks}
    else:
        return None
    found = [(f"{what} leaves keys", after - expected), (f"{what} takes other keys", expected - after)]
    return [Evidence.of(message, keys=sorted(keys)) for message, keys in found if keys]


def _reset_if_unused(moment: Moment) -> Findings:
    """PC-14: a reset is done if and only if nothing but the null block is in use."""
    if moment.record is None or not isinstance(moment.action, ResetCache):
        return None
    held = [block for block, count in enumerate(moment.before.pool.ref) if count and block != ground.NULL]
    if bool(moment.record.done) is not bool(held):
        return ()
    if held:
        return [Evidence.of("a reset is done although blocks are in use", held=held)]
    return [Evidence.of("a reset is not done although no block is in use")]


# --- what is served ---------------------------------------------------------------------------------------------------


@define(slots=True)
class Served:
    """Follows a run: what may still be found, and what a hit was that should not have been."""

    judged: int = 0
    found: list[Evidence] = field(factory=list)

    def findings(self) -> Findings:
        """Return what a law says of the run."""
        return self.found if self.judged else None


@define(slots=True)
class Computed(Served):
    """The prefixes that requests have computed since the last reset that was done (HB-16), as nodes of the prefix table.

    Counted generously: placeholders and drafts are computed, what was withdrawn or preempted stays, and so does what live
    requests hold when a reset is done.
    """

    nodes: set[int] = field(factory=set)

    def see(self, moment: Moment) -> None:
        """Judge a lookup, and take in what any other action computed."""
        record = moment.record
        if record is None:
            return
        if isinstance(moment.action, Lookup):
            self.judge(moment.action, moment.before, record.local)
        elif isinstance(moment.action, ResetCache) and record.done:
            self.nodes.clear()
        for node in _computed(moment.after):
            while node >= 0 and node not in self.nodes:
                self.nodes.add(node)
                node = moment.after.prefixes.parent[node]

    def judge(self, action: Lookup, world: World, local: int) -> None:
        """Compare the prefix that a lookup found with those that were computed."""
        request = ground.request_of(world, action.request)
        if request is None or not local:
            return
        self.judged += 1
        if naive_hits.node_at(world.prefixes, request.tip, local) not in self.nodes:
            message = "a hit covers tokens that nobody has computed since the last reset"
            self.found.append(Evidence.of(message, request=action.request, local=local))


def _computed(world: World) -> Iterator[int]:
    """Yield the node of what each live request has computed or is planned to compute, as far as its tokens are known."""
    ends = {entry.request: entry.start + entry.amount for entry in world.plan.scheduled}
    for request in world.requests:
        end = max(request.computed, ends.get(request.request, 0))
        if end > 0:
            yield naive_hits.node_at(world.prefixes, request.tip, min(end, request.num_tokens))


@define(slots=True)
class Evicted(Served):
    """The blocks that lost their keys by their id and were held by nobody since (HB-17): they cannot have new ones."""

    blocks: set[int] = field(factory=set)

    def see(self, moment: Moment) -> None:
        """Judge a lookup, and take in an eviction and who is held."""
        action, record = moment.action, moment.record
        if record is None:
            return
        if isinstance(action, EvictBlocks):
            self.blocks.update(action.blocks)
        elif isinstance(action, Lookup):
            served = {block for blocks in record.lists for block in blocks}
            self.judged += bool(self.blocks) and record.local > 0
            if served & self.blocks:
                message = "a hit names a block that has lost its keys by its id and was not held since"
                self.found.append(Evidence.of(message, request=action.request, blocks=sorted(served & self.blocks)))
        elif self.blocks:
            held = (moment.before.pool.ref, moment.after.pool.ref)
            self.blocks = {block for block in self.blocks if not any(ref[block] for ref in held)}


def _followed(kind: Callable[[], Computed | Evicted]) -> Callable[..., Findings]:
    """Return the check of a whole run that follows it with one of these."""

    def check(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Findings:
        if not config.caching:
            return None
        served = kind()
        for moment in twins.moments(config, actions, start):
            served.see(moment)
        return served.findings()

    return check


LAWS: tuple[Law, ...] = (
    Law(
        "HB-16",
        "S",
        "A local hit covers only tokens that a request has computed since the last reset of the prefix cache that was done.",
        "vLLM 0.33.0",
        ("M-RST-3",),
        check_run=_followed(Computed),
    ),
    Law(
        "HB-17",
        "S",
        "No local hit names a block that has lost its keys by its id and was held by nobody since.",
        "vLLM 0.33.0",
        ("M-EVICT-2",),
        check_run=_followed(Evicted),
    ),
    Law(
        "PC-13",
        "S",
        "A reset that was done leaves no key, one that was not leaves all; an eviction by id takes every key of its blocks and "
        "no other.",
        "vLLM 0.33.0",
        ("M-RST-3", "M-EVICT-2"),
        on=(ResetCache, EvictBlocks),
        check=_taken_back,
    ),
    Law(
        "PC-14",
        "D",
        "A reset of the prefix cache is done if and only if no block but the null block is in use.",
        "vLLM 0.33.0",
        ("M-RST-4",),
        on=(ResetCache,),
        check=_reset_if_unused,
    ),
)
