"""Claims about submitting, rows of a dispatch, what a forward and a transfer write, and outputs as a whole (T0, T36, T37)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import allocation, execute, outputs, plans, requests, worker
from kvproof.core import config as configs
from kvproof.core import pool as pools
from kvproof.core import work as works
from kvproof.core import world as worlds
from kvproof.core.allocation import InStep, Wanted
from kvproof.core.config import Group
from kvproof.core.contents import Cells
from kvproof.core.kinds import copying
from kvproof.core.offload import transfers
from kvproof.core.offload.state import Load, Stage, Store
from kvproof.core.profiles import VLLM_0_33_0
from kvproof.core.world import GroupState, Phase, Plan, Scheduled, Status, Step
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, pick
from kvproof.proofs.refusing import refused

MIXED = configs.configure(
    (Group("full_attention", 2), Group("mamba_align", 4), Group("scratch", 4)),
    num_blocks=4,
    max_running=2,
    max_steps_in_flight=2,
)
"""Four rows: two requests may run, and two steps may be in flight."""
RANKS = configs.configure((Group("full_attention", 2, sharded=True),), num_blocks=4, dcp_size=2, interleave=1)
"""An entry covers 4 tokens: each rank has every second one."""
DRAFTING = configs.configure((Group("full_attention", 4),), num_blocks=4, num_draft_tokens=2)
EXPANDED = configs.configure((Group("full_attention", 4),), num_blocks=4, append_expansion=3)
PLAIN = evolve(tiers.FULL_WORLD, host=None)
ROWS = worlds.new_world(MIXED)


# --- submitting ---------------------------------------------------------------------------------------------------


@claim(
    requests.submit,
    requests.context_of,
    sizes="shape",
    bounds="two prompts of two tokens, any tokens and contexts",
    laws=("TB-9",),
)
def equal_prompts_have_one_prefix(context: int, other: int, one: int, two: int, three: int) -> None:
    """A submitted request waits with nothing; requests have one prefix exactly if their tokens and their context are the same
    (T37, 2.3, TB-9).
    """
    assert (context >= 0) & (other >= 0) & (one >= 0) & (two >= 0) & (three >= 0)
    first, _ = requests.submit(worlds.new_world(tiers.FULL), act.Submit(0, (one, two), context))
    second, record = requests.submit(first, act.Submit(1, (one, three), other))
    old, new = second.requests
    assert (old.tip == new.tip) == ((context == other) & (two == three))
    assert (new.status is Status.WAITING) & (new.computed == 0) & (new.groups == (GroupState(),))
    assert (new.num_tokens == 2) & (record.num_tokens == 2)
    assert first.requests == (old,)


@claim(
    requests.submit,
    sizes="shape",
    bounds="a live request 0; ids of -1 to 1, prompts of 0 to 20 tokens, one of them -1 or none; a model of 20",
)
def a_submission_is_refused_for_a_taken_id_and_an_impossible_prompt(number: int, length: int, negative: bool) -> None:
    """A submission is refused if its id is taken, its prompt is empty or leaves no room for a token, or a number is negative
    (T37).
    """
    assert -1 <= number <= 1
    assert 0 <= length <= 3
    asked = pick((-1, 0, 1), number + 1)
    tokens = pick(((), (5,), (5,) * 19, (5,) * 20), length)
    world = evolve(tiers.FULL_WORLD, config=evolve(tiers.FULL, max_model_len=20), requests=(holders.request_of(),))
    prompt = (-1, *tokens[1:]) if negative and tokens else tokens
    no = refused(requests.submit, world, act.Submit(asked, prompt))
    assert no == (asked == 0 or length in (0, 3) or asked == -1 or negative)


# --- rows ---------------------------------------------------------------------------------------------------------


@claim(
    plans.free_row,
    plans.busy_rows,
    sizes="shape",
    bounds="four rows, each owned or not; a step in flight that reads one of them, whose parts are done or not",
    laws=("TB-13", "CC-1"),
)
def a_row_that_is_read_is_given_to_nobody(one: bool, two: bool, three: bool, last: bool, row: int, done: bool) -> None:
    """A new request gets the first row that nobody owns and that no step in flight still reads; without one it is refused
    (T0(7), 3.6).
    """
    assert 0 <= row < 4
    read = pick((0, 1, 2, 3), row)
    owned = (one, two, three, last)
    rows = evolve(ROWS.worker, owners=tuple(5 if taken else worlds.NONE for taken in owned))
    step = Step((Scheduled(0, 0, 4, True, 0, row=read),), (), (), len(MIXED.parts) if done else 1, (0,))
    busy = plans.busy_rows(evolve(ROWS, steps=(step,)))
    no = refused(plans.free_row, rows, busy)
    found = -1 if no else plans.free_row(rows, busy)
    left = [at for at in range(4) if not owned[at] and (done or at != read)]
    assert busy == (frozenset() if done else frozenset({read}))
    assert found == (left[0] if left else -1)


@claim(
    plans.seed_row,
    plans.disown,
    sizes="grid",
    bounds="attention of 2, states of 4 tokens and a scratch group; any start of a chunk",
    laws=("TB-7", "CC-2"),
)
def a_new_row_begins_at_the_state_of_its_chunk(start: int, request: int) -> None:
    """A row that is given to a request is empty, and its running column is that of the state at the chunk's start, in blocks
    of the group that has states (T37.5, 3.6).
    """
    assert (start >= 0) & (request >= 0)
    old = evolve(ROWS.worker, rows=tuple((group[0], (1, 2), *group[2:]) for group in ROWS.worker.rows), accepted=(1, 3, 1, 1))
    rows = plans.seed_row(MIXED, old, 1, Scheduled(request, start, 4, True, start))
    nobody = plans.disown(rows, 1)
    column = rows.columns[1][1]
    assert [group[1] for group in rows.rows] == [(), (), ()]
    assert (rows.owners[1] == request) & (rows.accepted[1] == 1)
    assert (rows.columns[1][0] == worlds.NONE) & (rows.columns[1][2] == worlds.NONE)
    assert (column == worlds.NONE) == (start == 0)
    assert start == 0 or 4 * column < start <= 4 * column + 4
    assert nobody.owners[1] == worlds.NONE
    assert nobody.rows == rows.rows


@claim(
    plans.dispatch,
    plans.write_rows,
    plans.chunk_tips,
    sizes="shape",
    bounds="a running request with a table of two entries of which its row has one, any blocks and chunk; another one that "
    "goes on; with and without deferred freeing",
    laws=("RQ-1", "TB-7", "TB-13"),
)
def a_dispatch_hands_the_plan_over(first: int, second: int, start: int, amount: int, deferred: bool, copies: bool) -> None:
    """A dispatch makes the plan a step that has not begun and whose outputs are due, behind those in flight. The row of a
    request gets the entries that it lacks, its chunk counts as computed and in flight, and another request stays. It counts as
    dispatched where freeing is deferred, and of the plan what was registered is known to the next (T0(7), RQ-1, TB-13).
    """
    assert (first >= 1) & (second >= 1) & (start >= 0) & (amount >= 1)
    config = evolve(PLAIN.config, offload=None, defer_block_free=deferred)
    request = evolve(holders.request_of(GroupState((first, second))), tip=8, computed=start, in_flight=3)
    other = evolve(holders.request_of(GroupState((second,)), number=1), computed=4)
    plan = Plan(
        scheduled=(Scheduled(0, start, amount, False, start),),
        copies=((0, 1, 2),) if copies else (),
        zero=((0, 3),),
        cached=((4, 0, 0),),
        preempted=(5,),
    )
    rows = evolve(PLAIN.worker, owners=(1, 0, *PLAIN.worker.owners[2:]))
    rows = evolve(rows, rows=(((second,), (first,), *rows.rows[0][2:]),))
    flying = holders.step_of(worlds.NONE, 1)
    world = evolve(PLAIN, config=config, requests=(other, request), plan=plan, worker=rows, steps=(flying,), phase=Phase.BUILT)
    after, record = plans.dispatch(world)
    entry = evolve(plan.scheduled[0], row=1, tip=8)
    assert after.requests == (other, evolve(request, computed=start + amount, in_flight=3 + amount))
    assert after.steps == (flying, Step((entry,), plan.copies, (3,), 0, (0,)))
    assert after.worker == evolve(rows, rows=(((second,), (first, second), *rows.rows[0][2:]),))
    assert (after.plan == Plan(cached=plan.cached)) & (after.phase is Phase.IDLE) & (after.prefixes == world.prefixes)
    assert after.issued == world.issued + deferred
    assert (record.scheduled == ((0, amount),)) & (record.preempted == (5,))


@claim(
    worker.expand,
    worker.expanded_count,
    worker.write_row,
    sizes="shape",
    bounds="two blocks, any; three kernel blocks for each; a row of two entries",
    laws=("TB-11", "TB-13"),
)
def a_row_takes_the_kernel_blocks_behind_its_entries(first: int, second: int, held: int, row: bool) -> None:
    """A block stands in a row as its kernel blocks, in order, behind what the row has, and no other row changes (2.5)."""
    assert (first >= 1) & (second >= 1) & (held >= 1)
    ids = worker.expand(EXPANDED, (first, second))
    same = worker.expand(tiers.FULL, (first, second))
    count = worker.expanded_count(EXPANDED, 2)
    rows = worker.write_row(((held, held), (held,)), 1 if row else 0, ids)
    assert ids == tuple(3 * block + part for block in (first, second) for part in (0, 1, 2))
    assert same == (first, second)
    assert count == len(ids)
    assert rows == (((held, held), (held, *ids)) if row else ((held, held, *ids), (held,)))


# --- what is written ----------------------------------------------------------------------------------------------


def written(start: int, stop: int, table: tuple[int, ...]) -> list[Cells]:
    """Return the contents of four blocks behind the forward of a chunk of a request with 8 known tokens on two ranks."""
    base = worlds.new_world(RANKS)
    rows = evolve(base.worker, rows=((table, *base.worker.rows[0][1:]),))
    world = evolve(base, prefixes=tiers.CHAIN, worker=rows)
    memory: list[Cells] = [()] * 4
    execute.write_tokens(world, memory, 0, Scheduled(0, start, stop - start, True, start, tip=8, row=0), start, stop)
    return memory


@claim(
    execute.write_tokens,
    sizes="shape",
    bounds="two ranks, a table of two entries of 4 tokens, one of which may be null; each chunk of 8 known tokens",
    laws=("CC-1", "CC-3", "DS-2", "DS-3"),
)
def a_forward_writes_each_position_once_where_it_is_read(start: int, length: int, nulled: bool) -> None:
    """A forward writes the node of each position of its chunk into the cell of the rank that owns it, in the block of its
    column, and nothing else; an entry that a window nulled takes nothing (T0 f, CC-1, DS-2).
    """
    assert 0 <= start < 8
    assert 1 <= length <= 8 - start
    first = pick((0, 1, 2, 3, 4, 5, 6, 7), start)
    stop = first + pick((1, 2, 3, 4, 5, 6, 7, 8), length - 1)
    memory = written(first, stop, (0 if nulled else 3, 1))
    cells = [
        memory[block][1 + (position % 2) * 2 + position % 4 // 2] if memory[block] else -1
        for position, block in ((position, (3, 1)[position // 4]) for position in range(8))
    ]
    inside = [first <= position < stop and (position >= 4 or not nulled) for position in range(8)]
    assert cells == [position + 1 if wrote else -1 for position, wrote in enumerate(inside)]
    assert (memory[0] == ()) & (memory[2] == ())


@claim(
    transfers.run_store,
    transfers.run_load,
    transfers.copy_store,
    transfers.copy_load,
    sizes="shape",
    bounds="three blocks on each side, any contents; a store of two blocks and a load of one, running or abandoned, and behind "
    "each a further one",
    laws=("CC-4", "CC-5", "CC-6"),
)
def a_copy_brings_what_is_there_when_it_runs(one: int, two: int, three: int, loads: bool, abandoned: bool) -> None:
    """A transfer that runs puts what its sources hold at that moment into its destinations and is copied then; no other block
    and no other transfer changes (CC-5, CC-6).
    """
    assert (one >= 0) & (two >= 0) & (three >= 0)
    device: tuple[Cells, ...] = ((), (0, one), (0, two), (0, three))
    kept: tuple[Cells, ...] = ((), (0, three), (0, one), (0, two))
    store, load = Store(4, (1, 2), (3, 1), None, stage=Stage.SUBMITTED), Load(0, (3,), (2,), event=6, stage=Stage.SUBMITTED)
    further, next_ = evolve(store, event=5), Load(1, (1,), (3,), event=7, stage=Stage.SUBMITTED)
    host = evolve(
        tiers.EMPTY,
        contents=kept,
        stores=(further,) if abandoned else (store, further),
        abandoned_stores=(store,) if abandoned else (),
        loads=(next_,) if abandoned else (load, next_),
        abandoned_loads=(load,) if abandoned else (),
    )
    world = evolve(tiers.FULL_WORLD, contents=device, host=host)
    after = transfers.run_load(world, host, 6) if loads else transfers.run_store(world, host, 4)
    now = tiers.of(after)
    store, load = (store, evolve(load, stage=Stage.COPIED)) if loads else (evolve(store, stage=Stage.COPIED), load)
    assert after.contents == ((*device[:3], kept[2]) if loads else device)
    assert now.contents == (kept if loads else (kept[0], device[2], kept[2], device[1]))
    assert now.stores == ((further,) if abandoned else (store, further))
    assert now.loads == ((next_,) if abandoned else (load, next_))
    assert (now.abandoned_stores, now.abandoned_loads) == (((store,), (load,)) if abandoned else ((), ()))


@claim(works.zeroes, sizes="shape", bounds="attention, states and a scratch group; both profiles", laws=("LD-8",))
def attention_blocks_are_zeroed_beside_states(group: int, release: bool) -> None:
    """New blocks of attention are zeroed in a model with states, where foreign bytes would be read; states and scratch are not,
    and without states nothing is (T0 b).
    """
    assert 0 <= group < 3
    config = evolve(MIXED, profile=VLLM_0_33_0) if release else MIXED
    zeroes = works.zeroes(config, pick((0, 1, 2), group))
    alone = works.zeroes(tiers.FULL, 0)
    assert zeroes == (group == 0)
    assert not alone


# --- copy-on-write ------------------------------------------------------------------------------------------------


@claim(copying.settle, sizes="shape", bounds="a table of three blocks, any; any copy", laws=("TB-2", "COW-2"))
def a_private_copy_takes_the_place_of_one_entry(first: int, second: int, third: int, copy: int, index: int) -> None:
    """The copy stands where the shared block stood, every other entry stays, and nothing is owed any more (T19.1, TB-2)."""
    assert (first >= 1) & (second >= 1) & (third >= 1) & (copy >= 1)
    assert 0 <= index < 3
    table, at = (first, second, third), pick((0, 1, 2), index)
    state = copying.settle(GroupState(table, partial_index=at, partial_source=table[at]), at, copy)
    assert state.table == tuple(copy if here == at else block for here, block in enumerate(table))
    assert (state.partial_index == -1) & (state.partial_source == -1)


@claim(
    copying.copies_too_early,
    sizes="grid",
    bounds="entries of 4 tokens; any local hit; a request of the plan that computes that block from any token, or another",
    laws=("COW-4",),
)
def a_source_that_this_step_writes_is_not_copied(blocks: int, rest: int, start: int, mine: bool, release: bool) -> None:
    """A hit inside a block waits for the next step exactly if this one still writes tokens below the hit into that block; the
    release does not look (T17, COW-4, field ``copy_source_guard``).
    """
    assert (blocks >= 0) & (start >= 0)
    assert 0 <= rest < 4
    config = evolve(tiers.FULL, profile=VLLM_0_33_0) if release else tiers.FULL
    other = holders.request_of(GroupState((2 if mine else 3,)), number=1)
    plan = Plan(scheduled=(Scheduled(1, start, 4, False, start),))
    step = InStep(evolve(tiers.FULL_WORLD, requests=(other,), plan=plan))
    work = holders.work_on(config, four.pool_of(Draft(0, (1, 1, 1), (1, 1, 1), 0)))
    local = 4 * blocks + rest
    wanted = Wanted(first=True, local=local, external=0, slots=local + 1, main=local + 1)
    early = copying.copies_too_early(work, 0, (2,), wanted, step)
    never = copying.copies_too_early(work, 0, (), wanted, step)
    assert early == ((rest > 0) & mine & (start < local) & (not release))
    assert not never


# --- an output as a whole -----------------------------------------------------------------------------------------


@claim(
    outputs.process,
    outputs.confirm,
    sizes="shape",
    bounds="a request with up to two drafts in flight, any of them accepted, late or not, its late outputs dropped or not; any "
    "tokens in flight behind it",
    laws=("RQ-1", "RQ-2", "RQ-3", "RQ-4"),
    deep=True,
)
def an_output_is_delivered_once(drafts: int, accepted: int, behind: int, late: bool, dropping: bool) -> None:
    """An output is delivered unless it is late and dropped: the accepted drafts and one token are known then. What was
    rejected is taken back of a request that was not preempted since; of one that was, neither that nor any key changes
    (T36, RQ-2, RQ-3).
    """
    assert 0 <= accepted <= drafts <= 2
    assert behind >= 0
    assert late or not dropping
    guessed = pick(((), (7,), (7, 8)), drafts)
    entry = Scheduled(0, 7, 1 + len(guessed), False, 7, guessed, samples=True)
    amount = 1 + len(guessed)
    request = evolve(
        holders.request_of(GroupState((1, 2, 3), num_cached=2)),
        tip=8,
        num_tokens=8,
        num_prompt=8,
        computed=0 if late else 7 + amount,
        in_flight=amount + behind,
        stale=amount if late else 0,
        drop_stale=dropping,
        status=Status.PREEMPTED if late else Status.RUNNING,
    )
    step = Step((entry,), (), (), 5, (0,))
    world = evolve(tiers.FULL_WORLD, config=DRAFTING, steps=(step,), requests=(request,), phase=Phase.IDLE)
    tokens = (*guessed[:accepted], 9)
    after, record = outputs.process(world, act.Output(0, tokens), step)
    (now,) = after.requests
    assert after.steps == ()
    assert (now.in_flight == behind) & (now.stale == 0)
    assert now.num_tokens == 8 + (0 if dropping else 1 + accepted)
    assert now.computed == (0 if late else 8 + accepted)
    assert record.rejected == (0 if dropping else len(guessed) - accepted)
    assert after.pool == world.pool


# --- the end of a request -----------------------------------------------------------------------------------------


@claim(
    requests.finish,
    sizes="shape",
    bounds="four blocks without keys; a request with a table of one entry, another with one; handoffs of both",
    laws=("PC-3", "PC-10", "HO-7", "TB-1"),
    deep=True,
)
def a_finished_request_leaves_nothing(draft: Draft, first: int, second: int, state: int) -> None:
    """A request that finishes, in whatever status, gives its blocks back and is gone with its handoffs; nothing of another
    request changes (T32, HO-7, PC-3).
    """
    assert four.legal(draft) & holders.held(draft, first, second) & four.within(0, state, 2)
    old = four.pool_of(draft)
    mine, its = holders.table_of(first), holders.table_of(second)
    status = pick((Status.WAITING, Status.RUNNING, Status.PREEMPTED), state)
    request = evolve(holders.request_of(GroupState(mine)), status=status)
    other = holders.request_of(GroupState(its), number=1)
    plan = Plan(handoffs=((0, 0, 2, 4), (1, 0, 3, 4)))
    after, record = requests.finish(evolve(holders.world_of(PLAIN, old, request, other), plan=plan), request)
    assert four.sound(after.pool)
    assert holders.accounted(after.pool, holders.others(old, mine, its), its)
    assert after.requests == (other,)
    assert after.plan.handoffs == ((1, 0, 3, 4),)
    assert not record.deferred


@claim(
    requests.withdraw,
    requests.roll_back,
    sizes="shape",
    bounds="four blocks without keys; a scheduled request with a table of one entry whose key is of this plan, and another",
    laws=("HO-11", "PC-3", "COW-4"),
)
def a_withdrawn_request_leaves_no_key_of_the_plan(draft: Draft, first: int, kept: bool, node: int) -> None:
    """A request that is taken out of the open plan loses the keys that it registered in it, unless a profile keeps them, and
    waits with nothing; the shares and keys of others stay (T39).
    """
    assert four.legal(draft) & four.within(1, first, 3) & holders.held(draft, first) & (node >= 0)
    old = four.pool_of(draft)
    table = holders.table_of(first)
    keyed = pools.insert(old, node, 0, table[0], 4)
    request = holders.request_of(GroupState(table))
    shares = tuple(Scheduled(number, 0, 4, False, 0) for number in (0, 1))
    plan = Plan(
        scheduled=shares,
        cached=((node, 0, 0), (node, 0, 1)),
        undo=allocation.undo_records(Plan(), 0, old, keyed),
    )
    base = evolve(PLAIN, config=evolve(tiers.FULL, profile=VLLM_0_33_0)) if kept else PLAIN
    world = evolve(holders.world_of(base, keyed, request), plan=plan, phase=Phase.PLAN_RUNNING)
    after, _ = requests.withdraw(world, request)
    (again,) = after.requests
    assert four.sound(after.pool)
    assert holders.accounted(after.pool, holders.others(old, table))
    assert len(after.pool.entries) == (1 if kept else 0)
    assert after.plan.scheduled == shares[1:]
    assert after.plan.cached == (plan.cached if kept else plan.cached[1:])
    assert (after.plan.undo == ()) & (after.plan.preempted == (0,))
    assert (again.status is Status.PREEMPTED) & (again.groups == (GroupState(),)) & (again.computed == 0)
