"""Outputs with and without a cache, and on other numbers of ranks: the same prefix gives the same value (CC-7, CC-8).

What the tensors computed in a run, with hits, copies, loads and preemptions, is compared with what they compute when the same
tokens are run alone, without any cache and from the first token on.
"""

from __future__ import annotations

from attrs import frozen

from kvproof.core.actions import Action, Allocate, BeginStep, BuildMetadata, Dispatch, Drain, Execute, Lookup, Output, Submit
from kvproof.core.config import Config
from kvproof.gpu import differential
from kvproof.gpu.compare import Difference
from kvproof.gpu.differential import Differential
from kvproof.spec import ground
from kvproof.spec.laws import outputs as laws

MOST_PREFIXES = 6
"""So many prefixes of a run are computed again, the longest one and others evenly."""


@frozen(slots=True)
class Compared:
    """How many prefixes were computed again on how many ranks, and the first difference."""

    prefixes: int
    difference: Difference | None = None


def spelled(both: Differential, node: int) -> tuple[int, tuple[int, ...]]:
    """Return the context and the tokens of a prefix."""
    prefixes = both.model.prefixes
    path = ground.lineage(prefixes, node)
    return prefixes.token[path[0]], tuple(prefixes.token[at] for at in path[1:])


def alone(config: Config, context: int, tokens: tuple[int, ...], device: str) -> int | Difference | None:
    """Return the output behind these tokens when they are computed alone; None if the model refuses that.

    A difference between model and tensors on the way comes back in place of the output.
    """
    both, done = differential.begin(config, device), 0
    opening: tuple[Action, ...] = (Submit(0, tokens, context), BeginStep(), Lookup(0))
    for action in opening:
        both.act(action)
    while done < len(tokens):
        admitted = False
        for amount in range(len(tokens) - done, 0, -1):  # the largest chunk that is legal here (T22)
            record = both.act(Allocate(0, amount)).record
            admitted = record is not None and bool(record.admitted)
            if admitted:
                break
        if not admitted:
            return both.difference
        done = max(entry.start + entry.amount for entry in both.model.plan.scheduled)
        sampled = Output(0, (0,) if done == len(tokens) else ())
        parts: tuple[Action, ...] = tuple(Execute(part) for part in ground.parts(config))
        for action in (Drain(), BuildMetadata(), Dispatch(), *parts, sampled, BeginStep()):
            if both.act(action).refusal is not None or both.difference is not None:
                return both.difference
    return both.outputs[-1][2] if both.outputs else None


def compared(both: Differential, dcp_size: int, device: str) -> Compared:
    """Compute prefixes of a run again without a cache on ``dcp_size`` ranks, and compare outputs."""
    config = both.model.config
    plain = laws.uncached(config, dcp_size)
    values = {node: value for _, node, value in both.outputs}
    if plain is None or not values:
        return Compared(0)
    nodes = sorted(values, key=lambda node: (-both.model.prefixes.depth[node], node))
    part = "output" if dcp_size == config.dcp_size else "output on other ranks"
    count = 0
    for node in nodes[:: max(-(-len(nodes) // MOST_PREFIXES), 1)]:
        context, tokens = spelled(both, node)
        found = alone(plain, context, tokens, device)
        if isinstance(found, Difference):
            return Compared(count, found)
        if found is None:
            continue
        count += 1
        if found != values[node]:
            place = (("prefix", node), ("position", len(tokens) - 1), ("ranks", dcp_size))
            return Compared(count, Difference(part, found, values[node], place))
    return Compared(count)


def everywhere(both: Differential, device: str) -> Compared:
    """Compare the outputs of a run without a cache, on its own number of ranks and on another one (CC-7, CC-8)."""
    own = both.model.config.dcp_size
    here = compared(both, own, device)
    if here.difference is not None:
        return here
    there = compared(both, 2 if own == 1 else 1, device)
    return Compared(here.prefixes + there.prefixes, there.difference)
