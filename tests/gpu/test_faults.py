"""Faults of the data path: each is caught by the comparison, says what a law says, and changes something."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kvproof.core import actions as act  # noqa: E402
from kvproof.core.config import Group, configure  # noqa: E402
from kvproof.gpu import counterexamples, differential, faults, running, step, told  # noqa: E402
from kvproof.gpu.pool import TensorError  # noqa: E402
from kvproof.gpu.world import new_world  # noqa: E402
from kvproof.spec import judge  # noqa: E402
from kvproof.spec.exits import UserError  # noqa: E402

ASKED = {
    "row overrun into the neighbour's row": "D-ROW-1",
    "sharding a replicated group": "D-SLOT-1",
    "offset by v mod bs": "D-SLOT-2",
    "copy before the forward ended": "D-ORDER-1",
    "reuse before the copy ended": "D-ORDER-2",
    "load over a local tail": "D-LOAD-1",
    "wrong DCP width": "D-SLOT-3",
    "missing zeroing": "D-ZERO-1",
}


def test_every_fault_that_was_asked_for_is_there():
    assert set(ASKED.values()) <= {fault.id for fault in faults.ALL}
    assert len({fault.id for fault in faults.ALL}) == len(faults.ALL)
    with pytest.raises(UserError, match="D-ROW-1"):
        faults.by_id("D-ROW-9")


@pytest.mark.parametrize("fault", faults.ALL, ids=lambda fault: fault.id)
def test_the_comparison_catches_a_fault_and_nothing_without_it(fault):
    ran = running.catch(fault, "cpu")
    assert ran is not None, f"{fault.id} survived"
    violation = counterexamples.violation_of(ran.both)
    assert violation is not None
    assert violation.law in fault.laws
    # The same run without the fault is equal: it is the fault that was caught.
    without = differential.run(ran.config, ran.both.actions)
    assert without.difference is None, without.difference.text()
    assert differs(ran, fault), f"{fault.id} changes nothing"


def snapshot(world):
    """Everything a world has on tensors."""
    pool, rows = world.pool, world.rows
    parts = [pool.ref, pool.free, pool.primary, pool.keys, world.memory, rows.lengths, *rows.buffers]
    parts += [holding.table for request in world.requests.values() for holding in request.groups]
    if world.host is not None:
        parts += [world.host.pool.ref, world.host.memory]
    return [part.clone() for part in parts]


def alone(config, actions):
    """What the tensors come to by themselves, with what the model decides but without any comparison; None if they cannot."""
    world, model = new_world(config, torch.device("cpu")), differential.begin(config).model
    for action in actions:
        moment = judge.attempt(model, action)
        try:
            step.perform(world, action, told.of(moment) if moment.record is not None else told.Told())
        except (TensorError, IndexError, RuntimeError):
            if moment.record is not None:
                return None
        model = moment.after
    return snapshot(world)


def differs(ran, fault):
    """Whether tensors with the fault come to something else than without it, by the same actions."""
    actions = list(ran.both.actions)
    right = alone(ran.config, actions)
    with faults.planted(fault):
        wrong = alone(ran.config, actions)
    assert right is not None
    if wrong is None or len(wrong) != len(right):
        return True
    return any(one.shape != other.shape or not torch.equal(one, other) for one, other in zip(right, wrong, strict=True))


def test_an_overrun_is_mapped_back_to_the_neighbour_whose_row_it_hit():
    config = configure((Group("mamba_align", 4),), num_blocks=40, max_model_len=8, max_running=2)
    both = differential.begin(config)
    assert config.row_capacity == (2,)
    actions = (act.AppendRows(1, ((5,),)), act.AppendRows(0, ((1, 2),)), act.AppendRows(0, ((7,),)))
    with faults.planted(faults.by_id("D-ROW-1")):
        for action in actions:
            both.act(action)
    assert both.difference is not None
    assert (both.difference.part, both.difference.expected, both.difference.actual) == ("row", 5, 7)
    assert dict(both.difference.place)["row"] == 1
