"""Model and tensors side by side over the same actions: the first difference ends a run and becomes a counterexample."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from attrs import define, field
from torch import Tensor

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import World
from kvproof.core.world import new_world as new_model
from kvproof.gpu import compare, rows, step, told
from kvproof.gpu.compare import Difference, Expected
from kvproof.gpu.pool import TensorError
from kvproof.gpu.world import TensorWorld, unreduced
from kvproof.gpu.world import new_world as new_tensors
from kvproof.spec import ground, judge
from kvproof.spec.laws.base import Moment

ROW_GUARD = "row-capacity"
"""The one refusal that tensors decide on as well: the guard of the worker's rows."""


@define(slots=True)
class Differential:
    """A run of both. ``difference`` is the first one, behind the last of ``actions``; nothing is to be performed behind it.

    ``actions`` are those that were performed, or that the model refused and the tensors performed. ``outputs`` are (position of
    the action, prefix node, value) of every output that the tensors computed. Both are compared after ``every`` so many
    actions: comparing waits for the device, so that transfers overlap with what follows only where it does not happen.
    Outputs are compared where every action is.
    """

    model: World
    tensors: TensorWorld
    expected: Expected
    actions: list[Action] = field(factory=list)
    difference: Difference | None = None
    outputs: list[tuple[int, int, int]] = field(factory=list)
    performed: int = 0
    every: int = 1

    def act(self, action: Action) -> Moment:
        """Perform one action on both and compare; the moment is the model's."""
        moment = judge.attempt(self.model, action)
        if moment.record is not None:
            self._performed(moment)
        elif moment.refusal is not None and moment.refusal.code == ROW_GUARD:
            self._refused(moment)
        if moment.record is not None or moment.after is not moment.before or self.difference is not None:
            self.actions.append(action)
        self.model = moment.after
        return moment

    def _performed(self, moment: Moment) -> None:
        """Perform what the model performed and compare the worlds, and the outputs of a forward."""
        self.performed += 1
        self.tensors.outputs.clear()
        try:
            step.perform(self.tensors, moment.action, told.of(moment))
        except (TensorError, IndexError, RuntimeError) as error:
            self.difference = Difference("performing", "done", str(error).splitlines()[0])
            return
        if self.performed % self.every == 0:
            self.difference = compare.first_difference(moment.after, self.tensors, self.expected)
        forward = isinstance(moment.action, act.Execute) and moment.action.part == "forward"
        if self.difference is None and self.every == 1 and forward:
            self.difference = self._sampled(moment)

    def compare(self) -> None:
        """Compare both as they stand, unless they differed before."""
        if self.difference is None:
            self.difference = compare.first_difference(self.model, self.tensors, self.expected)

    def _sampled(self, moment: Moment) -> Difference | None:
        """Compare the outputs of a forward with those of a run without any cache (CC-7)."""
        pending = ground.pending_step(moment.before)
        if pending is None or not self.tensors.outputs:
            return None
        values = torch.stack([value for _, _, value in self.tensors.outputs]).tolist()
        shares = {entry.request: entry for entry in pending.scheduled}
        found = None
        for (request, query, _), value in zip(self.tensors.outputs, values, strict=True):
            path = ground.lineage(moment.before.prefixes, shares[request].tip)
            wanted = self.expected.output(moment.after.prefixes, path, query)
            self.outputs.append((len(self.actions), path[query + 1], value))
            if value != wanted and not ground.is_dropped(moment.before, shares[request], pending) and found is None:
                found = Difference("output", wanted, value, (("request", request), ("position", query)))
        return found

    def _refused(self, moment: Moment) -> None:
        """Let the tensors try an append that the model's row guard refuses: they must refuse it too (TB-11)."""
        before = copy.deepcopy(self.tensors.rows)
        try:
            step.perform(self.tensors, moment.action, told.Told())
        except TensorError as error:
            if moment.after is moment.before:
                self.tensors.rows = before
            elif "TB-11" in str(error):
                rows.apply(self.tensors.rows)
            self.difference = compare.first_difference(moment.after, self.tensors, self.expected)
            return
        found = compare.first_difference(moment.after, self.tensors, self.expected)
        self.difference = found or Difference("row guard", "refused", "appended")


def begin(
    config: Config,
    device: torch.device | str = "cpu",
    ranks: tuple[int, ...] | None = None,
    reduce: Callable[[Tensor], Tensor] = unreduced,
) -> Differential:
    """Begin a run of both at the new world of a configuration; ``ranks`` and ``reduce`` as in ``world.new_world``."""
    model = new_model(config)
    return Differential(model, new_tensors(config, torch.device(device), ranks, reduce), Expected(model))


def run(config: Config, actions: Sequence[Action], device: torch.device | str = "cpu", every: int = 1) -> Differential:
    """Run actions on both, up to the first difference; compared after ``every`` so many of them, and at the end."""
    both = begin(config, device)
    both.every, both.expected.every_action = every, every == 1
    for action in actions:
        both.act(action)
        if both.difference is not None:
            return both
    if every > 1:
        both.compare()
    return both
