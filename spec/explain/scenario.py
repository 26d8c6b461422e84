"""Two requests on the real model: the first prompt is computed and finished, the second is looked up.

The model is driven with the actions of `core`, in one world; what was registered and lost on the way is read from the pool's
key map after each action. Tokens are counted, their values do not matter.
"""

from __future__ import annotations

from attrs import Factory, define, frozen

from kvproof.core import actions as act
from kvproof.core import step as door
from kvproof.core.config import Config
from kvproof.core.records import Record
from kvproof.core.world import Request, World, new_world
from kvproof.spec import macros
from kvproof.spec.exits import UserError
from kvproof.spec.explain import host_run
from kvproof.spec.explain.host_run import HostLog, HostRun
from kvproof.spec.laws.base import Moment

FIRST, BETWEEN, SECOND = 0, 1, 2
"""Request ids of a run."""

Key = tuple[int, int]
MOST_SHOWN = 200
"""Blocks of a pool whose worlds are kept, for a picture of what happened to each block."""


class ScenarioError(UserError):
    """A question that cannot be asked of this deployment; the message says what to change."""


@frozen(slots=True)
class Question:
    """Token counts: the first prompt, the second one, what they share from the start, the step budget.

    ``between`` is the length of an unrelated prompt that runs in between and takes blocks; 0 for none. ``evicted`` are the
    keys taken away before the second lookup, as (group, boundary).
    """

    prompt: int
    resend: int
    shared: int
    step_tokens: int
    between: int = 0
    evicted: tuple[tuple[int, int], ...] = ()


@frozen(slots=True)
class Loss:
    """How a key was lost: its block was reused in the chunk [start, end) of ``request``, or by --evict if that is -1."""

    request: int = -1
    start: int = 0
    end: int = 0


@frozen(slots=True)
class Run:
    """What happened: the world before the second lookup, its record, chunks of the first prompt as (start, end).

    ``lost`` are the keys (node, group) that went out of the map, also those that came back later.
    """

    question: Question
    world: World
    request: Request
    record: Record
    chunks: tuple[tuple[int, int], ...]
    lost: dict[Key, Loss]
    host: HostRun | None = None
    moments: tuple[Moment, ...] = ()
    """Every action, if the pool is small enough to be looked at block by block."""


@define(slots=True)
class _Driver:
    """Moves a world forward and remembers keys."""

    world: World
    lost: dict[Key, Loss] = Factory(dict)
    log: HostLog = Factory(HostLog)
    moments: list[Moment] = Factory(list)

    def do(self, action: act.Action, chunk: tuple[int, ...] = ()) -> Record:
        """Apply an action; ``chunk`` is (request, start, end) of the chunk it belongs to, if any."""
        earlier = self.world
        before = earlier.pool.entries
        self.world, record = door.step(self.world, action)
        if self.world.config.num_blocks <= MOST_SHOWN:
            self.moments.append(Moment(earlier, action, record, None, self.world))
        after = self.world.pool.entries
        if after is not before:
            known = {entry[:2] for entry in after}
            self.lost.update((entry[:2], Loss(*chunk)) for entry in before if entry[:2] not in known)
        if self.world.host is not None:
            self.log.see(earlier, self.world, record, chunk)
        return record

    def close(self, outputs: list[tuple[int, tuple[int, ...]]], chunk: tuple[int, ...] = ()) -> None:
        """Close the open plan, run its step to the end, and let every store that it began complete."""
        parts = tuple(act.Execute(part) for part in self.world.config.parts)
        for action in (*macros.CLOSE, *parts, *macros.deliver(outputs)):
            self.do(action, chunk)
        host, offload = self.world.host, self.world.config.offload
        if host is not None and offload is not None:
            for store in host.stores:
                self.do(act.RunStore(store.event), chunk)
                self.do(act.CompleteStore(store.event, offload.workers), chunk)


def check(config: Config, question: Question) -> None:
    """Refuse questions that the deployment cannot be asked. Raises ScenarioError."""
    longest = config.max_model_len - 1
    for name, tokens in (("--prompt", question.prompt), ("--resend", question.resend)):
        if not 1 <= tokens <= longest:
            raise ScenarioError(f"{name} {tokens:,}: a prompt has 1 to {longest:,} tokens here (model length less one)")
    if question.between and not question.between <= longest:
        raise ScenarioError(f"--between {question.between:,}: a prompt has at most {longest:,} tokens here")
    most = min(question.prompt, question.resend)
    if not 0 <= question.shared <= most:
        raise ScenarioError(f"--shared {question.shared:,}: the prompts can share 0 to {most:,} tokens")
    for group, boundary in question.evicted:
        if not 0 <= group < len(config.groups):
            raise ScenarioError(f"--evict: there is no group {group}, they are numbered 0 to {len(config.groups) - 1}")
        if not 1 <= boundary <= question.prompt:
            raise ScenarioError(f"--evict: boundary {boundary:,} does not lie in the first prompt, {question.prompt:,} tokens")


def run(config: Config, question: Question) -> Run:
    """Compute the first prompt, finish it, run the one in between, and look the second one up.

    Raises ScenarioError if the question cannot be asked or the pool is too small for a prompt.
    """
    check(config, question)
    driver = _Driver(new_world(config))
    chunks = _compute(driver, FIRST, tuple(range(question.prompt)))
    if question.between:
        # Another context shares no key with the others, whatever the tokens are.
        _compute(driver, BETWEEN, tuple(range(question.between)), context=1)
    fresh = range(question.prompt, question.prompt + question.resend - question.shared)
    driver.do(act.Submit(SECOND, (*range(question.shared), *fresh)))
    if question.evicted:
        driver.do(act.EvictBlocks(_blocks_of(driver.world, question)))
    base = driver.world
    driver.do(act.BeginStep())
    world = driver.world
    record = driver.do(act.Lookup(SECOND))
    (request,) = world.requests
    host = host_run.finish(driver.log, base, SECOND) if base.host is not None else None
    return Run(question, world, request, record, chunks, driver.lost, host, tuple(driver.moments))


def _compute(driver: _Driver, request: int, tokens: tuple[int, ...], context: int = 0) -> tuple[tuple[int, int], ...]:
    """Run one request from its submission to its end, one chunk a step; return the chunks as (start, end)."""
    driver.do(act.Submit(request, tokens, context))
    budget = driver.world.config.max_chunk
    chunks: list[tuple[int, int]] = []
    start = 0
    while start < len(tokens):
        driver.do(act.BeginStep())
        local = driver.do(act.Lookup(request)).local if start == 0 else 0
        start = max(start, local)
        amount = _amount(driver.world, request, start, min(budget, len(tokens) - start))
        end = start + amount
        _allocate(driver, request, amount, local, end)
        driver.close([(request, (len(tokens),) if end == len(tokens) else ())], (request, start, end))
        chunks.append((start, end))
        start = end
    if driver.do(act.Finish(request), (request, start, start)).pending_work:
        driver.do(act.BeginStep())
        driver.close([], (request, start, start))  # the engine steps on until the last stores are done (LV-7)
    return tuple(chunks)


def _amount(world: World, request: int, start: int, wanted: int) -> int:
    """Return how many of ``wanted`` tokens a step computes: chunks are clipped where there are snapshots (T22)."""
    return door.clip(world, _live(world, request), start, wanted) if world.config.snapshots else wanted


def _allocate(driver: _Driver, request: int, amount: int, local: int, end: int) -> None:
    start = end - amount
    record = driver.do(act.Allocate(request, amount, local), (request, start, end))
    if not record.admitted:
        blocks = driver.world.config.num_blocks
        raise ScenarioError(
            f"a pool of {blocks:,} blocks is too small for the chunk {start:,} to {end:,}: it wants {record.demand:,} more "
            f"and {record.free_before:,} are free; give more --blocks"
        )


def _live(world: World, request: int) -> Request:
    (found,) = (candidate for candidate in world.requests if candidate.request == request)
    return found


def _blocks_of(world: World, question: Question) -> tuple[int, ...]:
    """Return the blocks that carry the keys to be taken away; they lose all their keys. Raises ScenarioError."""
    found: list[int] = []
    for group, boundary in question.evicted:
        depth = world.prefixes.depth
        blocks = [entry[3] for entry in world.pool.entries if entry[1] == group and depth[entry[0]] == boundary]
        if not blocks:
            raise ScenarioError(
                f"--evict: group {group} has no key at {boundary:,}: leave it out, `kvproof explain` without it shows the keys"
            )
        found += blocks
    return tuple(sorted(set(found)))


def blocks_wanted(config: Config, question: Question) -> int:
    """Return a pool, in blocks with the null block, in which nothing is evicted: every table whole, and some to spare.

    The second prompt is looked up and takes none.
    """
    tokens = question.prompt + question.between
    each = (-(-tokens // size) + group.speculative_blocks + 8 for size, group in zip(config.sizes, config.groups, strict=True))
    return 1 + sum(each)
