"""The product of group sets, ranks, host modes and EAGLE: nothing is dropped, and a few members are explored."""

from __future__ import annotations

import json
from itertools import product as combinations

import pytest

from kvproof.core.errors import ConfigError
from kvproof.spec import cli
from kvproof.spec.exploring import pins, product, scopes

BY_NAME = dict(zip(product.COMBINATIONS, product.SCOPES, strict=True))
KINDS = {
    "fa": ["full_attention"],
    "fa-m": ["full_attention", "mamba_align"],
    "fa-m-w1": ["full_attention", "mamba_align", "sliding_window"],
    "fa-m-w2": ["full_attention", "mamba_align", "sliding_window"],
    "fa-w1": ["full_attention", "sliding_window"],
    "fa-st": ["full_attention", "mamba_stable"],
    "fa-d-m": ["full_attention", "full_attention", "mamba_align"],
}
"""The group sets of section 10, written out."""


def test_every_combination_of_section_10_has_a_scope_of_its_own():
    wanted = set(combinations(KINDS, (1, 2, 4), ("none", "eager", "lazy"), (False, True)))
    assert {(one.groups, one.ranks, one.host, one.eagle) for one in product.COMBINATIONS} == wanted
    assert (
        len(product.SCOPES) == len({scope.name for scope in scopes.every()} - {scope.name for scope in scopes.known()}) == 126
    )


def test_configure_refuses_no_combination():
    refused = {}
    for scope in product.SCOPES:
        try:
            scope.config()
        except ConfigError as error:
            refused[scope.name] = str(error)
    assert refused == {}


@pytest.mark.parametrize("one", product.COMBINATIONS, ids=lambda one: one.name)
def test_a_scope_is_what_its_name_says(one):
    config = BY_NAME[one].config()
    assert [group.kind for group in config.groups] == KINDS[one.groups]
    assert config.dcp_size == one.ranks
    assert config.use_eagle == any(config.eagle) == one.eagle
    assert ("none" if config.offload is None else config.offload.mode) == one.host
    assert config.groups[0].sharded or one.ranks == 1
    for group, size, eagle in list(zip(config.groups, config.sizes, config.eagle, strict=True))[1:]:
        assert not group.sharded or one.ranks == 1
        if group.kind == "sliding_window":
            assert (size > config.hash_block_size) == one.groups.endswith("w2")
        if group.draft:
            assert eagle == one.eagle
    assert sum(group.draft for group in config.groups) == ("d" in one.groups.split("-"))


def test_every_member_is_pinned_and_nothing_else_is():
    assert list(pins.read(pins.PRODUCT)) == [scope.name for scope in product.SCOPES]
    assert pins.every() == {**pins.read(), **pins.read(pins.PRODUCT)}


def test_the_graph_depends_on_the_tokens_of_a_block_and_not_on_the_ranks_that_hold_them():
    pinned = pins.read(pins.PRODUCT)
    for name, pin in pinned.items():
        assert pin == pinned[name.replace("-n2-", "-n4-")]
    assert pinned["product-fa-m-n1-eager"] != pinned["product-fa-m-n2-eager"]


def test_only_members_that_would_be_large_are_bounded_by_depth():
    bounded = [scope.name for scope in product.SCOPES if scope.bounds.depth is not None]
    sets = ("fa-m", "fa-m-w1", "fa-d-m")
    assert bounded == [f"product-{groups}-n{ranks}-none-eagle" for groups in sets for ranks in (1, 2, 4)]


@pytest.mark.parametrize(
    "name", ["product-fa-n1-none-eagle", "product-fa-w1-n4-none", "product-fa-st-n2-none-eagle", "product-fa-n4-lazy-eagle"]
)
def test_small_members_hold_and_are_as_pinned(capsys, name):
    code = cli.main(["explore", "--scope", name, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (code, document["problems"]) == (0, [])
    assert document["scopes"][0]["end"] == "complete"
    assert "hit" in document["witnesses"]
