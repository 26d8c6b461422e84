"""Laws of the event streams of the device and of the host: family EV (semantics 3.7, 5.15).

Each tier is judged by its own key map. The truth comes from that map before and after an action, entry by entry, and from
walking prefixes. An entry (node, group, seq, block) that stands in both maps was there all the time: whatever registers a
key again gives it a new ``seq``. Only a roll-back (T39) gives entries back as they were; there a block that has a key before
and after counts as having kept it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from attrs import define, field, frozen

from kvproof.core.actions import Action, Allocate, EvictBlocks, Output, ResetCache, ResetHost, Withdraw
from kvproof.core.config import Config
from kvproof.core.pool import Pool
from kvproof.core.records import Event
from kvproof.core.world import World
from kvproof.spec import event_replay, ground, naive
from kvproof.spec.engines import players, twins
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment

Key = tuple[int, int]
Entry = tuple[int, int, int, int]
NOTHING = -1
DEVICE, HOST = "device", "host"


@frozen(slots=True)
class Tier:
    """One tier in one action: what it announced, its pool before and after."""

    medium: str
    said: tuple[Event, ...]
    before: Pool
    after: Pool
    moment: Moment

    def stored(self) -> list[Event]:
        """Return the announcements of new keys."""
        return [event for event in self.said if event.kind == "stored"]

    def silent(self) -> bool:
        """Tell whether there is nothing to judge: no events, and the same keys as before."""
        return not self.said and self.before.entries == self.after.entries


def tiers(moment: Moment) -> list[Tier]:
    """Return the tiers of a world with events after an action that was not refused."""
    record, before, after = moment.record, moment.before, moment.after
    if record is None or not before.config.events:
        return []
    pools = [(DEVICE, before.pool, after.pool)]
    if before.host is not None and after.host is not None:
        pools.append((HOST, before.host.pool, after.host.pool))
    return [
        Tier(medium, tuple(event for event in record.events if event.medium == medium), was, now, moment)
        for medium, was, now in pools
    ]


def _by_tier(check: Callable[[Tier], Findings]) -> Callable[[Moment], Findings]:
    """Judge every tier by itself; the premise is true if it is for one of them."""

    def judge(moment: Moment) -> Findings:
        findings = [found for tier in tiers(moment) if (found := check(tier)) is not None]
        if len(findings) < 2:
            return findings[0] if findings else None
        return [evidence for found in findings for evidence in found]

    return judge


def _key(event: Event) -> Key:
    return event.group, event.node


def _place(event: Event) -> dict[str, object]:
    return {"medium": event.medium, "group": event.group, "node": event.node, "boundary": event.boundary}


def _has_payload(event: Event) -> bool:
    """Tell whether an event names tokens; the device's always must, the host's may leave them out (3.7)."""
    return bool(event.tokens) or (event.medium == DEVICE and event.size > 0)


# --- payloads -------------------------------------------------------------------------------------------------------


def _names_its_tokens(tier: Tier) -> Findings:
    """EV-1: the payload is the last ``size`` tokens of the prefix that the node stands for."""
    stored = [event for event in tier.stored() if _has_payload(event)]
    if not stored:
        return None
    prefixes = tier.moment.after.prefixes
    found = []
    for event in stored:
        path = ground.lineage(prefixes, event.node)
        tokens = tuple(prefixes.token[node] for node in path[1:])
        if event.boundary != len(tokens):
            found.append(Evidence.of("an event gives its key another boundary", **_place(event), expected=len(tokens)))
        if len(event.tokens) != event.size or event.tokens != tokens[-event.size :]:
            found.append(
                Evidence.of(
                    "an event does not name the tokens before its boundary",
                    **_place(event),
                    size=event.size,
                    expected=tokens[-event.size :],
                    actual=event.tokens,
                )
            )
    return found


def _sized_by_its_entry(tier: Tier) -> Findings:
    """EV-2: a full entry carries the tokens of its block, one inside a block those since the block's start (attention on the
    device) or those of a hash block. On the host what was not captured has no tokens, and the size of a block or none.
    """
    stored = tier.stored()
    if not stored:
        return None
    moment, world = tier.moment, tier.moment.after
    found = []
    for event in stored:
        spans = [ground.span(world.config, event.group)]
        boundary = len(ground.lineage(world.prefixes, event.node)) - 1
        if tier.medium == HOST:
            if not event.tokens:
                spans.append(0)
            elif boundary % spans[0]:
                spans = [world.config.hash_block_size]
        elif boundary % spans[0]:
            attention = world.config.groups[event.group].kind == ground.FULL
            spans = [boundary % spans[0] if attention else world.config.hash_block_size]
        elif boundary in _partial_at_an_edge(moment, event.group):
            spans.append(world.config.hash_block_size)
        if event.size not in spans:
            found.append(
                Evidence.of(
                    "an event carries another size than its entry has", **_place(event), expected=spans[0], actual=event.size
                )
            )
    return found


def _partial_at_an_edge(moment: Moment, group: int) -> set[int]:
    """Return where a recurrent group may register, as T8 does, a boundary that happens to be a block's end (T10.2)."""
    config, action = moment.after.config, moment.action
    if not ground.is_recurrent(config.groups[group]) or not isinstance(action, Allocate | Output):
        return set()
    named = set()
    for world in (moment.before, moment.after):
        request = ground.request_of(world, action.request)
        if request is not None:
            named.add(naive.checkpoint_boundary(request.num_prompt, config.hash_block_size, config.use_eagle))
            named.update((request.junction, request.groups[group].checkpoint_position))
    return named


def _parent_before_the_payload(tier: Tier) -> Findings:
    """EV-3: the parent is the node before the payload, none iff the payload starts at 0 or there is none."""
    stored = [event for event in tier.stored() if event.size or tier.medium == HOST]
    if not stored:
        return None
    found = []
    for event in stored:
        path = ground.lineage(tier.moment.after.prefixes, event.node)
        start = len(path) - 1 - event.size if _has_payload(event) else 0
        expected = path[start] if start > 0 else NOTHING
        if event.parent != expected:
            found.append(
                Evidence.of(
                    "an event names another parent", **_place(event), size=event.size, expected=expected, actual=event.parent
                )
            )
    return found


@define(slots=True)
class Parents:
    """Follows a run: the parent of a full-attention key was announced before, in its group, and is still keyed (EV-3).

    ``said`` are the keys that were announced, ``evicted`` those that an eviction by block id took from some block: their
    children may stand without them.
    """

    config: Config
    said: set[Key] = field(factory=set)
    evicted: set[Key] = field(factory=set)
    judged: int = 0
    found: list[Evidence] = field(factory=list)

    def see(self, moment: Moment) -> None:
        """Take in one action."""
        if isinstance(moment.action, EvictBlocks) or ground.doubted(moment.before, moment.action):
            before, after = set(moment.before.pool.entries), set(moment.after.pool.entries)
            self.evicted.update((group, node) for node, group, _, _ in before - after)
        kept = {(group, node) for node, group, _, _ in moment.after.pool.entries}
        for event in (event for tier in tiers(moment)[:1] for event in tier.stored()):
            self.judge(moment.after, event, kept)
            self.said.add(_key(event))

    def judge(self, world: World, event: Event, kept: set[Key]) -> None:
        """Look for the parent of one event, if that is a full-attention key with one: of a full entry that of the block before,
        of a partial one that which the event names.
        """
        size = ground.span(self.config, event.group)
        path = ground.lineage(world.prefixes, event.node)
        start = len(path) - 1 - size
        if self.config.groups[event.group].kind != ground.FULL or start + size <= event.size:
            return
        full = start % size == 0
        node, what = (path[start], "full") if full else (event.parent, "partial")
        parent = (event.group, node)
        self.judged += 1
        if parent not in self.said:
            self.found.append(Evidence.of(f"the parent of a {what} key was never announced", **_place(event), parent=node))
        elif parent not in kept and parent not in self.evicted:
            self.found.append(Evidence.of(f"the parent of a {what} key is gone", **_place(event), parent=node))


def _parent_announced_before(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Findings:
    """EV-3, over a run: a consumer that builds the tree of full attention keys never lacks a parent."""
    if not config.events:
        return None
    parents = Parents(config)
    for moment in twins.moments(config, actions, start):
        parents.see(moment)
    return parents.found if parents.judged else None


# --- the key map ----------------------------------------------------------------------------------------------------


def _entries(tier: Tier) -> tuple[set[Entry], set[Entry]]:
    """Return the key map before and after an action."""
    before, after = tier.before.entries, tier.after.entries
    if not isinstance(tier.moment.action, Withdraw):
        return set(before), set(after)
    return {(node, group, 0, block) for node, group, _, block in before}, {(n, g, 0, block) for n, g, _, block in after}


def _holders(entries: set[Entry]) -> Counter[Key]:
    """Count the blocks of every key (group, node)."""
    return Counter((group, node) for node, group, _, _ in entries)


def _moved(tier: Tier) -> Counter[Key]:
    """Count the keys that went with a producer's copy from its source to its destination, which nobody announces (T21.6)."""
    moved: Counter[Key] = Counter()
    moment = tier.moment
    if isinstance(moment.action, Allocate) and tier.medium == DEVICE:
        before, after = moment.before, moment.after
        was = {(node, group, block) for node, group, _, block in before.pool.entries}
        now = {(node, group, block) for node, group, _, block in after.pool.entries}
        for of, source, destination in after.plan.copies[len(before.plan.copies) :]:
            for node, group, block in was - now:
                if (group, block) == (of, source) and (node, group, destination) in now:
                    moved[group, node] += 1
    return moved


def _removed_with_the_last_block(tier: Tier) -> Findings:
    """EV-4: a key is removed when, and only when, no block is left that has it."""
    if tier.silent() or isinstance(tier.moment.action, ResetCache | ResetHost):
        return None
    before, after = _entries(tier)
    had, has, kept = _holders(before), _holders(after), _holders(before & after) + _moved(tier)
    there = dict.fromkeys(had, True)
    removed: set[Key] = set()
    found = []
    for event in tier.said:
        key = _key(event)
        if event.kind == "removed":
            removed.add(key)
            if not there.get(key, False):
                found.append(Evidence.of("a key is removed that is not there", group=event.group, node=event.node))
            elif kept[key]:
                found.append(Evidence.of("a key is removed that a block still has", group=event.group, node=event.node))
        there[key] = event.kind == "stored"
    judged = bool(removed)
    for key, announced in there.items():
        gone = key in had and not kept[key] and key not in removed
        judged = judged or gone
        if gone or (announced and not has[key]):
            found.append(Evidence.of("a key lost its last block and is not removed", group=key[0], node=key[1]))
        elif has[key] and not announced and not kept[key]:
            found.append(Evidence.of("a key was removed and is there again unsaid", group=key[0], node=key[1]))
    return found if judged or found else None


def _replay_gives_the_keys(tier: Tier) -> Findings:
    """EV-5: the keys before an action and its events give the keys after it."""
    if tier.silent():
        return None
    before, after = (set(_holders(entries)) for entries in _entries(tier))
    replayed = event_replay.replay(tier.said, before, tier.medium)
    if replayed == after:
        return ()
    return [
        Evidence.of(
            "who replays the events has other keys than the key map",
            medium=tier.medium,
            only_replayed=sorted(replayed - after),
            only_in_the_map=sorted(after - replayed),
        )
    ]


def _announced_once_per_block(tier: Tier) -> Findings:
    """EV-6: a key is announced as often as blocks get it in the action, and no more."""
    stored = Counter(_key(event) for event in tier.stored())
    if not stored:
        return None
    before, after = _entries(tier)
    gained = _holders(after - before) - _moved(tier) + Counter(_lost_again(tier)) + Counter(_replaced_at_once(tier))
    found = [
        Evidence.of(
            "a key is announced that no block gets", group=group, node=node, announced=count, blocks=gained[group, node]
        )
        for (group, node), count in stored.items()
        if count > gained[group, node]
    ]
    inserted = tier.after.next_seq - tier.before.next_seq
    if not isinstance(tier.moment.action, Withdraw) and stored.total() > inserted:
        found.append(Evidence.of("more is announced than was registered", announced=stored.total(), registered=inserted))
    return found


def _lost_again(tier: Tier) -> Iterator[Key]:
    """Yield the keys that are removed after they were announced in the same action: the block did not keep them."""
    said: Counter[Key] = Counter()
    for event in tier.said:
        if event.kind == "stored":
            said[_key(event)] += 1
        elif event.kind == "removed" and said[_key(event)]:
            said[_key(event)] -= 1
            yield _key(event)


def _replaced_at_once(tier: Tier) -> Iterator[Key]:
    """Yield the keys of full entries that a block lost to the internal checkpoint in it, as soon as it had them (T10.2a).

    Nobody says that they are gone while another block has them.
    """
    moment = tier.moment
    if not isinstance(moment.action, Allocate) or tier.medium == HOST:
        return
    removed = {_key(event) for event in tier.said if event.kind == "removed"}
    request, world = ground.request_of(moment.after, moment.action.request), moment.after
    for group, state in enumerate(request.groups if request is not None else ()):
        end = (state.checkpoint_column + 1) * world.config.groups[group].block_size
        if request is None or state.checkpoint_column == NOTHING or end > request.num_tokens:
            continue
        node = ground.lineage(world.prefixes, request.tip)[end]
        block = state.table[state.checkpoint_column]
        if (group, node) not in removed and (node, group, block) not in {(n, g, b) for n, g, _, b in world.pool.entries}:
            yield group, node


LAWS: tuple[Law, ...] = (
    Law(
        id="EV-1",
        mark="S",
        sentence="A stored event with a payload names exactly the last tokens, as many as its size says, of the prefix that "
        "its node stands for.",
        source="vLLM 0.33.0",
        faults=("M-EVT-1", "M-META-4"),
        check=_by_tier(_names_its_tokens),
        bent_by=(("positional_ids", "accumulated"),),
    ),
    Law(
        id="EV-2",
        mark="D",
        sentence="The payload of a full entry has the tokens of one table entry, that of a partial one those since the entry's "
        "start (attention on the device) or those of a hash block; the device's events always carry one, the host's where "
        "it was captured.",
        source="vLLM 0.33.0, #49962",
        faults=("M-EVT-1", "M-PUB-8"),
        check=_by_tier(_sized_by_its_entry),
        bent_by=(("partial_parent", "hash"), ("positional_ids", "accumulated")),
    ),
    Law(
        id="EV-3",
        mark="S",
        sentence="The parent of a stored event is the node before its payload; that of a full-attention key was announced "
        "before and is still keyed, unless blocks were evicted by id.",
        source="vLLM 0.33.0",
        faults=("M-EVT-3", "M-PUB-156"),
        check=_by_tier(_parent_before_the_payload),
        check_run=_parent_announced_before,
        bent_by=(("partial_parent", "hash"), ("positional_ids", "accumulated")),
    ),
    Law(
        id="EV-4",
        mark="S",
        sentence="A key is removed exactly when it loses its last block.",
        source="#55092",
        faults=("M-EVT-4", "M-EVT-5"),
        check=_by_tier(_removed_with_the_last_block),
        bent_by=(("removed_event", "each_copy"),),
    ),
    Law(
        id="EV-5",
        mark="S",
        sentence="Who replays the events as a set has the keys of the key map after every action.",
        source="vLLM 0.33.0, #55092",
        faults=("M-EVT-4", "M-EVT-5", "M-EVT-6"),
        check=_by_tier(_replay_gives_the_keys),
        bent_by=(("removed_event", "each_copy"),),
    ),
    Law(
        id="EV-6",
        mark="D",
        sentence="A key that a block already has is not announced again for that block.",
        source="vLLM 0.33.0",
        faults=("M-EVT-2",),
        check=_by_tier(_announced_once_per_block),
    ),
)
