"""Laws of what eventually happens on the host side: LV-2 to LV-7 (semantics 5.13).

"Eventually" is judged by carrying the world at the end of a run to quiet under fairness (``engines.drain``). LV-5 and LV-6 also
follow the run, since they speak of what was stored when nothing was evicted and there was room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from kvproof.core.actions import (
    Action,
    Allocate,
    BeginStep,
    CompleteStore,
    Dispatch,
    EvictBlocks,
    Finish,
    Lookup,
    LookupExternal,
    Output,
    Preempt,
    ResetCache,
    ResetHost,
    Submit,
    Withdraw,
)
from kvproof.core.config import Config
from kvproof.core.offload.state import Host
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import Request, Status, World
from kvproof.spec import ground, ground_host, naive, naive_hits
from kvproof.spec.engines import drain, players, prompts
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment

if TYPE_CHECKING:
    from kvproof.spec.engines.drain import Drained

Key = tuple[int, int]
"""(prefix node, group)."""
WAY = 12
"""Of the actions by which a world is carried to quiet, so many before the one that is refused are told."""


# --- LV-2 to LV-4 ---------------------------------------------------------------------------------------------------


def _stuck(drained: Drained) -> list[Evidence]:
    """Return why a world did not become quiet: something was refused on the way."""
    if drained.refusal is None:
        return []
    *way, last = (moment.action for moment in drained.moments)
    values: dict[str, Any] = {"action": last, "code": drained.refusal.code, "text": drained.refusal.message}
    if way:
        values["behind"] = tuple(str(action) for action in way[-WAY:])
    return [Evidence.of("what an engine does by itself to end this is refused", **values)]


def _everything_unpinned(drained: Drained) -> Findings:
    """LV-2: once everything has run and every request is gone, no block of either tier is held."""
    start, world = drained.start, drained.world
    if start.host is None or world.host is None or not any((*start.pool.ref[1:], *start.host.pool.ref[1:])):
        return None
    found = _stuck(drained)
    anew = _stored_anew(start.host, world)
    for at, (tier, pool) in enumerate((("device", world.pool), ("host", world.host.pool))):
        held = [block for block, count in enumerate(pool.ref) if count > anew[at].count(block) and block != NULL_BLOCK]
        if held:
            found.append(Evidence.of("blocks stay pinned for ever", tier=tier, blocks=held))
    return found


def _stored_anew(start: Host, world: World) -> tuple[list[int], list[int]]:
    """Return the device and host blocks of stores that began while the world was carried to quiet.

    With less room on the host than keyed blocks on the device, a lazy walk (T33) finds something in every step, for ever: each
    block is unpinned, and pinned again later.
    """
    stores = () if world.host is None or ground_host.is_eager(world) else world.host.stores
    fresh = [store for store in stores if store.event >= start.next_store]
    return [block for store in fresh for block in store.device], [block for store in fresh for block in store.host]


def _loading_ends(drained: Drained) -> Findings:
    """LV-3: a loading request waits again, or is finished, when its load has run; none is left behind."""
    start, world = drained.start, drained.world
    loading = {request.request for request in start.requests if request.status is Status.LOADING}
    if start.host is None or world.host is None or not (loading or ground_host.all_loads(start.host)):
        return None
    left = [request.request for request in world.requests if request.status is Status.LOADING]
    loads = ground_host.all_loads(world.host)
    found = _stuck(drained)
    if left or loads:
        found.append(Evidence.of("a load never ends", requests=left, loads=loads))
    return found


def _finished_forgotten(drained: Drained) -> Findings:
    """LV-4: the store side forgets every request that has finished."""
    start, host = drained.start, drained.world.host
    if start.host is None or host is None or not start.host.tracks:
        return None
    left = [track.request for track in host.tracks]
    return [*_stuck(drained), *([Evidence.of("a finished request is never forgotten", requests=left)] if left else [])]


def _keeps_stepping(moment: Moment) -> Findings:
    """LV-7: as long as a store is queued or runs, the engine is told so and goes on stepping."""
    host = moment.after.host
    if moment.record is None or host is None:
        return None
    pending = bool(ground_host.all_stores(host) or host.queued)
    if moment.record.pending_work != pending:
        return [
            Evidence.of(
                "the engine is told something else than whether stores are pending",
                told=moment.record.pending_work,
                stores=len(ground_host.all_stores(host)),
                queued=len(host.queued),
            )
        ]
    return () if pending else None


# --- what a run stored ----------------------------------------------------------------------------------------------


def _keys(world: World) -> set[Key]:
    """Return the keys of the host."""
    return {(node, group) for node, group, _, _ in ground_host.host_of(world).pool.entries}


@define(slots=True)
class Stored:
    """Follows a run and says which keys finished requests are owed on the host (LV-5).

    A key is owed if the request finished with its block keyed and computed, the host had room left, and the key was neither
    evicted from the host nor taken by block id before. A reset of the host forgives everything.
    """

    owed: dict[Key, int] = field(factory=dict)
    lost: set[Key] = field(factory=set)
    judged: int = 0

    def see(self, moment: Moment) -> None:
        """Take in one action that was not refused."""
        action, before, after = moment.action, moment.before, moment.after
        if moment.record is None or before.host is None or after.host is None:
            return
        if before.host.pool.entries != after.host.pool.entries:
            self.lost |= _keys(before) - _keys(after)
        if isinstance(action, EvictBlocks):
            self.lost |= {(node, group) for node, group, _, block in before.pool.entries if block in action.blocks}
        if isinstance(action, Output) and action.failed:
            doubted = ground.doubted(before, action)
            self.lost |= {(node, group) for node, group, _, block in before.pool.entries if block in doubted}
        if isinstance(action, ResetHost):
            self.owed.clear()
        if isinstance(action, Finish) and after.host.pool.free:
            request = ground.request_of(before, action.request)
            if request is not None and ground_host.track_of(before.host, action.request) is not None:
                self.owe(before, request)

    def owe(self, world: World, request: Request) -> None:
        """Note the keys of the blocks that a finished request leaves in positionally stable groups."""
        keyed = set(world.pool.entries)
        keyed_at = {(node, group, block) for node, group, _, block in keyed}
        for group in ground_host.stable_groups(world.config):
            for place in ground_host.scanned(world, request, group, request.computed - request.placeholders, 0):
                if place.block != NULL_BLOCK and (place.node, group, place.block) in keyed_at:
                    self.owed[place.node, group] = request.request

    def missing(self, world: World) -> Iterator[tuple[Key, int]]:
        """Yield the keys that the host owes and does not have, with the request that left them."""
        there = _keys(world)
        for key, request in self.owed.items():
            if key not in self.lost:
                self.judged += 1
                if key not in there:
                    yield key, request


def _stable_blocks_arrive(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Findings:
    """LV-5: with room, and nothing evicted, the keyed whole blocks of finished requests get to the host."""
    if config.offload is None or config.offload.mode != "eager":
        return None
    if not actions:
        return None
    stored, player = Stored(), start(config)
    for action in actions:
        stored.see(player.act(action))
    drained = drain.carried(player)
    for moment in drained.moments:
        stored.see(moment)
    if drained.refusal is not None:
        return None
    found = [
        Evidence.of(
            "a computed block of a finished request never gets to the host",
            request=request,
            group=group,
            key=node,
            boundary=drained.world.prefixes.depth[node],
        )
        for (node, group), request in stored.missing(drained.world)
    ]
    return found if stored.judged else None


# --- LV-6 -----------------------------------------------------------------------------------------------------------

MOST_RESENDS = 4
"""Of the prompts of a run the last few are sent again."""


@frozen(slots=True)
class Sent:
    """A prompt as it was submitted, where its chunks began and ended, and whether something kept it from being stored whole."""

    context: int
    tokens: tuple[int, ...]
    node: int
    ends: frozenset[int] = frozenset()
    disturbed: bool = False


def _lost_on_device(moment: Moment) -> set[Key]:
    """Return the keys that no device block has any more and that the host neither has nor is getting."""
    before, after, host = moment.before, moment.after, ground_host.host_of(moment.before)
    evicted: Iterable[int] = moment.action.blocks if isinstance(moment.action, EvictBlocks) else ()
    if isinstance(moment.action, Output) and moment.action.failed:
        evicted = ground.doubted(before, moment.action)
    coming = set(ground_host.outstanding(host)) - set(evicted)
    safe = _keys(before) | {key for block in coming for key in ground_host.keys_of(before.pool, block)}
    had = {(node, group) for node, group, _, _ in before.pool.entries}
    return had - {(node, group) for node, group, _, _ in after.pool.entries} - safe


@define(slots=True)
class Prompts:
    """Follows a run: which finished prompts were computed and stored undisturbed (LV-6).

    What disturbs: a preemption, a local or external hit, a key on the prompt's prefix that the host loses, or the device before
    the host has it, a dropped handoff, a host without room when it finishes, a reset of the host.
    """

    config: Config
    live: dict[int, Sent] = field(factory=dict)
    finished: list[Sent] = field(factory=list)

    def disturb(self, requests: Iterable[int]) -> None:
        """Requests are not computed and stored as undisturbed ones."""
        for request in requests:
            if request in self.live:
                self.live[request] = evolve(self.live[request], disturbed=True)

    def lose(self, world: World, keys: set[Key]) -> None:
        """Keys are gone for good: prompts with one of them on their prefix promise nothing any more."""
        nodes = {node for node, _ in keys}
        if not nodes:
            return

        def hurt(sent: Sent) -> bool:
            return bool(nodes.intersection(ground.lineage(world.prefixes, sent.node)))

        self.finished = [sent for sent in self.finished if not hurt(sent)]
        self.disturb([request for request, sent in self.live.items() if hurt(sent)])

    def see(self, moment: Moment) -> None:
        """Take in one action that was not refused."""
        action, record, before, after = moment.action, moment.record, moment.before, moment.after
        if record is None or before.host is None or after.host is None:
            return
        if before.host.pool.entries != after.host.pool.entries:
            self.lose(after, _keys(before) - _keys(after))
        if before.pool.entries != after.pool.entries:
            self.lose(after, _lost_on_device(moment))
        self.disturb(row[0] for row in record.outcomes if row[4].startswith("dropped"))
        if isinstance(action, Submit):
            request = ground.request_of(after, action.request)
            if request is not None:
                self.live[action.request] = Sent(action.context, action.tokens, request.tip)
        elif isinstance(action, Allocate):
            if record.admitted and (action.local or action.external):
                self.disturb([action.request])
        elif isinstance(action, Preempt | Withdraw):
            self.disturb([action.request])
        elif isinstance(action, Output) and action.failed:
            self.disturb([action.request, *record.preempted])
        elif isinstance(action, ResetHost):
            self.finished.clear()
            self.disturb(list(self.live))
        elif isinstance(action, Dispatch):
            for entry in after.steps[-1].scheduled:
                sent = self.live[entry.request]
                ends = sent.ends | {entry.start, entry.start + entry.amount}
                self.live[entry.request] = evolve(sent, ends=ends)
        elif isinstance(action, Finish):
            self.finish(moment, action.request)

    def finish(self, moment: Moment, number: int) -> None:
        """A request ends: if its prompt was computed undisturbed and there was room to store it, it is stored."""
        sent, request = self.live.pop(number), ground.request_of(moment.before, number)
        host = moment.after.host
        if request is None or host is None or sent.disturbed or not host.pool.free:
            return
        if request.computed - request.placeholders >= len(sent.tokens):
            self.finished.append(sent)

    def promised(self, sent: Sent) -> int:
        """Return the boundary that a resend finds on the host: ck(P, H), ck(P, S) where hits are coarse (2.8); 0 for nothing.

        A model of one group gives up its EAGLE unit from what lies below the last token. Coarse hits of states want one at the
        boundary, which is there only if a chunk ended on it and it is retained.
        """
        config, facts, length = self.config, naive_hits.facts(self.config), len(sent.tokens)
        unit = ground_host.alignment(config)
        if facts.eagle and len(config.groups) == 1:
            return max(naive.checkpoint_boundary(length, unit) - unit, 0)
        boundary = naive.checkpoint_boundary(length, unit, bool(facts.eagle))
        if ground_host.is_fine(config) or not ground.snapshot_groups(config):
            return boundary
        kept = config.retention is None or not config.fine_grained
        return boundary if kept and boundary in sent.ends else 0


def _resend_is_loaded(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Findings:
    """LV-6: what was computed and stored undisturbed is hit on the host by a resend, once the device has forgotten it."""
    facts = naive_hits.facts(config)
    if config.offload is None or config.offload.mode != "eager" or not facts.classes:
        return None
    if ground.snapshot_groups(config) and config.clip_block_size % config.hash_block_size:
        return None  # chunks then end where nothing is hashed
    sent, player = Prompts(config), start(config)
    for action in actions:
        sent.see(player.act(action))
    if not (sent.finished or sent.live):
        return None
    drained = drain.carried(player)
    for moment in drained.moments:
        sent.see(moment)
    if drained.refusal is not None or not drained.do(ResetCache()):
        return None
    record = drained.moments[-1].record
    if record is None or not record.done:
        return None
    wanted = [(prompt, sent.promised(prompt)) for prompt in dict.fromkeys(reversed(sent.finished))]
    judged = [(prompt, expected) for prompt, expected in wanted if expected][:MOST_RESENDS]
    found = []
    for prompt, expected in judged:
        actual = external_hit(drained.player.again(), prompt)
        exact = ground_host.is_fine(config) and bool(facts.attention)
        if actual is None or actual < expected or (exact and actual != expected):
            found.append(
                Evidence.of(
                    "an identical resend does not find its checkpoint on the host",
                    prompt=prompt.tokens,
                    expected=expected,
                    actual=actual,
                )
            )
    return found if judged else None


def external_hit(player: players.Player, prompt: Sent) -> int | None:
    """Return the external hit of a prompt that is sent again to a world at rest; None if the lookup is refused."""
    number = prompts.free_id(player.world)
    actions: list[Action] = [
        Submit(number, prompt.tokens, prompt.context),
        BeginStep(),
        Lookup(number),
        LookupExternal(number, 0),
    ]
    record = None
    for action in actions:
        record = player.act(action).record
    return None if record is None else record.external


LAWS: tuple[Law, ...] = (
    Law(
        id="LV-2",
        mark="C",
        sentence="Every pinned block is eventually unpinned: when all has run and every request is gone, none is held.",
        source="vLLM 0.33.0",
        faults=("M-LEAK-1", "M-PUB-126"),
        check_end=_everything_unpinned,
    ),
    Law(
        id="LV-3",
        mark="C",
        sentence="A loading request eventually waits again or is finished.",
        source="vLLM 0.33.0",
        faults=("M-LOAD-6",),
        check_end=_loading_ends,
    ),
    Law(
        id="LV-4",
        mark="C",
        sentence="The store side eventually forgets every finished request.",
        source="vLLM 0.33.0",
        faults=("M-LEAK-3",),
        check_end=_finished_forgotten,
    ),
    Law(
        id="LV-5",
        mark="C",
        sentence="With room on the host and nothing evicted, every keyed whole block of a positionally stable group that a "
        "finished request has computed is eventually on the host.",
        source="#54736",
        faults=("M-GEO-1", "M-CUR-1", "M-FLUSH-1"),
        check_run=_stable_blocks_arrive,
    ),
    Law(
        id="LV-6",
        mark="C",
        sentence="Stored eagerly, with room and nothing evicted, an identical resend gets its checkpoint from the host once "
        "the device has forgotten it: with fine-grained hits the last hash boundary before its last token, with EAGLE a unit "
        "less, with coarse hits the same in scheduler blocks.",
        source="#54736, #57444",
        faults=("M-TAIL-3", "M-REG-1", "M-RET-1", "M-PUB-44", "M-PUB-45", "M-PUB-48", "M-PUB-52", "M-TAIL-5", "M-TAIL-6"),
        check_run=_resend_is_loaded,
        bent_by=(
            ("prompt_tail", "P"),
            ("partial_key_after_promotion", "drop"),
            ("eagle_replay_unit", "S"),
            ("checkpoint_tail", "first"),
            ("void_drops", "without_drop"),
            ("empty_window", "one_block"),
            ("short_runs", "align"),
            ("finish_tail", "prompt"),
            ("finish_tail_groups", "first"),
        ),
    ),
    Law(
        id="LV-7",
        mark="C",
        sentence="As long as a store is queued or runs, the engine is told that work is pending.",
        source="vLLM 0.33.0",
        faults=("M-FLUSH-2",),
        on=(Dispatch, Finish, CompleteStore),
        check=_keeps_stepping,
    ),
)
