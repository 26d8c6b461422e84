"""What bounds a scope so that its graph is finite, and what is left of these bounds along a run.

A run may submit so many requests, sample so many tokens, and disturb so often; everything else is bounded by the sizes of the
configuration. What a scope leaves out is said from its bounds, so that it is always true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

    def leaves_out(self, config: Config) -> tuple[str, ...]:
        """Say what no run does although the configuration allows it: by these bounds, and by the lists of actions."""
        found = [f"more than {self.submits} requests", f"more than {self.live} of them alive at once"]
        found.append(f"prompts other than {', '.join(self.prompts)} (letters are tokens)")
        found.append(f"more than {self.outputs} sampled tokens")
        found.append(f"tokens other than {listed(self.alphabet)}; contexts other than {listed(self.contexts)}")
        never = {kind for kind, count in self.at_most.items() if count == 0}
        gone = [kind.__name__ for kind in dict.fromkeys((*DISTURBANCES, *never)) if kind in never or self.left_out(kind)]
        found += [f"any {name}" for name in gone]
        found += [f"more than {count} {kind.__name__}" for kind, count in self.at_most.items() if count]
        said = (*self._amounts(config), *self._moments(), *self._examples(config))
        found += [text for applies, text in said if applies]
        if self.depth is not None:
            found.append(f"runs of more than {self.depth} actions")
        return tuple(found)

    def _amounts(self, config: Config) -> Iterator[tuple[bool, str]]:
        """Yield what the arguments of lookups and allocations leave out, each with whether it does."""
        whole = self.chunks == "whole"
        yield whole, "chunks shorter than what a step may compute"
        yield not whole, "chunks but whole ones, of one token, and of a unit (of a hash, a block or a window) or one token more"
        yield not self.external and bool(config.connectors), "tokens that a connector brings into an allocation (T14)"
        yield self.external and bool(config.connectors), "behind tokens that a connector brings, chunks but the two longest"
        yield True, f"slots ahead of an allocation other than {listed(self.lookahead)}"
        other = "do not ask" if self.gates[0] else "ask"
        yield len(self.gates) == 1, f"admissions that {other} for their full sequence first (T16.2)"
        yield True, f"blocks that an admission leaves free for others other than {listed(self.reserved)} (T16.4)"
        host = config.offload is not None
        yield host and self.starts == "behind", "external lookups elsewhere than behind the local hit"
        yield host, "loads of a part of a hit but the longest, the next shorter and the shortest one"

    def _moments(self) -> Iterator[tuple[bool, str]]:
        """Yield what may not happen at any moment, each with whether it is so."""
        yield self.execution == "whole", "anything between the parts of a step, and execution while a plan is open"
        yield not self.failures, "loads and connectors that fail"
        yield not self.strays, "reports of stores that nobody knows"
        yield self.stores == "prompt", "anything between the submission of a store and its reports, between plans"
        yield not self.skip_reading, "requests that do not read the cache"
        yield not self.refusals, "attempts that must be refused"

    def _examples(self, config: Config) -> Iterator[tuple[bool, str]]:
        """Yield of what the lists of actions have examples only, each with whether the scope does it at all."""
        yield self.refusals, "of what must be refused, all but an example of each kind"
        yield not self.left_out(act.EvictBlocks), "evictions of more than two blocks at once"
        rows = "appended rows but one block everywhere, up to two in one group, and full ones, in the last free row"
        yield not self.left_out(act.AppendRows), rows
        yield config.num_draft_tokens > 2, "drafts that are not of one token alone or of two in turn"
        yield self.failures and config.offload is not None, "failed loads with other amounts of valid tokens than examples"


def listed(values: Sequence[int]) -> str:
    """Return values in words."""
    return ", ".join(map(str, values))


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
