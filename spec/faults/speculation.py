"""Faults in drafts, speculative state blocks and internal checkpoints (semantics T16.7, T21.4, T36.5, T38, 3.6)."""

from __future__ import annotations

from kvproof.core import allocation, outputs, prefixes, worker
from kvproof.core.allocation import Wanted
from kvproof.core.config import Config
from kvproof.core.kinds import recurrent
from kvproof.core.kinds.base import Admission
from kvproof.core.pool import Pool
from kvproof.core.work import Work
from kvproof.core.world import GroupState, Request, Scheduled, Worker, World
from kvproof.spec.faults.base import Fault

_relocated_columns = recurrent.relocated_columns
_reservation = recurrent.reservation


def _drafts_are_known(world: World, request: Request, wanted: Wanted) -> list[int]:
    # Behind a token that is still to come they have no node that could be registered.
    drafts = () if request.placeholders else wanted.drafts
    table, tip = prefixes.extend(world.prefixes, request.tip, drafts)
    return prefixes.boundary_nodes(table, tip, world.config.hash_block_size)


def _drafts_are_counted(request: Request, wanted: Wanted) -> int:
    return min(wanted.main, request.num_tokens + len(wanted.drafts))


def _rejected_stay_computed(request: Request, rejected: int) -> Request:
    del rejected
    return request


def _one_token_kept(rows: Worker, row: int, kept: int) -> Worker:
    del row, kept
    return rows


def _column_kept(table: tuple[int, ...], column: int) -> tuple[int, ...]:
    return (*table, table[column])


def _running_state_too(length: int, spare: int, stop: int) -> range:
    """Count the running state among the blocks that a step leaves behind."""
    moved = _relocated_columns(length, spare, stop)
    first = length - spare - 1
    return range(first, moved.stop) if spare and 0 <= first < stop else moved


def _unchecked(pool: Pool, group: int, block: int) -> None:
    del pool, group, block


def _not_exported(config: Config, group: int, entry: Scheduled) -> tuple[int, int] | None:
    del config, group, entry
    return None


def _in_the_running_column(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[int, int]:
    position, column = _reservation(work, group, state, wanted)
    return (position, column) if (position, column) == recurrent.NO_CHECKPOINT else (position, column + 1)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-SPEC-1",
        "the caching call counts the drafts of the chunk",
        "src",
        ("HB-2", "HB-14"),
        (
            (allocation, "registrable_nodes", _drafts_are_known),
            (allocation, "registrable_tokens", _drafts_are_counted),
        ),
        scopes=("fa4-m4+1", "fa2-w2-n2-eagle"),
    ),
    Fault(
        "M-SPEC-2",
        "rejected drafts stay counted as computed",
        "src",
        ("RQ-3",),
        ((outputs, "take_back", _rejected_stay_computed),),
        scopes=("fa2-m2+3-draft3", "fa2-n4-eagle-async"),
    ),
    Fault(
        "M-SPEC-3",
        "after accepted drafts the running state is read where a step without drafts leaves it",
        "src",
        ("CC-2", "RQ-3"),
        ((worker, "keep", _one_token_kept),),
        scopes=("fa4-m4+1", "fa2-m2+3-draft3"),
    ),
    Fault(
        "M-MAM-3",
        "a speculative block that moves to the end of the table stays in its old column as well",
        "src",
        ("TB-8",),
        ((recurrent, "moved_to_end", _column_kept),),
        scopes=("fa2-m2+3-draft3", "m2-m4-fa2-n2-ckpt"),
    ),
    Fault(
        "M-MAM-4",
        "the running state is moved with the speculative blocks, and nobody checks whether it is shared or published",
        "src",
        ("TB-10",),
        ((recurrent, "relocated_columns", _running_state_too), (recurrent, "check_writable", _unchecked)),
        scopes=("fa4-m4+1", "fa2-m2+3-draft3"),
    ),
    Fault(
        "M-MAM-7",
        "the worker exports no internal checkpoint, and the block reserved for it is registered all the same",
        "src",
        ("CC-3", "CC-2"),
        ((worker, "checkpoint", _not_exported),),
        scopes=("fa8-m8-h2-eagle-ckpt", "m2-m4-fa2-n2-ckpt"),
    ),
    Fault(
        "M-CKPT-1",
        "the column of the running state is reserved for the internal checkpoint",
        "src",
        ("CC-3",),
        ((recurrent, "reservation", _in_the_running_column),),
        scopes=("fa8-m8-h2-eagle-ckpt", "m2-m4-fa2-n2-ckpt"),
    ),
)
