"""The answer about the host tier: what it holds, what the second prompt gets from it, and why no more (T14, T20, T29)."""

from __future__ import annotations

from attrs import evolve, frozen

from kvproof.core.config import Config
from kvproof.spec import ground, naive
from kvproof.spec.deployments import model
from kvproof.spec.explain import answer as answers
from kvproof.spec.explain import host_facts, rules
from kvproof.spec.explain.answer import Answer, Disagreement
from kvproof.spec.explain.host_facts import HostFacts, Stored
from kvproof.spec.explain.host_run import Asked, HostRun
from kvproof.spec.explain.scenario import Run
from kvproof.spec.explain.view import View, behind, classes, view


@frozen(slots=True)
class Landing:
    """A copy of a load: the tokens [start, end) of a table entry, or the state at ``end``, from host block to device block."""

    group: int
    column: int
    start: int
    end: int
    device_block: int
    host_block: int


@frozen(slots=True)
class HostLookup:
    """What the second prompt gets with the device's cache ``kept`` or ``gone``.

    ``found`` has the candidates of the host, ``found.joint`` is the last token that local and offered ones reach together,
    ``finer`` the same if hits could end inside a block, which in lazy mode they cannot.
    """

    asked: Asked
    landings: tuple[Landing, ...]
    found: Answer
    finer: int


@frozen(slots=True)
class HostAnswer:
    """The host tier: its settings, what was stored when, the boundaries it holds per class, and the lookups.

    ``target`` is what the lazy walk looks at, 0 in eager mode; ``others`` are keys of other prompts.
    """

    mode: str
    blocks: int
    alignment: int
    target: int
    stored: tuple[Stored, ...]
    holds: tuple[tuple[str, tuple[int, ...]], ...]
    others: int
    lookups: tuple[HostLookup, ...]


def explain(answer: Answer) -> HostAnswer | None:
    """Return the answer about the host tier of an answered question, None without one. Raises Disagreement."""
    run, config, offload = answer.run, answer.config, answer.config.offload
    if run is None or run.host is None or offload is None:
        return None
    seen = view(run)
    facts = facts_of(config, run, run.host)
    names = model.group_names(answer.deployment)
    labels = {members: answers.class_name(names, members) for members in classes(config)}
    held = {members: _held(facts, members, seen.nodes) for members in labels}
    nodes = frozenset(seen.nodes)
    own = {key for key in facts.keyed if key[0] in nodes}
    return HostAnswer(
        mode=facts.mode,
        blocks=offload.num_blocks,
        alignment=naive.common_multiple(seen.spans) if facts.mode == "lazy" else config.alignment,
        target=facts.target if facts.mode == "lazy" else 0,
        stored=run.host.stored,
        holds=tuple((labels[members], boundaries) for members, boundaries in held.items()),
        others=len(facts.keyed - own),
        lookups=tuple(lookup(answer, seen, facts, labels, asked) for asked in run.host.asked),
    )


def _held(facts: HostFacts, members: tuple[int, ...], nodes: list[int]) -> tuple[int, ...]:
    """Return the boundaries that all groups of a class have on the host."""
    common = set(host_facts.boundaries(facts.keyed, members[0], nodes))
    for group in members[1:]:
        common &= set(host_facts.boundaries(facts.keyed, group, nodes))
    return tuple(sorted(common))


def facts_of(config: Config, run: Run, host: HostRun) -> HostFacts:
    """Return what the rules look at on the host."""
    assert config.offload is not None, "the caller asks"
    spans = tuple(ground.span(config, group) for group in range(len(config.groups)))
    return HostFacts(
        mode=config.offload.mode,
        keyed=frozenset((node, group) for node, group, _, _ in host.pool.entries),
        known=host.known,
        lost={key: _when(run, *chunk) for key, chunk in host.lost.items()},
        dropped=host.dropped,
        starved=host.starved,
        full=host.full,
        inside=config.fine_grained,
        snapshots=tuple(ground.snapshot_groups(config)),
        spans=spans,
        target=host_facts.lazy_target(config, spans),
    )


def _when(run: Run, request: int, start: int, end: int) -> str:
    """Return a chunk, or the end of a request, in words."""
    del run
    who = "the first prompt" if request == 0 else "the prompt in between"
    return f"when {who} finished" if start == end else f"by {who}, tokens {start:,} to {end:,}"


# --- one lookup ---------------------------------------------------------------------------------------------------


def lookup(answer: Answer, seen: View, facts: HostFacts, labels: dict[tuple[int, ...], str], asked: Asked) -> HostLookup:
    """Return what one lookup gives, with every candidate of the host; checked against the model. Raises Disagreement."""
    host = behind(seen, facts, asked.behind)
    readers = {members: rules.reader(host, members) for members in labels}
    joint, lowerings = answers.fixed_point(host, readers, labels)
    if not chunks_agree(answer.config, asked.behind):
        joint, lowerings = asked.behind, ()
    if joint - asked.behind != asked.offered:
        raise Disagreement(
            f"the rules find {joint - asked.behind} tokens on the host behind {asked.behind}, the model {asked.offered} "
            f"(device cache {asked.device})"
        )
    if asked.resumes not in (-1, asked.accepted.local + asked.accepted.external):
        raise Disagreement(f"a load to {asked.accepted.local + asked.accepted.external} tokens leaves {asked.resumes}")
    question = answers.Asked(host, readers, labels, joint, rules.OTHER_GROUP)
    found = evolve(
        answer,
        config=evolve(answer.config, alignment=host.alignment, fine_grained=host.fine),
        classes=tuple(answers.class_answer(question, members) for members in readers),
        lowerings=lowerings,
        joint=joint,
        local=asked.local,
        diverged=False,
        junction=0,
    )
    finest = evolve(host, alignment=host.kept, fine=seen.fine)
    finer, _ = answers.fixed_point(finest, {members: rules.reader(finest, members) for members in labels}, labels)
    return HostLookup(asked, tuple(_landing(answer.config, asked, pair) for pair in asked.pairs), found, max(finer, joint))


def chunks_agree(config: Config, start: int) -> bool:
    """Tell whether the host is asked at all behind ``start`` tokens: chunks of local attention must begin there (T20.3)."""
    return not any(spec.kind == ground.CHUNKED and start % (spec.window or 1) for spec in config.groups)


def _landing(config: Config, asked: Asked, pair: tuple[int, int, int, int]) -> Landing:
    group, column, device, host = pair
    span = ground.span(config, group)
    end = min((column + 1) * span, asked.accepted.local + asked.accepted.external)
    start = end if group in ground.recurrent_groups(config) else max(column * span, asked.behind)
    return Landing(group, column, start, end, device, host)
