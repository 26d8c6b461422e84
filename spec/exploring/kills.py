"""The shortest counterexample to each fault: the scope where the explorer finds it, the law that it breaks, and its length.

The lengths are pinned: another one is a change of the model, of a law, of a fault or of the bounds of a scope. The tables stand
in ``kills_device`` and ``kills_host``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.spec import faults
from kvproof.spec import laws as all_laws
from kvproof.spec.exploring import kills_device, kills_host
from kvproof.spec.exploring.kill import Kill as Kill
from kvproof.spec.exploring.search import Options
from kvproof.spec.faults import Fault


def table() -> dict[str, Kill]:
    """Return the pinned kills by fault, in the order of the faults."""
    found = kills_device.KILLS | kills_host.KILLS
    return {fault.id: found[fault.id] for fault in faults.ALL if fault.id in found}


def unpinned() -> tuple[Fault, ...]:
    """Return the faults that no table names."""
    known = table()
    return tuple(fault for fault in faults.ALL if fault.id not in known)


def options(ids: Sequence[str], most_edges: int = 0) -> Options:
    """Return how the explorer looks for a fault by its laws: nothing else ends the search.

    Laws that look at whole runs alone are asked only where the fault has no other, and then about the run to every orbit, since
    none of its moments would show anything. So is a law that looks at moments and at whole runs (EV-3).
    """
    known = [law for law in all_laws.ALL if law.id in ids]
    judged = [law for law in known if law.check or law.check_config or law.check_end]
    by_run = not judged or any(law.check_run for law in judged)
    judged = judged or known
    return Options(laws=judged, only=tuple(law.id for law in judged), all_runs=by_run, most_edges=most_edges)
