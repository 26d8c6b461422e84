"""What the last lookup of a counterexample could have hit: each group's candidate boundaries with the rule that removed each.

The rules are those of ``kvproof explain``, read off the keys of the world before the lookup; what broke the law is not
asked. What a key was and when it went is read from the film.
"""

from __future__ import annotations

from attrs import frozen

from kvproof.core import actions as act
from kvproof.core.world import World
from kvproof.spec import ground, naive, naive_hits
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.explain import answer as answers
from kvproof.spec.explain import rules
from kvproof.spec.explain.rules import Reader, Reason
from kvproof.spec.explain.view import View, classes
from kvproof.spec.report.film import Film

PLAIN = frozenset(
    (rules.CAP, rules.ALIGNMENT, rules.EAGLE, rules.OTHER_GROUP, rules.CONNECTOR, rules.DIVERGENT, rules.SHORTER, rules.HIT)
)
"""Rules whose words do not speak of the prompts of ``kvproof explain``."""
MOST = 40
"""Candidates that are listed for a class, the longest ones."""


@frozen(slots=True)
class Candidate:
    """A boundary in tokens, the rule that removed it or what became of it, and the case at hand in words."""

    boundary: int
    rule: str
    text: str


@frozen(slots=True)
class Class:
    """Groups that are looked up together, the longest hit of their own, and their candidates, the longest first."""

    groups: tuple[int, ...]
    kind: str
    hit: int
    candidates: tuple[Candidate, ...]


@frozen(slots=True)
class Lookup:
    """The lookup at ``position``: what the rules say (``joint``), what was answered, and the candidates."""

    position: int
    request: str
    joint: int
    answered: int
    classes: tuple[Class, ...]


def last_lookup(example: Counterexample, film: Film) -> Lookup | None:
    """Return the last local lookup up to the violation, None if there was none or nothing is cached."""
    stop = example.position + 1 if example.position >= 0 else film.told
    for position in range(stop - 1, -1, -1):
        moment = film.moments[position]
        if not isinstance(moment.action, act.Lookup) or moment.record is None or moment.action.common:
            continue
        request = ground.request_of(moment.before, moment.action.request)
        if request is None or request.skip_reading or not film.config.caching or not classes(film.config):
            continue
        seen = view(moment.before, request.tip, request.num_tokens)
        return _lookup(film, position, seen, moment.action.request, moment.record.local)
    return None


def view(world: World, tip: int, tokens: int) -> View:
    """Return what the rules see of a request's prefix in a world."""
    config = world.config
    spans = tuple(ground.span(config, group) for group in range(len(config.groups)))
    unit = config.hash_block_size
    alignment = naive_hits.alignment(config)
    return View(
        config=config,
        nodes=ground.lineage(world.prefixes, tip),
        keyed=frozenset(naive_hits.keys(world.pool)),
        lost={},
        prompt=tokens,
        shared=tokens,
        total=tokens,
        limit=tokens - 1,
        hashed=naive.floor_multiple(tokens, unit),
        ends=frozenset(),
        resumes=(),
        spans=spans,
        unit=unit,
        alignment=alignment,
        kept=alignment,
        fine=config.fine_grained,
    )


def _lookup(film: Film, position: int, seen: View, request: int, answered: int) -> Lookup:
    readers = {members: rules.reader(seen, members) for members in classes(film.config)}
    labels = {members: " and ".join(f"g{group}" for group in members) for members in readers}
    joint, _ = answers.fixed_point(seen, readers, labels)
    asked = answers.Asked(seen, readers, labels, joint, rules.OTHER_GROUP)
    gone = _gone(film, position)
    found = []
    for members, reader in readers.items():
        boundaries = range(reader.unit, seen.total + 1, reader.unit)
        listed = [_candidate(asked, members, boundary, gone) for boundary in boundaries[-MOST:]]
        own = answers.own_hit(seen, reader, seen.limit)
        found.append(Class(members, film.config.groups[members[0]].kind, own, tuple(reversed(listed))))
    return Lookup(position, film.names.request(request), joint, answered, tuple(found))


def _gone(film: Film, position: int) -> dict[tuple[int, int], int]:
    """Return the keys (node, group) that went out of the device's map before an action, with the last action that took each."""
    found: dict[tuple[int, int], int] = {}
    for at, moment in enumerate(film.moments[:position]):
        before, after = naive_hits.keys(moment.before.pool), naive_hits.keys(moment.after.pool)
        found.update(dict.fromkeys(set(before) - set(after), at))
    return found


def _candidate(asked: answers.Asked, members: tuple[int, ...], boundary: int, gone: dict[tuple[int, int], int]) -> Candidate:
    reason = answers.verdict(asked, members, boundary)
    if reason.blocked:
        told = []
        for other, reader in asked.readers.items():
            why = reader.why_not(boundary)
            if why is not None:
                lacks = _lacking(asked, other, boundary, gone, why)
                told.append(f"{asked.labels[other]}: {lacks.rule}, {lacks.text}")
        return Candidate(boundary, reason.rule, "; ".join(told))
    return _lacking(asked, members, boundary, gone, reason)


def _lacking(
    asked: answers.Asked, members: tuple[int, ...], boundary: int, gone: dict[tuple[int, int], int], reason: Reason
) -> Candidate:
    """Return a reason in words of this run: what is said of prompts by ``kvproof explain`` is said of keys here."""
    if reason.rule in PLAIN:
        return Candidate(boundary, reason.rule, reason.text)
    seen = asked.seen
    edge = missing(asked.readers[members], seen, members, boundary)
    lacking = [group for group in members if (seen.nodes[edge], group) not in seen.keyed]
    lost = [gone[seen.nodes[edge], group] for group in lacking if (seen.nodes[edge], group) in gone]
    what = f"no key up to {edge}" if edge != boundary else "no key"
    if lost:
        return Candidate(boundary, rules.EVICTED, f"{what}: it went at action {max(lost)}")
    return Candidate(boundary, rules.NO_KEY, f"{what}: there never was one")


def missing(reader: Reader, seen: View, members: tuple[int, ...], boundary: int) -> int:
    """Return the end of the first block that a class needs for a boundary and that has no key."""
    top = len(seen.nodes) - 1
    if isinstance(reader, rules.FullAttention):
        return min(reader.edge, top) if boundary > reader.reach and boundary >= reader.edge else boundary
    if isinstance(reader, rules.SlidingWindow):
        return next((edge for edge in reader.edges(boundary) if edge <= top and not seen.has(members, edge)), boundary)
    if isinstance(reader, rules.ChunkedLocal):
        return min(reader.hole(boundary - boundary % reader.chunk), top)
    return boundary
