"""Which configurations the scopes cover, and which pairs of features meet in one of them.

Two features of a configuration interact as soon as both are on, so every pair that is not impossible must meet in some
scope (``IMPOSSIBLE`` names the rule that forbids a pair). The table itself: ``python -m tests.spec.engines.test_scopes``.
"""

from itertools import combinations

import pytest

from kvproof.core import kinds
from kvproof.spec.engines import scopes


def kind(name):
    return lambda config, limits: any(group.kind == name for group in config.groups)


def window(fits):
    return lambda config, limits: any(
        group.kind == "sliding_window" and fits(group.block_size, config.hash_block_size) for group in config.groups
    )


FEATURES = {
    "Mamba": kind("mamba_align"),
    "two Mamba groups": lambda config, limits: len(config.snapshots) > 1,
    "stable Mamba": kind("mamba_stable"),
    "window, E = H": window(lambda size, unit: size == unit),
    "window, E > H": window(lambda size, unit: size > unit),
    "local chunks": kind("chunked_local"),
    "scratch": kind("scratch"),
    "draft group": lambda config, limits: any(group.draft for group in config.groups),
    "EAGLE": lambda config, limits: config.use_eagle,
    "fine hits": lambda config, limits: config.fine_grained,
    "two ranks": lambda config, limits: config.dcp_size == 2,
    "four ranks": lambda config, limits: config.dcp_size == 4,
    "sparse": lambda config, limits: config.retention == 0,
    "intervals": lambda config, limits: bool(config.retention),
    "drafts": lambda config, limits: config.num_draft_tokens > 0,
    "speculative blocks": lambda config, limits: any(group.speculative_blocks for group in config.groups),
    "checkpoints": lambda config, limits: config.checkpoint_alignment is not None,
    "pinned junctions": lambda config, limits: config.pins_junctions,
    "deferred frees": lambda config, limits: config.defer_block_free,
    "two steps": lambda config, limits: config.max_steps_in_flight > 1,
    "placeholders": lambda config, limits: config.async_outputs,
    "connector": lambda config, limits: bool(config.connectors),
    "divergent hits": lambda config, limits: bool(config.children) and all(config.children),
    "gate": lambda config, limits: True in limits.gates,
    "extra slots": lambda config, limits: any(limits.lookahead),
    "expansion": lambda config, limits: config.append_expansion > 1,
    "small steps": lambda config, limits: config.max_chunk < config.max_model_len,
    "events": lambda config, limits: config.events,
    "eager host": lambda config, limits: config.offload is not None and config.offload.mode == "eager",
    "lazy host": lambda config, limits: config.offload is not None and config.offload.mode == "lazy",
    "two workers": lambda config, limits: config.offload is not None and config.offload.workers > 1,
    "held loads": lambda config, limits: config.offload is not None and config.offload.hold_loads,
    "stores with the next step": lambda config, limits: (
        config.offload is not None and config.offload.store_submission == "next_step"
    ),
    "late flush": lambda config, limits: config.offload is not None and config.offload.flush == "before_forward",
}

IMPOSSIBLE = {
    ("local chunks", "two ranks"): "2.1: chunked local attention has one rank",
    ("local chunks", "four ranks"): "2.1: chunked local attention has one rank",
    ("stable Mamba", "drafts"): "3.6: a rejected draft needs a speculative block, which a stable group has not",
    ("window, E > H", "fine hits"): "2.4 condition 4",
    ("window, E > H", "pinned junctions"): "3.1: junctions are pinned under fine-grained hits, 2.4 condition 4",
    ("two ranks", "four ranks"): "one value",
    ("sparse", "intervals"): "one value",
    ("eager host", "lazy host"): "one value",
    ("divergent hits", "eager host"): "T13: a host tier cannot load a divergent hit, and all connectors must",
    ("divergent hits", "lazy host"): "T13",
    ("divergent hits", "two workers"): "T13",
    ("divergent hits", "held loads"): "T13",
    ("divergent hits", "stores with the next step"): "T13",
    ("divergent hits", "late flush"): "T13",
}


PAIRS = [pair for pair in combinations(FEATURES, 2) if pair not in IMPOSSIBLE]
CONFIGS = [(scope, scope.config()) for scope in scopes.ALL]
ON = {
    scope.name: frozenset(name for name, is_on in FEATURES.items() if is_on(config, scope.limits(config)))
    for scope, config in CONFIGS
}


def meeting(pair):
    """The scopes in which both features of a pair are on."""
    return [name for name, on in ON.items() if on.issuperset(pair)]


def test_every_pair_of_features_that_may_meet_does():
    assert [pair for pair in PAIRS if not meeting(pair)] == []


def test_what_is_called_impossible_meets_nowhere():
    assert [pair for pair in IMPOSSIBLE if meeting(pair)] == []


def test_scopes_have_distinct_names_and_cover_the_matrix():
    configs = {scope.name: scope.config() for scope in scopes.ALL}
    assert len(configs) == len(scopes.ALL) >= 16
    assert {config.dcp_size for config in configs.values()} == {1, 2, 4, 8}
    assert {config.fine_grained for config in configs.values()} == {True, False}
    assert {len(config.recurrent) for config in configs.values()} == {0, 1, 2, 3}
    assert {config.num_draft_tokens for config in configs.values()} == {0, 1, 2, 3}
    assert {group.kind for config in configs.values() for group in config.groups} == set(kinds.NAMES)
    assert {config.append_expansion for config in configs.values()} == {1, 2}
    assert {config.retention for config in configs.values()} >= {None, 0, 8, 16}
    assert {config.connectors for config in configs.values()} >= {(), (True,), (False,), (True, False)}
    assert any(config.groups[0].kind == "mamba_align" for config in configs.values())
    assert any(not group.sharded for config in configs.values() if config.dcp_size > 1 for group in config.groups[:1])
    assert any(config.interleave > 1 for config in configs.values())
    assert 5 <= len(scopes.chosen(True)) < len(scopes.chosen(False)) == len(scopes.ALL)


def test_an_unknown_scope_is_named_with_the_known_ones():
    with pytest.raises(Exception, match="no scope 'x'; known: fa4, "):
        scopes.by_name("x")


def main():
    """Print the table: for each pair of features the scopes in which they meet."""
    for pair in PAIRS:
        print(f"{pair[0]} x {pair[1]}: {', '.join(meeting(pair)) or '-'}")
    for pair, reason in IMPOSSIBLE.items():
        print(f"{pair[0]} x {pair[1]}: impossible, {reason}")


if __name__ == "__main__":
    main()
