"""The answer to a question: geometry, gate, chunks, candidate boundaries per class of groups, and the joint hit."""

from __future__ import annotations

from attrs import evolve, frozen
from msgspec import structs

from kvproof.core import kinds
from kvproof.core.config import Config
from kvproof.spec import naive
from kvproof.spec.deployments import model
from kvproof.spec.deployments.read import DeploymentError
from kvproof.spec.deployments.schema import Deployment
from kvproof.spec.explain import gate, rules, scenario
from kvproof.spec.explain.gate import Condition
from kvproof.spec.explain.rules import Reader, Reason
from kvproof.spec.explain.scenario import Question, Run, ScenarioError
from kvproof.spec.explain.view import View, classes, view

MOST_BLOCKS = 40_000
"""Blocks of a run that takes no more than half a minute; the cost grows with the square of the blocks."""
MOST_TOKENS = 4_000_000
ENTRY_BYTES = 4
"""Bytes of a block-table entry: a 32-bit block id."""


class Disagreement(RuntimeError):
    """The rules and the model give different hits: an error of kvproof."""


@frozen(slots=True)
class GroupRow:
    """A line of the geometry table; ``span`` is E, ``entries`` the width of a worker row at the model length."""

    name: str
    kind: str
    layers: int | None
    block_size: int
    sharded: bool
    span: int
    window: int | None
    speculative_blocks: int
    draft: bool
    entries: int
    row_bytes: int


@frozen(slots=True)
class Chunk:
    """A chunk of the first prompt, in tokens, and why it ended there."""

    start: int
    end: int
    why: str


@frozen(slots=True)
class ClassAnswer:
    """A class of groups that are looked up together: its own hit, and its candidates with the rule that removed each.

    ``unit`` is the distance of the candidates in tokens, the first of which is the unit itself.
    """

    groups: tuple[int, ...]
    name: str
    kind: str
    unit: int
    hit: int
    candidates: tuple[Reason, ...]


@frozen(slots=True)
class Lowering:
    """One question of the fixed point: a class asked up to ``asked`` answers ``hit``."""

    name: str
    asked: int
    hit: int


@frozen(slots=True)
class Answer:
    """What was found. ``joint`` is the common hit, ``local`` what the model's lookup reports (deeper if ``diverged``)."""

    deployment: Deployment
    config: Config
    question: Question
    forced: bool
    rows: tuple[GroupRow, ...]
    conditions: tuple[Condition, ...]
    chunks: tuple[Chunk, ...]
    classes: tuple[ClassAnswer, ...]
    lowerings: tuple[Lowering, ...]
    joint: int
    local: int
    diverged: bool
    junction: int
    run: Run | None = None
    """What happened, for those who look further; None where nothing was asked."""


def explain(deployment: Deployment, question: Question, *, blocks: int | None = None, closed: bool = False) -> Answer:
    """Answer a question about a deployment; ``closed`` asks it with the gate of fine-grained hits closed.

    ``blocks`` is the size of the pool with its null block, by default and at most one in which nothing is evicted. Raises
    DeploymentError or ScenarioError for what cannot be asked, and Disagreement if rules and model differ.
    """
    empty = geometry(deployment, question.step_tokens, closed=closed)
    if not classes(empty.config):
        raise DeploymentError(deployment.name, "no group is cached, so nothing can be hit: add an attention or recurrent group")
    scenario.check(empty.config, question)
    wanted = scenario.blocks_wanted(empty.config, question)
    _check_size(question, wanted)
    config = sized(empty.config, deployment, wanted, blocks)
    run = scenario.run(config, question)
    seen = view(run)
    names = model.group_names(deployment)
    readers = {members: rules.reader(seen, members) for members in classes(config)}
    labels = {members: class_name(names, members) for members in readers}
    joint, lowerings = fixed_point(seen, readers, labels)
    _compare(config, run, seen, readers, joint)
    asked = Asked(seen, readers, labels, joint, _lagging_rule(config, run.record.diverged))
    return evolve(
        empty,
        config=config,
        question=question,
        chunks=tuple(Chunk(start, end, chunk_reason(config, question, start, end)) for start, end in run.chunks),
        classes=tuple(class_answer(asked, members) for members in readers),
        lowerings=lowerings,
        joint=joint,
        local=run.record.local,
        diverged=run.record.diverged,
        junction=run.record.junction,
        run=run,
    )


def sized(config: Config, deployment: Deployment, wanted: int, blocks: int | None) -> Config:
    """Return a configuration with pools of the right size: what was asked for, at most and by default ``wanted`` blocks.

    The host holds what its deployment says, or as many as nothing is evicted from. Raises ScenarioError for too many.
    """
    host, offload = deployment.settings.host, config.offload
    if host is not None and offload is not None:
        offload = evolve(offload, num_blocks=wanted if host.blocks is None else min(host.blocks.value, wanted))
    return evolve(config, num_blocks=wanted if blocks is None else min(blocks, wanted), offload=offload)


def geometry(deployment: Deployment, step_tokens: int, *, closed: bool = False) -> Answer:
    """Return an answer with the geometry alone: nothing was asked. Raises DeploymentError, Disagreement."""
    config = model.configure(deployment, 2, step_tokens)
    names = model.group_names(deployment)
    kinds_named = {members: class_name(names, members) for members in classes(config)}
    if config.fine_grained != all(condition.holds for condition in gate.conditions(config, kinds_named, allowed=True)):
        raise Disagreement(f"the model says {config.fine_grained} of the gate of {deployment.name}, its conditions do not")
    return Answer(
        deployment=deployment,
        config=model.with_closed_gate(config) if closed else config,
        question=Question(1, 1, 0, step_tokens),
        forced=closed,
        rows=group_rows(deployment, config, names),
        conditions=gate.conditions(config, kinds_named, allowed=not closed),
        chunks=(),
        classes=(),
        lowerings=(),
        joint=0,
        local=0,
        diverged=False,
        junction=0,
    )


def compare_closed(deployment: Deployment, question: Question, found: Answer, blocks: int | None) -> Answer | None:
    """Return the answer with the gate closed if the gate was open, None if there is nothing to compare."""
    if found.forced or not found.config.fine_grained:
        return None
    alone = structs.replace(deployment, settings=structs.replace(deployment.settings, host=None))
    return explain(alone, question, blocks=blocks, closed=True)


def _lagging_rule(config: Config, diverged: bool) -> str:
    """Return the rule for boundaries of full attention at which only recurrent groups cannot resume (T13)."""
    if diverged:
        return rules.DIVERGENT
    return rules.OTHER_GROUP if all(config.children) else rules.CONNECTOR


def _check_size(question: Question, blocks: int) -> None:
    tokens = question.prompt + question.resend + question.between
    if tokens > MOST_TOKENS:
        raise ScenarioError(f"{tokens:,} tokens in all: at most {MOST_TOKENS:,} are explained, ask for shorter prompts")
    if blocks > MOST_BLOCKS:
        raise ScenarioError(
            f"these prompts take {blocks:,} blocks and at most {MOST_BLOCKS:,} are explained: ask for shorter prompts"
        )


def group_rows(deployment: Deployment, config: Config, names: tuple[str, ...]) -> tuple[GroupRow, ...]:
    """Return the geometry table, one line per cache group (2.1, 2.5)."""
    layers: list[int | None] = []
    for group in deployment.groups:
        count = group.count.value
        layers += [None if group.layers is None else -(-group.layers.value // count)] * count
    return tuple(
        GroupRow(
            name=names[g],
            kind=group.kind,
            layers=layers[g],
            block_size=group.block_size,
            sharded=bool(group.sharded) and config.dcp_size > 1,
            span=config.sizes[g],
            window=group.window,
            speculative_blocks=group.speculative_blocks,
            draft=group.draft,
            entries=config.row_capacity[g],
            row_bytes=config.row_capacity[g] * ENTRY_BYTES,
        )
        for g, group in enumerate(config.groups)
    )


def chunk_reason(config: Config, question: Question, start: int, end: int) -> str:
    """Return why a chunk of the first prompt ended where it did, in words (T22)."""
    if end == question.prompt:
        return "end of the prompt"
    eagle = any(config.eagle)
    block = config.clip_block_size
    if config.snapshots and end == naive.checkpoint_boundary(question.prompt, block, eagle):
        return f"last multiple of the state block {block:,} that a resend can use"
    if config.snapshots and end == naive.checkpoint_boundary(question.prompt, config.hash_block_size, eagle):
        return f"last multiple of H = {config.hash_block_size:,} that a resend can use"
    if end - start < question.step_tokens and start % block:
        return f"end of the state block of {block:,} tokens that was begun"
    if end - start < question.step_tokens:
        return f"step budget of {question.step_tokens:,} tokens, in whole state blocks of {block:,}"
    return f"step budget of {question.step_tokens:,} tokens"


def class_name(names: tuple[str, ...], members: tuple[int, ...]) -> str:
    """Return the name of a class: that of its group, or of the first and the last, shortened where they are numbered."""
    first, last = names[members[0]], names[members[-1]]
    if len(members) == 1:
        return first
    stem = first.removesuffix(" 1")
    return f"{stem} 1-{len(members)}" if last == f"{stem} {len(members)}" else f"{first} to {last}"


# --- hits ---------------------------------------------------------------------------------------------------------


def own_hit(seen: View, reader: Reader, asked: int) -> int:
    """Return the deepest aligned boundary not above ``asked`` at which a class can resume, what it has already if none."""
    top = min(asked, seen.limit)
    for boundary in range(top - top % seen.alignment, seen.start, -seen.alignment):
        if reader.why_not(boundary) is None:
            return boundary
    return seen.start


def fixed_point(
    seen: View, readers: dict[tuple[int, ...], Reader], labels: dict[tuple[int, ...], str]
) -> tuple[int, tuple[Lowering, ...]]:
    """Return the joint hit and how it was found: each class lowers the candidate until none does any more (T11)."""
    lowerings: list[Lowering] = []
    current = seen.limit
    order = sorted(readers, key=lambda members: not _can(seen, members).prefix_closed)
    while True:
        before = current
        for members in order:
            hit = own_hit(seen, readers[members], current)
            if hit != current or not any(lowering.name == labels[members] for lowering in lowerings):
                lowerings.append(Lowering(labels[members], current, hit))
            current = hit
        if current == before:
            return current, tuple(lowerings)


def _can(seen: View, members: tuple[int, ...]) -> kinds.base.Capabilities:
    return kinds.of(seen.config.groups[members[0]].kind).CAPABILITIES


def _compare(config: Config, run: Run, seen: View, readers: dict[tuple[int, ...], Reader], joint: int) -> None:
    """Check the rules against the model's lookup. Raises Disagreement."""
    record = run.record
    expected, diverged = (
        divergent_hit(config, seen, readers, joint) if config.children and all(config.children) else (joint, False)
    )
    if (record.local, record.diverged) != (expected, diverged):
        raise Disagreement(
            f"the rules give a hit of {expected} (diverged: {diverged}), the model {record.local} ({record.diverged})"
        )


def divergent_hit(config: Config, seen: View, readers: dict[tuple[int, ...], Reader], joint: int) -> tuple[int, bool]:
    """Return what a connector is offered that serves divergent hits, and whether that is one (T12).

    As far as full attention reaches, if nobody reaches further and only recurrent groups are behind; else the joint hit.
    """
    hits = {members: own_hit(seen, reader, seen.limit) for members, reader in readers.items()}
    attention = [hit for members, hit in hits.items() if _can(seen, members).prefix_closed]
    if not config.recurrent or not attention or len(config.groups) == 1:
        return joint, False
    deepest = min(attention)
    shorter = [members for members, hit in hits.items() if hit < deepest]
    if any(hit > deepest for hit in hits.values()) or not all(_can(seen, members).recurrent for members in shorter):
        return joint, False
    return deepest, bool(shorter)


# --- candidates ---------------------------------------------------------------------------------------------------


@frozen(slots=True)
class Asked:
    """What a verdict on a candidate needs; ``lagging`` is the rule where only recurrent groups cannot follow."""

    seen: View
    readers: dict[tuple[int, ...], Reader]
    labels: dict[tuple[int, ...], str]
    joint: int
    lagging: str


def class_answer(asked: Asked, members: tuple[int, ...]) -> ClassAnswer:
    """Return every candidate boundary of a class with the rule that removed it."""
    reader, seen = asked.readers[members], asked.seen
    return ClassAnswer(
        groups=members,
        name=asked.labels[members],
        kind=seen.config.groups[members[0]].kind,
        unit=reader.unit,
        hit=own_hit(seen, reader, seen.limit),
        candidates=tuple(verdict(asked, members, boundary) for boundary in range(reader.unit, seen.total + 1, reader.unit)),
    )


def verdict(asked: Asked, members: tuple[int, ...], boundary: int) -> Reason:
    """Return the first rule that applies to a candidate of a class."""
    reason = rules.removed_by(asked.seen, asked.readers[members], boundary)
    if reason is not None:
        return reason
    if boundary == asked.joint:
        return Reason(rules.HIT, "every group can resume here, and no later")
    if boundary < asked.joint:
        return Reason(rules.SHORTER, f"the hit is {asked.joint:,}")
    lacking = [(other, why) for other, reader in asked.readers.items() if (why := reader.why_not(boundary)) is not None]
    text = "; ".join(f"{asked.labels[other]}: {why.rule}, {why.text}" for other, why in lacking)
    blocked = tuple((asked.labels[other], why.rule) for other, why in lacking)
    only_states = all(_can(asked.seen, late).recurrent for late, _ in lacking)
    follows = only_states and _can(asked.seen, members).prefix_closed
    return Reason(asked.lagging if follows else rules.OTHER_GROUP, text, blocked)
