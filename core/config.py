"""The immutable configuration: groups, sizes, policies, profile; everything derived is resolved once (3.1, section 2)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypedDict, Unpack

from attrs import frozen

from kvproof.core import contents, geometry, kinds
from kvproof.core import groups as grouping
from kvproof.core.errors import ConfigError
from kvproof.core.groups import MAX_BLOCKS, MAX_ROWS, Group
from kvproof.core.offload import settings as offloading
from kvproof.core.offload.settings import Offload
from kvproof.core.profiles import PROFILES, SOUND, VLLM_0_33_0, Profile

__all__ = [
    "INPUTS",
    "PROFILES",
    "SOUND",
    "VLLM_0_33_0",
    "Config",
    "Group",
    "Offload",
    "Profile",
    "configure",
    "effective_sizes",
    "gate",
    "reconfigure",
]

MAX_DCP_SIZE = 1024
MAX_STEPS_IN_FLIGHT = 2


@frozen(slots=True)
class Config:
    """A resolved configuration; build it with :func:`configure`.

    Token sizes: ``sizes`` are E per group, ``scheduler_block_size`` S, ``hash_block_size`` H, ``alignment`` A.
    ``classes`` lists groups that are looked up together, full attention first. ``cells`` maps, per group, the position
    inside a virtual block to the cells of a block's contents that hold it. ``row_capacity`` is in row entries.
    ``recurrent`` are the groups whose blocks hold a state, ``snapshots`` those of them in align mode, ``positional`` those
    whose blocks hold token positions; ``eagle`` tells per group whether it belongs to the EAGLE group set, and
    ``pins_junctions`` whether ``shared_prefix_checkpoint`` is effective (3.1). ``parts`` are the execute sub-phases of a step
    in their order (T0). ``children`` are the capabilities of all connectors, the host tier's among them (T13): it cannot load a
    divergent hit.
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
    long_prefill: int | None
    clip_block_size: int
    append_expansion: int
    connectors: tuple[bool, ...]
    use_eagle: bool
    num_draft_tokens: int
    shared_prefix_checkpoint: bool
    checkpoint_alignment: int | None
    defer_block_free: bool
    max_steps_in_flight: int
    async_outputs: bool
    events: bool
    offload: Offload | None
    profile: Profile
    sizes: tuple[int, ...]
    scheduler_block_size: int
    hash_block_size: int
    alignment: int
    fine_grained: bool
    row_capacity: tuple[int, ...]
    classes: tuple[tuple[int, ...], ...]
    recurrent: tuple[int, ...]
    snapshots: tuple[int, ...]
    positional: tuple[int, ...]
    eagle: tuple[bool, ...]
    pins_junctions: bool
    cells: tuple[tuple[tuple[int, ...], ...], ...]
    parts: tuple[str, ...]
    children: tuple[bool, ...]


def _check_counts(given: dict[str, Any]) -> None:
    """Refuse numbers out of range. Raises ConfigError."""
    for name, value, limit in (
        ("dcp_size", given["dcp_size"], MAX_DCP_SIZE),
        ("max_running", given["max_running"], MAX_ROWS),
        ("append_expansion", given["append_expansion"], MAX_ROWS),
        ("num_blocks", given["num_blocks"], MAX_BLOCKS),
        ("max_model_len", given["max_model_len"], MAX_BLOCKS),
        ("interleave", given["interleave"], MAX_BLOCKS),
        ("max_steps_in_flight", given["max_steps_in_flight"], MAX_STEPS_IN_FLIGHT),
    ):
        grouping.positive(name, value, limit)
    for name, optional in (
        ("max_chunk", given["max_chunk"]),
        ("long_prefill", given["long_prefill"]),
        ("clip_block_size", given["clip_block_size"]),
        ("checkpoint_alignment", given["checkpoint_alignment"]),
    ):
        if optional is not None:
            grouping.positive(name, optional, MAX_BLOCKS)
    for name, optional in (("hash_block_size", given["hash_block_size"]), ("retention", given["retention"])):
        if isinstance(optional, bool) or not isinstance(optional, int | None):
            raise ConfigError(f"{name} must be an integer or None, got {optional!r}")
    connectors = given["connectors"]
    if not isinstance(connectors, tuple) or not all(isinstance(capable, bool) for capable in connectors):
        raise ConfigError(f"connectors must be a tuple of booleans, got {connectors!r}: connectors.flags(...) gives them (T13)")


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


class Settings(TypedDict, total=False):
    """The arguments of :func:`configure` besides the groups; a resolved configuration carries them by the same names."""

    dcp_size: int
    interleave: int
    hash_block_size: int | None
    max_model_len: int
    num_blocks: int
    retention: int | None
    caching: bool
    max_running: int
    max_chunk: int | None
    long_prefill: int | None
    clip_block_size: int | None
    append_expansion: int
    connectors: tuple[bool, ...]
    use_eagle: bool
    num_draft_tokens: int
    shared_prefix_checkpoint: bool
    checkpoint_alignment: int | None
    defer_block_free: bool
    max_steps_in_flight: int
    async_outputs: bool
    events: bool
    offload: Offload | None
    profile: Profile


DEFAULTS: Settings = {
    "dcp_size": 1,
    "interleave": 1,
    "hash_block_size": None,
    "max_model_len": 1024,
    "num_blocks": 16,
    "retention": None,
    "caching": True,
    "max_running": 8,
    "max_chunk": None,
    "long_prefill": None,
    "clip_block_size": None,
    "append_expansion": 1,
    "connectors": (),
    "use_eagle": False,
    "num_draft_tokens": 0,
    "shared_prefix_checkpoint": False,
    "checkpoint_alignment": None,
    "defer_block_free": False,
    "max_steps_in_flight": 1,
    "async_outputs": False,
    "events": False,
    "offload": None,
    "profile": SOUND,
}
INPUTS: tuple[str, ...] = ("groups", *DEFAULTS)
"""The names of everything that :func:`configure` takes."""


def reconfigure(config: Config, **changes: Any) -> Config:
    """Resolve a configuration anew from its own inputs, some of them changed. H stays as it is unless it is changed.

    Raises ConfigError if that is not a legal configuration.
    """
    inputs = {name: getattr(config, name) for name in INPUTS} | changes
    return configure(inputs.pop("groups"), **inputs)


def _check_retention(retention: int | None, scheduler: int) -> None:
    if retention is not None and (retention < 0 or retention % scheduler):
        raise ConfigError(f"retention {retention} is neither dense (None), 0 (sparse) nor a multiple of S = {scheduler} (2.9)")


def _row_capacity(groups: tuple[Group, ...], dcp_size: int, max_model_len: int, append_expansion: int) -> tuple[int, ...]:
    return tuple(kinds.of(group.kind).row_width(group, dcp_size, max_model_len) * append_expansion for group in groups)


def _cells(groups: tuple[Group, ...], dcp_size: int, interleave: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(
        contents.cell_map(
            not kinds.of(group.kind).CAPABILITIES.positions,
            group.block_size,
            bool(group.sharded),
            dcp_size,
            interleave,
        )
        for group in groups
    )


def _check_speculation(groups: tuple[Group, ...], num_draft_tokens: int) -> None:
    grouping.count("num_draft_tokens", num_draft_tokens, MAX_ROWS)
    for index, group in enumerate(groups):
        if kinds.of(group.kind).CAPABILITIES.recurrent and group.speculative_blocks < num_draft_tokens:
            raise ConfigError(
                f"groups[{index}] ({group.kind}) has {group.speculative_blocks} speculative blocks: {num_draft_tokens} draft "
                "tokens need as many, or a rejected draft could not be undone (3.6)"
            )


def _check_checkpoints(groups: tuple[Group, ...], snapshots: tuple[int, ...], alignment: int, given: dict[str, Any]) -> None:
    if given["checkpoint_alignment"] is None or given["max_steps_in_flight"] == 1:
        return
    for index in snapshots:
        if groups[index].block_size < alignment:
            raise ConfigError(
                f"groups[{index}] has blocks of {groups[index].block_size} tokens and hits end at multiples of {alignment}: an "
                "internal checkpoint may then lie before its column, and the plan of a second step in flight would name it by "
                "the column's end; keep one step in flight or leave checkpoint_alignment out (T38)"
            )


def _check_names(settings: Iterable[str]) -> None:
    for name in settings:
        if name not in DEFAULTS:
            near = difflib.get_close_matches(name, DEFAULTS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"settings are {', '.join(DEFAULTS)}"
            raise ConfigError(f"{name} is no setting of a configuration: {hint}")


def configure(groups: tuple[Group, ...], **settings: Unpack[Settings]) -> Config:
    """Resolve a configuration (sections 2 and 3.1); what is not given has the value of ``DEFAULTS``.

    Sizes are in tokens, ``num_blocks`` counts the null block, ``retention`` is None (dense), 0 (sparse) or a positive
    multiple of S. ``max_chunk`` are the most tokens of a step, ``long_prefill`` those of a prefill chunk while others wait
    or run (T22.3). ``connectors`` lists each connector's ``supports_divergent_local_hybrid_hits``. ``use_eagle`` turns the
    EAGLE drop on (T35), ``num_draft_tokens`` are the most drafts of a step (T36), ``shared_prefix_checkpoint`` asks for
    snapshots at junctions (T10.2b), ``checkpoint_alignment`` is that of a backend which exports internal checkpoints (T38),
    ``defer_block_free`` holds freed blocks back while a step is in flight (T3), ``async_outputs`` plans with placeholders
    (T36), ``events`` records what the key maps announce (3.7), ``offload`` adds a host tier (3.5).
    Raises ConfigError for every illegal combination, with the rule it breaks.
    """
    _check_names(settings)
    given: dict[str, Any] = {**DEFAULTS, **settings}
    dcp_size, interleave, caching = given["dcp_size"], given["interleave"], given["caching"]
    _check_counts(given)
    offload: Offload | None = given["offload"]
    offloading.check(
        offload,
        caching=caching,
        defer_block_free=given["defer_block_free"],
        max_steps_in_flight=given["max_steps_in_flight"],
    )
    children = (*given["connectors"], *((False,) if offload else ()))
    groups = grouping.resolve(groups, dcp_size)
    _check_interleave(groups, dcp_size, interleave)
    _check_speculation(groups, given["num_draft_tokens"])
    sizes = effective_sizes(groups, dcp_size)
    scheduler, unit = _resolve_units(groups, sizes, given["hash_block_size"], caching, bool(children))
    fine = gate(groups, sizes, unit, caching=caching, dcp_size=dcp_size, interleave=interleave)
    _check_retention(given["retention"], scheduler)
    recurrent, snapshots, positional = _groups_by_content(groups)
    alignment = geometry.hit_alignment(fine, unit, scheduler)
    _check_checkpoints(groups, snapshots, alignment, given)
    classes = grouping.lookup_classes(groups)
    eagle = grouping.eagle_groups(groups, classes, given["use_eagle"])
    resolved: dict[str, Any] = {
        **given,
        "hash_block_size": unit,
        "max_chunk": given["max_model_len"] if given["max_chunk"] is None else given["max_chunk"],
        "clip_block_size": _clip_unit(groups, snapshots) if given["clip_block_size"] is None else given["clip_block_size"],
        "sizes": sizes,
        "scheduler_block_size": scheduler,
        "alignment": alignment,
        "fine_grained": fine,
        "row_capacity": _row_capacity(groups, dcp_size, given["max_model_len"], given["append_expansion"]),
        "classes": classes,
        "recurrent": recurrent,
        "snapshots": snapshots,
        "positional": positional,
        "eagle": eagle,
        "pins_junctions": given["shared_prefix_checkpoint"] and any(eagle) and fine,
        "cells": _cells(groups, dcp_size, interleave),
        "parts": offloading.parts(offload),
        "children": children,
    }
    return Config(groups=groups, **resolved)


def _groups_by_content(groups: tuple[Group, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the recurrent groups, those of them in align mode, and the groups whose blocks hold token positions."""
    abilities = [kinds.of(group.kind).CAPABILITIES for group in groups]
    return (
        tuple(g for g, can in enumerate(abilities) if can.recurrent),
        tuple(g for g, can in enumerate(abilities) if can.snapshots),
        tuple(g for g, can in enumerate(abilities) if can.positions),
    )


def _clip_unit(groups: tuple[Group, ...], snapshots: tuple[int, ...]) -> int:
    """Return the default unit of T22: a common multiple of the Mamba-align block sizes, 1 without such a group."""
    return geometry.scheduler_block_size((1, *(groups[g].block_size for g in snapshots)))


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
            group.block_size for group, can in zip(groups, capabilities, strict=True) if can.snapshots
        ),
        other_coarse_sizes=tuple(
            size
            for size, group, can in zip(sizes, groups, capabilities, strict=True)
            if group.prefix_cacheable and not can.fine_grained_lookup
        ),
    )


def hashed_groups(groups: tuple[Group, ...], active: bool) -> tuple[bool, ...]:
    """Tell per group whether H must divide its blocks: those that are cached (2.2, M-SCR-1).

    Not ``active``, without prefix caching and connectors, nothing is hashed, and H need not divide anything but S.
    """
    return tuple(bool(group.prefix_cacheable) and active for group in groups)


def _resolve_units(
    groups: tuple[Group, ...], sizes: tuple[int, ...], requested: int | None, caching: bool, connected: bool
) -> tuple[int, int]:
    """Return S and H, checked (2.2, HB-1). Raises ConfigError."""
    cacheable = hashed_groups(groups, caching or connected)
    try:
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
    except geometry.GeometryError as error:
        raise ConfigError(str(error)) from error
    return scheduler, unit
