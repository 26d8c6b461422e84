"""Typed refusals: one exception class per guard of the semantics (rule of section 4: a distinct type per guard).

A refused action leaves the world unchanged. The single exception is the row guard under the profile value
``append_guard = per_group`` (semantics 3.1): there the refusal carries the world that the engine leaves behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from kvproof.core.world import World


class KvproofError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(KvproofError):
    """The configuration is not legal; the message says which rule it breaks and what to change."""


class Refusal(KvproofError):
    """An action was refused.

    ``code`` names the guard, ``values`` holds the numbers involved (JSON-ready), ``world`` is the world left behind
    where that is not the unchanged one (only the row guard of a profile that stages group by group).
    """

    code: ClassVar[str] = "refused"

    def __init__(self, message: str, *, world: World | None = None, **values: object) -> None:
        super().__init__(message)
        self.message = message
        self.values = values
        self.world = world


class UnknownAction(Refusal):
    """The value is not an action of the alphabet."""

    code = "unknown-action"


class PhaseError(Refusal):
    """The action is out of the order of T0."""

    code = "phase"


class StepInFlight(Refusal):
    """A new plan would exceed the number of steps in flight: dispatched and not processed (T0)."""

    code = "step-in-flight"


class AdmissionAfterPreemption(Refusal):
    """Waiting requests are considered only in a plan that preempted nobody (T0 part 3)."""

    code = "admission-after-preemption"


class UnknownRequest(Refusal):
    """No live request has this id."""

    code = "unknown-request"


class DuplicateRequest(Refusal):
    """The id of a submitted request is already in use (T37)."""

    code = "duplicate-request"


class NegativeNumber(Refusal):
    """Request ids, contexts and tokens are not negative: -1 says that a worker row belongs to nobody (3.6)."""

    code = "negative-number"


class EmptyPrompt(Refusal):
    """A prompt needs at least one token and at most the model length minus one."""

    code = "prompt-length"


class StatusError(Refusal):
    """The request is not in a status in which the action is legal."""

    code = "status"


class AlreadyScheduled(Refusal):
    """The request already has an amount in the open plan."""

    code = "already-scheduled"


class NotScheduled(Refusal):
    """The request has no amount in the open plan, or no output is due for it."""

    code = "not-scheduled"


class NothingToAllocate(Refusal):
    """New, local and external tokens are all zero (T16), or an argument is negative."""

    code = "nothing-to-allocate"


class StaleOutput(Refusal):
    """A late output of the request is still to be delivered: resumed now, it could sample its position again (T37.1)."""

    code = "stale-output"


class VictimInFlight(Refusal):
    """Freeing is deferred and a step of the victim is in flight: its blocks would not be free in this plan (T31)."""

    code = "victim-in-flight"


class LookupMissing(Refusal):
    """A first allocation needs the lookup result of this request, made directly before it (T37)."""

    code = "lookup-missing"


class LookupMismatch(Refusal):
    """The local tokens are neither the hit nor its truncation to the scheduler block size (T14, T15)."""

    code = "lookup-mismatch"


class MisalignedExternal(Refusal):
    """External tokens start at a local prefix that is not a multiple of S, or are no multiple of A (T14, HB-8)."""

    code = "misaligned-external"


class ShortExternal(Refusal):
    """External tokens do not reach beyond the local tail that they would take the place of (T14.3)."""

    code = "short-external"


class HitTooLong(Refusal):
    """Local and external tokens leave nothing to compute for a model with a recurrent group (T14.5)."""

    code = "hit-too-long"


class DivergedHit(Refusal):
    """A divergent hit without external tokens has no recurrent state at its end: look it up anew (T14.4)."""

    code = "diverged-hit"


class BeyondKnownTokens(Refusal):
    """More tokens before the drafts are scheduled than are known, or owed by the outputs of steps in flight (T16, T36)."""

    code = "beyond-known-tokens"


class TooManyDrafts(Refusal):
    """More draft tokens than the configuration's drafter gives in one step (T36)."""

    code = "too-many-drafts"


class MisplacedDrafts(Refusal):
    """Drafts do not follow the last token before them, or follow none that this chunk computes (T36)."""

    code = "misplaced-drafts"


class BeyondModelLength(Refusal):
    """Drafts or tokens still to come would pass the model length."""

    code = "beyond-model-length"


class ChunkNotClipped(Refusal):
    """The chunk does not end where T22 lets a chunk end."""

    code = "chunk-not-clipped"


class TooManyRunning(Refusal):
    """All worker rows are taken."""

    code = "too-many-running"


class RowCapacityExceeded(Refusal):
    """An append would pass the end of a block-table row (2.5, TB-11)."""

    code = "row-capacity"


class RowInUse(Refusal):
    """Rows of scheduled requests are written by dispatch only."""

    code = "row-in-use"


class ExecutionOrder(Refusal):
    """The execute sub-phases of a step run once each, in the order of T0."""

    code = "execution-order"


class OutputPending(Refusal):
    """The step computes tokens that the output of an earlier step still has to bring (T36)."""

    code = "output-pending"


class OutputMismatch(Refusal):
    """The tokens do not fit the chunk: accepted drafts and one more at the end of the known tokens, none before it (T36)."""

    code = "output-mismatch"


class BlockOutOfRange(Refusal):
    """A block id is not one of the pool."""

    code = "block-out-of-range"


class PoolExhausted(Refusal):
    """More blocks are taken than are free (T1)."""

    code = "pool-exhausted"


class NoHostTier(Refusal):
    """An action of the host tier in a configuration without one (3.5)."""

    code = "no-host-tier"


class LoadMismatch(Refusal):
    """A load that does not fit the pinned external hit: none, another start, or another number of tokens (T29)."""

    code = "load-mismatch"


class LoadRunning(Refusal):
    """An action on a request whose load is not complete (T30, LD-7)."""

    code = "load-running"


class NothingLoaded(Refusal):
    """A load is reported or promoted that is not there or not copied yet (T30)."""

    code = "nothing-loaded"


class TransferOrder(Refusal):
    """A copy runs or a completion is reported out of order: before it was submitted, copied, or ahead of an older one (T0)."""

    code = "transfer-order"


class ContractBroken(Refusal):
    """An internal contract of the semantics does not hold (an assertion in section 4); never legal to reach."""

    code = "contract"


REFUSALS: tuple[type[Refusal], ...] = tuple(Refusal.__subclasses__())
