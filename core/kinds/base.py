"""What a group kind must state and be able to do; one module per kind implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from attrs import frozen

if TYPE_CHECKING:
    from kvproof.core.config import Config
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
    """Every past token is read; hits are prefix-closed."""
    recurrent: bool
    """A block holds one recurrent state."""
    may_be_sharded: bool
    sharded_by_default: bool


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

    def row_width(self, block_size: int, sharded: bool, dcp_size: int, max_model_len: int) -> int:
        """Return the entries of a worker row (2.5)."""
        ...

    def find_hit(
        self, config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int
    ) -> tuple[int, tuple[tuple[int, ...], ...]]:
        """Return a class's hit in tokens and its block list per member group (T11)."""
        ...

    def skipped_tokens(self, computed: int) -> int:
        """Return how many leading tokens need no blocks at ``computed`` tokens (2.8)."""
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
        """Register keys for ``tokens`` cacheable tokens (T9, T10)."""
        ...
