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
from kvproof.core.world import Scheduled, World
from kvproof.core.world import new_world as new_model
from kvproof.gpu import compare, forward, rows, step, told
from kvproof.gpu.compare import Difference, Expected
from kvproof.gpu.pool import TensorError
from kvproof.gpu.world import TensorWorld, unreduced
from kvproof.gpu.world import new_world as new_tensors
from kvproof.spec import ground, judge, laws
from kvproof.spec.laws.base import Moment

ROW_GUARD = "row-capacity"
"""The one refusal that tensors decide on as well: the guard of the worker's rows."""
MODEL = "model"
"""The part of a difference that is the model's own error: it fails where it should perform an action."""
TOTALITY = laws.by_id("LV-9")


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
        elif judge.refuted(judge.Judge((TOTALITY,)).moment(moment, len(self.actions))):
            self.difference = failed(moment)
        if moment.record is not None or moment.after is not moment.before or self.difference is not None:
            self.actions.append(action)
        self.model = moment.after
        return moment

    def legal(self, action: Action) -> Moment:
        """Perform an action that the model has to perform; only the guard of the rows may refuse it (TB-11)."""
        moment = self.act(action)
        if self.difference is None and moment.refusal is not None and moment.refusal.code != ROW_GUARD:
            self.actions.append(action)
            self.difference = failed(moment)
        return moment

    def _performed(self, moment: Moment) -> None:
        """Perform what the model performed and compare the worlds, and the outputs of a forward."""
        self.performed += 1
        self.tensors.outputs.clear()
        try:
            step.perform(self.tensors, moment.action, told.of(moment))
        except Exception as error:  # whatever the tensors raise is a difference: the model did it
            self.difference = Difference("performing", "done", said(error))
            return
        if self.performed % self.every == 0:
            self.difference = self._compared(moment.after)
        if self.difference is not None or self.every > 1:
            return
        if isinstance(moment.action, act.Dispatch):
            self.difference = self._dispatched(moment)
        elif isinstance(moment.action, act.Execute) and moment.action.part == "forward":
            self.difference = self._sampled(moment)

    def compare(self) -> None:
        """Compare both as they stand, unless they differed before."""
        if self.difference is None:
            self.difference = self._compared(self.model)

    def _compared(self, model: World) -> Difference | None:
        """Return the first difference to a world of the model. Tensors that cannot even be read back differ."""
        try:
            return compare.first_difference(model, self.tensors, self.expected)
        except Exception as error:
            return Difference("reading back", "the model's values", said(error))

    def _dispatched(self, moment: Moment) -> Difference | None:
        """Compare what a worker is told of the lengths on every rank with what the tensors make of their own shares (DS-4)."""
        assert moment.record is not None, "only a dispatch that was performed is compared"
        shares = self.tensors.steps[-1].shares if moment.after.steps != moment.before.steps else []
        lengths = forward.local_lengths(self.tensors, [share.end for share in shares]).tolist()
        own = [[share.request, share.end, *length] for share, length in zip(shares, lengths, strict=True)]
        wanted = [list(entry) for entry in moment.record.local_lengths]
        return None if own == wanted else Difference("local lengths", wanted, own)

    def _sampled(self, moment: Moment) -> Difference | None:
        """Compare the outputs of a forward with those of a run without any cache (CC-7): which there are, then their values.

        What a share computes that nobody takes any more may be there or not, and be anything (T36.3, T36.4).
        """
        pending = ground.pending_step(moment.before)
        assert pending is not None, "a forward is a part of a step"
        shares = {entry.request: entry for entry in pending.scheduled}
        gone = {name for name, entry in shares.items() if ground.is_dropped(moment.before, entry, pending)}
        due = [place for entry in shares.values() if entry.request not in gone for place in due_outputs(moment.before, entry)]
        there = [(request, query) for request, query, _ in self.tensors.outputs]
        if sorted(due) != sorted(place for place in there if place[0] not in gone):
            return Difference("outputs", sorted(due), sorted(there))
        found = None
        for request, query, tensor in self.tensors.outputs:
            path, value = ground.lineage(moment.before.prefixes, shares[request].tip), int(tensor)
            wanted = self.expected.output(moment.after.prefixes, path, query)
            self.outputs.append((len(self.actions), path[query + 1], value))
            if value != wanted and request not in gone and found is None:
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
            self.difference = self._compared(moment.after)
            return
        except Exception as error:
            self.difference = Difference("performing", "refused", said(error))
            return
        found = self._compared(moment.after)
        self.difference = found or Difference("row guard", "refused", "appended")


def failed(moment: Moment) -> Difference:
    """Return the difference of a model that refuses what it should perform: it is the model that is wrong (LV-9)."""
    return Difference(MODEL, "the model performs the action", str(moment.refusal))


def said(error: Exception) -> str:
    """Return what an error of the tensors says, in one line; its type unless it is theirs."""
    text = next(iter(str(error).splitlines()), "")
    return text if isinstance(error, TensorError) else f"{type(error).__name__}: {text}"


def due_outputs(model: World, entry: Scheduled) -> list[tuple[int, int]]:
    """Return the (request, position) of the outputs that a share computes: behind its last certain token and each draft.

    None while tokens of the share are not known, or what it ends at never became known (T36).
    """
    end = entry.start + entry.amount
    if entry.pending or end > model.prefixes.depth[entry.tip]:
        return []
    return [(entry.request, query) for query in range(end - 1 - len(entry.drafts), end)]


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
    """Run legal actions on both, up to the first difference; compared after ``every`` so many of them, and at the end."""
    both = begin(config, device)
    both.every, both.expected.every_action = every, every == 1
    for action in actions:
        both.legal(action)
        if both.difference is not None:
            return both
    if every > 1:
        both.compare()
    return both
