"""Laws about a configuration alone, judged on the sizes that an implementation derives from it."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvproof.core.config import Config
from kvproof.spec import naive_hits
from kvproof.spec.conformance.adapter import AdapterError, Geometry, Shows
from kvproof.spec.conformance.hidden import Hidden, NotShown
from kvproof.spec.laws import capability
from kvproof.spec.laws.base import Evidence, Law

DERIVED: tuple[str, ...] = ("sizes", "row_capacity", "scheduler_block_size", "fine_grained", "alignment")
"""What a configuration derives and ``Geometry`` can show."""

FORMULAS = (
    "it is about formulas that no adapter shows: what comes of them is seen in tables, contents and transfers, and judged by "
    "other laws"
)


def with_geometry(config: Config, geometry: Geometry) -> Config:
    """Return a configuration whose derived sizes are those of an implementation; hidden where it does not show them."""
    changes: dict[str, Any] = {
        name: Hidden(f"{Shows.GEOMETRY.value} {name}") if (value := getattr(geometry, name, None)) is None else value
        for name in DERIVED
    }
    if geometry.fine_grained is not None:
        scheduler = config.scheduler_block_size if geometry.scheduler_block_size is None else geometry.scheduler_block_size
        changes["alignment"] = config.hash_block_size if geometry.fine_grained else scheduler
    return evolve(config, **changes)


def with_gate(config: Config, geometry: Geometry) -> Config:
    """Return a configuration in which joint hits are as fine as an implementation has them.

    For following one whose gate is not the definition's: that is HB-11's matter, and a closed gate loses hits and nothing else
    (PM-4).
    """
    if geometry.fine_grained is None or geometry.fine_grained == config.fine_grained:
        return config
    alignment = config.hash_block_size if geometry.fine_grained else config.scheduler_block_size
    return evolve(config, fine_grained=geometry.fine_grained, alignment=alignment)


def looks_at_sizes(law: Law, config: Config) -> bool:
    """Tell whether a law looks at derived sizes of a configuration at all: it does if it fails once these are hidden."""
    if law.check_config is None:
        return False
    try:
        law.check_config(with_geometry(config, Geometry()))
    except NotShown:
        return True
    return False


def checked(config: Config, geometry: Geometry) -> Geometry:
    """Return a geometry that is made of numbers, one per group where there is one per group. Raises AdapterError."""
    for name in ("sizes", "row_capacity", "offload_tokens_per_block"):
        value: object = getattr(geometry, name)
        if value is None:
            continue
        if not isinstance(value, tuple) or not all(isinstance(one, int) for one in value) or len(value) != len(config.groups):
            raise AdapterError(
                f"geometry.{name} is {value!r}: a tuple of {len(config.groups)} numbers is needed, one per group"
            )
    block = geometry.scheduler_block_size
    if block is not None and (not isinstance(block, int) or block < 1):
        raise AdapterError(f"geometry.scheduler_block_size is {block!r}: a positive number is needed")
    for name in ("fine_grained", "divergent_hits"):
        if getattr(geometry, name) not in (None, True, False):
            raise AdapterError(f"geometry.{name} is {getattr(geometry, name)!r}: True or False is needed")
    return geometry


def offloaded(config: Config, geometry: Geometry) -> list[Evidence] | None:
    """DS-1, DS-6: one block of an offloading connector stands for the tokens that a block of its group spans."""
    shown = geometry.offload_tokens_per_block
    if shown is None:
        return None
    spans = naive_hits.facts(config).spans
    if tuple(shown) == spans:
        return []
    return [Evidence.of("an offloading connector counts other tokens in a block", expected=spans, actual=tuple(shown))]


def spanned(config: Config, geometry: Geometry) -> list[Evidence] | None:
    """DS-1: an entry of a group's table spans its block, times the ranks if it is spread over them."""
    shown = geometry.sizes
    if shown is None:
        return None
    spans = naive_hits.facts(config).spans
    if tuple(shown) == spans:
        return []
    return [Evidence.of("a table entry spans other tokens than block and ranks give", expected=spans, actual=tuple(shown))]


def permitted(config: Config, geometry: Geometry) -> list[Evidence] | None:
    """CA-1: the connectors together claim to use a divergent hit only if they can."""
    if geometry.divergent_hits is None:
        return None
    if not geometry.divergent_hits or capability.can_diverge(config):
        return []
    return [Evidence.of("connectors claim a divergent hit that they cannot use", connectors=config.connectors)]


def all_children(config: Config, geometry: Geometry) -> list[Evidence] | None:
    """CA-2: the connectors together can use a divergent hit iff there is one and each of them can."""
    if geometry.divergent_hits is None:
        return None
    expected = capability.can_diverge(config)
    if geometry.divergent_hits == expected:
        return []
    return [
        Evidence.of(
            "what the connectors can do together is not what every one of them can do",
            connectors=config.connectors,
            expected=expected,
            actual=geometry.divergent_hits,
        )
    ]


MORE = (("DS-1", spanned), ("DS-1", offloaded), ("DS-6", offloaded), ("CA-1", permitted), ("CA-2", all_children))
"""Laws that have more to say about the sizes than a configuration of the model holds."""
