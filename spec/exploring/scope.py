"""What a scope of exploration is: a configuration, and the bounds that make its graph finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from kvproof.core import config as configs
from kvproof.core.config import Config, Group
from kvproof.spec.exploring.bounds import Bounds


@frozen(slots=True)
class Scope:
    """A configuration to explore and the bounds that make its graph finite. ``quick``: part of a quick exploration."""

    name: str
    groups: tuple[Group, ...]
    bounds: Bounds
    settings: Mapping[str, Any] = field(factory=dict)
    quick: bool = False

    def config(self) -> Config:
        """Resolve the configuration. Raises ConfigError (only under a planted fault)."""
        return configs.configure(self.groups, **self.settings)

    def leaves_out(self) -> tuple[str, ...]:
        """Say what no run of the scope does although its configuration allows it."""
        return self.bounds.leaves_out(self.config())
