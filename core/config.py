"""The immutable configuration: groups, sizes, policies, profile; everything derived is resolved once (3.1, section 2)."""

from __future__ import annotations

from typing import Any, Literal

from attrs import evolve, frozen

from kvproof.core import contents, geometry, kinds
from kvproof.core.errors import ConfigError

MAX_DCP_SIZE = 1024
MAX_BLOCKS = 1 << 24
MAX_ROWS = 4096


@frozen(slots=True)
class Profile:
    """The fields in which profiles differ (3.1); the defaults are ``sound``."""

    name: str = "sound"
    withdrawn_keys: Literal["rollback", "keep"] = "rollback"
    recurrent_demand: Literal["exact", "capped"] = "exact"
    append_guard: Literal["all_groups", "per_group"] = "all_groups"
    clip_stops: Literal["every_group", "clip_unit"] = "every_group"
    copy_source_guard: Literal["written", "recurrent"] = "written"
    publish_unkeyed: Literal["no", "yes"] = "no"
    attention_limit: Literal["full", "current"] = "full"
    prompt_tail: Literal["P-1", "P"] = "P-1"
    partial_key_after_promotion: Literal["readd", "drop"] = "readd"
    zero_recurrent: Literal["no", "yes"] = "no"


SOUND = Profile()
VLLM_0_33_0 = Profile(
    name="vllm-0.33.0",
    withdrawn_keys="keep",
    recurrent_demand="capped",
    append_guard="per_group",
    copy_source_guard="recurrent",
    clip_stops="clip_unit",
    publish_unkeyed="yes",
    attention_limit="current",
)
PROFILES: tuple[Profile, ...] = (SOUND, VLLM_0_33_0)


def profile_named(name: str) -> Profile:
    """Return the profile of this name. Raises ConfigError that lists the known ones."""
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise ConfigError(f"no profile {name!r}; known: {', '.join(known.name for known in PROFILES)}")


@frozen(slots=True)
class Group:
    """One cache group: its kind, tokens per block on one rank, and whether DCP shards it (None: the kind's default)."""

    kind: str
    block_size: int
    sharded: bool | None = None
    prefix_cacheable: bool = True


@frozen(slots=True)
class Config:
    """A resolved configuration; build it with :func:`configure`.

    Token sizes: ``sizes`` are E per group, ``scheduler_block_size`` S, ``hash_block_size`` H, ``alignment`` A.
    ``classes`` lists groups that are looked up together, full attention first. ``cells`` maps, per group, the position
    inside a virtual block to the cells of a block's contents that hold it. ``row_capacity`` is in row entries.
    """

    groups: tuple[Group, ...]
    dcp_size: int
    interleave: int
    max_model_len: int
    num_blocks: int
    retention: int | None
    caching: bool
    max_running: int
    max_chunk: int
    clip_block_size: int
    append_expansion: int
    connectors: tuple[bool, ...]
    profile: Profile
    sizes: tuple[int, ...]
    scheduler_block_size: int
    hash_block_size: int
    alignment: int
    fine_grained: bool
    row_capacity: tuple[int, ...]
    classes: tuple[tuple[int, ...], ...]
    recurrent: tuple[int, ...]
    cells: tuple[tuple[tuple[int, ...], ...], ...]


def _positive(name: str, value: int, limit: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise ConfigError(f"{name} must be an integer in 1..{limit}, got {value!r}")


def _resolve_groups(groups: tuple[Group, ...], dcp_size: int) -> tuple[Group, ...]:
    if not groups:
        raise ConfigError("a configuration needs at least one group")
    resolved = []
    for index, group in enumerate(groups):
        capabilities = kinds.of(group.kind).CAPABILITIES
        _positive(f"groups[{index}].block_size", group.block_size, MAX_BLOCKS)
        if not group.prefix_cacheable:
            raise ConfigError(f"groups[{index}] ({group.kind}) cannot opt out of prefix caching: only scratch groups will")
        sharded = capabilities.sharded_by_default if group.sharded is None else group.sharded
        if sharded and not capabilities.may_be_sharded and dcp_size > 1:
            raise ConfigError(
                f"groups[{index}] ({group.kind}) cannot be sharded over {dcp_size} DCP ranks: set sharded=False (2.1)"
            )
        resolved.append(evolve(group, sharded=sharded))
    return tuple(resolved)


def _check_interleave(groups: tuple[Group, ...], dcp_size: int, interleave: int) -> None:
    for index, group in enumerate(groups):
        if not group.sharded or dcp_size == 1:
            continue
        try:
            geometry.check_interleave(group.block_size, interleave)
        except geometry.GeometryError as error:
            raise ConfigError(
                f"interleave {interleave} does not divide groups[{index}].block_size {group.block_size} (2.6)"
            ) from error


INPUTS = (
    "groups",
    "dcp_size",
    "interleave",
    "hash_block_size",
    "max_model_len",
    "num_blocks",
    "retention",
    "caching",
    "max_running",
    "max_chunk",
    "clip_block_size",
    "append_expansion",
    "connectors",
    "profile",
)
"""The arguments of :func:`configure`, which a resolved configuration carries under the same names."""


def reconfigure(config: Config, **changes: Any) -> Config:
    """Resolve a configuration anew from its own inputs, some of them changed. H stays as it is unless it is changed.

    Raises ConfigError if that is not a legal configuration.
    """
    inputs = {name: getattr(config, name) for name in INPUTS} | changes
    return configure(inputs.pop("groups"), **inputs)


def _check_retention(retention: int | None, scheduler: int) -> None:
    if retention is not None and (retention < 0 or retention % scheduler):
        raise ConfigError(f"retention {retention} is neither None, 0 nor a multiple of S = {scheduler} (2.9)")


def _row_capacity(groups: tuple[Group, ...], dcp_size: int, max_model_len: int, append_expansion: int) -> tuple[int, ...]:
    return tuple(
        kinds.of(group.kind).row_width(group.block_size, bool(group.sharded), dcp_size, max_model_len) * append_expansion
        for group in groups
    )


def _cells(groups: tuple[Group, ...], dcp_size: int, interleave: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(
        contents.cell_map(
            kinds.of(group.kind).CAPABILITIES.recurrent,
            group.block_size,
            bool(group.sharded),
            dcp_size,
            interleave,
        )
        for group in groups
    )


def _classes(groups: tuple[Group, ...]) -> tuple[tuple[int, ...], ...]:
    found: dict[Group, list[int]] = {}
    for index, group in enumerate(groups):
        found.setdefault(group, []).append(index)
    order = sorted(found.items(), key=lambda item: not kinds.of(item[0].kind).CAPABILITIES.prefix_closed)
    return tuple(tuple(members) for _, members in order)


def configure(
    groups: tuple[Group, ...],
    *,
    dcp_size: int = 1,
    interleave: int = 1,
    hash_block_size: int | None = None,
    max_model_len: int = 1024,
    num_blocks: int = 16,
    retention: int | None = None,
    caching: bool = True,
    max_running: int = 8,
    max_chunk: int | None = None,
    clip_block_size: int | None = None,
    append_expansion: int = 1,
    connectors: tuple[bool, ...] = (),
    profile: Profile = SOUND,
) -> Config:
    """Resolve a configuration (sections 2 and 3.1).

    Sizes are in tokens, ``num_blocks`` counts the null block, ``retention`` is None (dense), 0 (sparse) or a positive
    multiple of S. ``connectors`` lists each connector's ``supports_divergent_local_hybrid_hits``.
    Raises ConfigError for every illegal combination, with the rule it breaks.
    """
    _positive("dcp_size", dcp_size, MAX_DCP_SIZE)
    _positive("max_running", max_running, MAX_ROWS)
    _positive("append_expansion", append_expansion, MAX_ROWS)
    for name, value in (("num_blocks", num_blocks), ("max_model_len", max_model_len), ("interleave", interleave)):
        _positive(name, value, MAX_BLOCKS)
    groups = _resolve_groups(groups, dcp_size)
    _check_interleave(groups, dcp_size, interleave)
    recurrent = tuple(g for g, group in enumerate(groups) if kinds.of(group.kind).CAPABILITIES.recurrent)
    sizes = effective_sizes(groups, dcp_size)
    try:
        scheduler, unit = _resolve_units(groups, sizes, hash_block_size, caching, bool(connectors))
    except geometry.GeometryError as error:
        raise ConfigError(str(error)) from error
    fine = gate(groups, sizes, unit, caching=caching, dcp_size=dcp_size, interleave=interleave)
    _check_retention(retention, scheduler)
    chunk = max_model_len if max_chunk is None else max_chunk
    clip = _clip_unit(groups, recurrent) if clip_block_size is None else clip_block_size
    _positive("max_chunk", chunk, MAX_BLOCKS)
    _positive("clip_block_size", clip, MAX_BLOCKS)
    return Config(
        groups=groups,
        dcp_size=dcp_size,
        interleave=interleave,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        retention=retention,
        caching=caching,
        max_running=max_running,
        max_chunk=chunk,
        clip_block_size=clip,
        append_expansion=append_expansion,
        connectors=connectors,
        profile=profile,
        sizes=sizes,
        scheduler_block_size=scheduler,
        hash_block_size=unit,
        alignment=geometry.hit_alignment(fine, unit, scheduler),
        fine_grained=fine,
        row_capacity=_row_capacity(groups, dcp_size, max_model_len, append_expansion),
        classes=_classes(groups),
        recurrent=recurrent,
        cells=_cells(groups, dcp_size, interleave),
    )


def _clip_unit(groups: tuple[Group, ...], recurrent: tuple[int, ...]) -> int:
    """Return the default unit of T22: a common multiple of the recurrent block sizes, 1 without such a group."""
    return geometry.scheduler_block_size((1, *(groups[g].block_size for g in recurrent)))


def effective_sizes(groups: tuple[Group, ...], dcp_size: int) -> tuple[int, ...]:
    """Return E per group: the block size, times the DCP size iff the group is sharded (2.1, DS-1)."""
    return tuple(geometry.effective_block_size(group.block_size, bool(group.sharded), dcp_size) for group in groups)


def gate(
    groups: tuple[Group, ...], sizes: tuple[int, ...], unit: int, *, caching: bool, dcp_size: int, interleave: int
) -> bool:
    """Tell whether joint hits may end inside a block (2.4); the interleave does not matter (DS-8)."""
    del interleave
    capabilities = [kinds.of(group.kind).CAPABILITIES for group in groups]
    return geometry.fine_grained_gate(
        caching=caching,
        num_groups=len(groups),
        allow=True,
        dcp_size=dcp_size,
        hash_block_size=unit,
        mamba_align_block_sizes=tuple(
            group.block_size for group, can in zip(groups, capabilities, strict=True) if can.recurrent
        ),
        other_coarse_sizes=tuple(
            size
            for size, group, can in zip(sizes, groups, capabilities, strict=True)
            if group.prefix_cacheable and not can.fine_grained_lookup
        ),
    )


def _resolve_units(
    groups: tuple[Group, ...], sizes: tuple[int, ...], requested: int | None, caching: bool, connected: bool
) -> tuple[int, int]:
    """Return S and H, checked (2.2, HB-1)."""
    # Without prefix caching and connectors nothing is hashed, and H need not divide anything but S.
    cacheable = tuple(group.prefix_cacheable and (caching or connected) for group in groups)
    scheduler = geometry.scheduler_block_size(sizes)
    unit = geometry.hash_block_size(
        sizes=sizes,
        cacheable=cacheable,
        caching=caching,
        connected=connected,
        requested=requested,
    )
    geometry.check_sizes(
        scheduler_block=scheduler,
        hash_block=unit,
        block_sizes=tuple(group.block_size for group in groups),
        sizes=sizes,
        cacheable=cacheable,
    )
    return scheduler, unit
