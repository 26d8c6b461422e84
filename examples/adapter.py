"""Lets kvproof judge ``paged_cache``: performs its actions and shows what came of each. docs/adapters.md goes through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.paged_cache import NULL, CacheError, Layout, PagedCache
from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.spec.conformance.adapter import (
    Geometry,
    Key,
    Observation,
    PoolState,
    RequestState,
    Shows,
    State,
    Unsupported,
    prefix_id,
)

KINDS = {"full_attention": "attention", "mamba_align": "state"}


class PagedCacheAdapter:
    """The example cache as an implementation under test."""

    name = "paged_cache"
    null_block = 0
    shows = frozenset(
        {
            Shows.HITS,
            Shows.ADMISSION,
            Shows.COPIES,
            Shows.TABLES,
            Shows.REFERENCES,
            Shows.FREE_QUEUE,
            Shows.KEYS,
            Shows.GEOMETRY,
        }
    )

    def __init__(self, make: type[PagedCache] = PagedCache) -> None:
        self.make = make

    def start(self, config: Config) -> None:
        """Begin anew. Raises Unsupported for what the cache does not have."""
        self.cache = self.made(config)
        self.names: dict[bytes, str] = {}

    def made(self, config: Config) -> PagedCache:
        """Make a cache for a configuration. Raises Unsupported."""
        layouts = self.layouts(config)
        return self.make(
            layouts, config.num_blocks, config.hash_block_size, config.max_model_len, config.dcp_size, config.caching
        )

    def layouts(self, config: Config) -> list[Layout]:
        """Translate the groups of a configuration. Raises Unsupported."""
        beyond = {
            "connectors": bool(config.children),
            "speculation": config.use_eagle or config.num_draft_tokens > 0,
            "several steps in flight": config.max_steps_in_flight > 1 or config.async_outputs or config.defer_block_free,
            "events": config.events,
            "checkpoints inside a chunk": config.checkpoint_alignment is not None,
        }
        missing = [what for what, asked in beyond.items() if asked]
        layouts = []
        for group in config.groups:
            if group.kind not in KINDS or group.speculative_blocks or (group.kind == "mamba_align" and self.is_coarse(config)):
                missing.append(f"{group.kind} with blocks of {group.block_size}")
                continue
            sharded = group.sharded and config.dcp_size > 1
            span = group.block_size * (config.dcp_size if sharded else 1)
            layouts.append(Layout("attention" if group.kind == "full_attention" else "state", span))
        if all(layout.kind == "state" for layout in layouts):
            missing.append("models without full attention")
        if missing:
            raise Unsupported(f"paged_cache has no {', no '.join(missing)}")
        return layouts

    def is_coarse(self, config: Config) -> bool:
        """Tell whether a hit could end inside a state's block."""
        return any(group.kind == "mamba_align" and group.block_size != config.hash_block_size for group in config.groups)

    def geometry(self, config: Config) -> Geometry:
        """Show the sizes that the cache derives."""
        cache = self.made(config)
        sizes = tuple(layout.span for layout in cache.layouts)
        return Geometry(sizes=sizes, scheduler_block_size=cache.whole, fine_grained=cache.fine)

    def perform(self, action: Action) -> Observation:
        """Perform an action; those that the cache has no part in (the worker's, say) change nothing."""
        handler: Callable[[Any], dict[str, object]] | None = getattr(self, f"on_{type(action).__name__.lower()}", None)
        try:
            result = {} if handler is None else handler(action)
        except (CacheError, KeyError) as error:
            return Observation(state=self.state(), refusal=f"{type(error).__name__}: {error}")
        return Observation(result, self.state())

    def on_submit(self, action: act.Submit) -> dict[str, object]:  # noqa: D102
        self.cache.submit(action.request, action.tokens, action.context, not action.skip_reading)
        return {}

    def on_lookup(self, action: act.Lookup) -> dict[str, object]:  # noqa: D102
        hit = self.cache.lookup(action.request)
        return {
            "local": hit.length,
            "lists": as_lists(hit.lists),
            "junction": hit.longest if hit.longest > hit.length else 0,
            "diverged": False,
        }

    def on_allocate(self, action: act.Allocate) -> dict[str, object]:  # noqa: D102
        first = not self.cache.requests[action.request].running
        hit = self.cache.hit[1].lists if first and self.cache.hit else []
        added = self.cache.allocate(
            action.request,
            action.new_tokens,
            lookahead=action.lookahead,
            reserved=action.reserved,
            whole=action.full_sequence,
        )
        if added is None:
            return {"admitted": False}
        return {
            "admitted": True,
            "new_blocks": as_lists(added),
            "taken": tuple(block for blocks in added for block in blocks if block != NULL),
            "adopted": tuple(block for blocks in hit for block in blocks if block != NULL),
            "external_blocks": ((),) * len(added),
            "relocated": (),
        }

    def on_preempt(self, action: act.Preempt) -> dict[str, object]:  # noqa: D102
        self.cache.preempt(action.request, action.drop_stale)
        return {}

    def on_withdraw(self, action: act.Withdraw) -> dict[str, object]:  # noqa: D102
        self.cache.preempt(action.request, action.drop_stale)
        return {}

    def on_drain(self, action: act.Drain) -> dict[str, object]:  # noqa: D102
        return {"copies": tuple(self.cache.drain())}

    def on_dispatch(self, action: act.Dispatch) -> dict[str, object]:  # noqa: D102
        return {"scheduled": tuple(self.cache.dispatch())}

    def on_output(self, action: act.Output) -> dict[str, object]:  # noqa: D102
        return {"num_tokens": self.cache.output(action.request, action.tokens)}

    def on_finish(self, action: act.Finish) -> dict[str, object]:  # noqa: D102
        self.cache.finish(action.request)
        return {"deferred": False}

    def on_resetcache(self, action: act.ResetCache) -> dict[str, object]:  # noqa: D102
        return {"done": self.cache.reset()}

    def on_evictblocks(self, action: act.EvictBlocks) -> dict[str, object]:  # noqa: D102
        self.cache.evict(action.blocks)
        return {}

    def state(self) -> State:
        """Show tables, references, the free queue and the key index."""
        cache = self.cache
        for request in cache.requests.values():
            for index, digest in enumerate(request.hashes):
                if digest not in self.names:
                    self.names[digest] = prefix_id(request.tokens[: (index + 1) * cache.unit], request.context)
        references = {block: count for block, count in enumerate(cache.pool.refs) if count}
        keys = [
            Key(block, group, boundary, self.names[digest], primary=boundary == max(cache.pool.keys[block].values()))
            for block, names in enumerate(cache.pool.keys)
            for (group, digest), boundary in names.items()
        ]
        requests = {
            name: RequestState(
                tables=as_lists(request.tables),
                computed=request.computed,
                status="running" if request.running else "preempted" if request.preempted else "waiting",
            )
            for name, request in cache.requests.items()
        }
        return State(PoolState(references, tuple(cache.pool.free), keys), requests)


def as_lists(lists: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    """Freeze lists of blocks."""
    return tuple(tuple(blocks) for blocks in lists)
