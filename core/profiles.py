"""Profiles: the fields in which the sound semantics and a release differ (3.1)."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from kvproof.core.errors import ConfigError


@frozen(slots=True)
class Profile:
    """The fields in which profiles differ (3.1); the defaults are ``sound``."""

    name: str = "sound"
    withdrawn_keys: Literal["rollback", "keep"] = "rollback"
    recurrent_demand: Literal["exact", "capped"] = "exact"
    deferred_free_order: Literal["per_group", "flattened"] = "per_group"
    eagle_replay_unit: Literal["A", "S"] = "A"
    removed_event: Literal["last_copy", "each_copy"] = "last_copy"
    partial_parent: Literal["block", "hash"] = "block"
    append_guard: Literal["all_groups", "per_group"] = "all_groups"
    clip_stops: Literal["every_group", "clip_unit"] = "every_group"
    copy_source_guard: Literal["written", "recurrent"] = "written"
    publish_unkeyed: Literal["no", "yes"] = "no"
    checkpoint_tail: Literal["both", "first"] = "both"
    attention_limit: Literal["full", "current"] = "full"
    empty_window: Literal["nothing", "one_block"] = "nothing"
    short_runs: Literal["drop", "align"] = "drop"
    lagging_groups: Literal["recurrent", "any"] = "recurrent"
    void_drops: Literal["any_lowering", "without_drop"] = "any_lowering"
    checkpoint_column: Literal["own", "row"] = "own"
    padded_admission: Literal["same_block", "any"] = "same_block"
    loaded_keys: Literal["ready", "this_step"] = "ready"
    positional_ids: Literal["table", "accumulated"] = "table"
    finish_tail: Literal["registered", "prompt"] = "registered"
    finish_tail_groups: Literal["every", "first"] = "every"
    offered_blocks: Literal["entry", "rank_block"] = "entry"
    prompt_tail: Literal["P-1", "P"] = "P-1"
    partial_key_after_promotion: Literal["readd", "drop"] = "readd"
    zero_recurrent: Literal["no", "yes"] = "no"


SOUND = Profile()
VLLM_0_33_0 = Profile(
    name="vllm-0.33.0",
    withdrawn_keys="keep",
    recurrent_demand="capped",
    deferred_free_order="flattened",
    eagle_replay_unit="S",
    removed_event="each_copy",
    partial_parent="hash",
    append_guard="per_group",
    copy_source_guard="recurrent",
    clip_stops="clip_unit",
    publish_unkeyed="yes",
    checkpoint_tail="first",
    attention_limit="current",
    empty_window="one_block",
    short_runs="align",
    lagging_groups="any",
    void_drops="without_drop",
    checkpoint_column="row",
    padded_admission="any",
    loaded_keys="this_step",
    positional_ids="accumulated",
    finish_tail="prompt",
    finish_tail_groups="first",
    offered_blocks="rank_block",
)
PROFILES: tuple[Profile, ...] = (SOUND, VLLM_0_33_0)


def profile_named(name: str) -> Profile:
    """Return the profile of this name. Raises ConfigError that lists the known ones."""
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise ConfigError(f"no profile {name!r}; known: {', '.join(known.name for known in PROFILES)}")
