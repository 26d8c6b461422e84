"""How many tokens may be planned: units, prompt lengths, chunks, drafts and external tokens of a configuration.

From the semantics alone, as in ``enabled``: chunk ends come from ``naive.chunk_end``, never from the model. Everything is
in tokens.
"""

from __future__ import annotations

from attrs import frozen

from kvproof.core.config import Config
from kvproof.core.world import Hit, Request, Status
from kvproof.spec import naive


@frozen(slots=True)
class Limits:
    """Bounds of generation: live requests, prompt length in tokens, alphabet, contexts, and what else may be drawn.

    ``lookahead`` lists the extra slots an allocation may ask for, ``gates`` whether an admission asks for its full sequence
    first (T16.2), ``reserved`` the blocks that it leaves free for others (T16.4), 0 first; ``submits`` bounds the prompts
    listed per world. ``missing``: every walk tries hard that a connector's tokens do not arrive while the host loads the same.
    """

    max_live: int = 3
    max_prompt: int = 31
    alphabet: tuple[int, ...] = (0, 1)
    contexts: tuple[int, ...] = (0, 1)
    external: bool = True
    lookahead: tuple[int, ...] = (0,)
    gates: tuple[bool, ...] = (False,)
    reserved: tuple[int, ...] = (0,)
    submits: int = 40
    missing: bool = False


def limits_for(config: Config) -> Limits:
    """Return the limits that fit a configuration: every legal prompt, external tokens if there is a connector.

    Blocks are kept free for others where one brings tokens, as a scheduler does for requests that load.
    """
    return Limits(
        max_live=min(3, config.max_running),
        max_prompt=config.max_model_len - 1,
        external=bool(config.connectors),
        reserved=tuple(dict.fromkeys((0, 1, config.num_blocks // 2))) if config.children else (0,),
    )


def units(config: Config) -> tuple[int, ...]:
    """Return the sizes in tokens at whose multiples something happens: H, S, every E, block size and window."""
    found = {config.hash_block_size, config.scheduler_block_size, *config.sizes}
    found.update(group.block_size for group in config.groups)
    found.update(group.window for group in config.groups if group.window is not None)
    return tuple(sorted(found))


def lengths(config: Config, limits: Limits) -> tuple[int, ...]:
    """Return the interesting prompt lengths in tokens, ascending: one below, at and above every multiple of a unit."""
    found = {1, limits.max_prompt}
    for unit in units(config):
        for multiple in range(unit, limits.max_prompt + 2, unit):
            found.update((multiple - 1, multiple, multiple + 1))
    return tuple(sorted(n for n in found if 1 <= n <= limits.max_prompt))


# --- chunks -------------------------------------------------------------------------------------------------------


def end_of(config: Config, request: Request) -> int:
    """Return up to where a request may be computed without drafts: its known tokens and what stands in for those to come
    (T36, asynchronous outputs), within the model length.
    """
    return min(request.num_tokens + request.placeholders, config.max_model_len)


def left_of(config: Config, request: Request, start: int) -> int:
    """Return how many tokens from ``start`` one step may compute without drafts."""
    return min(end_of(config, request) - start, config.max_chunk)


def chunk(config: Config, request: Request, start: int, wanted: int) -> int:
    """Return how many of ``wanted`` tokens from ``start`` may be computed in one step, by enumeration (T22)."""
    if not config.snapshots or start >= max(request.num_prompt, request.num_tokens - 1):
        return wanted
    clip = naive.Clip(
        start=start,
        wanted=wanted,
        num_tokens=request.num_tokens,
        num_prompt=request.num_prompt,
        clip_block=config.clip_block_size,
        hash_block=config.hash_block_size,
        fine=config.fine_grained and config.hash_block_size < config.scheduler_block_size,
        max_chunk=min(config.max_chunk, config.long_prefill or config.max_chunk),
        junction=request.junction,
        eagle=any(config.eagle),
        exports_checkpoint=config.checkpoint_alignment is not None,
        alignment=config.alignment,
        checkpoint_alignment=config.checkpoint_alignment,
        shared_prefix_checkpoint=config.pins_junctions,
    )
    sizes = [config.groups[group].block_size for group in config.snapshots]
    inside = all(naive.checkpoint_inside(clip._replace(mamba_block=size)) for size in sizes)
    end = naive.chunk_end(clip._replace(mamba_block=sizes[0], exports_checkpoint=inside))
    if config.profile.clip_stops == "every_group":
        for size in sizes:
            edge = next(n for n in range(start, start + size + 1) if n % size == 0)
            if start < edge < end:
                end = edge
    return max(end - start, 0)


def wanted_amounts(config: Config, request: Request, start: int) -> tuple[int, ...]:
    """Return the amounts a scheduler may want from ``start``, everything first: the rest, then small budgets."""
    left = left_of(config, request, start)
    budgets = [left, *(unit + extra for unit in units(config) for extra in (0, 1)), 1]
    return tuple(dict.fromkeys(budget for budget in budgets if 0 < budget <= left))


def amounts(config: Config, request: Request, start: int) -> tuple[int, ...]:
    """Return the chunk sizes that several wanted amounts are clipped to, without those that skip the step (T22)."""
    chunks = (chunk(config, request, start, wanted) for wanted in wanted_amounts(config, request, start))
    return tuple(dict.fromkeys(amount for amount in chunks if amount > 0))


def most_drafts(config: Config, request: Request) -> int:
    """Return how many drafts may follow the last token of a running request: none while it is in its prefill (T36)."""
    start = request.computed
    if request.status is not Status.RUNNING or start < request.num_prompt or end_of(config, request) - start != 1:
        return 0
    return max(min(config.num_draft_tokens, config.max_model_len - start - 1, config.max_chunk - 1), 0)


def most_padding(config: Config, request: Request, start: int) -> int:
    """Return how many drafts may stand behind the last token of a request that is admitted at ``start`` (T36, C-58).

    With Mamba-align groups they end in the block of that token, unless the profile does not ask for it.
    """
    if request.status is Status.RUNNING or start + 1 != request.num_tokens:
        return 0
    most = max(min(config.num_draft_tokens, config.max_model_len - start - 1, config.max_chunk - 1), 0)
    if config.profile.padded_admission == "any":
        return most
    sizes = [config.groups[group].block_size for group in config.snapshots]
    return max(drafts for drafts in range(most + 1) if all(start // size == (start + drafts) // size for size in sizes))


# --- external tokens ----------------------------------------------------------------------------------------------


def external_amounts(config: Config, request: Request, local: int, tail: int = 0) -> tuple[int, ...]:
    """Return legal external token counts behind ``local``: multiples of A that leave a token to compute (T14, T29).

    They must reach beyond the local ``tail`` that they take the place of (T14.3).
    """
    if local % config.scheduler_block_size:
        return ()
    return tuple(n for n in range(config.alignment, request.num_tokens - local, config.alignment) if n > tail)


def adoptable(config: Config, hit: Hit) -> tuple[int, ...]:
    """Return the local prefixes under which external tokens may be adopted: the hit, and the hit cut to S (T14)."""
    cut = hit.local - hit.local % config.scheduler_block_size
    return (hit.local,) if cut == hit.local else (cut,)
