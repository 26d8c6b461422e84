"""What connectors can do with a divergent hit, by name (T13, vllm#50344). A configuration holds the answers only.

Whether a connector can is a statement of its own: nobody can for whom it was not said.
"""

from __future__ import annotations

from attrs import frozen

from kvproof.core import lookup

MULTI, MORIIO = "MultiConnector", "MoRIIOConnector"
NIXL = ("NixlConnector", "NixlPullConnector", "NixlPushConnector")


@frozen(slots=True)
class Connector:
    """A connector: its name, for MoRIIO whether it reads and moves recurrent states, for a MultiConnector its children."""

    name: str
    reads: bool = False
    moves_states: bool = False
    children: tuple[Connector, ...] = ()


def supports_divergent_hits(connector: Connector) -> bool:
    """Return ``supports_divergent_local_hybrid_hits`` of a connector (T13, CA-2): no by default.

    NIXL can; MoRIIO only where it reads and moves recurrent states; several together only if there are some and all can.
    """
    if connector.name == MULTI:
        return lookup.supports_divergence(flags(connector.children))
    if connector.name == MORIIO:
        return connector.reads and connector.moves_states
    return connector.name in NIXL


def flags(connectors: tuple[Connector, ...]) -> tuple[bool, ...]:
    """Return the capabilities of connectors, for ``Config.connectors``."""
    return tuple(supports_divergent_hits(connector) for connector in connectors)
