"""Faults in divergent hits, what connectors can do, and external tokens behind a local tail (semantics T12 to T15)."""

from __future__ import annotations

from kvproof.core import lookup
from kvproof.core import step as door
from kvproof.core.actions import Allocate
from kvproof.core.config import Config
from kvproof.core.world import Hit
from kvproof.spec.faults.base import Fault

_check_external = door.check_external


def _any_connector(connectors: tuple[bool, ...]) -> bool:
    return bool(connectors)


def _any_child(connectors: tuple[bool, ...]) -> bool:
    return any(connectors)


def _all_of_none(connectors: tuple[bool, ...]) -> bool:
    return all(connectors)


def _adopted_as_it_is(hit: Hit, action: Allocate) -> None:
    del hit, action


def _attention_decides(hits: tuple[int, ...], deepest: int) -> bool:
    del hits, deepest
    return True


def _cut_before_the_check(config: Config, hit: Hit, action: Allocate) -> None:
    lookup.truncate(config, hit.lists, action.local)
    _check_external(config, hit, action)


def _as_long_as_the_tail(tail: int, external: int) -> bool:
    return external >= tail


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-CAP-3",
        "any connector is offered divergent hits",
        "#50344",
        ("CA-1",),
        ((lookup, "supports_divergence", _any_connector),),
        scopes=("m4-fa4", "m4-fa2-tight"),
    ),
    Fault(
        "M-CAP-4",
        "several connectors can use a divergent hit if one of them can",
        "#50344",
        ("CA-2",),
        ((lookup, "supports_divergence", _any_child),),
        scopes=("fa4r-m4-n2",),
    ),
    Fault(
        "M-CAP-5",
        "no connector at all can use a divergent hit: all of none",
        "#50344",
        ("CA-2",),
        ((lookup, "supports_divergence", _all_of_none),),
        scopes=("fa4-m4-n2", "fa4-m4-rows"),
    ),
    Fault(
        "M-DIV-1",
        "a divergent hit is adopted as it is when no connector brings tokens",
        "src",
        ("CA-3",),
        ((door, "check_divergence", _adopted_as_it_is),),
        scopes=("fa4-st4", "fa4-m4-m4-n2"),
    ),
    Fault(
        "M-DIV-2",
        "the hit of full attention is reported although another group hits more",
        "#46453",
        ("CA-4",),
        ((lookup, "none_is_deeper", _attention_decides),),
        scopes=("fa8-m2", "fa4-m4-m4-n2"),
    ),
    Fault(
        "M-DIV-3",
        "the lists of a hit are cut before anybody checks that it ends at a scheduler block",
        "#50344",
        ("CA-5",),
        ((door, "check_external", _cut_before_the_check),),
        scopes=("fa2-m4-n4", "fa1-m3-n8"),
    ),
    Fault(
        "M-TAIL-1",
        "external tokens take the place of as many local ones",
        "src",
        ("CA-7",),
        ((lookup, "replaces_tail", _as_long_as_the_tail),),
        scopes=("fa8-m2-n2", "fa1-m3-n8"),
    ),
)
