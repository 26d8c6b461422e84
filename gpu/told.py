"""What the tensor layer is told of an action, beside the action itself: decisions of a scheduler, and nothing of the state.

A worker and a block pool get these from a scheduler as well: whether a request was admitted, which blocks a step stores. What a
lookup finds, tables, taken blocks, counts, queues, keys, events of transfers and bytes are not among them.
"""

from __future__ import annotations

from attrs import frozen

from kvproof.core import actions as act
from kvproof.core import prefixes, recovery
from kvproof.spec.laws.base import Moment


@frozen(slots=True)
class Told:
    """Fields that an action does not need keep their empty value.

    ``gated``: the admission gate refused before any window was nulled (T16.2), which a record does not tell apart.
    ``store_device`` are the device blocks that a scheduler chose to store (T24 to T27, T33), those queued before included.
    ``evicted`` and ``evicted_host`` are the blocks that a failed load takes the keys of (C-48).
    """

    admitted: bool = False
    gated: bool = False
    store_device: tuple[int, ...] = ()
    evicted: tuple[int, ...] = ()
    evicted_host: tuple[int, ...] = ()


def of(moment: Moment) -> Told:
    """Return what the tensor layer is told of an action that the model performed."""
    record, action = moment.record, moment.action
    assert record is not None, "an action that is refused is not told to anybody"
    if isinstance(action, act.Output) and action.failed:
        return Told(evicted=stripped(moment, host=False), evicted_host=stripped(moment, host=True))
    return Told(
        admitted=bool(record.admitted),
        gated=record.admitted is False and isinstance(action, act.Allocate) and action.full_sequence and not nulled(moment),
        store_device=record.store_device,
    )


def nulled(moment: Moment) -> bool:
    """Tell whether an allocation that was refused has nulled a window before (T16.3)."""
    return moment.before.requests != moment.after.requests


def stripped(moment: Moment, host: bool) -> tuple[int, ...]:
    """Return the blocks of a tier that lose their keys because a load failed: what the scheduler tells the pool to evict."""
    action, before = moment.action, moment.before
    assert isinstance(action, act.Output), "only an output reports a failed load"
    pool = before.pool if not host else None if before.host is None else before.host.pool
    if pool is None:
        return ()
    share = next(entry for entry in before.steps[0].scheduled if entry.request == action.request)
    missing = prefixes.ancestor(before.prefixes, share.tip, action.valid + 1)
    gone = [entry for entry in pool.entries if recovery.goes_on(before.prefixes, entry[0], missing)]
    return tuple(dict.fromkeys(entry[3] for entry in gone))
