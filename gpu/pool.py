"""The block pool of one tier on tensors: references, free queue and keys (docs/semantics.md 3.2, T1 to T8).

Block 0 is the null block. Ids are int32 and so are counts; a key is an int64 digest of a boundary and its group, 0 stands for
none. The functions change a pool in place. What they do to the free queue they find out themselves: nobody tells them which
block comes next.
"""

from __future__ import annotations

import torch
from attrs import define
from torch import Tensor

NULL_BLOCK = 0
NO_KEY = 0
NO_TOKENS = -1
_LATE = torch.iinfo(torch.int64).max


class TensorError(Exception):
    """The tensor layer cannot do what it is told: the message says what it found."""


@define(slots=True)
class Pool:
    """All but ``free`` are indexed by block: B blocks with at most K keys each.

    ``free`` is the free queue, front first. ``primary`` is the key that a block stands for and ``tokens`` how many tokens that
    are; ``keys`` [B, K] are all of its keys and ``order`` [B, K] numbers their insertions, -1 where there is none.
    """

    ref: Tensor
    free: Tensor
    primary: Tensor
    tokens: Tensor
    keys: Tensor
    order: Tensor
    inserted: int = 0


@define(slots=True)
class Records:
    """The key records that blocks had, kept for a withdrawal (T39): the blocks, then a row for each."""

    blocks: Tensor
    primary: Tensor
    tokens: Tensor
    keys: Tensor
    order: Tensor


def new_pool(num_blocks: int, most_keys: int, device: torch.device) -> Pool:
    """Return a pool of ``num_blocks`` blocks, the null block included; the others are free, in order (3.2)."""
    return Pool(
        ref=torch.zeros(num_blocks, dtype=torch.int32, device=device),
        free=torch.arange(1, num_blocks, dtype=torch.int32, device=device),
        primary=torch.zeros(num_blocks, dtype=torch.int64, device=device),
        tokens=torch.full((num_blocks,), NO_TOKENS, dtype=torch.int32, device=device),
        keys=torch.zeros((num_blocks, most_keys), dtype=torch.int64, device=device),
        order=torch.full((num_blocks, most_keys), -1, dtype=torch.int64, device=device),
    )


def ids(blocks: list[int] | tuple[int, ...], device: torch.device) -> Tensor:
    """Return block ids as a tensor."""
    return torch.tensor(blocks, dtype=torch.int32, device=device)


def held(blocks: Tensor) -> Tensor:
    """Return block ids without the null block."""
    return blocks[blocks != NULL_BLOCK]


def take(pool: Pool, count: int) -> Tensor:
    """Pop ``count`` blocks from the front of the free queue; their keys go, each has one reference (T1). Raises TensorError."""
    if count <= 0:
        return pool.free[:0]
    if count > pool.free.numel():
        raise TensorError(f"{count} blocks are wanted and {pool.free.numel()} are free (T1)")
    blocks, pool.free = pool.free[:count].clone(), pool.free[count:]
    strip(pool, blocks)
    pool.ref[blocks.long()] = 1
    return blocks


def touch(pool: Pool, blocks: Tensor) -> None:
    """Add a reference to each non-null block; one that had none leaves the free queue (T2)."""
    blocks = held(blocks)
    if not blocks.numel():
        return
    pool.free = pool.free[~torch.isin(pool.free, blocks)]
    pool.ref.index_add_(0, blocks.long(), torch.ones_like(blocks))


def release(pool: Pool, blocks: Tensor) -> None:
    """Give back one reference per non-null block; blocks that end at zero queue, unkeyed in front, keyed behind (T3).

    A block may be named several times; it queues where it is named last. Raises TensorError for one that nobody holds.
    """
    blocks = held(blocks)
    if not blocks.numel():
        return
    pool.ref.index_add_(0, blocks.long(), torch.full_like(blocks, -1))
    left = pool.ref[blocks.long()]
    again = (blocks.unsqueeze(1) == blocks.unsqueeze(0)).triu(1).any(1)
    gone = blocks[(left == 0) & ~again]
    if bool((left < 0).any()):
        raise TensorError(f"blocks {blocks[left < 0].tolist()} are released more often than they are held (T3)")
    keyed = pool.primary[gone.long()] != NO_KEY
    pool.free = torch.cat((gone[~keyed], pool.free, gone[keyed]))


def strip(pool: Pool, blocks: Tensor) -> None:
    """Remove every key of these blocks (T1, T4, T7)."""
    at = blocks.long()
    pool.primary[at] = NO_KEY
    pool.tokens[at] = NO_TOKENS
    pool.keys[at] = NO_KEY
    pool.order[at] = -1


def reset(pool: Pool) -> bool:
    """Remove every key if no block but the null block is in use; tell whether that happened (T5)."""
    if pool.free.numel() != pool.ref.numel() - 1:
        return False
    pool.primary.zero_()
    pool.tokens.fill_(NO_TOKENS)
    pool.keys.zero_()
    pool.order.fill_(-1)
    return True


def find(pool: Pool, keys: Tensor) -> Tensor:
    """Return for each of n keys the block that a lookup yields, the first inserted one; -1 if there is none (3.2)."""
    here = pool.keys.unsqueeze(0) == keys.view(-1, 1, 1)
    first, at = torch.where(here, pool.order.unsqueeze(0), _LATE).flatten(1).min(1)
    return torch.where(first == _LATE, -1, at // pool.keys.shape[1]).to(torch.int32)


def promote(pool: Pool, blocks: Tensor, keys: Tensor, tokens: Tensor) -> None:
    """Register full entries: whatever a block stood for before gives way (T7). Raises TensorError if that were more tokens."""
    at = blocks.long()
    longer = (pool.primary[at] != NO_KEY) & (pool.tokens[at] >= tokens)
    if bool(longer.any()):
        raise TensorError(f"blocks {blocks[longer].tolist()} stand for as many or more tokens already (T7)")
    strip(pool, blocks)
    count = blocks.numel()
    pool.primary[at], pool.tokens[at] = keys, tokens
    pool.keys[at, 0] = keys
    pool.order[at, 0] = torch.arange(pool.inserted, pool.inserted + count, device=keys.device)
    pool.inserted += count


def insert(pool: Pool, block: int, key: int, tokens: int) -> None:
    """Give a block one more key; its first one is its primary, which stands for ``tokens`` tokens (T6). Raises TensorError."""
    known = pool.keys[block].tolist()
    if key in known:
        return
    if NO_KEY not in known:
        raise TensorError(f"block {block} has {len(known)} keys already (T6)")
    at = known.index(NO_KEY)
    if int(pool.primary[block]) == NO_KEY:
        pool.primary[block], pool.tokens[block] = key, tokens
    pool.keys[block, at], pool.order[block, at] = key, pool.inserted
    pool.inserted += 1


def insert_partial(pool: Pool, block: int, key: int, tokens: int) -> None:
    """Register a boundary inside a block: a primary for fewer tokens goes, under one for more the key is secondary (T8)."""
    if key in pool.keys[block].tolist():
        return
    if 0 <= int(pool.tokens[block]) < tokens:
        strip(pool, pool.ref.new_tensor([block]))
    insert(pool, block, key, tokens)


def keys_of(pool: Pool, block: int) -> list[tuple[int, int]]:
    """Return (key, tokens) of every key of a block, the primary first, then by insertion; tokens are the primary's alone."""
    primary = int(pool.primary[block])
    if primary == NO_KEY:
        return []
    pairs = zip(pool.order[block].tolist(), pool.keys[block].tolist(), strict=True)
    others = [key for _, key in sorted(pair for pair in pairs if pair[1] not in (NO_KEY, primary))]
    return [(primary, int(pool.tokens[block])), *((key, NO_TOKENS) for key in others)]


def move(pool: Pool, source: int, destination: int) -> None:
    """Move every key of a block to another one without keys, the primary first (T6). Raises TensorError."""
    if int(pool.primary[destination]) != NO_KEY:
        raise TensorError(f"keys move onto block {destination}, which already has one (T6)")
    keys = keys_of(pool, source)
    tokens = int(pool.tokens[source])
    strip(pool, pool.ref.new_tensor([source]))
    for key, _ in keys:
        insert(pool, destination, key, tokens)


def copied(pool: Pool) -> Records:
    """Return the key records of all blocks as they are now."""
    blocks = torch.arange(pool.ref.numel(), dtype=torch.int32, device=pool.ref.device)
    return Records(blocks, pool.primary.clone(), pool.tokens.clone(), pool.keys.clone(), pool.order.clone())


def changed(pool: Pool, before: Records) -> Records | None:
    """Return the earlier records of the blocks whose keys are others now, None if there are none (T39.2)."""
    blocks = ((pool.keys != before.keys) | (pool.order != before.order)).any(1).nonzero().flatten()
    if not blocks.numel():
        return None
    return Records(
        blocks.to(torch.int32), before.primary[blocks], before.tokens[blocks], before.keys[blocks], before.order[blocks]
    )


def restore(pool: Pool, records: Records) -> None:
    """Give blocks back the key records that they had (T39)."""
    at = records.blocks.long()
    pool.primary[at], pool.tokens[at] = records.primary, records.tokens
    pool.keys[at], pool.order[at] = records.keys, records.order
