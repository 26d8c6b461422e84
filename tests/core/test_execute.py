"""What steps write and read: states of drafts, running columns, internal checkpoints, stable tables, null entries (T0 d to f, 3.6)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import contents, errors, execute, prefixes, worker
from kvproof.core import step as steps
from kvproof.core.config import SOUND, Group, configure
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.core.world import Phase, Scheduled, Status, Step, World
from kvproof.spec import macros
from tests.driving import Driver
from tests.in_flight import dispatch, run

FULL, MAMBA, STABLE = "full_attention", "mamba_align", "mamba_stable"


def drafting(mamba: int = 16, spare: int = 3, prompt: int = 20, *more: Group, **settings: Any) -> Driver:
    """FA16 and Mamba-align with as many speculative blocks as drafts; a prompt is computed, its first token is sampled."""
    groups = (Group(FULL, 16), Group(MAMBA, mamba, speculative_blocks=spare), *more)
    driver = Driver(configure(groups, num_blocks=60, num_draft_tokens=spare, **settings))
    driver.submit(0, prompt)
    while (start := driver.request(0).computed) < prompt:
        driver.chunk(0, steps.clip(driver.world, driver.request(0), start, prompt - start))
    return driver


def draft(driver: Driver, drafts: int, accepted: int, request: int = 0) -> None:
    """Plan, run and process one decode step whose drafts are 51, 52, ...; some are accepted, then 9 is sampled."""
    tokens = tuple(range(51, 51 + drafts))
    driver.do(act.BeginStep(), act.Allocate(request, 1 + drafts, drafts=tokens))
    driver.close((request, (*tokens[:accepted], 9)))


def held(driver: Driver, block: int) -> int | None:
    """How many tokens the state in a block stands for, None if its prefix is not that of request 0."""
    (node,) = set(driver.world.contents[block][1:]) or {UNWRITTEN}
    if node < 0:
        return node
    depth, tip = driver.world.prefixes.depth[node], driver.request(0).tip
    known = depth <= driver.request(0).num_tokens and prefixes.ancestor(driver.world.prefixes, tip, depth) == node
    return depth if known else None


def row_states(driver: Driver, group: int = 1) -> list[int | None]:
    """What the blocks of request 0 in a recurrent group hold, column by column; 0 for null."""
    return [held(driver, block) if block else 0 for block in driver.tables(0)[group]]


def reads(driver: Driver) -> tuple[tuple[int, ...], ...]:
    """The state reads of the newest forward."""
    return next(record.reads for record in reversed(driver.records) if record.action == "Execute")


# --- drafts (3.6, T36.5) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
def test_every_draft_has_a_slot_of_its_own(accepted: int) -> None:
    """3.6, M-SPEC-3: ns=3, B=16, c=20: columns 1 to 4 get the states at 21 to 24; the next step reads column 1 + k."""
    driver = drafting()
    draft(driver, 3, accepted)
    states = row_states(driver)
    # The rejected ones have another prefix than the request.
    assert states == [0, 21, *(22 + i if i < accepted else None for i in range(3))]
    assert driver.world.worker.accepted[0] == 1 + accepted
    assert driver.world.worker.columns[0] == (-1, 1)
    draft(driver, 1, 0)
    boundary = 21 + accepted
    assert reads(driver) == ((0, 1, 1 + accepted, driver.tables(0)[1][1 + accepted], boundary),)
    assert row_states(driver)[1] == boundary + 1


def test_the_running_state_moves_when_its_column_changes() -> None:
    """T0 e: from the slot of the last accepted draft to the front of the new column; one kept token from then on."""
    driver = drafting(prompt=28)
    draft(driver, 2, 2)
    assert (driver.request(0).computed, row_states(driver)[1:4]) == (31, [29, 30, 31])
    driver.do(act.BeginStep(), act.Allocate(0, 3, drafts=(51, 52)))
    driver.dispatch()
    for part in execute.PARTS[: execute.PARTS.index("precopy") + 1]:
        driver.do(act.Execute(part))
    assert (driver.world.worker.columns[0][1], driver.world.worker.accepted[0]) == (2, 1)
    assert row_states(driver)[2] == 31
    driver.do(act.Execute("forward"))
    assert reads(driver) == ((0, 1, 2, driver.tables(0)[1][2], 31),)
    driver.output((0, (51, 9)))
    assert row_states(driver)[2:4] == [32, 33]


@pytest.mark.parametrize("accepted", [0, 2])
def test_the_certain_state_at_a_block_end_is_kept_at_once(accepted: int) -> None:
    """3.6: c=31, three drafts: the state at 32 is certain, its key 32 is registered at planning, column 1 holds it."""
    driver = drafting(prompt=31)
    driver.do(act.BeginStep(), act.Allocate(0, 4, drafts=(51, 52, 53)))
    block = driver.tables(0)[1][1]
    assert driver.keys(1)[32] == [block]
    driver.dispatch()
    driver.do(*macros.EXECUTE)
    assert row_states(driver)[1:3] == [32, 32]
    driver.output((0, (*(51, 52, 53)[:accepted], 9)))
    assert (held(driver, block), driver.world.worker.accepted[0]) == (32, 1 + accepted)


@pytest.mark.parametrize(("accepted", "kept"), [(0, None), (1, None), (2, 32), (3, 32)])
def test_an_accepted_state_at_a_block_end_is_kept_with_the_output(accepted: int, kept: int | None) -> None:
    """3.6, T36.7: c=29, three drafts: 32 is reached by the second draft; then column 1 gets its state, and the key."""
    driver = drafting(prompt=29)
    draft(driver, 3, accepted)
    column = row_states(driver)[1]
    assert driver.tables(0)[1][1] != driver.tables(0)[1][2]
    assert (column == 32, 32 in driver.keys(1)) == (kept == 32, kept == 32)
    assert driver.request(0).computed == 30 + accepted
    draft(driver, 0, 0)
    assert row_states(driver)[driver.world.worker.columns[0][1]] == 31 + accepted


def test_several_block_ends_in_one_step() -> None:
    """3.6 with blocks smaller than the drafts, B=2, ns=3: each accepted end whose column still has a block is kept there."""
    driver = drafting(2, 3, 4)
    draft(driver, 3, 3)
    # Columns 2 to 4 were speculative; the block of column 2 moved on to column 5, so the state at 6 has no column to stay in.
    assert row_states(driver) == [0, 4, 0, 8, 6, 7, 8]
    draft(driver, 3, 1)
    assert driver.request(0).computed == 10
    assert reads(driver) == ((0, 1, 5, driver.tables(0)[1][5], 8),)


def test_drafts_follow_one_token() -> None:
    """3.6, C-58: behind a longer chunk the column of the state before rejected drafts could be null; one token may be the first."""
    driver = drafting(prompt=20)
    driver.submit(1, 3)
    driver.submit(2, 1)
    driver.do(act.BeginStep(), act.Allocate(0, 2, drafts=(51,)), act.Lookup(1))
    assert type(steps.refusal(driver.world, act.Allocate(1, 4, drafts=(51,)))) is errors.MisplacedDrafts
    driver.do(act.Lookup(2), act.Allocate(2, 2, drafts=(51,)))
    attention = Driver(configure((Group(FULL, 16),), num_blocks=20, num_draft_tokens=1))
    attention.submit(1, 3)
    attention.do(act.BeginStep(), act.Lookup(1), act.Allocate(1, 4, drafts=(51,)))


def test_a_moved_block_stands_twice_in_the_row_and_belongs_to_the_last_column() -> None:
    """T21.4, 3.6: rows are append-only; what belongs to a column whose block moved on is nothing."""
    driver = drafting(2, 3, 4)
    draft(driver, 3, 3)
    row, config = driver.world.worker.rows[1][0], driver.world.config
    moved = row[2]
    assert (row.count(moved), row.index(moved, 3)) == (2, 5)
    own = [worker.own_block(config, driver.world.worker, 1, 0, column) for column in range(-1, len(row) + 1)]
    assert own == [0, 0, *(block if index != 2 else 0 for index, block in enumerate(row) if index), 0]


def test_all_running_states_of_a_row_move_together() -> None:
    """T0 e: Mamba4 moves on to its next column, Mamba8 does not; both read the state behind the accepted draft."""
    driver = drafting(4, 2, 9, Group(MAMBA, 8, speculative_blocks=2))
    draft(driver, 2, 1)
    assert (driver.request(0).computed, driver.world.worker.columns[0]) == (11, (-1, 2, 1))
    draft(driver, 2, 0)
    assert driver.world.worker.columns[0] == (-1, 3, 1)
    assert [(read[1], read[2], read[4]) for read in reads(driver)] == [(1, 3, 11), (2, 1, 11)]
    assert (row_states(driver)[3], row_states(driver, 2)[1]) == (12, 12)


def test_the_first_step_keeps_one_token() -> None:
    """T37.5: a row starts with one kept token, also one that another request left with more."""
    driver = drafting()
    draft(driver, 3, 3)
    assert driver.world.worker.accepted[0] == 4
    driver.do(act.Finish(0))
    driver.submit(1, (7, 7, 7))
    driver.do(act.BeginStep(), *macros.admit(1, 3))
    driver.dispatch()
    assert (driver.world.worker.owners[0], driver.world.worker.accepted[0]) == (1, 1)


def test_until_the_output_one_token_counts_as_kept() -> None:
    """3.6: behind the forward the running state is the certain one in the first slot, whatever the step before kept."""
    driver = drafting()
    draft(driver, 3, 2)
    driver.do(act.BeginStep(), act.Allocate(0, 2, drafts=(51,)))
    driver.dispatch()
    for part in execute.PARTS:
        assert driver.world.worker.accepted[0] == 3
        driver.do(act.Execute(part))
    assert driver.world.worker.accepted[0] == 1


def test_settling_is_for_the_owner_of_the_row() -> None:
    """T36.5: the output of a request that no longer has the row changes nothing at the worker."""
    driver = drafting()
    entry = Scheduled(5, 20, 4, False, 20, (51, 52, 53), True, 0, driver.request(0).tip, 0)
    assert execute.settle_accepted(driver.world, entry, 3) is driver.world
    settled = execute.settle_accepted(driver.world, evolve(entry, request=0), 3)
    assert settled.worker.accepted[0] == 3


def test_the_state_of_a_block_that_holds_none_of_its_group() -> None:
    """3.2: a block that was never written holds no state, one that another group filled holds garbage."""
    assert contents.state_values((), 1, 2) == (UNWRITTEN, UNWRITTEN)
    assert contents.state_values((0, 7, 7), 1, 2) == (GARBAGE, GARBAGE)
    assert contents.state_values((1, 7, 8), 1, 2) == (7, 8)


def test_a_row_without_the_slots_is_a_broken_contract() -> None:
    """TB-7: drafts without speculative blocks behind the running state are never written somewhere else."""
    driver = drafting(spare=0)
    entry = Scheduled(0, 20, 3, False, 20, (51, 52), True, 0, driver.request(0).tip, 0)
    step = Step((entry,), (), (), 4, (0,))
    with pytest.raises(errors.ContractBroken, match="column 2 is needed"):
        execute.run_part(driver.world, step, "forward")


# --- internal checkpoints (T38.5) -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["own", "row"])
def test_a_checkpoint_is_written_only_into_a_column_with_a_block_of_its_own(rule: Any) -> None:
    """T38.5, `checkpoint_column`: FA4, Mamba4, ns=1, H=2, c=1, sparse: nothing is reserved for the chunk 4..12.

    The worker's numbers alone say 10 in column 1, and the row still has there the block that moved to column 2. Written
    through the row, the state at 10 replaces the running state at 12, and its key 12 lies.
    """
    groups = (Group(FULL, 4), Group(MAMBA, 4, speculative_blocks=1))
    profile = evolve(SOUND, checkpoint_column=rule)
    settings: dict[str, Any] = {"hash_block_size": 2, "retention": 0, "checkpoint_alignment": 1, "max_chunk": 8}
    driver = Driver(configure(groups, num_blocks=40, profile=profile, **settings))
    driver.submit(0, 30)
    driver.chunk(0, 4)
    driver.chunk(0, 8)
    assert driver.request(0).groups[1].checkpoint_column == -1
    assert driver.tables(0)[1] == [2, 0, 3, 6]
    assert driver.world.worker.rows[1][0] == (2, 3, 3, 6)
    assert held(driver, 3) == (12 if rule == "own" else 10)


def test_the_worker_decides_like_the_demand() -> None:
    """T38: position and column from the numbers of the chunk; drafts and backends without export have none."""
    driver = drafting(checkpoint_alignment=1, hash_block_size=4, use_eagle=True)
    config = driver.world.config
    entry = Scheduled(0, 0, 40, False, 0)
    assert worker.checkpoint(config, 1, entry) == (36, 1)
    assert worker.checkpoint(config, 1, evolve(entry, drafts=(1,))) is None
    assert worker.checkpoint(config, 1, evolve(entry, amount=16)) is None
    without = drafting(hash_block_size=4, use_eagle=True).world.config
    assert worker.checkpoint(without, 1, entry) is None


def test_an_export_that_does_not_happen_leaves_a_lying_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """M-MAM-7: the worker declines what the manager reserved: the block keyed 48 was never written."""
    monkeypatch.setattr(worker, "checkpoint", lambda config, group, entry: None)
    groups = (Group(FULL, 64), Group(MAMBA, 64))
    driver = Driver(configure(groups, num_blocks=20, hash_block_size=16, use_eagle=True, checkpoint_alignment=16))
    driver.submit(0, 70)
    driver.chunk(0, 70)
    assert (driver.keys(1), driver.world.contents[3]) == ({48: [3]}, ())


# --- positionally stable states ---------------------------------------------------------------------------------------


def stable(**settings: Any) -> Driver:
    """FA4 and stable Mamba4."""
    return Driver(configure((Group(FULL, 4), Group(STABLE, 4)), num_blocks=30, **settings))


def test_stable_tables_get_a_state_per_block() -> None:
    """A chunk [0, 10) writes the states at 4, 8 and 10 to columns 0, 1, 2; [10, 14) reads column 2 and writes 12 and 14."""
    driver = stable()
    driver.submit(0, 20)
    driver.chunk(0, 10)
    assert row_states(driver) == [4, 8, 10]
    third = driver.tables(0)[1][2]
    driver.chunk(0, 4)
    assert reads(driver) == ((0, 1, 2, third, 10),)
    assert row_states(driver) == [0, 0, 12, 14]
    assert driver.world.worker.columns[0] == (-1, 3)
    driver.chunk(0, 2)
    assert row_states(driver) == [0, 0, 0, 16]


def test_stable_states_of_external_tokens() -> None:
    """T0 d: a connector brings the state at the end of the external tokens; entries before it are null and take nothing."""
    driver = stable()
    driver.submit(0, 20)
    driver.do(act.BeginStep(), *macros.admit(0, 5, 0, 12))
    driver.close()
    assert row_states(driver) == [0, 0, 12, 16, 17]
    assert driver.world.contents[0] == ()


def test_which_states_a_chunk_keeps() -> None:
    """The end alone in Mamba align; the end of every block too where columns never change their meaning."""
    config = configure((Group(STABLE, 4), Group(MAMBA, 4)), num_blocks=20)
    assert execute.state_boundaries(config, 0, 0, 10) == (4, 8, 10)
    assert execute.state_boundaries(config, 0, 4, 8) == (8,)
    assert execute.state_boundaries(config, 0, 5, 7) == (7,)
    assert execute.state_boundaries(config, 1, 0, 10) == (10,)


# --- null entries and unknown tokens ----------------------------------------------------------------------------------


def test_null_entries_take_nothing() -> None:
    """T0 d: the external tokens behind a window of 4 have no blocks; the null block is never written."""
    groups = (Group(FULL, 4), Group("sliding_window", 4, window=4))
    driver = Driver(configure(groups, num_blocks=30))
    driver.submit(0, 20)
    driver.do(act.BeginStep(), *macros.admit(0, 8, 0, 12))
    driver.close()
    assert driver.tables(0)[1][:2] == [0, 0]
    assert all(driver.tables(0)[1][2:])
    assert driver.world.contents[0] == ()
    assert driver.cells(driver.tables(0)[1][2]) == [9, 10, 11, 12]


@pytest.mark.parametrize("known", [True, False])
def test_tokens_that_never_became_known_are_garbage(known: bool) -> None:
    """T36: a step of an aborted request still executes; the cells and states of its unknown tokens are garbage."""
    groups = (Group(FULL, 4), Group(MAMBA, 4))
    driver = Driver(configure(groups, num_blocks=30, max_steps_in_flight=2, async_outputs=True))
    driver.submit(0, 6)
    for amount in (4, 2):
        dispatch(driver, *((act.Lookup(0),) if amount == 4 else ()), act.Allocate(0, amount))
        run(driver)
        if amount == 4:
            driver.do(act.Output(0))
    dispatch(driver, act.Allocate(0, 1))
    attention, states = driver.tables(0)
    if known:
        driver.do(act.Output(0, (9,)))
    else:
        driver.do(act.Finish(0), act.Output(0))
    run(driver)
    assert driver.cells(attention[1]) == [5, 6, 9 if known else GARBAGE, UNWRITTEN]
    (state,) = driver.world.contents[states[1]][1:]
    assert (driver.world.prefixes.depth[state] if state >= 0 else state) == (7 if known else GARBAGE)


# --- random runs ------------------------------------------------------------------------------------------------------


class Walk:
    """A random run with drafts, checkpoints, preemption, withdrawal and up to two steps in flight.

    Every state read is the state of the request's own prefix (CC-2), every recurrent key tells the truth at rest (CC-3), and
    every demand is what is taken (PC-7).
    """

    def __init__(self, seed: int, spare: int, *mamba: int, **settings: Any) -> None:
        groups = (Group(FULL, 4), *(Group(MAMBA, size, speculative_blocks=spare) for size in mamba))
        defaults: dict[str, Any] = {"num_blocks": 40, "max_model_len": 40, "max_running": 3, "num_draft_tokens": spare}
        self.driver, self.rng = Driver(configure(groups, **(defaults | settings))), random.Random(seed)
        self.next = self.moved = self.exported = self.accepted = 0

    def attempt(self, action: act.Action) -> bool:
        """Do something if it is legal here; broken contracts are never legal."""
        refused = steps.refusal(self.driver.world, action)
        assert not isinstance(refused, errors.ContractBroken | errors.PoolExhausted), refused
        if refused is None:
            self.driver.do(action)
        return refused is None

    def allocate(self, request: int, local: int = 0) -> None:
        """Allocate as T22 clips a random budget; a decode step may carry drafts."""
        world, rng = self.driver.world, self.rng
        found = self.driver.request(request)
        start = found.computed + local
        left = found.num_tokens + found.placeholders - start
        most = world.config.num_draft_tokens if left == 1 and found.status is Status.RUNNING else 0
        drafts = tuple(rng.randint(1, 2) for _ in range(rng.randint(0, most)))
        amount = left if left == 1 else steps.clip(world, found, start, rng.randint(1, max(left, 1)))
        if amount < 1 or not self.attempt(act.Allocate(request, amount + len(drafts), local, drafts=drafts)):
            return
        record = self.driver.records[-1]
        if not record.admitted:
            self.attempt(act.Preempt(request, rng.random() < 0.5))
            return
        assert len(self.driver.world.pool.free) == record.free_before - record.demand
        self.moved += len(record.relocated)
        self.exported += any(state.checkpoint_column >= 0 for state in self.driver.request(request).groups)
        if rng.random() < 0.05:
            self.attempt(act.Withdraw(request))

    def plan(self) -> None:
        """Submit, finish, and dispatch one plan."""
        driver, rng = self.driver, self.rng
        if len(driver.world.requests) < 3:
            driver.submit(self.next, tuple(rng.choice((1, 1, 1, 2)) for _ in range(rng.randint(1, 24))))
            self.next += 1
        for found in driver.world.requests:
            if found.num_tokens > 34 or rng.random() < 0.05:
                self.attempt(act.Finish(found.request))
        if not self.attempt(act.BeginStep()):
            return
        for found in driver.world.requests:
            if found.status is Status.RUNNING:
                self.allocate(found.request)
        for found in driver.world.requests:
            if found.status is not Status.RUNNING and self.attempt(act.Lookup(found.request)):
                self.allocate(found.request, driver.records[-1].local)
        driver.dispatch()

    def execute(self) -> bool:
        """Execute the oldest step that is not executed, and judge what it reads."""
        waiting = [step for step in self.driver.world.steps if step.part < len(execute.PARTS)]
        for part in execute.PARTS[waiting[0].part :] if waiting else ():
            before, entries = self.driver.world, waiting[0].scheduled
            if not self.attempt(act.Execute(part)):
                return False
            for request, _, _, block, boundary in self.driver.records[-1].reads:
                (entry,) = (entry for entry in entries if entry.request == request)
                if boundary <= before.prefixes.depth[entry.tip]:
                    assert set(before.contents[block][1:]) == {prefixes.ancestor(before.prefixes, entry.tip, boundary)}
        return bool(waiting)

    def settle(self) -> None:
        """Process the outputs of the oldest step, if it is executed."""
        driver, rng = self.driver, self.rng
        if not driver.world.steps or driver.world.steps[0].part < len(execute.PARTS):
            return
        step = driver.world.steps[0]
        for entry in (entry for entry in step.scheduled if entry.request in step.due):
            accepted = rng.randint(0, len(entry.drafts))
            self.accepted += accepted
            driver.do(act.Output(entry.request, (*entry.drafts[:accepted], rng.randint(1, 2)) if entry.samples else ()))

    def judge(self) -> None:
        """At rest every recurrent key names the state that its block holds."""
        world: World = self.driver.world
        if world.phase is Phase.IDLE and all(step.part == len(execute.PARTS) for step in world.steps):
            for node, group, _, block in world.pool.entries:
                if group in world.config.recurrent:
                    assert set(world.contents[block][1:]) == {node}


@pytest.mark.parametrize(
    ("spare", "mamba", "settings"),
    [
        (3, (4,), {"use_eagle": True, "hash_block_size": 4, "checkpoint_alignment": 1}),
        (2, (2,), {"hash_block_size": 2, "checkpoint_alignment": 2, "retention": 0}),
        (3, (1,), {"hash_block_size": 1, "checkpoint_alignment": 1, "retention": 8, "dcp_size": 2}),
        (1, (4, 8), {"hash_block_size": 2, "checkpoint_alignment": 2, "use_eagle": True, "shared_prefix_checkpoint": True}),
        (3, (4,), {"hash_block_size": 2, "checkpoint_alignment": 1, "max_steps_in_flight": 2, "async_outputs": True}),
        (2, (8,), {"hash_block_size": 2, "max_steps_in_flight": 2, "async_outputs": True, "defer_block_free": True}),
        (0, (8, 4), {"hash_block_size": 1, "checkpoint_alignment": 2, "max_steps_in_flight": 2, "retention": 0}),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else None,
)
@pytest.mark.parametrize("seed", [1, 2])
def test_states_are_what_tables_and_keys_promise(
    seed: int, spare: int, mamba: tuple[int, ...], settings: dict[str, Any]
) -> None:
    """CC-2, CC-3 and PC-7 on random runs; the interesting situations occur."""
    walk = Walk(seed, spare, *mamba, **settings)
    for _ in range(150):
        walk.plan()
        while walk.rng.random() < 0.8:
            if not walk.execute():
                walk.settle()
            walk.judge()
    assert (walk.accepted > 0) == (spare > 0)
    assert walk.moved > 0 or not spare or walk.driver.world.config.async_outputs
    assert (walk.exported > 0) == (walk.driver.world.config.checkpoint_alignment is not None)
