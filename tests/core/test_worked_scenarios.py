"""Scenarios that docs/semantics.md works out with numbers outside section 9: transitions, profile fields, fault rows."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.config import SOUND, Config, Group, Profile, configure
from kvproof.spec import macros
from tests.driving import Driver

FULL, MAMBA = "full_attention", "mamba_align"


def hybrid(attention: int, mamba: int, **settings: Any) -> Config:
    """One full-attention and one Mamba-align group."""
    defaults: dict[str, Any] = {"num_blocks": 40}
    return configure((Group(FULL, attention), Group(MAMBA, mamba)), **(defaults | settings))


def sound_but(**fields: Any) -> Profile:
    """The sound profile with some fields as given."""
    return evolve(SOUND, **fields)


def prefill(driver: Driver, request: int, *ends: int) -> None:
    """Compute a prompt in chunks that end at these boundaries."""
    for end in ends:
        driver.chunk(request, end - driver.request(request).computed)


def resend(driver: Driver, request: int, tokens: int | tuple[int, ...], context: int = 0) -> int:
    """Submit a prompt, look it up in a step of its own; return the local hit."""
    driver.submit(request, tokens, context)
    driver.do(act.BeginStep())
    return driver.do(act.Lookup(request)).local


@pytest.mark.parametrize(("rule", "hit"), [("readd", 48), ("drop", 0)])
def test_partial_key_after_promotion(rule: str, hit: int) -> None:
    """3.1: P=50, H=16, FA64, decode to 66: a resend hits 48 with `readd` and 0 with `drop`."""
    profile = sound_but(partial_key_after_promotion=rule)
    driver = Driver(hybrid(64, 64, hash_block_size=16, profile=profile))
    driver.submit(0, 50)
    prefill(driver, 0, 48, 50, *range(51, 67))
    driver.do(act.Finish(0))
    assert resend(driver, 1, 50) == hit


@pytest.mark.parametrize(("rule", "key", "hit"), [("P-1", 32, 32), ("P", 48, 0)])
def test_prompt_tail(rule: str, key: int, hit: int) -> None:
    """M-TAIL-4: N=4, FA16 (E=64), H=16, P=48: attention has key 32 and a resend hits it; with rule P key 48 and hit 0."""
    driver = Driver(hybrid(16, 16, dcp_size=4, profile=sound_but(prompt_tail=rule)))
    driver.submit(0, 48)
    prefill(driver, 0, 32, 48)
    assert list(driver.keys(0)) == [key]
    driver.do(act.Finish(0))
    assert resend(driver, 1, 48) == hit


def test_gate_open_under_dcp() -> None:
    """M-GATE-1: N=2, FA16, Mamba16, H=16, P=50 in chunks to 48 and 50: a resend hits 48."""
    driver = Driver(hybrid(16, 16, dcp_size=2))
    driver.submit(0, 50)
    prefill(driver, 0, 48, 50)
    driver.do(act.Finish(0))
    assert resend(driver, 1, 50) == 48


@pytest.mark.parametrize(("keys", "hit"), [("rollback", 32), ("keep", 48)])
def test_keys_of_a_withdrawn_step(keys: str, hit: int) -> None:
    """M-PRE-1: blocks of 16, 32 tokens executed, 16 planned and withdrawn: a consumer hits 32, with `keep` 48."""
    driver = Driver(hybrid(16, 16, max_chunk=32, profile=sound_but(withdrawn_keys=keys)))
    driver.submit(0, 64)
    driver.chunk(0, 32)
    driver.do(act.BeginStep(), act.Allocate(0, 16), act.Withdraw(0))
    driver.close()
    assert resend(driver, 1, 64) == hit


def test_row_guard_counts_expanded_ids() -> None:
    """M-CAP-2: a row of 4 entries with factor 2 takes 2 ids and refuses 3; its count stays."""
    driver = Driver(configure((Group(MAMBA, 16),), max_model_len=32, num_blocks=8, append_expansion=2))
    assert driver.world.config.row_capacity == (4,)
    before = driver.world
    with pytest.raises(errors.RowCapacityExceeded) as refused:
        driver.do(act.AppendRows(0, ((1, 2, 3),)))
    assert refused.value.values == {"row": 0, "group": 0, "start": 0, "count": 6, "capacity": 4}
    assert refused.value.world is None
    assert driver.world is before
    driver.do(act.AppendRows(0, ((2, 3),)))
    assert driver.world.worker.rows[0][0] == (4, 5, 6, 7)
    with pytest.raises(errors.RowCapacityExceeded):
        driver.do(act.AppendRows(0, ((1,),)))


@pytest.mark.parametrize(("guard", "staged"), [("all_groups", None), ("per_group", ((1, 2, 3), ()))])
def test_row_guard_over_groups(guard: str, staged: tuple[tuple[int, ...], ...] | None) -> None:
    """M-CAP-6: rows of 4 and 2 entries, 3 ids for both: nothing is written, or group 0's with `per_group`."""
    groups = (Group(MAMBA, 8), Group(MAMBA, 16))
    driver = Driver(configure(groups, max_model_len=32, num_blocks=8, profile=sound_but(append_guard=guard)))
    assert driver.world.config.row_capacity == (4, 2)
    with pytest.raises(errors.RowCapacityExceeded) as refused:
        driver.do(act.AppendRows(1, ((1, 2, 3), (4, 5, 6))))
    left = refused.value.world
    assert (left and tuple(rows[1] for rows in left.worker.rows)) == staged


@pytest.mark.parametrize(("rule", "predicted"), [("exact", 3 + 2), ("capped", 3 + 1)])
def test_recurrent_demand_with_external_tokens(rule: str, predicted: int) -> None:
    """T17: B=16, synchronous e=32, q=16: the cap predicts one recurrent block where T18 and T21 take one each."""
    driver = Driver(hybrid(16, 16, profile=sound_but(recurrent_demand=rule)))
    driver.submit(0, 49)
    driver.do(act.BeginStep(), act.Lookup(0))
    record = driver.do(act.Allocate(0, 16, 0, 32))
    assert (record.demand, len(record.taken)) == (predicted, 5)
    assert record.external_blocks == ((1, 2), (3,))
    assert driver.tables(0) == [[1, 2, 4], [0, 3, 5]]


def test_external_tokens_that_end_inside_the_last_block() -> None:
    """T17 exact: the block that T18 takes for the external state is the running one too, nothing more is wanted."""
    driver = Driver(hybrid(16, 16, dcp_size=2, hash_block_size=8))
    driver.submit(0, 40)
    driver.do(act.BeginStep(), act.Lookup(0))
    record = driver.do(act.Allocate(0, 8, 0, 24))
    assert (record.demand, len(record.taken)) == (2, 2)
    assert driver.tables(0) == [[1], [0, 2]]


def test_a_single_external_token() -> None:
    """T18 with e = 1 and H = 1: the one external token has its attention slot and its state, both loaded before they are read."""
    driver = Driver(hybrid(4, 4, dcp_size=2, hash_block_size=1))
    driver.submit(0, 3)
    driver.do(act.BeginStep(), act.Lookup(0))
    record = driver.do(act.Allocate(0, 1, 0, 1))
    assert record.external_blocks == ((1,), (2,))
    assert (record.demand, driver.tables(0)) == (2, [[1], [2]])
    driver.close()
    two = driver.world.prefixes.parent[driver.request(0).tip]
    one = driver.world.prefixes.parent[two]
    assert driver.world.contents[1][:2] == (0, one)
    assert driver.world.contents[2] == (1, two, two)


def test_the_parts_of_a_plan_follow_each_other() -> None:
    """T0: drain, build, dispatch, each once and in this order."""
    driver = Driver(hybrid(16, 16))
    order: tuple[act.Action, ...] = (act.BeginStep(), act.Drain(), act.BuildMetadata(), act.Dispatch())
    for at, action in enumerate(order):
        for wrong in order[:at] if at else ():
            with pytest.raises(errors.PhaseError):
                driver.do(wrong)
        for wrong in order[at + 1 :]:
            with pytest.raises(errors.PhaseError):
                driver.do(wrong)
        driver.do(action)


def test_capped_demand_overruns_the_pool() -> None:
    """M-DEM-1: with exactly the predicted blocks free, T1 raises inside T16 under `capped`; `exact` refuses."""
    for rule in ("exact", "capped"):
        driver = Driver(hybrid(16, 16, num_blocks=5, profile=sound_but(recurrent_demand=rule)))
        driver.submit(0, 49)
        driver.do(act.BeginStep(), act.Lookup(0))
        if rule == "exact":
            assert driver.do(act.Allocate(0, 16, 0, 32)).admitted is False
        else:
            with pytest.raises(errors.PoolExhausted):
                driver.do(act.Allocate(0, 16, 0, 32))


def test_sparse_retention_keeps_what_a_replay_can_reach() -> None:
    """2.9: Mamba, B=16, A=16, P=50, retention 0: of the ends 16, 32, 48 only boundary 48 is registered."""
    driver = Driver(hybrid(16, 16, dcp_size=2, retention=0, max_chunk=16))
    driver.submit(0, 50)
    prefill(driver, 0, 16, 32, 48, 50)
    assert list(driver.keys(1)) == [48]
    # Block 2 held the state at 16, which nobody can reach: unkeyed, it is the next one taken.
    assert driver.keys(0) == {32: [1], 48: [2]}


@pytest.mark.parametrize(("prompt", "ends"), [(50, (48, 50)), (64, (48, 64)), (65, (64, 65)), (100, (64, 96, 100))], ids=str)
def test_chunk_ends(prompt: int, ends: tuple[int, ...]) -> None:
    """T22: B=64, H=16, ample budget: exactly these ends, and no chunk that runs past one of them."""
    driver = Driver(hybrid(64, 64, hash_block_size=16))
    driver.submit(0, prompt)
    for end in ends:
        start = driver.request(0).computed
        for wrong in range(end + 1, prompt + 1):
            driver.do(act.BeginStep())
            with pytest.raises(errors.ChunkNotClipped):
                driver.allocate(0, wrong - start)
            driver.close()
        driver.chunk(0, end - start)
    assert driver.request(0).computed == prompt


def test_references_of_a_consumer_copy() -> None:
    """M-COW-9, G6: the copy's end is released by the drain, the table's own reference stays."""
    driver = Driver(hybrid(4, 4, dcp_size=2))
    driver.submit(0, 14)
    prefill(driver, 0, 12, 14)
    driver.do(act.Finish(0))
    resend(driver, 1, (*range(1, 13), 51, 52, 53, 54))
    driver.do(act.Allocate(1, 4, 12))
    assert [driver.world.pool.ref[block] for block in (2, 4)] == [1, 2]
    driver.do(act.Drain())
    assert [driver.world.pool.ref[block] for block in (2, 4)] == [0, 1]


def test_a_prompt_on_a_boundary_is_never_hit_whole() -> None:
    """M-HIT-1: the last token is always recomputed: P=64 with blocks of 16 hits 48."""
    driver = Driver(hybrid(16, 16, max_chunk=16))
    driver.submit(0, 64)
    prefill(driver, 0, 16, 32, 48, 64)
    driver.do(act.Finish(0))
    assert resend(driver, 1, 64) == 48


def test_contexts_never_share() -> None:
    """M-KEY-2: same tokens, contexts 0 and 1: the second request hits nothing; a third one in context 0 does."""
    driver = Driver(hybrid(16, 16))
    driver.submit(0, 40)
    prefill(driver, 0, 32, 40)
    driver.do(act.Finish(0))
    assert resend(driver, 1, 40, context=1) == 0
    driver.close()
    assert resend(driver, 2, 40) == 32


def test_replicated_columns() -> None:
    """M-GEO-5: Mamba16, N=2, chunks 32 and 8: the state at 40 stands in column 2."""
    driver = Driver(hybrid(16, 16, dcp_size=2))
    driver.submit(0, 40)
    prefill(driver, 0, 32, 40)
    assert driver.tables(0) == [[1, 3], [0, 2, 4]]


def test_two_ranks_equal_one_rank_with_larger_blocks() -> None:
    """DS-9(b): FA16/Mamba32 at N=2 and FA32/Mamba32 at N=1, H=16, chunks to 64, 96, 100: the scheduler's side is equal."""
    pair = []
    for attention, ranks in ((16, 2), (32, 1)):
        driver = Driver(hybrid(attention, 32, dcp_size=ranks, hash_block_size=16))
        driver.submit(0, 100)
        prefill(driver, 0, 64, 96, 100)
        resend(driver, 1, 100)
        records = [evolve(record, branches=(), local_lengths=(), reads=()) for record in driver.records]
        pair.append((records, driver.world.pool, driver.tables(0)))
    assert pair[0] == pair[1]
    assert pair[0][0][-1].local == 96


def test_a_coarse_hit_is_a_multiple_of_the_alignment() -> None:
    """T11, HB-8: FA4, FA8, Mamba4, S = A = 8: with the key at 8 of the first class gone nothing is left to hit, not 4."""
    groups = (Group(FULL, 4), Group(FULL, 8), Group(MAMBA, 4))
    driver = Driver(configure(groups, num_blocks=20, max_chunk=4, connectors=(True,)))
    assert driver.world.config.alignment == 8
    driver.submit(0, 14)
    prefill(driver, 0, 4, 8, 12, 14)
    (block,) = driver.keys(0)[8]
    driver.do(act.Finish(0))
    assert resend(driver, 1, 14) == 8
    driver.close()
    driver.do(act.EvictBlocks((block,)))
    assert resend(driver, 2, 14) == 0


def test_output_appends_one_token_at_the_end_of_the_prompt() -> None:
    """G15 without drafts: P=20, B=16: computed 16, then 20, then 21 tokens of which 20 are computed."""
    driver = Driver(hybrid(16, 16))
    driver.submit(0, 20)
    driver.chunk(0, 16)
    assert (driver.request(0).computed, driver.request(0).num_tokens) == (16, 20)
    driver.do(act.BeginStep())
    driver.allocate(0, 4)
    driver.close((0, 7))
    request = driver.request(0)
    assert (request.computed, request.num_tokens, request.in_flight) == (20, 21, 0)
    assert driver.world.prefixes.token[request.tip] == 7


def test_withdrawing_one_request_leaves_the_handoffs_of_others() -> None:
    """T31.4: the undrained handoffs of the withdrawn request vanish, and no others."""
    driver = Driver(hybrid(16, 16, max_chunk=16))
    for request in (0, 1):
        driver.submit(request, tuple(range(100 * request, 100 * request + 40)))
        driver.chunk(request, 16)
    driver.do(act.BeginStep(), act.Allocate(0, 16), act.Allocate(1, 16))
    assert [handoff[0] for handoff in driver.world.plan.handoffs] == [0, 1]
    driver.do(act.Withdraw(1))
    assert [handoff[0] for handoff in driver.world.plan.handoffs] == [0]
    assert [key[2] for key in driver.world.plan.cached] == [0]
    assert [entry.request for entry in driver.world.plan.scheduled] == [0]
    # The keys at 32 that request 0 registered in this plan stay, those of request 1 are rolled back.
    tips = {entry[0] for entry in driver.world.pool.entries if driver.world.prefixes.depth[entry[0]] == 32}
    assert {driver.world.prefixes.token[tip] for tip in tips} == {31}


def test_resume_looks_up_generated_tokens_too() -> None:
    """T37.2: a preempted request is looked up like a new one, over prompt and output."""
    driver = Driver(hybrid(16, 16))
    driver.submit(0, 20)
    prefill(driver, 0, 16, 20, *range(21, 34))
    driver.do(act.BeginStep(), act.Preempt(0))
    driver.close()
    request = driver.request(0)
    assert (request.computed, request.num_preemptions, request.num_tokens) == (0, 1, 34)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(0)).local == 32


def test_states_are_freed_when_processed() -> None:
    """T16.3, T21: a state goes back once the next column's state is computed, not before."""
    driver = Driver(hybrid(16, 16, max_chunk=16))
    driver.submit(0, 50)
    prefill(driver, 0, 16, 32)
    assert driver.tables(0)[1] == [2, 4]
    prefill(driver, 0, 48)
    assert driver.tables(0)[1] == [0, 4, 6]
    assert driver.request(0).groups[1].retired == 1


def test_the_zero_list_is_group_by_group() -> None:
    """C-7: FA2, Mamba2, FA2 at N=2, two requests of 2 tokens admitted in one step: blocks 1, 4, then 3, 6."""
    driver = Driver(configure((Group(FULL, 2), Group(MAMBA, 2), Group(FULL, 2)), dcp_size=2, num_blocks=20))
    driver.submit(0, (1, 2, 3))
    driver.submit(1, (4, 5, 6))
    driver.do(act.BeginStep())
    driver.allocate(0, 2)
    driver.allocate(1, 2)
    assert driver.do(act.Drain()).zeroed == (1, 4, 3, 6)


def test_reset_succeeds_only_without_a_block_in_use() -> None:
    """T5: refused and unchanged while a request holds blocks; then every key goes and the free queue stays as it is."""
    driver = Driver(hybrid(16, 16))
    driver.submit(0, 40)
    prefill(driver, 0, 32, 40)
    before = driver.world
    assert driver.do(act.ResetCache()).done is False
    assert driver.world == before
    driver.do(act.Finish(0))
    free = driver.world.pool.free
    assert driver.do(act.ResetCache()).done is True
    assert (driver.keys(0), driver.keys(1), driver.world.pool.free) == ({}, {}, free)
    assert resend(driver, 1, 40) == 0


def test_reset_is_refused_with_a_single_block_in_use() -> None:
    """T5: one block that a request holds is enough to refuse, and nothing changes."""
    driver = Driver(configure((Group(FULL, 4),), num_blocks=4))
    driver.submit(0, 3)
    driver.chunk(0, 3)
    before = driver.world
    assert driver.do(act.ResetCache()).done is False
    assert driver.world == before


def test_nothing_is_sampled_at_the_model_length() -> None:
    """T36.6: a request at the model length gets no further token and can only finish."""
    driver = Driver(hybrid(16, 16, max_model_len=20))
    driver.submit(0, 19)
    prefill(driver, 0, 16, 19)
    assert driver.request(0).num_tokens == 20
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    driver.do(act.Drain(), act.BuildMetadata(), act.Dispatch(), *macros.EXECUTE)
    with pytest.raises(errors.OutputMismatch):
        driver.do(act.Output(0, (9,)))
    driver.do(act.Output(0))
    driver.do(act.BeginStep())
    with pytest.raises(errors.BeyondKnownTokens):
        driver.do(act.Allocate(0, 1))


CHECKPOINT_CONFIGS = [
    hybrid(64, 64, hash_block_size=16, max_model_len=256, retention=retention, num_blocks=24) for retention in (None, 0)
] + [
    hybrid(16, 16, dcp_size=2, max_model_len=256, retention=0, num_blocks=64),
    hybrid(16, 16, dcp_size=4, max_model_len=256, retention=None, num_blocks=64),
]


@pytest.mark.parametrize("config", CHECKPOINT_CONFIGS, ids=lambda config: f"N={config.dcp_size},{config.retention}")
def test_an_identical_resend_hits_the_checkpoint(config: Config) -> None:
    """LV-10: for P = 2..209 a resend hits ck(P, H), the last multiple of H below P."""
    for prompt in range(2, 210, 3):
        driver = Driver(config)
        driver.submit(0, prompt)
        while driver.request(0).computed < prompt:
            start = driver.request(0).computed
            wanted = prompt - start
            for end in range(prompt, start, -1):
                driver.do(act.BeginStep())
                try:
                    driver.allocate(0, end - start)
                except errors.ChunkNotClipped:
                    driver.close()
                    continue
                driver.close()
                break
            assert driver.request(0).computed > start, wanted
        driver.do(act.Finish(0))
        assert resend(driver, 1, prompt) == (prompt - 1) // 16 * 16
