"""What the rules look at: the keys of the pool seen along the second prompt, and where the first prompt's chunks ended.

Nothing here calls a lookup, size or transition function of `core`: sizes are counted from the configuration's inputs, keys
are read from the pool's map. Token counts in tokens.
"""

from __future__ import annotations

from attrs import evolve, frozen

from kvproof.core.config import Config
from kvproof.spec import ground, naive, naive_hits
from kvproof.spec.explain.host_facts import HostFacts
from kvproof.spec.explain.scenario import Key, Loss, Run


@frozen(slots=True)
class View:
    """A run as the rules see it.

    ``nodes[n]`` is the prefix node of the second prompt's first n tokens, ``keyed`` the keys (node, group) that a lookup
    finds, ``lost`` how keys went out of the map, if they ever did. ``prompt`` and ``total`` are the lengths
    of the two prompts, ``limit`` the longest legal hit, ``hashed`` the whole hash blocks of the second prompt, ``ends`` where
    chunks of the first one ended, ``resumes`` where a resend of it may resume, which the retention masks keep. ``spans`` are
    E per group, ``unit`` is H and ``alignment`` A. ``fine`` tells whether hits may end inside a block.

    A view of the host tier has ``host``: its keys behind the first ``start`` tokens, which count as present. ``kept`` is the
    device's A, by which the masks of 2.9 kept keys; in lazy mode the host's hits are coarser.
    """

    config: Config
    nodes: list[int]
    keyed: frozenset[Key]
    lost: dict[Key, Loss]
    prompt: int
    shared: int
    total: int
    limit: int
    hashed: int
    ends: frozenset[int]
    resumes: tuple[int, ...]
    spans: tuple[int, ...]
    unit: int
    alignment: int
    kept: int
    fine: bool
    start: int = 0
    host: HostFacts | None = None

    def has(self, members: tuple[int, ...], boundary: int) -> bool:
        """Tell whether every group of a class has the key of a boundary."""
        return naive_hits.has_all(self.keyed, self.nodes[boundary], members)

    def margin(self, members: tuple[int, ...]) -> int:
        """Return how far past a boundary a class must match, in tokens: what an owed EAGLE drop gives up (2.8, T35)."""
        if not self.config.eagle[members[0]]:
            return 0
        span = self.spans[members[0]]
        return self.unit if self.fine and span > self.unit else span

    def asked(self, members: tuple[int, ...]) -> int:
        """Return up to where keys count for a class: the longest legal hit, and the margin beside other groups (T11)."""
        ahead = self.margin(members) if len(self.config.groups) > 1 else 0
        return max(self.limit, min(self.limit + ahead, self.hashed))

    def cacheable(self, members: tuple[int, ...]) -> int:
        """Return how many tokens of the first prompt a class registers: whole scheduler blocks if hits are coarse (2.8)."""
        whole = naive.cacheable_tokens(self.prompt, self.config.fine_grained, naive.common_multiple(self.spans))
        if self.config.fine_grained or not whole or not self.config.eagle[members[0]]:
            return whole
        return min(whole + self.spans[members[0]], self.prompt)


def view(run: Run) -> View:
    """Return what the rules see of a run."""
    config = run.world.config
    spans = tuple(naive.span(group.block_size, bool(group.sharded), config.dcp_size) for group in config.groups)
    scheduler, unit = naive.common_multiple(spans), config.hash_block_size
    alignment = unit if config.fine_grained else scheduler
    step = alignment if config.profile.eagle_replay_unit == "A" else scheduler
    return View(
        config=config,
        nodes=ground.lineage(run.world.prefixes, run.request.tip),
        keyed=frozenset(naive_hits.keys(run.world.pool)),
        lost=run.lost,
        prompt=run.question.prompt,
        shared=run.question.shared,
        total=run.question.resend,
        limit=run.question.resend - 1,
        hashed=naive.floor_multiple(run.question.resend, unit),
        ends=frozenset(end for _, end in run.chunks),
        resumes=tuple(naive.replay_boundaries(run.question.prompt, step, any(config.eagle))),
        spans=spans,
        unit=unit,
        alignment=alignment,
        kept=alignment,
        fine=config.fine_grained,
    )


def behind(seen: View, facts: HostFacts, start: int) -> View:
    """Return the host tier as a request sees it that has ``start`` tokens already: whole blocks up to there are present (T20).

    In lazy mode nobody stores what lies inside a block, and hits end at multiples of S (T33).
    """
    local = {(seen.nodes[edge], group) for group, span in enumerate(seen.spans) for edge in range(span, start + 1, span)}
    lazy = facts.mode == "lazy"
    return evolve(
        seen,
        keyed=facts.keyed | local,
        lost={},
        alignment=naive.common_multiple(seen.spans) if lazy else seen.kept,
        fine=seen.fine and not lazy,
        start=start,
        host=facts,
    )


def classes(config: Config) -> tuple[tuple[int, ...], ...]:
    """Return the groups that are looked up together: those of equal spec, drafters or not, that are cached (1.2)."""
    found: dict[tuple[object, ...], list[int]] = {}
    for index, group in enumerate(config.groups):
        if group.prefix_cacheable:
            spec = (group.kind, group.block_size, group.sharded, group.window, group.speculative_blocks)
            found.setdefault(spec, []).append(index)
    return tuple(tuple(members) for members in found.values())
