"""What a group kind must state and be able to do; one module per kind implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from attrs import frozen

if TYPE_CHECKING:
    from kvproof.core.config import Config, Group
    from kvproof.core.pool import Pool
    from kvproof.core.work import Work
    from kvproof.core.world import GroupState


@frozen(slots=True, kw_only=True)
class Capabilities:
    """The capabilities of a kind; there are no defaults, so a kind that forgets one fails when it is defined (1.2)."""

    positionally_stable: bool
    """A scanned table index never later denotes another token range."""
    fine_grained_lookup: bool
    """A lookup can end inside a block."""
    prefix_closed: bool
    """Every past token is read; hits are prefix-closed and can be shortened."""
    positions: bool
    """A block holds keys and values of token positions, one cell each."""
    recurrent: bool
    """A block holds one recurrent state."""
    snapshots: bool
    """States are kept only where prefill chunks end (Mamba align): chunks are clipped, boundaries handed off."""
    windowed: bool
    """The kind needs a window: W of a sliding window, C of chunked local attention, in tokens."""
    cacheable: bool
    """The group takes part in prefix caching."""
    sharded_by_default: bool
    may_be_sharded: bool
    """Decode context parallelism may split the group's positions over its ranks (2.1)."""
    several_ranks: bool
    """The kind works on more than one DCP rank, sharded or replicated (2.1)."""


class Admission(Protocol):
    """What the demand of a group is computed from (T17); token counts in tokens."""

    @property
    def first(self) -> bool:
        """Whether the request has no tables yet."""
        ...

    @property
    def local(self) -> int:
        """Tokens computed or adopted locally."""
        ...

    @property
    def external(self) -> int:
        """Tokens supplied by a connector."""
        ...

    @property
    def slots(self) -> int:
        """Slots wanted in attention groups, lookahead included."""
        ...

    @property
    def main(self) -> int:
        """Tokens known to be computed, the recurrent groups' target."""
        ...

    @property
    def settled(self) -> int:
        """What is left of ``main`` if every draft in flight is rejected."""
        ...

    @property
    def whole(self) -> bool:
        """Whether the admission gate asks for the whole sequence, for which the caps hold (T16.2)."""
        ...


class InStep(Protocol):
    """What the open plan will do, asked by the demand of an admission (T17, COW-4)."""

    def registered(self, node: int, group: int) -> bool:
        """Tell whether a recurrent group registered this key since the step began: its state is not computed yet."""
        ...

    def unwritten(self, group: int, index: int, block: int, boundary: int) -> bool:
        """Tell whether bytes below ``boundary`` of a block at a table index are still to be written by the open plan."""
        ...


class Kind(Protocol):
    """The functions of a kind module; the module itself is the implementation, so that a name can be rebound."""

    CAPABILITIES: Capabilities

    def row_width(self, spec: Group, dcp_size: int, max_model_len: int) -> int:
        """Return the entries of a worker row (2.5)."""
        ...

    def find_hit(
        self, config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
    ) -> tuple[int, tuple[tuple[int, ...], ...]]:
        """Return a class's hit in tokens and its block list per member group; ``drop``: give up one EAGLE unit (T11, T35)."""
        ...

    def skipped_tokens(self, spec: Group, computed: int) -> int:
        """Return how many leading tokens need no blocks at ``computed`` tokens (2.8)."""
        ...

    def admission_cap(self, spec: Group, in_flight: int, max_model_len: int) -> int | None:
        """Return the most blocks the admission gate counts for a whole sequence, None without a cap (T16.2, 2.8)."""
        ...

    def null_skipped(self, work: Work, group: int, state: GroupState, processed: int) -> GroupState:
        """Null and free what is no longer read at ``processed`` tokens (T16.3)."""
        ...

    def demand(
        self,
        work: Work,
        group: int,
        state: GroupState,
        adopted: tuple[int, ...],
        wanted: Admission,
        step: InStep,
    ) -> int:
        """Return the blocks this group will take or pull from the free queue (T17)."""
        ...

    def grow(self, work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[GroupState, tuple[int, ...]]:
        """Append blocks and redirect copy-on-write (T19, T21); return the state and the reported new entries."""
        ...

    def register(self, work: Work, group: int, state: GroupState, tokens: int) -> GroupState:
        """Register keys for ``tokens`` cacheable tokens (T7, T9, T10)."""
        ...


FUNCTIONS: tuple[str, ...] = (
    "row_width",
    "find_hit",
    "skipped_tokens",
    "admission_cap",
    "null_skipped",
    "demand",
    "grow",
    "register",
)
"""What :class:`Kind` asks of a module besides its capabilities."""
