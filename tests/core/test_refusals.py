"""Every guard is its own typed error, and a refused action leaves the world unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import errors, plans, pool, worker
from kvproof.core.config import Group, Offload, configure
from kvproof.core.kinds import copying, full_attention
from kvproof.core.step import refusal, step
from kvproof.core.work import Work
from kvproof.core.world import GroupState, Worker
from kvproof.spec import macros
from tests.driving import Driver


def fresh(**settings: Any) -> Driver:
    """FA4 and Mamba4 at N=2, request 0 with 14 tokens waiting."""
    groups = (Group("full_attention", 4), Group("mamba_align", 4))
    defaults: dict[str, Any] = {"dcp_size": 2, "num_blocks": 16, "max_model_len": 64}
    driver = Driver(configure(groups, **(defaults | settings)))
    driver.submit(0, 14)
    return driver


def planning(**settings: Any) -> Driver:
    """An open plan in which nothing was done yet."""
    driver = fresh(**settings)
    driver.do(act.BeginStep())
    return driver


def looked_up(**settings: Any) -> Driver:
    """Request 0 was just looked up."""
    driver = planning(**settings)
    driver.do(act.Lookup(0))
    return driver


def running(**settings: Any) -> Driver:
    """Request 0 runs with 12 of 14 tokens; no plan is open."""
    driver = fresh(**settings)
    driver.chunk(0, 12)
    return driver


def replanning(**settings: Any) -> Driver:
    """Request 0 runs and a plan is open."""
    driver = running(**settings)
    driver.do(act.BeginStep())
    return driver


def scheduled() -> Driver:
    """Request 0 has an amount in the open plan."""
    driver = replanning()
    driver.do(act.Allocate(0, 2))
    return driver


def dispatched() -> Driver:
    """A step is dispatched and not executed."""
    driver = looked_up()
    driver.do(act.Allocate(0, 12), *macros.CLOSE)
    return driver


def executed() -> Driver:
    """A step is executed and its output due."""
    driver = dispatched()
    driver.do(*macros.EXECUTE)
    return driver


def decoding() -> Driver:
    """Full attention with a drafter: request 0 knows 15 tokens, 14 of them computed, and a plan is open."""
    driver = Driver(configure((Group("full_attention", 4),), num_blocks=16, max_model_len=17, num_draft_tokens=2))
    driver.submit(0, 14)
    driver.chunk(0, 14)
    driver.do(act.BeginStep())
    return driver


def longest() -> Driver:
    """The same with one token more: two drafts would pass the model length of 17."""
    driver = decoding()
    driver.do(act.Allocate(0, 1))
    driver.close()
    driver.do(act.BeginStep())
    return driver


def ahead(**settings: Any) -> Driver:
    """Two steps in flight: request 0 with its prompt of 14 in the first and a token to come in the second, both dispatched."""
    groups = (Group("full_attention", 4),)
    defaults: dict[str, Any] = {"num_blocks": 16, "max_model_len": 64, "max_steps_in_flight": 2, "async_outputs": True}
    driver = Driver(configure(groups, **(defaults | settings)))
    driver.submit(0, 14)
    driver.do(act.BeginStep(), *macros.admit(0, 14), *macros.CLOSE)
    driver.do(act.BeginStep(), act.Allocate(0, 1), *macros.CLOSE, *macros.EXECUTE)
    return driver


def pending() -> Driver:
    """The second step came to the part that needs the token."""
    driver = ahead()
    driver.do(*macros.EXECUTE[:3])
    return driver


def held(withdrawn: bool = False) -> Driver:
    """Freeing is deferred, request 0 has a step in flight, and a plan is open; with an amount in it if asked."""
    driver = ahead(defer_block_free=True)
    driver.do(act.Output(0, (9,)), act.BeginStep())
    if withdrawn:
        driver.do(act.Allocate(0, 1))
    return driver


def late() -> Driver:
    """Request 0 was preempted with a step in flight whose output is to be delivered, and the next plan is open."""
    driver = ahead()
    driver.do(act.Output(0, (9,)), act.BeginStep(), act.Preempt(0), *macros.CLOSE, *macros.EXECUTE, *macros.EXECUTE)
    driver.do(act.BeginStep())
    return driver


def hit() -> Driver:
    """Request 1 shares 12 tokens of the finished request 0 and was just looked up: hit 12, S = 8."""
    driver = running()
    driver.chunk(0, 2)
    driver.do(act.Finish(0))
    driver.submit(1, (*range(1, 13), *range(50, 62)))
    driver.do(act.BeginStep(), act.Lookup(1))
    return driver


def diverged() -> Driver:
    """A capable connector is offered 8 tokens of attention although only the state at 4 is left."""
    driver = fresh(connectors=(True,), dcp_size=1, max_chunk=4)
    for _ in range(3):
        driver.chunk(0, 4)
    driver.do(act.Finish(0))
    (block,) = driver.keys(1)[8]
    driver.do(act.EvictBlocks((block, driver.keys(1)[12][0])))
    driver.submit(1, 14)
    driver.do(act.BeginStep(), act.Lookup(1))
    return driver


def crowded() -> Driver:
    """One row, taken by request 0; request 1 was looked up."""
    driver = running(max_running=1)
    driver.submit(1, (7, 7, 7))
    driver.do(act.BeginStep(), act.Lookup(1))
    return driver


def hosted(**settings: Any) -> Driver:
    """FA4 and Mamba4 at N=2 with a host tier; request 0 was stored, request 1 resends it and the device forgot it."""
    driver = fresh(offload=Offload(num_blocks=16), **settings)
    for amount in (12, 2):
        driver.do(act.BeginStep())
        driver.allocate(0, amount)
        whole_step(driver)
    driver.do(act.Finish(0), act.BeginStep())
    whole_step(driver)
    assert driver.world.host is not None
    for store in driver.world.host.stores:
        driver.do(act.RunStore(store.event), act.CompleteStore(store.event))
    driver.do(act.ResetCache())
    driver.submit(1, 14)
    driver.do(act.BeginStep(), act.Lookup(1))
    return driver


def whole_step(driver: Driver) -> None:
    """Dispatch the open plan, execute it whole, and process its outputs."""
    driver.dispatch()
    driver.do(*(act.Execute(part) for part in driver.world.config.parts))
    if driver.world.steps:
        driver.output()


def externally_hit() -> Driver:
    """The host's hit of 12 tokens is pinned."""
    driver = hosted()
    assert driver.do(act.LookupExternal(1, 0)).external == 12
    return driver


def loading() -> Driver:
    """The load is handed over."""
    driver = externally_hit()
    driver.do(act.Allocate(1, 0, 0, 12, load=True))
    whole_step(driver)
    return driver


def considered() -> Driver:
    """The load is handed over, and a plan is open."""
    driver = loading()
    driver.do(act.BeginStep())
    return driver


CASES: list[tuple[Callable[[], Driver], act.Action, type[errors.Refusal]]] = [
    (planning, act.Submit(1, (1,)), errors.PhaseError),
    (planning, act.BeginStep(), errors.PhaseError),
    (fresh, act.Lookup(0), errors.PhaseError),
    (fresh, act.Allocate(0, 1), errors.PhaseError),
    (fresh, act.Drain(), errors.PhaseError),
    (planning, act.BuildMetadata(), errors.PhaseError),
    (planning, act.Dispatch(), errors.PhaseError),
    (planning, act.Finish(0), errors.PhaseError),
    (planning, act.ResetCache(), errors.PhaseError),
    (planning, act.EvictBlocks((1,)), errors.PhaseError),
    (planning, act.AppendRows(0, ((), ())), errors.PhaseError),
    (looked_up, act.Preempt(0), errors.PhaseError),
    (looked_up, act.Withdraw(0), errors.PhaseError),
    (fresh, act.Submit(0, (1,)), errors.DuplicateRequest),
    (fresh, act.Submit(1, ()), errors.EmptyPrompt),
    (fresh, act.Submit(1, (1,) * 64), errors.EmptyPrompt),
    (fresh, act.Submit(-1, (0,)), errors.NegativeNumber),
    (fresh, act.Submit(1, (0, -1)), errors.NegativeNumber),
    (fresh, act.Submit(1, (0,), context=-1), errors.NegativeNumber),
    (fresh, act.Finish(9), errors.UnknownRequest),
    (planning, act.Lookup(9), errors.UnknownRequest),
    (planning, act.Preempt(9), errors.UnknownRequest),
    (dispatched, act.BeginStep(), errors.StepInFlight),
    (replanning, act.Lookup(0), errors.StatusError),
    (planning, act.Preempt(0), errors.StatusError),
    (scheduled, act.Allocate(0, 1), errors.AlreadyScheduled),
    (scheduled, act.Preempt(0), errors.AlreadyScheduled),
    (replanning, act.Withdraw(0), errors.NotScheduled),
    (executed, act.Output(1), errors.NotScheduled),
    (replanning, act.Allocate(0, 0), errors.NothingToAllocate),
    (replanning, act.Allocate(0, -1), errors.NothingToAllocate),
    (replanning, act.Allocate(0, 1, 0, 0, -1), errors.NothingToAllocate),
    (replanning, act.Allocate(0, 2, 8), errors.LookupMismatch),
    (replanning, act.Allocate(0, 2, 0, 8), errors.LookupMismatch),
    (planning, act.Allocate(0, 12), errors.LookupMissing),
    (hit, act.Allocate(1, 4, 8), errors.LookupMismatch),
    (hit, act.Allocate(1, 4, 4, 4), errors.LookupMismatch),
    (hit, act.Allocate(1, 4, 12, 4), errors.MisalignedExternal),
    (hit, act.Allocate(1, 4, 8, 3), errors.MisalignedExternal),
    (hit, act.Allocate(1, 4, 8, 4), errors.ShortExternal),
    (hit, act.Allocate(1, 4, 8, 16), errors.HitTooLong),
    (hit, act.Allocate(1, 13, 12), errors.BeyondKnownTokens),
    (hit, act.Allocate(1, 9, 12), errors.ChunkNotClipped),
    (decoding, act.Allocate(0, 4, drafts=(1, 2, 3)), errors.TooManyDrafts),
    (decoding, act.Allocate(0, 1, drafts=(1,)), errors.MisplacedDrafts),
    (decoding, act.Allocate(0, 2, drafts=(-1,)), errors.NothingToAllocate),
    (longest, act.Allocate(0, 3, drafts=(1, 2)), errors.BeyondModelLength),
    (ahead, act.BeginStep(), errors.StepInFlight),
    (ahead, act.Output(0), errors.OutputMismatch),
    (ahead, act.AppendRows(0, ((1,),)), errors.RowInUse),
    (pending, act.Execute("precopy"), errors.OutputPending),
    (held, act.Preempt(0), errors.VictimInFlight),
    (lambda: held(withdrawn=True), act.Withdraw(0), errors.VictimInFlight),
    (late, act.Lookup(0), errors.StaleOutput),
    (late, act.Output(0, (9,)), errors.PhaseError),
    (diverged, act.Allocate(1, 4, 8), errors.DivergedHit),
    (looked_up, act.Allocate(0, 13), errors.ChunkNotClipped),
    (lambda: looked_up(max_chunk=8), act.Allocate(0, 12), errors.ChunkNotClipped),
    (crowded, act.Allocate(1, 3), errors.TooManyRunning),
    (dispatched, act.Execute("forward"), errors.ExecutionOrder),
    (fresh, act.Execute("zero"), errors.ExecutionOrder),
    (dispatched, act.Execute("nothing"), errors.ExecutionOrder),
    (dispatched, act.Output(0), errors.ExecutionOrder),
    (executed, act.Output(0, (1,)), errors.OutputMismatch),
    (fresh, act.EvictBlocks((1, 16)), errors.BlockOutOfRange),
    (fresh, act.EvictBlocks((-1,)), errors.BlockOutOfRange),
    (fresh, act.AppendRows(0, ((1,),)), errors.BlockOutOfRange),
    (fresh, act.AppendRows(0, ((16,), ())), errors.BlockOutOfRange),
    (running, act.AppendRows(0, ((1,), ())), errors.RowInUse),
    (fresh, act.AppendRows(8, ((1,), ())), errors.RowInUse),
    (fresh, act.AppendRows(-1, ((1,), ())), errors.RowInUse),
    (fresh, act.AppendRows(1, ((), (1,) * 17)), errors.RowCapacityExceeded),
    (planning, act.LookupExternal(0, 0), errors.NoHostTier),
    (looked_up, act.Allocate(0, 0, 0, 8, load=True), errors.NoHostTier),
    (planning, act.Promote(0), errors.NoHostTier),
    (fresh, act.RunStore(0), errors.NoHostTier),
    (fresh, act.RunLoad(0), errors.NoHostTier),
    (fresh, act.CompleteStore(0), errors.NoHostTier),
    (fresh, act.CompleteLoad(0), errors.NoHostTier),
    (fresh, act.ResetHost(), errors.NoHostTier),
    (fresh, act.ReadCounters(), errors.NoHostTier),
    (loading, act.LookupExternal(1, 0), errors.PhaseError),
    (loading, act.Promote(1), errors.PhaseError),
    (considered, act.CompleteLoad(1), errors.PhaseError),
    (considered, act.CompleteStore(0), errors.PhaseError),
    (considered, act.ResetHost(), errors.PhaseError),
    (considered, act.ReadCounters(), errors.PhaseError),
    (hosted, act.Allocate(1, 0, 0, 12, load=True), errors.LoadMismatch),
    (externally_hit, act.Allocate(1, 1, 0, 12, load=True), errors.LoadMismatch),
    (externally_hit, act.Allocate(1, 0, 0, 12, 2, load=True), errors.LoadMismatch),
    (externally_hit, act.Allocate(1, 0, 8, 12, load=True), errors.LoadMismatch),
    (externally_hit, act.Allocate(1, 0, 0, 8, load=True), errors.LoadMismatch),
    (externally_hit, act.LookupExternal(1, -8), errors.LookupMismatch),
    (externally_hit, act.LookupExternal(1, 16), errors.LookupMismatch),
    (considered, act.Lookup(1), errors.LoadRunning),
    (considered, act.LookupExternal(1, 0), errors.LoadRunning),
    (considered, act.Allocate(1, 2), errors.LoadRunning),
    (considered, act.Promote(1), errors.LoadRunning),
    (considered, act.Preempt(1), errors.StatusError),
    (externally_hit, act.Promote(1), errors.NothingLoaded),
    (loading, act.CompleteLoad(1), errors.NothingLoaded),
    (loading, act.CompleteLoad(2), errors.NothingLoaded),
    (loading, act.RunLoad(1), errors.TransferOrder),
    (loading, act.RunStore(0), errors.TransferOrder),
]


@pytest.mark.parametrize(("make", "action", "error"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_refused_with_its_own_error_and_without_effect(
    make: Callable[[], Driver], action: act.Action, error: type[errors.Refusal]
) -> None:
    """The exact type, a message that is a sentence, JSON-ready values, and no other world left behind."""
    world = make().world
    before = evolve(world)
    with pytest.raises(error) as refused:
        step(world, action)
    assert type(refused.value) is error
    assert len(refused.value.message) > 20
    assert refused.value.world is None
    assert all(isinstance(value, int | str) for value in refused.value.values.values())
    assert world == before
    assert isinstance(refusal(world, action), error)


def test_a_preempted_plan_admits_nobody() -> None:
    """T0(3): behind a preemption of the plan itself no waiting request is looked up; behind one between plans it is."""
    driver = running()
    driver.submit(1, (7, 7, 7))
    driver.do(act.BeginStep(), act.Preempt(0))
    assert isinstance(refusal(driver.world, act.Lookup(1)), errors.AdmissionAfterPreemption)
    driver = running()
    driver.do(act.Preempt(0), act.BeginStep())
    assert refusal(driver.world, act.Lookup(0)) is None
    driver.do(*macros.admit(0, 2, 12)[:1])
    assert driver.do(act.Drain()).action == "Drain"
    assert driver.do(act.BuildMetadata(), act.Dispatch()).preempted == (0,)


def test_running_requests_are_planned_before_waiting_ones() -> None:
    """T0(2): after the first lookup of a plan no running request is allocated."""
    driver = running()
    driver.submit(1, (7, 7, 7))
    driver.do(act.BeginStep(), act.Lookup(1))
    assert isinstance(refusal(driver.world, act.Allocate(0, 2)), errors.PhaseError)


def test_an_id_is_free_only_when_its_output_was_processed() -> None:
    """T37: a request that was aborted in flight keeps its id until the output arrived."""
    driver = executed()
    driver.do(act.Finish(0))
    assert isinstance(refusal(driver.world, act.Submit(0, (1,))), errors.DuplicateRequest)
    driver.do(act.Output(0))
    assert driver.world.steps == ()
    assert refusal(driver.world, act.Submit(0, (1,))) is None


def test_no_refusal_is_left_untested() -> None:
    """Every refusal type of the package appears in this file."""
    elsewhere = {errors.AdmissionAfterPreemption, errors.PoolExhausted, errors.ContractBroken, errors.UnknownAction}
    tested = {error for _, _, error in CASES} | elsewhere
    assert set(errors.REFUSALS) == tested
    assert len({error.code for error in errors.REFUSALS}) == len(errors.REFUSALS)


def test_what_is_no_action_is_refused() -> None:
    """A value outside the alphabet is refused with the list of actions."""
    with pytest.raises(errors.UnknownAction, match="str is not an action; actions are Submit, BeginStep"):
        step(fresh().world, "submit")  # type: ignore[arg-type]


def small_pool(**fields: Any) -> pool.Pool:
    """Four blocks, some fields replaced."""
    return evolve(pool.new_pool(4), **fields)


def test_contracts_of_the_pool() -> None:
    """T1, T3, T6, T7: what may never happen is a broken contract, not a silent state."""
    with pytest.raises(errors.PoolExhausted):
        pool.take(small_pool(), 4)
    assert pool.take(small_pool(), 0)[1] == ()
    with pytest.raises(errors.ContractBroken, match="has 1 references"):
        pool.take(small_pool(ref=(0, 1, 0, 0)), 1)
    with pytest.raises(errors.ContractBroken, match="released more often"):
        pool.release(small_pool(), (1,))
    keyed = pool.insert(pool.insert(small_pool(), 5, 0, 1, 4), 6, 0, 2, 8)
    with pytest.raises(errors.ContractBroken, match="already has one"):
        pool.move(keyed, 1, 2)
    with pytest.raises(errors.ContractBroken, match="stands for 8 tokens"):
        pool.promote(keyed, 7, 0, 2, 8)
    assert pool.remove_all(keyed, 3) is keyed


def test_a_longer_partial_boundary_replaces_a_shorter_one() -> None:
    """T8: what a block stood for gives way to a boundary behind it and stays beside one before it."""
    keyed = pool.insert_partial(small_pool(ref=(0, 1, 0)), 4, 0, 1, 4)
    longer = pool.insert_partial(keyed, 6, 0, 1, 6)
    assert [entry[0] for entry in pool.keys_of(longer, 1)] == [6]
    assert longer.key_tokens[1] == 6
    shorter = pool.insert_partial(keyed, 2, 0, 1, 2)
    assert [entry[0] for entry in pool.keys_of(shorter, 1)] == [4, 2]
    assert shorter.key_tokens[1] == 4


@pytest.mark.parametrize("table", [(2,), (0,)])
def test_a_copy_that_does_not_find_its_block(table: tuple[int, ...]) -> None:
    """T19.1: the table must still have the remembered block there, and it is not the null block."""
    driver = fresh()
    work = Work(driver.world.config, driver.world.pool, driver.world.prefixes, 0, 14, 0, [4, 8, 12])
    owing = GroupState(table=table, partial_index=0, partial_source=table[0] and 1)
    with pytest.raises(errors.ContractBroken, match="copy-on-write of entry 0"):
        copying.redirect(work, 0, owing)


def test_the_null_block_is_skipped_silently() -> None:
    """T2, T3: touching and releasing null entries changes nothing, also in the middle of a list."""
    touched = pool.touch(small_pool(), (0, 2, 0, 1))
    assert (touched.ref, touched.free) == ((0, 1, 1, 0), (3,))
    assert pool.release(touched, (0, 1, 0, 2)).ref == (0, 0, 0, 0)


def test_a_row_without_the_column_is_a_broken_contract() -> None:
    """TB-7: reading a column that a row does not have is never a silent zero."""
    driver = running()
    with pytest.raises(errors.ContractBroken, match="has 2 columns, column 2 is needed"):
        worker.block_at(driver.world.config, driver.world.worker, 0, 0, 2)
    with pytest.raises(errors.ContractBroken, match="column -1 is needed"):
        worker.block_at(driver.world.config, driver.world.worker, 0, 0, -1)


def test_no_row_is_left() -> None:
    """T37.5: admission has counted rows before, so running out at dispatch is a typed error and not an index error."""
    with pytest.raises(errors.TooManyRunning, match="all 1 worker rows are taken"):
        plans.free_row(Worker(owners=(3,), rows=(((),),), columns=((-1,),), accepted=(1,)))


def test_a_prompt_tail_beyond_the_table_is_not_registered() -> None:
    """T9.2: without an entry for the boundary, or with a null one, nothing is keyed."""
    driver = fresh()
    work = Work(driver.world.config, driver.world.pool, driver.world.prefixes, 0, 14, 0, [4, 8, 12])
    for table in ((), (1,), (1, 0)):
        full_attention.register_tail(work, 0, GroupState(table=table), 12)
        assert work.pool is driver.world.pool
