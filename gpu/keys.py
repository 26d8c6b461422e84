"""Keys: which blocks get which when tokens become cacheable, and which blocks have those of a hit (T7 to T11, T20, 2.9).

The digests of the boundaries come from the request's tokens on the device, the blocks from its tables there and from the keys
of the tier; which boundaries are registered, and how long a hit is that these blocks allow, follows from formulas that are the
model's as well (docs/gpu.md).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvproof.core import geometry, lookup, retention
from kvproof.core.offload import external
from kvproof.core.pool import Pool as ModelPool
from kvproof.core.world import Request as ModelRequest
from kvproof.gpu import digests
from kvproof.gpu import pool as pools
from kvproof.gpu.pool import Pool
from kvproof.gpu.world import NONE, Hit, Holding, Request, TensorWorld, can


def register(world: TensorWorld, request: Request, tokens: int, computed: int) -> None:
    """Register the keys of ``tokens`` known tokens in every group; ``computed`` were computed before the chunk (T16.7)."""
    config = world.config
    if not config.caching:
        return
    for group, holding in enumerate(request.groups):
        abilities = can(config, group)
        if not abilities.cacheable:
            continue
        covered, before = cacheable(world, group, tokens), max(holding.num_cached, 0)
        register_full(world, request, group, holding, covered)
        full = max(holding.num_cached, 0)
        if abilities.prefix_closed and config.sizes[group] != config.hash_block_size:
            register_prompt_tail(world, request, group, holding, covered)
        if abilities.snapshots:
            register_snapshot(world, request, group, holding, covered, computed)
        if abilities.recurrent:
            note(world, request, group, holding.table[before:full])


def note(world: TensorWorld, request: Request, group: int, blocks: Tensor) -> None:
    """Remember the keys of states that are registered before they are computed: nobody adopts them in this step (COW-4)."""
    primary = world.pool.primary[pools.held(blocks).long()].tolist()
    world.plan.registered += [(request.request, group, key) for key in primary if key != pools.NO_KEY]


def was_registered(world: TensorWorld, group: int, block: Tensor) -> bool:
    """Tell whether the key that a block stands for was registered since the step began (T17, COW-4)."""
    key = int(world.pool.primary[block.long()])
    return any(here == group and known == key for _, here, known in world.plan.registered)


def cacheable(world: TensorWorld, group: int, tokens: int) -> int:
    """Return how many of ``tokens`` known tokens a caching call of a group covers (2.8)."""
    config = world.config
    if config.eagle[group]:
        return geometry.cacheable_tokens_eagle(tokens, config.fine_grained, config.scheduler_block_size, config.sizes[group])
    return geometry.cacheable_tokens(tokens, config.fine_grained, config.scheduler_block_size)


def register_full(world: TensorWorld, request: Request, group: int, holding: Holding, tokens: int) -> None:
    """Register the full entries that were not considered before, are not null, and that the mask keeps (T7)."""
    size, unit = world.config.sizes[group], world.config.hash_block_size
    start = max(holding.num_cached, 0)
    stop = min(tokens, request.num_tokens // unit * unit) // size
    if start >= stop:
        return
    blocks = holding.table[start:stop]
    wanted = torch.tensor([kept(world, request, group, index) for index in range(start, stop)], device=world.device)
    chosen = wanted & (blocks != pools.NULL_BLOCK)
    ends = torch.arange(start + 1, stop + 1, device=world.device)[chosen] * size
    if ends.numel():
        found = digests.keys(request.line.digests[ends], group)
        pools.promote(world.pool, blocks[chosen], found, ends.to(torch.int32))
    holding.num_cached = stop


def kept(world: TensorWorld, request: Request, group: int, index: int) -> bool:
    """Tell whether the retention mask keeps a full entry (2.9)."""
    config, abilities = world.config, can(world.config, group)
    if abilities.snapshots:
        return retention.mamba_mask(
            index, config.sizes[group], config.alignment, config.retention, reach(world, request, group)
        )
    spec = config.groups[group]
    if spec.kind == "sliding_window" and spec.window is not None:
        return retention.swa_mask(
            index,
            window=spec.window,
            effective_size=config.sizes[group],
            alignment=config.alignment,
            retention=config.retention,
            reach=reach(world, request, group),
            eagle=config.eagle[group],
        )
    return retention.attention_mask(index)


def reach(world: TensorWorld, request: Request, group: int) -> tuple[int, ...]:
    """Return the token counts at which a resend of a request may resume (2.9)."""
    config = world.config
    unit = config.alignment if config.profile.eagle_replay_unit == "A" else config.scheduler_block_size
    boundaries = geometry.replay_boundaries(request.num_prompt, unit, any(config.eagle))
    if not request.junction:
        return boundaries
    before = (request.junction - config.sizes[group],) if config.eagle[group] else ()
    return (*boundaries, request.junction, *before)


def register_prompt_tail(world: TensorWorld, request: Request, group: int, holding: Holding, tokens: int) -> None:
    """Register the boundary inside a block in which the prompt's last hash ends (T9.2)."""
    config = world.config
    rule = "P" if config.eagle[group] else config.profile.prompt_tail
    boundary = geometry.prompt_tail_boundary(
        request.num_prompt, config.hash_block_size, request.num_tokens // config.hash_block_size, rule
    )
    index = boundary // config.sizes[group]
    if not 0 < boundary <= tokens or boundary % config.sizes[group] == 0 or index >= holding.table.numel():
        return
    block = int(holding.table[index])
    drops = config.profile.partial_key_after_promotion == "drop" and int(world.pool.tokens[block]) > boundary
    if block != pools.NULL_BLOCK and not drops:
        pools.insert_partial(world.pool, block, key_at(request, group, boundary), boundary)


def key_at(request: Request, group: int, boundary: int) -> int:
    """Return the key of one boundary of a request."""
    return int(digests.keys(request.line.digests[boundary], group))


def register_snapshot(world: TensorWorld, request: Request, group: int, holding: Holding, tokens: int, computed: int) -> None:
    """Register the reserved checkpoint, and the prompt checkpoint or the junction at the end of the chunk (T10.2)."""
    config, column = world.config, NONE
    if holding.checkpoint is not None:
        position, column = holding.checkpoint
        register_checkpoint(world, request, group, holding.table[column : column + 1], position)
        if config.profile.checkpoint_tail == "first":
            return
    if tokens <= 0 or tokens % config.hash_block_size or not is_checkpoint(world, request, tokens, computed):
        return
    index = geometry.ceil_div(tokens, config.sizes[group]) - 1
    block = int(holding.table[index]) if index < holding.table.numel() else pools.NULL_BLOCK
    if block == pools.NULL_BLOCK or index == column or int(world.pool.tokens[block]) == tokens:
        return
    key = key_at(request, group, tokens)
    pools.insert_partial(world.pool, block, key, tokens)
    world.plan.registered.append((request.request, group, key))
    if tokens % config.sizes[group]:
        holding.partial_index, holding.partial_source = index, holding.table[index : index + 1].clone()
        holding.num_cached, holding.tail_boundary = index, tokens


def register_checkpoint(world: TensorWorld, request: Request, group: int, block: Tensor, position: int) -> None:
    """Key the block of the internal checkpoint by its position alone, or not at all if nobody resumes there (T10.2a)."""
    config, size = world.config, world.config.sizes[group]
    prompts = geometry.checkpoint_boundary(request.num_prompt, config.alignment, any(config.eagle))
    useful = position in (prompts, request.junction) or (
        position % size == 0 and retention.mamba_mask(position // size - 1, size, config.alignment, config.retention, ())
    )
    if not useful:
        pools.strip(world.pool, block)
    elif int(world.pool.tokens[block.long()]) != position:
        pools.strip(world.pool, block)
        key = key_at(request, group, position)
        pools.insert(world.pool, int(block), key, position)
        world.plan.registered.append((request.request, group, key))


def is_checkpoint(world: TensorWorld, request: Request, tokens: int, computed: int) -> bool:
    """Tell whether a chunk end is kept inside its block: the prompt's, or the junction that is pinned (T10.2b)."""
    config = world.config
    if tokens == geometry.checkpoint_boundary(request.num_prompt, config.hash_block_size, any(config.eagle)):
        return True
    return config.pins_junctions and tokens == request.junction and computed < tokens <= request.num_prompt


# --- looking up -------------------------------------------------------------------------------------------------------


def found(world: TensorWorld, pool: Pool, request: Request, start: int) -> ModelPool:
    """Return what a tier's own keys say of a request's hash boundaries behind ``start`` tokens, for the formulas of a lookup.

    Its entries are (number of the boundary, group, 0, block): which boundary of which group the tier has, in which block. Keys
    are digests of the request's tokens on the device, the blocks are the tier's own; nothing else is in it.
    """
    config, unit = world.config, world.config.hash_block_size
    boundaries = torch.arange(1, (request.num_tokens - start) // unit + 1, device=world.device) * unit + start
    entries: list[tuple[int, int, int, int]] = []
    for group in range(len(config.groups)):
        if can(config, group).cacheable and boundaries.numel():
            wanted = digests.keys(request.line.digests[boundaries], group).to(pool.ref.device)
            blocks = pools.find(pool, wanted).tolist()
            entries += [(at, group, 0, block) for at, block in enumerate(blocks) if block >= 0]
    return ModelPool((), (), (), (), (), tuple(sorted(entries)))


def look_up(world: TensorWorld, request: Request, common: bool) -> Hit:
    """Look a request up in the device's keys: the hit that the shared formulas make of what they name (T11 to T13)."""
    nodes = list(range(request.num_tokens // world.config.hash_block_size))
    search = lookup.joint if common else lookup.lookup
    hit = search(world.config, found(world, world.pool, request, 0), asking(request), nodes)
    lists = [pools.ids(blocks, world.device) for blocks in hit.lists]
    return Hit(request.request, hit.local, lists, hit.junction, hit.diverged)


def look_up_host(world: TensorWorld, pool: Pool, request: Request, start: int) -> tuple[int, list[Tensor]]:
    """Return the host's joint hit behind ``start`` tokens, and its blocks per group, by the host's own keys (T20)."""
    config = world.config
    nodes = list(range((request.num_tokens - start) // config.hash_block_size))
    limit = lookup.longest_hit(request.num_tokens) - start
    agrees = external.starts_aligned(config, start) and external.chunks_agree(config, start)
    if not lookup.reads_cache(config, asking(request)) or not agrees or not nodes or limit <= 0:
        return 0, []
    named = found(world, pool, request, start)
    length, lists, _ = lookup.lookup_common(external.host_view(config), named, nodes, limit)
    return length, [pools.ids(blocks, pool.ref.device) for blocks in lists]


def asking(request: Request) -> ModelRequest:
    """Return what the formulas of a lookup ask of a request: how many tokens it has, and whether it reads the cache."""
    return ModelRequest(
        request.request, request.line.context, NONE, request.num_tokens, request.num_prompt, request.skip_reading, ()
    )
