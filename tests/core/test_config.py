"""Configurations: what is derived, and every way in which one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.core.config import PROFILES, SOUND, VLLM_0_33_0, Group, configure, reconfigure
from kvproof.core.errors import ConfigError
from kvproof.core.kinds import base
from kvproof.core.profiles import profile_named
from tests.driving import Driver

FULL, MAMBA = Group("full_attention", 4), Group("mamba_align", 4)


def test_derived_sizes_under_dcp() -> None:
    """E, S, H, A, the gate, capacities and classes of FA4, Mamba4 and a replicated FA4 at N=2."""
    config = configure((MAMBA, FULL, Group("full_attention", 4, False), MAMBA), dcp_size=2, max_model_len=64)
    assert config.sizes == (4, 8, 4, 4)
    assert (config.scheduler_block_size, config.hash_block_size, config.alignment) == (8, 4, 4)
    assert config.fine_grained
    assert config.row_capacity == (16, 32, 32, 16)
    assert config.classes == ((1,), (2,), (0, 3))
    assert config.recurrent == (0, 3)


def test_the_clip_unit_defaults_to_a_multiple_of_every_recurrent_block() -> None:
    """T22: without one given, B is the least common multiple of the Mamba block sizes; 1 without a Mamba group."""
    assert configure((FULL, Group("mamba_align", 6), MAMBA)).clip_block_size == 12
    assert configure((FULL,)).clip_block_size == 1
    assert configure((FULL, MAMBA), clip_block_size=2).clip_block_size == 2


def test_a_configuration_is_resolved_anew_from_its_own_inputs() -> None:
    """H stays what was resolved, sizes and capacities follow what is changed; what is illegal then is refused."""
    config = configure((FULL, MAMBA), dcp_size=2, max_model_len=64, retention=8)
    assert reconfigure(config) == config
    one = reconfigure(config, dcp_size=1, num_blocks=7)
    assert (one.sizes, one.hash_block_size, one.num_blocks, one.retention) == ((4, 4), 4, 7, 8)
    assert reconfigure(config, groups=(MAMBA, FULL)).sizes == (4, 8)
    with pytest.raises(ConfigError):
        reconfigure(config, groups=(Group("full_attention", 3),))


def test_hybrid_without_caching() -> None:
    """C-8: without caching and connectors H = S and any hybrid model is accepted; with a connector H must divide again."""
    config = configure((FULL, MAMBA), dcp_size=2, caching=False)
    assert (config.hash_block_size, config.fine_grained) == (8, False)
    assert configure((FULL, MAMBA), dcp_size=2, caching=False, connectors=(True,)).hash_block_size == 4
    driver = Driver(config)
    driver.submit(0, 17)
    driver.chunk(0, 16)
    assert driver.tables(0) == [[1, 2], [0, 0, 0, 3]]
    assert driver.world.pool.entries == ()


def test_groups_that_opt_out_of_caching() -> None:
    """A table that no lookup covers has no blocks for a hit's prefix: only scratch groups, which come later, may opt out."""
    with pytest.raises(ConfigError, match=r"groups\[1\] \(mamba_align\) cannot opt out of prefix caching"):
        configure((FULL, Group("mamba_align", 4, prefix_cacheable=False)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dcp_size": 0}, "dcp_size must be an integer in 1.."),
        ({"dcp_size": True}, "dcp_size must be an integer"),
        ({"num_blocks": 0}, "num_blocks"),
        ({"max_model_len": -1}, "max_model_len"),
        ({"max_running": 0}, "max_running"),
        ({"max_chunk": -1}, "max_chunk"),
        ({"append_expansion": 0}, "append_expansion"),
        ({"interleave": 0}, "interleave"),
        ({"clip_block_size": -2}, "clip_block_size"),
        ({"dcp_size": 2, "interleave": 3}, "interleave 3 does not divide groups"),
        ({"retention": 3}, r"retention 3 is neither dense \(None\), 0 \(sparse\) nor a multiple of S = 4"),
        ({"retention": -4}, "retention -4"),
        ({"retention": "dense"}, "retention must be an integer or None, got 'dense'"),
        ({"hash_block_size": 3}, "does not divide the cacheable block sizes"),
        ({"hash_block_size": 2.0}, "hash_block_size must be an integer or None, got 2.0"),
        ({"hash_block_size": True}, "hash_block_size must be an integer or None"),
        ({"num_draft_tokens": None}, r"num_draft_tokens must be in 0\.\."),
        ({"num_draft_tokens": True}, "num_draft_tokens must be in 0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    """Each bad setting is named with the rule it breaks."""
    with pytest.raises(ConfigError, match=message):
        configure((FULL, MAMBA), **settings)


def test_bad_groups() -> None:
    """No groups, unknown kinds, absurd sizes, and a sharded recurrent group are refused."""
    with pytest.raises(ConfigError, match="at least one group"):
        configure(())
    with pytest.raises(ConfigError, match="no group kind 'mamba'; known: full_attention, mamba_align"):
        configure((Group("mamba", 4),))
    with pytest.raises(ConfigError, match=r"groups\[1\] \(mamba_align\): block_size"):
        configure((FULL, Group("mamba_align", 0)))
    with pytest.raises(ConfigError, match=r"block_size must be an integer in 1\.\.524288"):
        configure((Group("full_attention", 1 << 20),), dcp_size=2)
    with pytest.raises(ConfigError, match="cannot be sharded over 2 DCP ranks"):
        configure((FULL, Group("mamba_align", 4, True)), dcp_size=2)
    assert configure((FULL, Group("mamba_align", 4, True))).sizes == (4, 4)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (Group("full_attention", 4, window=4), "has no window: leave it out"),
        (Group("sliding_window", 4), "window must be an integer"),
        (Group("sliding_window", 4, window=-3), "window must be an integer"),
        (Group("chunked_local", 4, window=0), "window must be an integer"),
        (Group("mamba_align", 4, speculative_blocks=-1), "speculative_blocks must be in 0"),
        (Group("mamba_stable", 4, speculative_blocks=1), "has no speculative blocks: only Mamba align has"),
        (Group("mamba_align", 4, draft=True), "cannot be a draft group"),
        (Group("scratch", 4, prefix_cacheable=True), "is never cached"),
    ],
)
def test_groups_that_a_kind_cannot_be(group: Group, message: str) -> None:
    """1.2, 2.1, T35, C-12: windows, speculative blocks, drafters and caching belong to certain kinds."""
    with pytest.raises(ConfigError, match=message):
        configure((FULL, group))


def test_speculation_needs_blocks_and_a_number() -> None:
    """3.6: as many speculative blocks as drafts, or a rejected draft could not be undone; counts are not negative."""
    with pytest.raises(ConfigError, match="has 1 speculative blocks: 2 draft tokens need as many"):
        configure((FULL, Group("mamba_align", 4, speculative_blocks=1)), num_draft_tokens=2)
    with pytest.raises(ConfigError, match="num_draft_tokens must be in 0"):
        configure((FULL,), num_draft_tokens=-1)
    with pytest.raises(ConfigError, match="checkpoint_alignment must be an integer"):
        configure((FULL, MAMBA), checkpoint_alignment=0)
    with pytest.raises(ConfigError, match=r"max_steps_in_flight must be an integer in 1\.\.2"):
        configure((FULL,), max_steps_in_flight=3)


def test_profiles() -> None:
    """Profiles have names; an unknown one lists them; `sound` is the default."""
    assert [profile_named(profile.name) for profile in PROFILES] == [SOUND, VLLM_0_33_0]
    assert configure((FULL,)).profile is SOUND
    with pytest.raises(ConfigError, match=r"known: sound, vllm-0\.33\.0"):
        profile_named("vllm")


def test_a_kind_that_forgets_a_capability_fails() -> None:
    """Capabilities have no defaults: leaving one out is an error when the kind is defined."""
    with pytest.raises(TypeError, match="positionally_stable"):
        base.Capabilities(  # type: ignore[call-arg]
            fine_grained_lookup=True,
            prefix_closed=True,
            recurrent=False,
            may_be_sharded=True,
            sharded_by_default=True,
        )


def test_a_misspelled_setting_is_named_with_the_nearest_one():
    wrong: Any = {"dcp_sise": 2}
    with pytest.raises(ConfigError, match="dcp_sise is no setting of a configuration: did you mean dcp_size"):
        configure((Group("full_attention", 4),), **wrong)
    absurd: Any = {"zzz": 2}
    with pytest.raises(ConfigError, match="zzz is no setting of a configuration: settings are dcp_size"):
        configure((Group("full_attention", 4),), **absurd)
