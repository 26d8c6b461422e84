"""What a law is: one sentence with an id, and one function that judges a moment (architecture, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from attrs import field, frozen

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import Refusal
from kvproof.core.records import Record
from kvproof.core.world import World

if TYPE_CHECKING:
    from kvproof.spec.engines.drain import Drained
    from kvproof.spec.engines.players import Start

Mark = Literal["S", "C", "D"]


@frozen(slots=True)
class Moment:
    """One action judged: the world before it, what it answered, the world after it.

    Exactly one of ``record`` and ``refusal`` is set. After a refusal ``after`` is what the refusal left behind, which
    is ``before`` unless the engine staged part of the action.
    """

    before: World
    action: Action
    record: Record | None
    refusal: Refusal | None
    after: World


@frozen(slots=True)
class Evidence:
    """Why a law does not hold: a sentence with the two values that should agree, and the places involved."""

    message: str
    values: tuple[tuple[str, object], ...] = ()
    bendable: bool = True
    """Whether a profile field that bends the law may explain this; a crash is never explained."""
    permitted_by: str = ""
    """The free policy (``eviction_order``) under which this is no violation, if an implementation declares its own (PM-6)."""

    @classmethod
    def of(cls, message: str, **values: object) -> Evidence:
        """Build evidence from named values (block, request, group, expected, actual, ...)."""
        return cls(message, tuple(values.items()))


WRONG_CONTENT: tuple[tuple[str, str], ...] = (
    ("withdrawn_keys", "keep"),
    ("clip_stops", "clip_unit"),
    ("copy_source_guard", "recurrent"),
    ("checkpoint_column", "row"),
    ("padded_admission", "any"),
)
"""Profile fields under which a key may name what was never written, or another state: what is read or copied is wrong then."""

Findings = Sequence[Evidence] | None
"""None: the premise was not true here. Empty: judged, and the law holds. Otherwise: the evidence against it."""


class RunCheck(Protocol):
    """Judges a whole run. ``start`` begins a run of who is judged, so that the law may perform actions anew."""

    def __call__(self, config: Config, actions: Sequence[Action], start: Start = ...) -> Findings:
        """Return the evidence against the law, by default of a run of the model."""


@frozen(slots=True)
class Law:
    """A law. ``on`` names the action types after which it is judged; empty means after every action.

    ``check`` judges a moment, ``check_config`` a configuration alone, ``check_run`` a whole run, for which the law may run its
    actions again, and ``check_end`` what becomes of the world at the end of a run under fairness (5.13). ``faults`` are the
    fault ids that it must kill; ``later`` says that all of them come with a later part of the project (not yet shown to bite).
    """

    id: str
    mark: Mark
    sentence: str
    source: str
    faults: tuple[str, ...]
    on: tuple[type[Action], ...] = ()
    check: Callable[[Moment], Findings] | None = None
    check_config: Callable[[Config], Findings] | None = None
    check_run: RunCheck | None = field(default=None)
    check_end: Callable[[Drained], Findings] | None = None
    bent_by: tuple[tuple[str, str], ...] = ()
    """Profile fields and values under which a violation is reported as bent, not refuted (3.1)."""
    later: bool = False
