"""What a scope of exploration is: a configuration, and the bounds that make its graph finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from kvproof.core import config as configs
from kvproof.core.config import Config, Group
from kvproof.spec.exits import UserError
from kvproof.spec.exploring.bounds import Bounds

WIDER = "widen alphabet, or use fewer letters"


class ScopeError(UserError):
    """A scope in which nothing can be explored; the message says what to change."""


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

    def check(self) -> None:
        """Refuse bounds under which nothing happens, or that the configuration does not allow. Raises ScopeError."""
        config, bounds = self.config(), self.bounds
        longest = max((len(shape) for shape in bounds.prompts), default=0)
        most = config.max_model_len - 1
        letters = max((len(set(shape)) for shape in bounds.prompts), default=0)
        wrong = (
            (not longest, "has no prompt: name shapes, such as prompts=('aab',)"),
            (min(bounds.submits, bounds.live) < 1, "submits nothing: submits and live must be 1 or more"),
            (longest > most, f"has a prompt of {longest} tokens, and max_model_len = {config.max_model_len} allows {most}"),
            (
                letters > len(bounds.alphabet),
                f"has a prompt of {letters} letters and {len(bounds.alphabet)} tokens for them: {WIDER}",
            ),
            (not bounds.contexts, "has no context: contexts=(0,) is the usual one"),
        )
        for so, what in wrong:
            if so:
                raise ScopeError(f"scope {self.name} {what}")
