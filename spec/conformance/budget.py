"""How much is tried on an adapter: walks, actions per walk, and what may be spent on shorter counterexamples."""

from __future__ import annotations

from attrs import frozen

from kvproof.core.config import Config

WALKS = 3
STEPS = 250
HOST_STEPS = 500
"""With a host tier it takes longer until something was stored, lost on the device and asked for again."""
SHRINK_RUNS = 500
"""Candidates that are tried to shorten one counterexample."""
SHRINK_ACTIONS = 40_000
"""Actions that all candidates for one counterexample may take."""
SHRINK_ALL = 120_000
"""Actions that the candidates for all counterexamples of a report may take: each law gets the same share."""


@frozen(slots=True)
class Budget:
    """How much is tried; None: the usual. ``walks`` per scope, ``steps``: actions per walk."""

    walks: int | None = None
    steps: int | None = None
    shrink_runs: int = SHRINK_RUNS
    shrink_actions: int = SHRINK_ACTIONS
    shrink_all: int = SHRINK_ALL

    def of(self, config: Config) -> tuple[int, int]:
        """Return walks and actions per walk in a scope."""
        usual = STEPS if config.offload is None else HOST_STEPS
        return (WALKS if self.walks is None else self.walks), (usual if self.steps is None else self.steps)

    def share(self, laws: int) -> int:
        """Return the actions that may be spent on shortening one of so many counterexamples."""
        return min(self.shrink_actions, self.shrink_all // max(laws, 1))
