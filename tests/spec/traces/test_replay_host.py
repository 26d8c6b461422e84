"""Recordings with a host tier: every part of what is recorded of it is compared, and what is bridged is bridged as declared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproof.core import actions as act
from kvproof.spec.traces import archive, declared, replay
from tests.spec.traces.test_replay import change, from_lines, lines_of, upto

Tamper = Callable[[dict[str, Any]], None]


def swap(*path: Any) -> Tamper:
    """Swap the first two entries of a list in a line."""

    def apply(line: dict[str, Any]) -> None:
        at: Any = line
        for key in path:
            at = at[key]
        assert at[0] != at[1]
        at[0], at[1] = at[1], at[0]

    return apply


def drop(*path: Any) -> Tamper:
    """Remove one entry from an object or a list in a line."""

    def apply(line: dict[str, Any]) -> None:
        at: Any = line
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]

    return apply


# Recording, operation -> the field that differs, and the change of what was recorded there.
TAMPERINGS: list[tuple[str, int, str, Tamper]] = [
    # stores, handoffs, acknowledgements, the finish flush
    ("d_two_workers", 4, "external", change("result", "external", to=16)),
    ("d_two_workers", 4, "asynchronous", change("result", "async", to=True)),
    ("d_two_workers", 5, "transfers", change("delta", "transfers", "cursors", "A", to=[1, 0])),
    ("d_two_workers", 6, "store", change("result", "store", "event", to=1)),
    ("d_two_workers", 6, "store", change("result", "store", "device", to=[2])),
    ("d_two_workers", 6, "store", change("result", "store", "host", to=[2])),
    ("d_two_workers", 6, "store", change("result", "store", "meta", to=[0])),
    ("d_two_workers", 6, "store", change("result", "store", to=None)),
    ("d_two_workers", 6, "flush", change("result", "flush", to=True)),
    ("d_two_workers", 6, "in_flight", change("delta", "in_flight", to=[2])),
    ("d_two_workers", 6, "counters", change("delta", "counters", "stored", to=0)),
    ("d_two_workers", 6, "host", swap("delta", "host", "free")),
    ("d_two_workers", 6, "host", change("delta", "host", "ref", "1", to=2)),
    ("d_two_workers", 6, "transfers", change("delta", "transfers", "stores", "0", "host", to=[2])),
    ("d_two_workers", 11, "blocks", change("result", "blocks", to=[[1, 2], [0, 0, 3, 4]])),
    ("d_two_workers", 11, "deferred", change("result", "deferred", to=True)),
    ("d_two_workers", 11, "transfers", change("delta", "transfers", "finish_queue", 0, "device", to=[1])),
    ("d_two_workers", 14, "done", change("result", "done", to=True)),
    ("d_two_workers", 14, "transfers", change("delta", "transfers", "acks", "0", to=2)),
    ("d_two_workers", 15, "host", change("delta", "host", "keys", 0, 2, to=32)),
    ("d_two_workers", 15, "refusal", change("args", "acks", to=0)),
    ("d_two_workers", 17, "transfers", change("delta", "transfers", "cursors", to={"A": [1, 0]})),
    # loads, and a finish while one runs
    ("d_finish_while_loading", 21, "external", change("result", "external", to=32)),
    ("d_finish_while_loading", 21, "transfers", change("delta", "transfers", "pending_hits", "B", "length", to=32)),
    ("d_finish_while_loading", 21, "transfers", change("delta", "transfers", "pending_hits", "B", "blocks", 0, to=[3, 2])),
    ("d_finish_while_loading", 22, "refusal", change("args", "external", to=32)),
    ("d_finish_while_loading", 22, "external_blocks", change("result", "external_blocks", to=[[5, 4], [6]])),
    ("d_finish_while_loading", 22, "transfers", change("delta", "transfers", "loads", "B", "host", to=[3, 2, 1])),
    ("d_finish_while_loading", 22, "requests.B", change("delta", "requests", "B", "status", to="running")),
    ("d_finish_while_loading", 23, "zeroed", change("result", "zeroed", to=[5, 4])),
    ("d_finish_while_loading", 23, "zeroed", change("result", "zeroed", to=[])),
    ("d_finish_while_loading", 23, "load", change("result", "load", "requests", to=["A"])),
    ("d_finish_while_loading", 23, "load", change("result", "load", "host", to=[3, 2, 1])),
    ("d_finish_while_loading", 23, "load", change("result", "load", "event", to=1)),
    ("d_finish_while_loading", 24, "requests.B", change("delta", "requests", "B", "status", to="loading")),
    ("d_finish_while_loading", 24, "requests.B", change("delta", "requests", "B", "tables", to=[[4], [0, 0, 6]])),
    ("d_finish_while_loading", 24, "requests", change("delta", "requests", "B", to=None)),
    ("d_finish_while_loading", 24, "transfers", change("delta", "transfers", "loads", "B", "finished", to=False)),
    ("d_finish_while_loading", 27, "freed", change("result", "freed", to=False)),
    # a reset with stores running
    ("d_host_reset", 11, "host", change("result", "host", to=True)),
    ("d_host_reset", 11, "transfers", change("delta", "transfers", "abandoned_stores", "0", "host", to=[2])),
    ("d_host_reset", 11, "in_flight", change("delta", "in_flight", to=[3])),
    ("d_host_reset", 12, "host", change("delta", "host", "free", 0, to=4)),
    # promotion, the lazy cursor, events
    ("d_lazy", 6, "transfers", change("delta", "transfers", "lazy_cursor", to=None)),
    ("d_lazy", 13, "store", change("result", "store", "device", to=[2, 3, 1, 5])),
    ("d_lazy", 26, "computed", change("result", "computed", to=63)),
    ("d_retention_0", 6, "events", change("result", "events", 0, "keys", to=[[16, "4c43b48b7442"]])),
    ("d_retention_0", 6, "events", change("result", "events", 0, "tokens_id", to="000000000000")),
    ("d_retention_0", 6, "events", change("result", "events", 0, "num_tokens", to=16)),
    ("d_retention_0", 6, "events", change("result", "events", 0, "block_size", to=16)),
    ("d_retention_0", 6, "events", change("result", "events", 0, "tier", to="host")),
    ("d_retention_0", 6, "events", change("result", "events", 1, "tokens_id", to="000000000000")),
    ("d_retention_0", 6, "events", drop("result", "events", 0)),
    ("d_retention_0", 9, "events", change("result", "events", 0, "parent", to=None)),
]


@pytest.mark.parametrize(("name", "at", "what", "tamper"), TAMPERINGS)
def test_one_changed_value_is_found_where_it_stands(name: str, at: int, what: str, tamper: Tamper) -> None:
    """The clean recording diverges nowhere, the tampered one at the changed operation and in the changed field."""
    lines = lines_of(name)
    assert replay.replay(upto(from_lines(lines), at)).divergence is None
    assert lines[at + 1]["i"] == at
    tamper(lines[at + 1])
    found = replay.replay(upto(from_lines(lines), at)).divergence
    assert found is not None
    assert (found.operation, found.what) == (at, what)


def test_the_header_of_the_host_is_checked() -> None:
    """Fine-grained host hits are resolved, not believed: eager mode has them where the device has, lazy mode never."""
    for name in ("d_two_workers", "d_lazy"):
        lines = lines_of(name)
        recorded = lines[0]["config"]["host"]["fine_grained_hits"]
        lines[0]["config"]["host"]["fine_grained_hits"] = not recorded
        found = replay.replay(from_lines(lines)).divergence
        assert found is not None
        assert (found.operation, found.what, found.expected) == (-1, "host.fine_grained_hits", recorded)


def test_copies_run_as_late_as_they_may() -> None:
    """Bytes move directly before the last acknowledgement, or the report of a load: what is keyed then must be in them."""
    outcome = replay.replay(archive.open_recording("d_two_workers"))
    kinds = [action for action in outcome.actions if isinstance(action, act.RunStore | act.CompleteStore)]
    assert kinds[:3] == [act.CompleteStore(0, 1), act.RunStore(0), act.CompleteStore(0, 1)]
    assert outcome.declared[declared.COPIES] == 3
    outcome = replay.replay(archive.open_recording("d_finish_while_loading"))
    at = outcome.actions.index(act.CompleteLoad(1))
    assert outcome.actions[at - 1] == act.RunLoad(0)


def test_declared_differences_are_counted_with_a_reason() -> None:
    """Two blocks of a load stand on the recorded zero list; every name that is counted has a reason."""
    outcome = replay.replay(archive.open_recording("d_finish_while_loading"))
    assert outcome.declared[declared.ZEROED] == 2
    assert set(outcome.declared) <= set(declared.DECLARED)
    assert all(declared.DECLARED.values())


def test_the_documentation_lists_every_declared_difference() -> None:
    """docs/replay.md has one row per name."""
    text = (Path(__file__).resolve().parents[3] / "docs/replay.md").read_text(encoding="utf-8")
    for name in declared.DECLARED:
        assert f"\n| `{name}` |" in text
