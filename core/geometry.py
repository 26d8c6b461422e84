"""Sizes, boundaries and places as plain integer functions (docs/semantics.md, section 2).

Units: *tokens* are global token counts, *positions* are 0-based global token positions, *columns* are indices into a
block-table row, *blocks* are physical blocks of one rank, *ranks* are 0-based ranks of decode context parallelism
(DCP). `sharded` says whether DCP splits the positions of a group over its ranks; nothing outside this module
multiplies a block size by the DCP size.

The functions of the per-step path do not validate their arguments: the configuration is checked once, with the
`check_*` functions, which raise `GeometryError`. Retention masks, admission caps and the clipping of prefill chunks
are in `core/retention.py` (`mamba_mask`, `swa_mask`, `clip_chunk`), the arithmetic of offloading (chunks, reachability,
load ranges, host pool) in `core/reachability.py`.
"""

from math import gcd, lcm

PAD_SLOT = -1
"""The slot of a position that the asking rank does not own (2.6)."""

ATTENTION_TOKEN_ALIGNMENT = 128
"""Token alignment of attention rows of the block table (2.5)."""


class GeometryError(ValueError):
    """Block sizes, ranks or match units that do not fit together; the message says what to change (HB-1)."""


def ceil_div(a: int, b: int) -> int:
    """The quotient a / b rounded up, for b > 0."""
    return -(-a // b)


# --- 2.1 and 2.2: block sizes -------------------------------------------------------------------------------------


def effective_block_size(block_size: int, sharded: bool, dcp_size: int) -> int:
    """Tokens covered by one block-table entry: `bs * N` iff the group is sharded (2.1, DS-1, vllm#50493)."""
    return block_size * dcp_size if sharded else block_size


def scheduler_block_size(sizes: tuple[int, ...]) -> int:
    """Least common multiple, in tokens, of the effective sizes of *all* groups (2.2).

    Raises GeometryError without groups or with a size below 1.
    """
    if not sizes or min(sizes) < 1:
        raise GeometryError(f"effective block sizes {sizes}: give at least one group, each of at least one token")
    return lcm(*sizes)


def default_hash_block_size(cacheable_sizes: tuple[int, ...]) -> int:
    """Greatest common divisor, in tokens, of the effective sizes of the cacheable groups; 0 without any (2.2)."""
    return gcd(*cacheable_sizes)


def hash_block_size(
    *,
    sizes: tuple[int, ...],
    cacheable: tuple[bool, ...],
    caching: bool,
    connected: bool = False,
    other_mamba_mode: bool = False,
    requested: int | None = None,
) -> int:
    """Tokens between two prefix hashes, H (2.2).

    `sizes` are the effective sizes of all groups and `cacheable` the matching prefix-cacheable flags; `caching` and
    `connected` say that prefix caching or a connector is on; `other_mamba_mode` that some Mamba group is not in align
    mode; `requested` is the prefix match unit asked for. Raises GeometryError for a requested unit that is not the block
    size of a single group, or that does not divide every cacheable size.
    """
    block = scheduler_block_size(sizes)
    if not (caching or connected):
        return block
    if len(sizes) == 1:
        if requested is not None and requested != block:
            raise GeometryError(
                f"prefix match unit {requested} with one group of {block} tokens: leave it out or ask for {block}"
            )
        return block
    if other_mamba_mode:
        return block
    usable = tuple(size for size, flag in zip(sizes, cacheable, strict=True) if flag)
    if not usable:
        return block
    if requested is None:
        return default_hash_block_size(usable)
    if requested < 1 or any(size % requested for size in usable):
        raise GeometryError(
            f"prefix match unit {requested} does not divide the cacheable block sizes {usable}: "
            f"choose a divisor of {default_hash_block_size(usable)}"
        )
    return requested


def check_sizes(
    *,
    scheduler_block: int,
    hash_block: int,
    block_sizes: tuple[int, ...],
    sizes: tuple[int, ...],
    cacheable: tuple[bool, ...],
) -> None:
    """The divisibility that construction asserts (2.2, HB-1); raises GeometryError naming the pair that does not fit.

    `block_sizes` are unscaled (tokens of a block on one rank), `sizes` effective; one entry per group each.
    """
    if scheduler_block % hash_block:
        raise GeometryError(f"hash block {hash_block} does not divide the scheduler block {scheduler_block}")
    for group, (block_size, size, flag) in enumerate(zip(block_sizes, sizes, cacheable, strict=True)):
        if scheduler_block % block_size or scheduler_block % size:
            raise GeometryError(
                f"group {group}: block size {block_size} ({size} effective) does not divide the scheduler block "
                f"{scheduler_block}: use the least common multiple of all effective sizes"
            )
        if flag and size % hash_block:
            raise GeometryError(
                f"group {group}: hash block {hash_block} does not divide its effective block size {size}: "
                "choose a smaller prefix match unit or opt the group out of prefix caching"
            )


def check_state_compression(tokens_per_state: int, alignment: int) -> None:
    """A group with several tokens per state needs hits that end on a state (2.2 rule 4); else GeometryError."""
    if alignment % tokens_per_state:
        raise GeometryError(f"{tokens_per_state} tokens per state do not divide the hit alignment {alignment}")


def check_group_sharding(*, full_attention: bool, chunked_local: bool, sharded: bool, dcp_size: int) -> None:
    """Above one DCP rank only full attention may be sharded, and chunked local attention may not occur (2.1)."""
    if dcp_size > 1 and chunked_local:
        raise GeometryError(f"chunked local attention is not supported with {dcp_size} DCP ranks: use one rank")
    if dcp_size > 1 and sharded and not full_attention:
        raise GeometryError(f"only full attention can be sharded over {dcp_size} DCP ranks: replicate this group")


def check_interleave(block_size: int, interleave: int) -> None:
    """The interleave must be at least 1 and divide the block size of a rank (2.6); else GeometryError."""
    if interleave < 1 or block_size % interleave:
        raise GeometryError(f"interleave {interleave} does not divide the block size {block_size}: choose a divisor")


def block_hash_index(index: int, effective_size: int, hash_block: int) -> int:
    """Index of the prefix hash that names block `index` when it is full: `k * (j + 1) - 1` with `E = k * H` (2.3)."""
    return effective_size // hash_block * (index + 1) - 1


# --- 2.4: fine-grained hit gate -----------------------------------------------------------------------------------


def mamba_gate_condition(dcp_size: int, block_size: int, hash_block_size: int) -> bool:
    """Condition 3 of the gate for one Mamba-align block size: `> H` on one rank, `>= H` on several (vllm#50493)."""
    return block_size > hash_block_size if dcp_size == 1 else block_size >= hash_block_size


def fine_grained_gate(
    *,
    caching: bool,
    num_groups: int,
    allow: bool,
    dcp_size: int,
    hash_block_size: int,
    mamba_align_block_sizes: tuple[int, ...],
    other_coarse_sizes: tuple[int, ...],
) -> bool:
    """Whether a hit may end inside a scheduler block (2.4, HB-11, vllm#50493, vllm#54736).

    `mamba_align_block_sizes` are the block sizes of the Mamba-align groups; `other_coarse_sizes` the effective sizes of
    the prefix-cacheable groups whose kind cannot end a lookup inside a block. The interleave plays no part (DS-8).
    """
    return (
        caching
        and num_groups > 1
        and allow
        and any(mamba_gate_condition(dcp_size, size, hash_block_size) for size in mamba_align_block_sizes)
        and all(size == hash_block_size for size in other_coarse_sizes)
    )


def hit_alignment(fine_grained: bool, hash_block: int, scheduler_block: int) -> int:
    """Tokens at whose multiples a joint local hit may end: H with fine-grained hits, else S (2.4)."""
    return hash_block if fine_grained else scheduler_block


# --- 2.5: rows of the worker's block table ------------------------------------------------------------------------


def attention_row_entries(max_model_len: int, block_size: int, sharded: bool, dcp_size: int) -> int:
    """Columns that a request of the maximum length needs in an attention group, before alignment (2.5, TB-12)."""
    return ceil_div(max_model_len, effective_block_size(block_size, sharded, dcp_size))


def align_row_width(width: int, block_size: int, token_alignment: int) -> int:
    """`width` rounded up to whole multiples of `token_alignment / gcd(token_alignment, unscaled bs)` columns (2.5)."""
    step = token_alignment // gcd(token_alignment, block_size)
    return ceil_div(width, step) * step


def attention_row_width(max_model_len: int, block_size: int, sharded: bool, dcp_size: int) -> int:
    """Columns of an attention row, aligned to 128 tokens (2.5)."""
    entries = attention_row_entries(max_model_len, block_size, sharded, dcp_size)
    return align_row_width(entries, block_size, ATTENTION_TOKEN_ALIGNMENT)


def mamba_align_row_width(max_model_len: int, block_size: int, num_speculative_blocks: int) -> int:
    """Columns of a Mamba-align row; Mamba is replicated, so no DCP factor divides it (2.5, vllm#50493)."""
    return ceil_div(max_model_len, block_size) + num_speculative_blocks


def mamba_other_row_width(num_speculative_blocks: int) -> int:
    """Columns of a row of a Mamba group in another mode: the running state and the speculative ones (2.5)."""
    return 1 + num_speculative_blocks


def scratch_row_width() -> int:
    """Columns of a row of a circular buffer: one block per request (2.5)."""
    return 1


def shared_row_width(widths: tuple[int, ...]) -> int:
    """Columns of a row shared by wrapped groups; raises GeometryError unless all members agree (2.5)."""
    if not widths or min(widths) != max(widths):
        raise GeometryError(f"members of one group wrapper need rows of one width, not {widths}")
    return widths[0]


def fits_row(start: int, count: int, capacity: int) -> bool:
    """Whether `count` more entries from column `start` stay inside a row (2.5, TB-11).

    All three in the same unit: after expansion into kernel blocks if the row holds kernel blocks.
    """
    return start + count <= capacity


def expand_block_id(block: int, j: int, factor: int) -> int:
    """Kernel block `j` of manager block `block`, with `factor` kernel blocks in each (2.5, vllm#50493)."""
    return block * factor + j


# --- 2.6: ownership and slots -------------------------------------------------------------------------------------


def owner_rank(position: int, block_size: int, dcp_size: int, interleave: int) -> int:
    """The rank that holds a position of a sharded group (2.6, DS-2)."""
    return position % (block_size * dcp_size) // interleave % dcp_size


def owns(position: int, rank: int, block_size: int, sharded: bool, dcp_size: int, interleave: int) -> bool:
    """Whether `rank` holds `position`: every rank does in a replicated group (2.6, DS-2)."""
    return not sharded or owner_rank(position, block_size, dcp_size, interleave) == rank


def block_column(position: int, block_size: int, sharded: bool, dcp_size: int) -> int:
    """Column of the block-table entry that covers a position (2.6)."""
    return position // effective_block_size(block_size, sharded, dcp_size)


def block_offset(position: int, block_size: int, sharded: bool, dcp_size: int, interleave: int) -> int:
    """Offset, in tokens, of a position inside the physical block of the rank that holds it (2.6, DS-3)."""
    if not sharded:
        return position % block_size
    inside = position % (block_size * dcp_size)
    return inside // (interleave * dcp_size) * interleave + inside % interleave


def slot(block_id: int, offset: int, block_size: int) -> int:
    """Index of a token slot in the memory of one rank (2.6)."""
    return block_id * block_size + offset


def slot_mapping(
    position: int, rank: int, block_id: int, *, block_size: int, sharded: bool, dcp_size: int, interleave: int
) -> int:
    """Slot of `position` on `rank`, where `block_id` is the table entry of its column; PAD_SLOT if not owned (2.6)."""
    if not owns(position, rank, block_size, sharded, dcp_size, interleave):
        return PAD_SLOT
    return slot(block_id, block_offset(position, block_size, sharded, dcp_size, interleave), block_size)


def local_length(num_tokens: int, rank: int, dcp_size: int, interleave: int) -> int:
    """How many of the first `num_tokens` tokens of a sharded group `rank` holds (2.6, DS-4)."""
    base = num_tokens // interleave // dcp_size * interleave
    return base + min(max(num_tokens - base * dcp_size - rank * interleave, 0), interleave)


def has_context(prefix_length_global: int) -> bool:
    """Whether a step attends to a cached prefix, decided from the *global* length in tokens (2.6, DS-10).

    A rank may hold no token of a non-empty prefix; deciding for itself, it would stay out of the others' collective.
    """
    return prefix_length_global > 0


def context_branches(prefix_tokens: int, dcp_size: int) -> tuple[bool, ...]:
    """The branch that each rank takes on "there is context to attend to", one per rank: all the same (2.6, DS-10)."""
    return (has_context(prefix_tokens),) * dcp_size


# --- 2.8: boundaries of a step ------------------------------------------------------------------------------------


def skipped_tokens_attention(_computed: int) -> int:
    """Leading tokens that no later position of a full-attention group reads: none, whatever is computed (2.8)."""
    return 0


def skipped_tokens_window(computed: int, window: int, extra: int = 0) -> int:
    """Leading tokens behind a sliding window of `window` tokens, `extra` more being kept (2.8)."""
    return max(0, computed - window + 1 - extra)


def skipped_tokens_chunked(computed: int, chunk: int) -> int:
    """Leading tokens before the current chunk of `chunk` tokens of local attention (2.8)."""
    return computed // chunk * chunk


def skipped_tokens_mamba(computed: int) -> int:
    """Leading tokens whose recurrent state is not needed once `computed` tokens are: all but the last (2.8)."""
    return max(computed - 1, 0)


def checkpoint_boundary(n: int, unit: int, eagle: bool = False) -> int:
    """`ck(n, u)` for n >= 1: the last multiple of `unit` strictly below `n` tokens; with EAGLE one unit down (2.8)."""
    if eagle:
        return max(n // unit * unit - unit, 0)
    return (n - 1) // unit * unit


def replay_boundaries(prompt: int, unit: int, eagle: bool = False) -> tuple[int, ...]:
    """Token counts, ascending, at which a resend of `prompt` tokens may resume; masks floor them to A (2.8).

    `unit` matters with EAGLE only: A, or S under `eagle_replay_unit = S` (3.1, vllm#57444).
    """
    if not eagle:
        return (prompt - 1,)
    before, whole = checkpoint_boundary(prompt - 1, unit, True), checkpoint_boundary(prompt, unit, True)
    return (whole,) if before == whole else (before, whole)


def eagle_margin(effective_size: int, hash_block: int, fine_grained: bool) -> int:
    """Tokens past a candidate that a class owing an EAGLE drop must match (2.8)."""
    return hash_block if fine_grained and effective_size > hash_block else effective_size


def eagle_unit(effective_size: int, alignment: int) -> int:
    """Tokens that a full-attention class gives up in an EAGLE drop: a hash unit under fine-grained hits, else a block (T35).

    `alignment` is A: H under fine-grained hits, else S, a multiple of every block. Windowed classes give up one block.
    """
    return min(alignment, effective_size)


def cacheable_tokens(tokens: int, fine_grained: bool, scheduler_block: int) -> int:
    """Tokens of a prefix of `tokens` that a caching call covers, for a group outside the EAGLE set (2.8).

    Fine-grained hits leave the count as it is: rounding it to H would register a privatised Mamba tail again.
    """
    return tokens if fine_grained else tokens // scheduler_block * scheduler_block


def cacheable_tokens_eagle(tokens: int, fine_grained: bool, scheduler_block: int, effective_size: int) -> int:
    """The same for a group of the EAGLE set: one block more, never past the finalised tokens (2.8)."""
    covered = cacheable_tokens(tokens, fine_grained, scheduler_block)
    if fine_grained or covered == 0:
        return covered
    return min(covered + effective_size, tokens)


def prompt_tail_boundary(num_prompt: int, hash_block: int, num_hashes: int, rule: str = "P-1") -> int:
    """Token count of the one partial entry of an attention group; 0 if none (T9.2).

    `rule` is `"P-1"`, or `"P"` for an EAGLE group and under `prompt_tail = P` (3.1); anything else is a GeometryError.
    """
    if rule not in ("P-1", "P"):
        raise GeometryError(f"prompt tail rule {rule!r}: use 'P-1' or 'P'")
    limit = num_prompt if rule == "P" else num_prompt - 1
    return min(limit // hash_block, num_hashes) * hash_block
