"""Model and tensors side by side over generated sequences and recordings: everything equal after every action."""

from __future__ import annotations

import itertools

import attrs
import pytest

torch = pytest.importorskip("torch")

from kvproof.core import actions as act  # noqa: E402
from kvproof.core import geometry as core_geometry  # noqa: E402
from kvproof.core.config import SOUND, VLLM_0_33_0, Group, configure  # noqa: E402
from kvproof.gpu import compare, counterexamples, differential, forward, goldens, outputs, running, sources  # noqa: E402
from kvproof.gpu import pool as pools  # noqa: E402
from kvproof.gpu import rows as tensor_rows  # noqa: E402
from kvproof.gpu.pool import TensorError  # noqa: E402
from kvproof.gpu.told import Told  # noqa: E402
from kvproof.spec import macros  # noqa: E402
from kvproof.spec.engines import scopes  # noqa: E402
from kvproof.spec.exploring import scopes as exploring  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
STEPS, HOST_STEPS = 90, 160


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scope", scopes.ALL, ids=lambda scope: scope.name)
def test_walks_are_equal_on_tensors(scope, device):
    ran = sources.walked(scope, 1, STEPS if scope.config().offload is None else HOST_STEPS, device)
    assert ran.both.difference is None, ran.both.difference.text()
    assert ran.both.performed > STEPS // 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["fa4-m4-n2", "fa1-m2+1-w4-n4-draft1", "fa4-m4-n2-host", "fa4-lazy", "fa4-c4", "fa4-st4"])
def test_sequences_of_hypothesis_are_equal_on_tensors(name, device):
    ran = sources.machine_run(scopes.by_name(name), 3, 4, 12, device)
    assert ran.both.difference is None, ran.both.difference.text()
    assert ran.performed > 3 * 12


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scope", exploring.CATALOGUE, ids=lambda scope: scope.name)
def test_paths_of_exploration_are_equal_on_tensors(scope, device):
    ran = sources.explored(scope, 1, device)
    assert ran.both.difference is None, ran.both.difference.text()
    assert ran.both.performed > 20
    assert ran.origin.scope == f"explore/{scope.name}"


@pytest.mark.parametrize("device", DEVICES)
def test_recordings_are_equal_on_tensors(device):
    entries = running.recordings(quick=True)
    assert {entry.level for entry in entries} == {"manager", "scheduler"}
    assert {1, 2, 4} <= {entry.config["dcp_world_size"] for entry in entries}
    assert any(entry.config["host"] for entry in entries)
    count = 0
    for ran in sources.run_recordings(entries, device):
        assert ran.both.difference is None, f"{ran.origin.scope}: {ran.both.difference.text()}"
        assert ran.both.performed > 10
        count += 1
    assert count == len(entries)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["fa4-m4-n2-host", "fa4-lazy", "fa1-m4+3-n4-async"])
def test_what_is_compared_at_the_end_alone_is_equal(name, device):
    ran = sources.walked(scopes.by_name(name), 4, 200, device)
    both = differential.run(ran.config, ran.both.actions, device, every=1 << 30)
    assert both.difference is None, both.difference.text()
    assert both.performed == ran.both.performed
    both.tensors.memory[0, 1, 0] += 1
    both.compare()
    assert both.difference is not None


def test_the_same_seed_gives_the_same_run():
    first, second = (sources.machine_run(scopes.by_name("fa4-m4-n2"), 5, 3, 8, "cpu").both.actions for _ in range(2))
    assert first == second


# --- outputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fa4-m4-n2", "fa2-m4-n4", "fa4-m4-w4-n2", "fa4-m4-n2-host"])
def test_cc_7_and_cc_8_outputs_do_not_depend_on_the_cache_or_the_ranks(name):
    ran = sources.walked(scopes.by_name(name), 2, 150, "cpu")
    found = outputs.everywhere(ran.both, "cpu")
    assert found.difference is None, found.difference.text()
    assert found.prefixes >= 4


def test_cc_7_an_output_that_is_another_is_a_difference():
    ran = sources.walked(scopes.by_name("fa4-m4-n2"), 2, 150, "cpu")
    ran.both.outputs = [(position, node, value + 1) for position, node, value in ran.both.outputs]
    found = outputs.compared(ran.both, 2, "cpu").difference
    assert found is not None
    assert found.part == "output"
    assert (found.expected, found.actual) in {(value - 1, value) for _, _, value in ran.both.outputs}
    there = outputs.compared(ran.both, 1, "cpu").difference
    assert there is not None
    assert there.part == "output on other ranks"


# --- the comparison itself --------------------------------------------------------------------------------------------


def prefilled():
    """Both sides behind the first chunk of a prompt of 14 tokens on two ranks (G6)."""
    config = configure((Group("full_attention", 4), Group("mamba_align", 4)), dcp_size=2, num_blocks=40)
    actions = (act.Submit(0, tuple(range(1, 15))), act.BeginStep(), *macros.admit(0, 12), *macros.run([(0, ())]))
    both = differential.run(config, actions)
    assert both.difference is None
    return both


def spoil_table(both):
    both.tensors.requests[0].groups[0].table[1] = 7


def spoil_row(both):
    both.tensors.rows.buffers[1][2] = 9


def spoil_length(both):
    both.tensors.rows.lengths[0, 0] = 1


def spoil_reference(both):
    both.tensors.pool.ref[2] += 1


def spoil_queue(both):
    both.tensors.pool.free = both.tensors.pool.free.flip(0)


def spoil_key(both):
    both.tensors.pool.primary[1] += 1


def spoil_order(both):
    order = both.tensors.pool.order
    order[1], order[2] = order[2].clone(), order[1].clone()


def spoil_tokens(both):
    both.tensors.pool.tokens[1] = 9


def spoil_tag(both):
    both.tensors.memory[1, 2, 1] = 5


def spoil_state(both):
    both.tensors.memory[0, 3, 1] += 1


def spoil_free_block(both):
    both.tensors.memory[0, 30, 0] = 1


def spoil_column(both):
    both.tensors.rows.columns[0][1] = 0


def spoil_accepted(both):
    both.tensors.rows.accepted[0] = 2


@pytest.mark.parametrize(
    ("spoil", "part", "place"),
    [
        # 12 tokens: attention blocks 1 and 2 (E = 8), the state at 12 in block 3, column 2.
        (spoil_table, "table", {"request": 0, "group": 0, "column": 1, "position": 8, "block": 2}),
        (spoil_row, "row", {"row": 0, "request": 0, "group": 1, "column": 2, "position": 8, "block": 3}),
        (spoil_length, "row counts", {}),
        (spoil_reference, "references", {"tier": "device", "block": 2}),
        (spoil_queue, "free queue", {"tier": "device"}),
        (spoil_key, "primary key", {"tier": "device", "block": 1, "group": 0}),
        (spoil_order, "keys, by insertion", {"tier": "device", "block": 1}),
        (spoil_tokens, "tokens of the primary key", {"tier": "device", "block": 1, "group": 0}),
        # Block 2 covers positions 8 to 15; rank 1 has the odd ones, offset 1 is position 11.
        (spoil_tag, "bytes", {"tier": "device", "block": 2, "rank": 1, "slot": 1, "group": 0, "position": 11, "request": 0}),
        (spoil_state, "bytes", {"tier": "device", "block": 3, "rank": 0, "slot": 1, "group": 1, "boundary": 12, "request": 0}),
        (spoil_free_block, "bytes", {"tier": "device", "block": 30, "rank": 0, "slot": 0}),
        (spoil_column, "running columns", {}),
        (spoil_accepted, "accepted", {}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_first_difference_is_mapped_back(spoil, part, place):
    both = prefilled()
    spoil(both)
    found = compare.first_difference(both.model, both.tensors, both.expected)
    assert found is not None
    assert (found.part, dict(found.place)) == (part, place)
    assert found.expected != found.actual
    assert part in found.text()


def test_a_wrong_byte_is_named_if_any_prefix_has_it():
    both = prefilled()
    both.tensors.memory[0, 1, 0] = both.tensors.memory[1, 1, 0]
    found = compare.first_difference(both.model, both.tensors, both.expected)
    assert found is not None
    assert "the tag of position 1" in str(found.actual)


def test_nothing_is_performed_behind_a_difference():
    config = configure((Group("full_attention", 4),), num_blocks=8)
    both = differential.begin(config)
    both.tensors.pool.ref[3] = 1
    again = differential.run(config, (act.BeginStep(),))
    assert again.difference is None
    both.act(act.BeginStep())
    assert both.difference is not None
    assert both.difference.part == "references"


def test_what_the_tensors_cannot_do_is_a_difference(monkeypatch):
    both = prefilled()

    def none_left(pool, count):
        raise TensorError("none left")

    monkeypatch.setattr(pools, "take", none_left)
    both.act(act.BeginStep())
    both.act(act.Allocate(0, 2))
    assert both.difference is not None
    assert (both.difference.part, both.difference.actual) == ("performing", "none left")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("block 7"), "KeyError: 'block 7'"),
        (ZeroDivisionError(), "ZeroDivisionError: "),
        (AssertionError(), "AssertionError: "),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_the_tensors_raise_is_a_difference_with_its_actions(monkeypatch, error, said):
    def fails(pool, count):
        raise error

    both = prefilled()
    monkeypatch.setattr(pools, "take", fails)
    both.act(act.BeginStep())
    both.act(act.Allocate(0, 2))
    assert both.difference is not None
    assert (both.difference.part, both.difference.actual) == ("performing", said)
    assert both.actions[-1] == act.Allocate(0, 2)


def test_tensors_that_cannot_be_read_back_differ():
    both = prefilled()
    del both.tensors.requests[0].line.digests
    both.compare()
    assert both.difference is not None
    assert both.difference.part == "reading back"
    assert "AttributeError" in str(both.difference.actual)


def test_an_error_other_than_the_guard_in_a_refused_append_is_a_difference(monkeypatch):
    def fails(rows, row, blocks):
        raise KeyError("row")

    config = configure((Group("mamba_align", 4),), num_blocks=40, max_model_len=8, max_running=2)
    both = differential.begin(config)
    monkeypatch.setattr(tensor_rows, "append", fails)
    assert both.act(act.AppendRows(0, ((4, 5, 6),))).refusal is not None
    assert both.difference is not None
    assert (both.difference.part, both.difference.actual) == ("performing", "KeyError: 'row'")


# --- which outputs are due --------------------------------------------------------------------------------------------


def drafted():
    """One token with two drafts: three outputs are due."""
    script = goldens.hybrid(8, 8, spare=2, num_draft_tokens=2, max_model_len=64).submit(0, 8).chunk(0, 8)
    return script.do(act.BeginStep()).plan(0, 1, 7, 8).do(*macros.CLOSE, *macros.execution(script.config)[:-1])


def without(chosen):
    """A forward whose outputs are cut to those that are chosen."""
    right = forward.run

    def run(world, step):
        right(world, step)
        world.outputs[:] = chosen(world.outputs)

    return run


@pytest.mark.parametrize(
    "chosen",
    [
        lambda outputs: [],
        lambda outputs: outputs[:-1],
        lambda outputs: outputs[1:],
        lambda outputs: [*outputs, outputs[0]],
        lambda outputs: [(request, query - 1, value) for request, query, value in outputs],
    ],
    ids=["none", "the last is missing", "the first is missing", "one twice", "others"],
)
def test_outputs_that_are_due_and_not_there_are_a_difference(chosen, monkeypatch):
    script = drafted()
    both = differential.run(script.config, script.actions)
    begun = len(both.outputs)
    assert begun > 0
    monkeypatch.setattr(forward, "run", without(chosen))
    both.act(act.Execute("forward"))
    assert both.difference is not None
    assert both.difference.part == "outputs"
    assert both.difference.expected == [(0, 8), (0, 9), (0, 10)]
    assert len(both.outputs) == begun


def test_what_nobody_takes_any_more_may_be_computed_or_not(monkeypatch):
    script = drafted().do(act.Finish(0))
    for run in (forward.run, without(lambda outputs: [])):
        both = differential.run(script.config, script.actions)
        with monkeypatch.context() as patch:
            patch.setattr(forward, "run", run)
            both.act(act.Execute("forward"))
        assert both.difference is None, both.difference.text()


def test_the_row_guard_is_asked_on_tensors_too():
    config = configure((Group("mamba_align", 4), Group("mamba_align", 4)), num_blocks=40, max_model_len=8, max_running=2)
    both = differential.begin(config)
    both.act(act.AppendRows(0, ((1, 2), (3,))))
    assert both.difference is None
    moment = both.act(act.AppendRows(0, ((4,), (5, 6))))
    assert moment.refusal is not None
    assert both.difference is None
    assert both.tensors.rows.lengths.tolist() == [[2, 0], [1, 0]]


@pytest.mark.parametrize(("profile", "lengths"), [(SOUND, [[0, 0], [0, 0]]), (VLLM_0_33_0, [[1, 0], [0, 0]])])
def test_what_a_refused_append_leaves_behind_is_equal_too(profile, lengths):
    groups = (Group("mamba_align", 4), Group("mamba_align", 8))
    config = configure(groups, num_blocks=40, max_model_len=8, max_running=2, profile=profile)
    both = differential.begin(config)
    assert both.act(act.AppendRows(0, ((4,), (5, 6)))).refusal is not None
    assert both.difference is None
    assert both.tensors.rows.lengths.tolist() == lengths


def test_what_is_told_is_decisions_alone():
    # Neither tables nor blocks taken nor keys nor anything else of the state: what a scheduler tells a worker and a pool.
    assert {field.name for field in attrs.fields(Told)} == {
        "admitted", "gated", "store_device", "evicted", "evicted_host",
    }  # fmt: skip


# --- what random runs reach seldom ------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [2, 4])
def test_plans_that_run_ahead_of_rejected_drafts_are_equal(block_size):
    # T21.4, 7.3.11: the plan's columns follow all drafts, the worker's those accepted; which speculative blocks move along
    # follows from what is left if every draft in flight is rejected.
    groups = (Group("full_attention", 2), Group("mamba_align", block_size, speculative_blocks=3))
    config = configure(groups, num_blocks=60, max_model_len=64, max_steps_in_flight=2, num_draft_tokens=3, async_outputs=True)
    drafted = (act.BeginStep(), act.Allocate(0, 4, drafts=(6, 6, 6)), *macros.CLOSE)
    opening = (act.Submit(0, (1, 2, 3, 4, 5)), act.BeginStep(), *macros.admit(0, 4), *macros.run([(0, ())]))
    opening += (act.BeginStep(), act.Allocate(0, 1), *macros.CLOSE, *drafted, *macros.EXECUTE, act.Output(0, (7,)))
    for accepted in itertools.product((0, 1, 3), repeat=3):
        actions = opening
        for count in accepted:
            actions += (*drafted, *macros.EXECUTE, act.Output(0, (*(6,) * count, 8)))
        both = differential.run(config, actions)
        assert both.difference is None, f"{accepted}: {both.difference.text()}"
        assert both.performed == len(actions)


# --- a model that is wrong itself -------------------------------------------------------------------------------------


def a_column_per_rank(monkeypatch):
    """Plant into the model that a column of a sharded table covers the tokens of one rank."""
    monkeypatch.setattr(core_geometry, "block_column", lambda position, block_size, *_, **__: position // block_size)


def test_a_walk_on_which_the_model_fails_does_not_hold(monkeypatch):
    a_column_per_rank(monkeypatch)
    ran = sources.walked(scopes.by_name("fa4-m4-n2"), 0, 400, "cpu")
    found = counterexamples.violation_of(ran.both)
    assert found is not None
    assert ran.both.difference is not None
    assert (found.law, ran.both.difference.part) == ("LV-9", differential.MODEL)
    assert "column" in found.evidence.message
    assert found.position == len(ran.both.actions) - 1


def test_golden_traces_that_the_model_does_not_perform_are_differences(monkeypatch):
    a_column_per_rank(monkeypatch)
    ran = {run.origin.scope: run.both.difference for run in sources.run_goldens("cpu")}
    assert set(ran) == set(goldens.SCRIPTS)
    failing = {name: difference.part for name, difference in ran.items() if difference is not None}
    assert {"G1", "G2, G3", "G6"} <= set(failing)
    assert set(failing.values()) == {differential.MODEL}


def test_a_golden_trace_whose_request_is_gone_is_a_difference(monkeypatch):
    monkeypatch.setitem(goldens.SCRIPTS, "G1", lambda: goldens.hybrid(4, 4).submit(0, 6).chunk(1, 4))
    ran = sources.run_golden("G1", "cpu")
    assert ran.both.difference is not None
    assert "request 1 is not there" in ran.both.difference.text()
    assert ran.performed == 2


def test_an_action_that_was_enabled_and_is_refused_is_a_difference():
    both = differential.begin(configure((Group("full_attention", 4),), num_blocks=8))
    assert both.act(act.Finish(0)).refusal is not None
    assert not both.actions
    both.legal(act.Finish(0))
    found = both.difference
    assert found is not None
    assert (found.part, both.actions) == (differential.MODEL, [act.Finish(0)])


@pytest.mark.parametrize("every", [1, 10**6])
def test_lengths_on_every_rank_are_compared_at_a_dispatch(monkeypatch, every):
    """The model tells the workers them, and the tensors know them by formulas of their own (DS-4)."""
    script = goldens.hybrid(4, 4, dcp_size=2).submit(0, 13).chunk(0, 12).chunk(0, 1)
    right = core_geometry.local_length
    monkeypatch.setattr(core_geometry, "local_length", lambda tokens, rank, *rest: right(tokens, 0, *rest))
    both = differential.run(script.config, script.actions, every=every)
    found = counterexamples.violation_of(both)
    if every > 1:
        assert found is None  # the answer of one action is compared behind that action or not at all
        return
    assert found is not None
    assert (found.law, both.actions[-1]) == ("DS-4", act.Dispatch())
