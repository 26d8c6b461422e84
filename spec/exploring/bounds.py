"""What bounds a scope so that its graph is finite, and what is left of these bounds along a run.

A run may submit so many requests, sample so many tokens, and disturb so often; everything else is bounded by the sizes of the
configuration. What a scope leaves out is said from its bounds, so that it is always true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Literal

from attrs import evolve, field, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.spec.engines import amounts
from kvproof.spec.engines.amounts import Limits

Budget = tuple[int, ...]
"""What is left: tokens to sample, then of every bounded kind of action in the order of ``Bounds.counted``."""

DISTURBANCES: tuple[type[Action], ...] = (
    act.Preempt,
    act.Withdraw,
    act.EvictBlocks,
    act.ResetCache,
    act.ResetHost,
    act.ReadCounters,
    act.AppendRows,
)
"""Actions that interrupt a run; each is left out unless the bounds name it."""


@frozen(slots=True)
class Bounds:
    """The bounds of a scope.

    ``prompts`` are shapes: a prompt is a shape with distinct tokens of ``alphabet`` for its distinct letters, each way, so that
    renaming tokens changes nothing. ``submits`` bounds the requests of a run, ``live`` those alive at once, ``outputs`` the
    sampled tokens of a run. ``at_most`` bounds other kinds of action, None lets one happen as often as may be; disturbances
    that it does not name are left out, and what carries a step on is unbounded unless named. ``chunks``: every amount that a
    boundary makes interesting, or all that is left only. ``execution``: the parts of a step and the copies of the tier may run
    at any moment, or a step runs to its end once it began, and nothing runs while a plan is open. ``failures``: what a
    connector or a load brings may not arrive. ``strays``: workers may report stores that nobody knows (CP-11). ``starts``: a
    host tier is asked behind every start that a boundary makes interesting, or behind the local hit alone, rounded down to a
    scheduler block (T14.1). ``stores``: a submitted store is copied and reported at any moment, or before anything else happens
    between plans. ``refusals``: what must be refused is tried in every world, too. ``depth`` bounds the actions of a run where
    the graph is too large.
    """

    prompts: tuple[str, ...]
    submits: int = 2
    outputs: int = 1
    alphabet: tuple[int, ...] = (0, 1)
    contexts: tuple[int, ...] = (0,)
    live: int = 2
    at_most: Mapping[type[Action], int | None] = field(factory=dict)
    chunks: Literal["every", "whole"] = "whole"
    execution: Literal["any", "whole"] = "whole"
    skip_reading: bool = False
    failures: bool = False
    strays: bool = False
    refusals: bool = False
    external: bool = True
    starts: Literal["every", "behind"] = "every"
    stores: Literal["any", "prompt"] = "any"
    lookahead: tuple[int, ...] = (0,)
    gates: tuple[bool, ...] = (False,)
    reserved: tuple[int, ...] = (0,)
    depth: int | None = None

    @property
    def counted(self) -> tuple[type[Action], ...]:
        """The kinds of action that a run may do only so often, submissions first."""
        counts = (kind for kind, count in self.at_most.items() if count is not None)
        return (act.Submit, *sorted(counts, key=lambda kind: kind.__name__))

    def start(self) -> Budget:
        """Return everything that a run may spend."""
        return (self.outputs, self.submits, *(self.at_most[kind] or 0 for kind in self.counted[1:]))

    def left_out(self, kind: type[Action]) -> bool:
        """Tell whether no run does an action of this kind."""
        return kind in DISTURBANCES and self.at_most.get(kind, 0) == 0

    def limits(self, config: Config) -> Limits:
        """Return the bounds of generation that the lists of legal actions are asked with."""
        longest = max(len(shape) for shape in self.prompts)
        return evolve(
            amounts.limits_for(config),
            max_live=self.live,
            max_prompt=min(longest, config.max_model_len - 1),
            alphabet=self.alphabet,
            contexts=self.contexts,
            external=self.external and bool(config.connectors),
            lookahead=self.lookahead,
            gates=self.gates,
            reserved=self.reserved,
        )

    def submissions(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield every prompt with every context."""
        for shape in self.prompts:
            letters = sorted(set(shape))
            for tokens in permutations(self.alphabet, len(letters)):
                named = dict(zip(letters, tokens, strict=True))
                for context in self.contexts:
                    yield tuple(named[letter] for letter in shape), context

    def leaves_out(self) -> tuple[str, ...]:
        """Say what no run of the scope does."""
        found = [f"more than {self.submits} requests", f"more than {self.live} of them alive at once"]
        found.append(f"prompts other than {', '.join(self.prompts)} (letters are tokens)")
        found.append(f"more than {self.outputs} sampled tokens")
        never = {kind for kind, count in self.at_most.items() if count == 0}
        gone = [kind.__name__ for kind in dict.fromkeys((*DISTURBANCES, *never)) if kind in never or self.left_out(kind)]
        found += [f"any {name}" for name in gone]
        found += [f"more than {count} {kind.__name__}" for kind, count in self.at_most.items() if count]
        if self.chunks == "whole":
            found.append("chunks shorter than what a step may compute")
        if self.execution == "whole":
            found.append("anything between the parts of a step, and execution while a plan is open")
        if not self.failures:
            found.append("loads and connectors that fail")
        if not self.strays:
            found.append("reports of stores that nobody knows")
        if self.stores == "prompt":
            found.append("anything between the submission of a store and its reports, between plans")
        if self.starts == "behind":
            found.append("external lookups elsewhere than behind the local hit")
        if not self.skip_reading:
            found.append("requests that do not read the cache")
        if not self.refusals:
            found.append("attempts that must be refused")
        if self.depth is not None:
            found.append(f"runs of more than {self.depth} actions")
        return tuple(found)


def spend(bounds: Bounds, budget: Budget, action: Action) -> Budget | None:
    """Return what is left after an action, None if the bounds do not allow it any more."""
    if type(action) is act.Output:
        left = budget[0] - len(action.tokens)
        return None if left < 0 else (left, *budget[1:])
    for place, kind in enumerate(bounds.counted, 1):
        if type(action) is kind:
            if not budget[place]:
                return None
            return (*budget[:place], budget[place] - 1, *budget[place + 1 :])
    return None if bounds.left_out(type(action)) else budget
