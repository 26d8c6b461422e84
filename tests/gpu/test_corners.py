"""What random runs reach seldom, by hand."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kvproof.core import actions as act  # noqa: E402
from kvproof.core.config import Group, Offload, Profile, configure  # noqa: E402
from kvproof.gpu import differential, freeing, goldens, keys, offload, step, tables  # noqa: E402
from kvproof.gpu import pool as pools  # noqa: E402
from kvproof.gpu import world as worlds  # noqa: E402
from kvproof.gpu.told import Told  # noqa: E402
from kvproof.gpu.world import Load, Pinned, Request, Stage, Status, Step, Store  # noqa: E402
from kvproof.spec import macros  # noqa: E402

CPU = torch.device("cpu")


def blocks(*ids):
    return pools.ids(ids, CPU)


def hosted(*groups, **settings):
    """A world on tensors with a host tier and a running request of 8 tokens that holds block 1."""
    config = configure(groups or (Group("full_attention", 4),), num_blocks=8, offload=Offload(num_blocks=6), **settings)
    world = worlds.new_world(config, CPU)
    line = worlds.new_line(world, 0)
    worlds.extend(line, tuple(range(1, 9)))
    live = world.requests[0] = Request(0, line, 8, worlds.fresh_holdings(world), status=Status.RUNNING)
    live.groups[0].table = pools.take(world.pool, 1)
    return world, live


# --- a load that failed (C-48, C-45, T30) -----------------------------------------------------------------------------


@pytest.mark.parametrize(("computed", "status"), [(4, Status.RUNNING), (5, Status.RUNNING), (6, Status.PREEMPTED)])
def test_who_holds_no_token_behind_the_valid_ones_goes_on(computed, status):
    world, live = hosted()
    live.computed = computed
    step.let_go(world, live, 5)
    assert (live.status, live.computed) == (status, computed if status is Status.RUNNING else 0)
    assert world.pool.free.numel() == (6 if status is Status.RUNNING else 7)


@pytest.mark.parametrize(("valid", "kept"), [(9, True), (8, True), (7, False)])
def test_a_pinned_hit_goes_only_if_it_reaches_behind_the_valid_tokens(valid, kept):
    world, live = hosted()
    assert world.host is not None
    pools.touch(world.host.pool, blocks(3))
    world.host.pinned[0] = Pinned(4, 4, [blocks(3)])
    step.let_go(world, live, valid)
    assert (0 in world.host.pinned) is kept
    assert int(world.host.pool.ref[3]) == int(kept)


def test_late_outputs_of_who_holds_none_of_it_are_dropped_if_there_are_some():
    world, live = hosted()
    step.let_go(world, live, 5)
    assert not live.drop_stale
    live.stale = 1
    step.let_go(world, live, 5)
    assert live.drop_stale


def test_a_failed_load_keeps_whole_blocks_and_what_was_there_before():
    plain = configure((Group("full_attention", 4),), num_blocks=8)
    assert [offload.valid_prefix(plain, 8, valid) for valid in (8, 9, 11, 12, 17)] == [8, 8, 8, 12, 16]
    assert offload.valid_prefix(plain, 8, 5) == 8
    hybrid = configure((Group("full_attention", 4), Group("mamba_align", 4)), num_blocks=8)
    assert offload.valid_prefix(hybrid, 8, 17) == 0
    scratch = configure((Group("full_attention", 4), Group("scratch", 4)), num_blocks=8)
    assert offload.valid_prefix(scratch, 8, 17) == 16


# --- transfers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("event", "waits"), [(worlds.NONE, False), (0, True)])
def test_a_request_that_finishes_before_its_load_was_sent_waits_for_nothing(event, waits):
    world, live = hosted()
    assert world.host is not None
    pools.touch(world.host.pool, blocks(3))
    pools.touch(world.pool, live.groups[0].table)
    world.host.loads.append(Load(0, live.groups[0].table, blocks(3), 0, event=event))
    assert offload.finish(world, live, Told()) is waits
    assert len(world.host.loads) == int(waits)
    assert (int(world.host.pool.ref[3]), int(world.pool.ref[1])) == ((1, 2) if waits else (0, 1))
    if waits:
        assert (world.host.loads[0].finished, world.host.loads[0].held) == (True, [live.groups[0].table])


@pytest.mark.parametrize("submission", ["same_step", "next_step"])
def test_a_store_that_was_abandoned_before_it_was_sent_is_sent_all_the_same(submission):
    settings = Offload(num_blocks=20, store_submission=submission)
    script = goldens.hybrid(16, 16, dcp_size=4, offload=settings).submit(0, 50).chunk(0, 48)
    script.do(act.BeginStep()).plan(0, 2).do(*macros.CLOSE, act.ResetHost(), *macros.execution(script.config))
    script.do(act.Output(0, (9,)), act.BeginStep()).plan(0, 1).close()
    both = differential.run(script.config, script.actions)
    assert both.difference is None, both.difference.text()
    assert both.tensors.host is not None
    stores = both.tensors.host.abandoned_stores
    assert [store.stage for store in stores] == [Stage.SUBMITTED]


def test_a_part_of_a_step_sends_its_own_abandoned_store_and_no_other():
    world, _ = hosted()
    assert world.host is not None
    world.host.abandoned_stores = [Store(0, blocks(1), blocks(1)), Store(1, blocks(1), blocks(2))]
    none = torch.zeros(0, dtype=torch.int32)
    offload.run_part(world, Step([], (none, none), none, [], store=1), "submit")
    same = world.config.offload is not None and world.config.offload.store_submission == "same_step"
    assert [store.stage for store in world.host.abandoned_stores] == [Stage.BUILT, Stage.SUBMITTED if same else Stage.BUILT]


@pytest.mark.parametrize(("processed", "built"), [(1, False), (2, True), (3, True)])
def test_a_load_waits_for_the_steps_before_it(processed, built):
    world, live = hosted()
    assert world.host is not None
    world.issued, world.processed = 3, processed
    world.host.loads.append(Load(0, live.groups[0].table, blocks(3), 0, fence=2))
    offload.build(world, Told())
    (load,) = world.host.loads
    assert (load.stage, load.event) == ((Stage.BUILT, 0) if built else (Stage.WAITING, worlds.NONE))
    assert (world.plan.load, world.host.next_load) == ((0, 1) if built else (worlds.NONE, 0))


# --- giving back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deferring", "due", "opened", "held"), [
    (True, [0], False, True),
    (True, [0], True, False),
    (True, [1], False, False),
    (False, [0], False, False),
])  # fmt: skip
def test_only_a_step_whose_outputs_nobody_has_processed_holds_blocks_back(deferring, due, opened, held):
    config = configure((Group("full_attention", 4),), num_blocks=8, defer_block_free=deferring)
    world = worlds.new_world(config, CPU)
    none = torch.zeros(0, dtype=torch.int32)
    world.steps.append(Step([], (none, none), none, due, opened=opened))
    assert freeing.is_held_back(world, 0) is held


# --- preemption -------------------------------------------------------------------------------------------------------


def test_a_preemption_with_nothing_in_flight_has_nothing_to_drop():
    script = goldens.hybrid(4, 4).submit(0, 6).chunk(0, 4).do(act.BeginStep(), act.Preempt(0, drop_stale=True))
    both = differential.run(script.config, script.actions)
    assert both.difference is None, both.difference.text()
    assert both.tensors.requests[0].drop_stale is False


def test_the_step_of_a_plan_that_preempted_waits_for_the_transfers_and_the_next_one_does_not():
    script = goldens.hybrid(16, 16, offload=Offload(num_blocks=20)).submit(0, 40).submit(1, 20).chunk(0, 32).chunk(1, 16)
    script.do(act.BeginStep(), act.Preempt(1)).plan(0, 8).do(*macros.CLOSE)
    both = differential.run(script.config, script.actions)
    assert both.tensors.steps[0].flush is True
    both = differential.run(script.config, script.do(*macros.execution(script.config), act.Output(0, (9,))).actions)
    assert both.difference is None, both.difference.text()
    both = differential.run(script.config, script.do(act.BeginStep()).plan(0, 1).do(*macros.CLOSE).actions)
    assert both.tensors.steps[0].flush is False


def test_an_admission_that_waits_for_a_state_of_this_step_reserves_no_checkpoint():
    # G14: the sibling adopts the state that is computed in this very step, and is put off.
    script = goldens.hybrid(16, 16).submit(0, 40).submit(1, 40).do(act.BeginStep()).plan(0, 32)
    script.do(act.Lookup(1), act.Allocate(1, 8, 32))
    both = differential.run(script.config, script.actions)
    assert both.difference is None, both.difference.text()
    assert both.tensors.requests[1].groups[1].checkpoint is None


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoint", "table"),
    [
        # 13 tokens in blocks of 4: the running state stands in column 3, the checkpoint at 12 in column 2. Both were the
        # speculative blocks' columns before, and the checkpoint keeps the block that stands in its own.
        ((12, 2), [0, 1, 2, 3, 4, 5]),
        (None, [0, 1, 0, 3, 2, 4]),
    ],
)
def test_a_speculative_block_in_the_column_of_a_checkpoint_stays(checkpoint, table):
    config = configure((Group("full_attention", 4), Group("mamba_align", 4, speculative_blocks=2)), num_blocks=20)
    world = worlds.new_world(config, CPU)
    line = worlds.new_line(world, 0)
    request = Request(0, line, 13, worlds.fresh_holdings(world), status=Status.RUNNING)
    holding = request.groups[1]
    holding.table, holding.allocated, holding.checkpoint = torch.cat((blocks(0), pools.take(world.pool, 3))), True, checkpoint
    wanted = tables.Wanted(first=False, local=8, external=0, slots=13, main=13, settled=13)
    tables.grow_snapshots(world, request, 1, holding, wanted)
    assert holding.table.tolist() == table


# --- keys -------------------------------------------------------------------------------------------------------------


def test_accepted_drafts_that_fill_a_block_are_registered_with_their_output():
    script = goldens.hybrid(4, 4, spare=2, num_draft_tokens=2).submit(0, 6).chunk(0, 4).chunk(0, 2)
    script.do(act.BeginStep()).plan(0, 1, 7, 8).do(*macros.CLOSE, *macros.execution(script.config))
    before = differential.run(script.config, script.actions)
    assert before.difference is None, before.difference.text()
    both = differential.run(script.config, script.do(act.Output(0, (7, 8, 5))).actions)
    assert both.difference is None, both.difference.text()
    # Tokens 5 to 8, two of them drafts, fill the second block of attention.
    block = int(both.tensors.requests[0].groups[0].table[1])
    assert int(both.tensors.pool.tokens[block]) == 8
    assert int(before.tensors.pool.tokens[block]) < 8


@pytest.mark.parametrize(("unit", "boundaries"), [("A", (80,)), ("S", (0,))])
def test_the_unit_of_an_eagle_replay_is_that_of_the_profile(unit, boundaries):
    # 100 tokens: six units of A = 16 less one, or one of S = 64 less one.
    script = goldens.hybrid(64, 64, hash_block_size=16, use_eagle=True, profile=Profile(eagle_replay_unit=unit)).submit(0, 100)
    both = differential.run(script.config, script.actions)
    live = both.tensors.requests[0]
    assert keys.reach(both.tensors, live, 0) == boundaries
    live.junction = 96
    behind = (96 - 64,) if script.config.eagle[0] else ()
    assert keys.reach(both.tensors, live, 0) == (*boundaries, 96, *behind)


@pytest.mark.parametrize(("position", "tokens"), [(16, -1), (96, 96)])
def test_a_checkpoint_at_which_nobody_resumes_leaves_its_block_without_keys(position, tokens):
    # Sparse retention, 100 tokens: the prompt resumes at 96, at 16 nobody does.
    config = configure((Group("full_attention", 16), Group("mamba_align", 16)), num_blocks=20, retention=0)
    world = worlds.new_world(config, CPU)
    line = worlds.new_line(world, 0)
    worlds.extend(line, tuple(range(1, 101)))
    request, block = Request(0, line, 100, worlds.fresh_holdings(world)), pools.take(world.pool, 1)
    pools.insert(world.pool, int(block), 7, 8)
    keys.register_checkpoint(world, request, 1, block, position)
    assert int(world.pool.tokens[int(block)]) == tokens
    assert [len(pools.keys_of(world.pool, int(block))), len(world.plan.registered)] == [int(tokens > 0)] * 2
