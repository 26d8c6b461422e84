"""Short runs in each of which one condition of the tensor layer decides, and that random runs reach seldom."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kvproof.core import actions as act  # noqa: E402
from kvproof.core.config import Group, Offload, configure  # noqa: E402
from kvproof.gpu import differential, forward, goldens  # noqa: E402
from kvproof.gpu.goldens import Script  # noqa: E402
from kvproof.gpu.world import Stage  # noqa: E402
from kvproof.spec import macros  # noqa: E402


def equal(script):
    """The tensors behind a run that is equal on both sides."""
    both = differential.run(script.config, script.actions)
    assert both.difference is None, both.difference.text()
    return both.tensors


def evict_states(script):
    """Remove the keys of every state, and leave those of attention."""
    return script.do(act.EvictBlocks(tuple(sorted({block for _, group, _, block in script.world.pool.entries if group == 1}))))


def keyed_states(world, request):
    """How many tokens the key of each state in a request's table stands for, -1 without a key."""
    return [int(world.pool.tokens[block]) for block in world.requests[request].groups[1].table.tolist() if block]


# --- a request that starts again knows more than its prompt (T9, T10, T38, 2.9) ---------------------------------------


def again(script, known):
    """Decode request 0 up to so many known tokens, preempt it, and forget every key."""
    while script.live(0).num_tokens < known:
        script.chunk(0, 1)
    return script.do(act.Preempt(0)).wipe()


def test_a_request_that_starts_again_keeps_the_checkpoint_of_its_prompt():
    # Of 3 prompt tokens a resend resumes at 2, of all 7 known ones it would be at 6.
    script = again(goldens.hybrid(8, 8, hash_block_size=2).submit(0, 3).chunk(0, 2).chunk(0, 1), 7).chunk(0, 2)
    assert keyed_states(equal(script), 0) == [2]


@pytest.mark.parametrize(("end", "checkpoint"), [(8, None), (9, (8, 1)), (10, (8, 1))])
def test_sparse_retention_lets_the_last_chunk_of_all_known_tokens_write_a_checkpoint(end, checkpoint):
    # 10 known tokens, all but the last of them are a prefill. The checkpoint at 8 gets no key: the prompt of 5 resumes at 4.
    script = again(goldens.hybrid(4, 4, retention=0, checkpoint_alignment=4).submit(0, 5).chunk(0, 5), 10).chunk(0, end)
    world = equal(script)
    assert world.requests[0].groups[1].checkpoint == checkpoint
    assert set(keyed_states(world, 0)) == {-1}


def test_sparse_retention_counts_the_tokens_of_a_prompt_in_its_first_prefill():
    # 8 of 9 tokens are all but the last one, and no decode comes before the ninth.
    script = goldens.hybrid(4, 4, retention=0, checkpoint_alignment=4).submit(0, 9).chunk(0, 8)
    assert equal(script).requests[0].groups[1].checkpoint is None


def test_sparse_retention_keeps_the_states_that_the_prompt_resumes_at_and_no_others():
    script = again(goldens.hybrid(4, 4, retention=0).submit(0, 5).chunk(0, 4).chunk(0, 1), 10).chunk(0, 8)
    assert keyed_states(equal(script), 0) == [-1]


# --- checkpoints inside a chunk (T10.2a) ------------------------------------------------------------------------------


def test_a_checkpoint_at_the_junction_gets_its_key():
    # Neither the prompt of 20 tokens nor a retention of every 16th resumes at 4: the prefix that was seen before does.
    script = goldens.hybrid(4, 4, clip_block_size=8, retention=16, checkpoint_alignment=4).submit(0, 5).chunk(0, 5)
    script = evict_states(script.do(act.Finish(0))).submit(1, 4, *range(51, 67)).chunk(1, 8)
    assert keyed_states(equal(script), 1) == [4, -1]


def test_a_checkpoint_where_only_one_token_less_would_resume_gets_no_key():
    # EAGLE: 12 tokens resume at 8, 11 would at 4; full states at 4 are kept for that, a checkpoint is not.
    script = goldens.hybrid(4, 4, use_eagle=True, retention=16, checkpoint_alignment=4).submit(0, 12).chunk(0, 8)
    assert keyed_states(equal(script), 0) == [-1, 8]


# --- pinned junctions (T10.2b) ----------------------------------------------------------------------------------------


def test_a_junction_behind_the_prompt_is_not_kept():
    # Request 1 generates what request 0 had as its prompt: its junction is at 4, its own prompt has 3 tokens.
    script = goldens.hybrid(8, 8, hash_block_size=2, max_chunk=2, use_eagle=True, shared_prefix_checkpoint=True)
    script.submit(0, 7).chunk(0, 2).chunk(0, 2).chunk(0, 2).chunk(0, 1).do(act.Finish(0))
    script.submit(1, 3).chunk(1, 2).chunk(1, 1, sampled=(4,))
    for token in (5, 6, 7, 8):
        script.chunk(1, 1, sampled=(token,))
    world = equal(evict_states(script.do(act.Preempt(1))).chunk(1, 2).chunk(1, 2))
    assert (world.requests[1].junction, world.requests[1].computed) == (4, 4)
    assert keyed_states(world, 1) == [-1]


def test_a_junction_that_was_loaded_is_not_kept_again():
    # The host has the state at 32, the device attention alone: 32 is the junction, and no chunk of the request ends there.
    host = Offload(num_blocks=20)
    script = goldens.hybrid(64, 64, hash_block_size=16, use_eagle=True, shared_prefix_checkpoint=True, offload=host)
    evict_states(script.submit(0, 50).chunk(0, 32).chunk(0, 18).do(act.Finish(0)).stored()).submit(1, 50, *range(60, 90))
    script.do(act.BeginStep(), act.Lookup(1), act.LookupExternal(1, 0), act.Allocate(1, 0, external=32, load=True)).close()
    script.do(act.RunLoad(0), act.CompleteLoad(1), act.BeginStep(), act.Promote(1))
    world = equal(script)
    assert (world.requests[1].junction, world.requests[1].computed) == (32, 32)
    assert keyed_states(world, 1) == [-1]


# --- preemption (T31) -------------------------------------------------------------------------------------------------


def test_a_second_preemption_goes_on_dropping_what_the_first_one_drops():
    script = goldens.hybrid(4, 4, max_steps_in_flight=2).submit(0, 8).do(act.BeginStep()).plan(0, 4).do(*macros.CLOSE)
    script.do(act.Preempt(0, drop_stale=True), act.BeginStep()).plan(0, 4).do(*macros.CLOSE, act.Preempt(0))
    world = equal(script)
    assert (world.requests[0].stale, world.requests[0].drop_stale) == (8, True)


# --- loads (T29, T30, T34) --------------------------------------------------------------------------------------------


def forgotten(offload=None, **settings):
    """A run behind a prompt of 17 tokens, all of which but the last the host has and the device has forgotten."""
    config = configure((Group("full_attention", 4),), num_blocks=40, offload=offload or Offload(num_blocks=20), **settings)
    return Script(config).submit(0, 17).chunk(0, 17).do(act.Finish(0)).stored().wipe()


def load(request, external=16):
    """Look a resend of that prompt up in the open plan, and ask for a load of so many tokens."""
    return act.Lookup(request), act.LookupExternal(request, 0), act.Allocate(request, 0, external=external, load=True)


def host_of(script):
    """The host tier behind a run that is equal on both sides."""
    host = equal(script).host
    assert host is not None
    return host


def test_a_load_of_less_than_the_hit_brings_that_and_no_more():
    script = forgotten().submit(1, 17).do(act.BeginStep(), *load(1, external=8)).close()
    assert [load.device.numel() for load in host_of(script).loads] == [2]
    equal(script.do(act.RunLoad(0), act.CompleteLoad(1), act.BeginStep(), act.Promote(1), act.Allocate(1, 9)).close())


@pytest.mark.parametrize(("hold_loads", "fence"), [(False, 0), (True, 1)])
def test_a_load_waits_for_the_steps_before_it_only_where_loads_are_held(hold_loads, fence):
    script = forgotten(Offload(num_blocks=20, hold_loads=hold_loads), defer_block_free=True).submit(1, 17)
    assert [load.fence for load in host_of(script.do(act.BeginStep(), *load(1))).loads] == [fence]


def test_a_step_submits_the_loads_of_its_own_plan_alone():
    # The step in flight runs while the plan behind it has its metadata already, with a load in it.
    script = forgotten(max_steps_in_flight=2, defer_block_free=True).submit(1, 17).submit(2, 0, 60, 61, 62)
    script.do(act.BeginStep()).plan(2, 3).do(*macros.CLOSE)
    script.do(act.BeginStep(), *load(1), act.Drain(), act.BuildMetadata(), *macros.execution(script.config))
    assert [load.stage for load in host_of(script).loads] == [Stage.BUILT]


def test_a_request_that_finishes_before_its_dispatched_load_is_submitted_waits_for_it():
    script = forgotten().submit(1, 17).do(act.BeginStep(), *load(1), *macros.CLOSE, act.Finish(1))
    assert [load.finished for load in host_of(script).loads] == [True]
    world = equal(script.do(*macros.execution(script.config), act.RunLoad(0), act.CompleteLoad(1)))
    assert world.pool.free.numel() == 39


def test_a_load_that_is_abandoned_and_then_condemned_leaves_nothing():
    # The load of request 2 runs while request 1 learns that the same tokens did not arrive: behind 4 nothing is valid.
    script = forgotten(connectors=(False,)).submit(1, 17).submit(2, 17)
    script.do(act.BeginStep(), *load(2), act.Lookup(1), act.Allocate(1, 9, external=8))
    script.do(*macros.CLOSE, *macros.execution(script.config), act.ResetHost(), act.Output(1, failed=True, valid=4))
    assert [load.condemned for load in host_of(script).abandoned_loads] == [True]
    world = equal(script.do(act.RunLoad(0), act.CompleteLoad(2, failed=True, valid=8)))
    assert world.requests[2].computed == 0


def test_a_promotion_uses_up_the_lookup_of_another_request():
    # The other request was not admitted directly behind its lookup: it has to be looked up again (T37).
    script = forgotten().submit(1, 17).submit(2, 0, 60).do(act.BeginStep(), *load(1)).close()
    script.do(act.RunLoad(0), act.CompleteLoad(1), act.BeginStep(), act.Lookup(2), act.Promote(1))
    assert equal(script).hit is None


def test_who_does_not_read_the_cache_finds_nothing_on_the_host_either():
    script = forgotten().do(act.Submit(1, tuple(range(1, 18)), skip_reading=True), act.BeginStep(), act.Lookup(1))
    assert not host_of(script.do(act.LookupExternal(1, 0))).pinned


# --- what a forward reads (2.6) ---------------------------------------------------------------------------------------


def test_every_copy_of_a_replicated_group_is_read_somewhere():
    # Every rank has all positions; which of them it reads alternates, or a wrong copy would show in no output.
    groups = (Group("full_attention", 4, sharded=False), Group("mamba_align", 4))
    world = equal(Script(configure(groups, dcp_size=2, num_blocks=40)).submit(0, 8).chunk(0, 4))
    read = forward.read_tags(world, 0, 0, 4) != 0
    assert read.tolist() == [[True, False, True, False], [False, True, False, True]]


# --- running states of several groups (T0 e, 3.6) ---------------------------------------------------------------------


def test_a_running_state_whose_column_stays_moves_to_the_front_if_that_of_another_group_moves_on():
    # Two accepted drafts: the states behind 12 tokens stand in the third slots. Then 12 is a block's end of the first group.
    groups = (Group("full_attention", 4), *(Group("mamba_align", size, speculative_blocks=2) for size in (4, 8)))
    script = Script(configure(groups, num_blocks=60, num_draft_tokens=2)).submit(0, 9).chunk(0, 8).chunk(0, 1, sampled=(7,))
    script.chunk(0, 1, 8, 9, sampled=(8, 9, 10)).chunk(0, 1, sampled=(9,))
    world = equal(script)
    assert world.rows.columns[0] == [-1, 3, 1]
    assert world.rows.accepted[0] == 1
