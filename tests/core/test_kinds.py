"""Group kinds: registration, windows and chunks, positionally stable states, scratch blocks, the admission gate (1.2, T16 to T19)."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest
from attrs import evolve, fields

from kvproof.core import actions as act
from kvproof.core import kinds, prefixes, step
from kvproof.core.config import Config, Group, configure
from kvproof.core.kinds import base, sliding_window
from kvproof.core.records import Record
from kvproof.core.world import ABSENT, Status
from kvproof.spec import macros
from tests.driving import Driver

FA, SWA, CHUNK, STABLE, SCRATCH = "full_attention", "sliding_window", "chunked_local", "mamba_stable", "scratch"


def driver_of(*groups: Group, **settings: Any) -> Driver:
    """A driver for these groups with a pool of 40 blocks."""
    given: dict[str, Any] = {"num_blocks": 40} | settings
    return Driver(configure(groups, **given))


def running(driver: Driver, request: int, tokens: int | tuple[int, ...], *chunks: int) -> Driver:
    """Submit a request and run it in these chunks."""
    driver.submit(request, tokens)
    for amount in chunks:
        driver.chunk(request, amount)
    return driver


def resend(driver: Driver, tokens: int) -> int:
    """The local hit of a new request with the same first tokens."""
    driver.submit(99, tokens)
    return driver.do(act.BeginStep(), act.Lookup(99)).local


# --- registration -------------------------------------------------------------------------------------------------


def kind_module(**changes: Any) -> ModuleType:
    """A module with all that a kind needs, some of it replaced; None leaves it out."""
    module = ModuleType("new_kind")
    stated = {name: getattr(sliding_window, name) for name in ("CAPABILITIES", *base.FUNCTIONS)} | changes
    for name, value in stated.items():
        if value is not None:
            setattr(module, name, value)
    return module


def test_a_complete_kind_is_registered() -> None:
    """A module with capabilities and all functions is a kind."""
    module = kind_module()
    assert kinds.checked("new", module) is module


@pytest.mark.parametrize("function", base.FUNCTIONS)
def test_a_kind_that_lacks_a_function_fails_when_registered(function: str) -> None:
    """Every function of `base.Kind` is asked for by name."""
    with pytest.raises(TypeError, match=f"kind 'new': new_kind lacks {function}: see base.Kind"):
        kinds.checked("new", kind_module(**{function: None}))
    with pytest.raises(TypeError, match=f"lacks {function}"):
        kinds.checked("new", kind_module(**{function: 4}))


@pytest.mark.parametrize("stated", [None, {"recurrent": True}])
def test_a_kind_without_capabilities_fails_when_registered(stated: Any) -> None:
    """Capabilities are a `base.Capabilities`, nothing else."""
    with pytest.raises(TypeError, match="kind 'new': new_kind states no CAPABILITIES"):
        kinds.checked("new", kind_module(CAPABILITIES=stated))


@pytest.mark.parametrize("left_out", [field.name for field in fields(base.Capabilities)])
def test_a_kind_that_forgets_a_capability_fails(left_out: str) -> None:
    """No capability has a default."""
    stated = {field.name: True for field in fields(base.Capabilities) if field.name != left_out}
    with pytest.raises(TypeError, match=left_out):
        base.Capabilities(**stated)


def test_the_functions_asked_for_are_those_of_the_protocol() -> None:
    """`FUNCTIONS` names what `Kind` declares."""
    declared = [name for name, value in vars(base.Kind).items() if callable(value) and not name.startswith("_")]
    assert sorted(base.FUNCTIONS) == sorted(declared)


# --- sliding window and chunked local -----------------------------------------------------------------------------


def test_entries_behind_the_window_are_nulled_highest_first() -> None:
    """T16.3: W=5, E=4: at 16 computed tokens 12 are skipped; blocks 3, 2, 1 go in this order; their keys stay."""
    driver = running(driver_of(Group(SWA, 4, window=5)), 0, 20, 16)
    assert driver.tables(0) == [[1, 2, 3, 4]]
    driver.chunk(0, 4)
    assert driver.tables(0) == [[0, 0, 0, 4, 5]]
    assert driver.world.pool.free[-3:] == (3, 2, 1)
    assert driver.keys(0) == {4: [1], 8: [2], 12: [3], 16: [4], 20: [5]}
    assert driver.request(0).groups[0].retired == 3


def test_windows_reach_back_from_the_processed_tokens() -> None:
    """T16.3: with 8 of 16 computed tokens in flight the window is that at 8; a step in flight still reads block 2."""
    driver = driver_of(Group(SWA, 4, window=5), max_steps_in_flight=2)
    driver.submit(0, 24)
    tables = []
    for _ in range(3):
        driver.do(act.BeginStep())
        driver.allocate(0, 8)
        tables += driver.tables(0)
        driver.dispatch()
        if len(driver.world.steps) == 2:
            driver.do(*macros.EXECUTE)
            driver.output()
    assert tables == [[1, 2], [1, 2, 3, 4], [0, 2, 3, 4, 5, 6]]


def test_a_refused_allocation_has_nulled_already() -> None:
    """T16.3, PC-9: the window moves although the blocks are not there."""
    driver = running(driver_of(Group(FA, 4), Group(SWA, 4, window=5), num_blocks=9), 0, 20, 16)
    record = driver.do(act.BeginStep(), act.Allocate(0, 4, lookahead=20))
    assert (record.admitted, record.demand, record.free_before) == (False, 12, 3)
    assert driver.tables(0) == [[1, 2, 3, 4], [0, 0, 0, 8]]


@pytest.mark.parametrize(("computed", "nulls"), [(7, 0), (8, 2), (13, 2), (16, 4)])
def test_entries_before_the_chunk_are_nulled(computed: int, nulls: int) -> None:
    """2.8, T16.3: C=8, E=4: nothing goes at 7 tokens, the first chunk at 8 and 13, the second at 16."""
    driver = running(driver_of(Group(CHUNK, 4, window=8), Group(FA, 4)), 0, 20, computed, 20 - computed)
    assert [bool(block) for block in driver.tables(0)[0]] == [False] * nulls + [True] * (5 - nulls)


def test_a_window_is_hit_and_adopted_with_leading_nulls() -> None:
    """T11, T18: a resend adopts the blocks of the window alone; all entries count as registered."""
    driver = running(driver_of(Group(FA, 4), Group(SWA, 4, window=6)), 0, 17, 17)
    driver.do(act.Finish(0))
    driver.submit(1, 17)
    hit = driver.do(act.BeginStep(), act.Lookup(1))
    assert (hit.local, hit.lists) == (16, ((1, 2, 3, 4), (0, 0, 8, 9)))
    record = driver.do(act.Allocate(1, 1, 16))
    # Six adopted blocks leave the free queue, and each group takes one.
    assert (record.demand, record.adopted) == (8, (1, 2, 3, 4, 8, 9))
    assert [len(blocks) for blocks in record.new_blocks] == [1, 1]
    assert driver.tables(1)[1][:4] == [0, 0, 8, 9]
    assert [state.num_cached for state in driver.request(1).groups] == [4, 4]


@pytest.mark.parametrize(
    ("group", "external", "nulls", "taken"),
    [
        (Group(SWA, 4, window=5), 16, 3, 1),
        (Group(SWA, 4, window=30), 16, 0, 4),
        (Group(CHUNK, 4, window=8), 16, 4, 0),  # the last external token ends a chunk: none is read again
        (Group(CHUNK, 4, window=8), 20, 4, 1),
        (Group(CHUNK, 4, window=6), 12, 3, 0),
        (Group(CHUNK, 4, window=6), 8, 1, 1),
        (Group(STABLE, 4), 16, 3, 1),
        (Group(SCRATCH, 4), 16, 0, 0),
    ],
)
def test_external_tokens_take_only_the_blocks_that_are_read(group: Group, external: int, nulls: int, taken: int) -> None:
    """T18: skipped entries are null, blocks are taken for the rest (e'); a scratch group takes none."""
    driver = driver_of(Group(FA, 4), group, connectors=(True,))
    driver.submit(0, 30)
    driver.do(act.BeginStep(), act.Lookup(0))
    record = driver.do(act.Allocate(0, 2, 0, external))
    assert [len(blocks) for blocks in record.external_blocks] == [external // 4, taken]
    assert driver.tables(0)[1][:nulls] == [0] * nulls
    assert 0 not in driver.tables(0)[1][nulls:]
    assert len(driver.world.pool.free) == record.free_before - record.demand


def test_external_tokens_leave_a_local_window_behind() -> None:
    """T18: with 16 external tokens behind a local hit of 4 the window adopts nothing, and its block stays in the queue."""
    driver = running(driver_of(Group(FA, 4), Group(SWA, 4, window=5), connectors=(True,)), 0, (1, 2, 3, 4, 5), 5)
    driver.do(act.Finish(0))
    driver.submit(1, 30)
    hit = driver.do(act.BeginStep(), act.Lookup(1))
    assert (hit.local, hit.lists) == (4, ((1,), (3,)))
    record = driver.do(act.Allocate(1, 1, 4, 16))
    assert record.adopted == (1,)
    assert driver.tables(1)[1][:4] == [0, 0, 0, 0]
    assert len(driver.world.pool.free) == record.free_before - record.demand


@pytest.mark.parametrize(
    ("eagle", "retention", "kept"),
    [
        (False, None, [64, 128]),
        (True, None, [64, 80, 128]),
        (False, 0, [128]),
        (True, 0, [64, 80]),
        (False, 256, [128]),
        (True, 128, [64, 80, 128]),
    ],
)
def test_retention_of_a_window(eagle: bool, retention: int | None, kept: list[int]) -> None:
    """2.9: W=17, E=16, A=64: of 130 tokens blocks 3 and 7 of 0..7 are kept; with EAGLE the run has one block more.

    Sparse retention keeps what a resend can reach: 128, and with the drop 64, for which the block behind it is needed too.
    """
    groups = (Group(FA, 64), Group(SWA, 16, window=17))
    driver = running(driver_of(*groups, retention=retention, use_eagle=eagle), 0, 130, 130)
    assert sorted(driver.keys(1)) == kept
    assert resend(driver, 130) == (64 if eagle else 128)


def test_a_window_outside_the_eagle_set_keeps_what_it_needs_itself() -> None:
    """2.9, 3.1: only the flagged group drops; the window's mask has no block behind the boundaries."""
    groups = (Group(FA, 64, draft=True), Group(SWA, 16, window=17))
    driver = running(driver_of(*groups, use_eagle=True), 0, 130, 130)
    assert driver.world.config.eagle == (True, False)
    assert sorted(driver.keys(1)) == [64, 128]


@pytest.mark.parametrize(("eagle", "kept"), [(False, [144, 192]), (True, [128, 144, 160, 176, 192])])
def test_a_junction_is_kept_with_the_block_before_it(eagle: bool, kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """2.9: retention 0, P=200, junction 144: with EAGLE the window of 144 and of a block of this group before it, 128.

    The blocks of the other groups, 64 tokens long, play no part: 80 and 96 are not kept.
    """
    monkeypatch.setattr(step, "chunk_allowed", lambda *_: True)
    groups = (Group(FA, 64), Group("mamba_align", 64), Group(SWA, 16, window=17))
    driver = driver_of(*groups, retention=0, use_eagle=eagle, hash_block_size=16)
    driver.submit(0, 200)
    driver.do(act.BeginStep(), act.Lookup(0))
    driver.world = evolve(driver.world, requests=(evolve(driver.request(0), junction=144),))
    driver.do(act.Allocate(0, 200))
    assert sorted(driver.keys(2)) == kept


# --- positionally stable states -----------------------------------------------------------------------------------


def stable_driver(**settings: Any) -> Driver:
    """FA4 and stable states of 4 tokens at N=2: E is 8 and 4, hits at multiples of 8."""
    return driver_of(Group(FA, 4), Group(STABLE, 4), dcp_size=2, **settings)


def test_stable_states_have_a_column_per_block() -> None:
    """A chunk has a state at each multiple of B and at its end; older ones are nulled, keyed for good, never handed off."""
    driver = stable_driver()
    driver.submit(0, 20)
    assert driver.world.config.alignment == 8
    drained = driver.chunk(0, 10)
    assert (driver.tables(0), driver.keys(1)) == ([[1, 2], [3, 4, 5]], {4: [3], 8: [4]})
    assert drained.handoffs == ()
    driver.chunk(0, 8)
    # At 10 tokens the running state is block 5, at 18 it is the last of the two new ones.
    assert driver.tables(0) == [[1, 2, 6], [0, 0, 5, 7, 8]]
    assert driver.keys(1) == {4: [3], 8: [4], 12: [5], 16: [7]}
    assert driver.world.pool.free[-2:] == (4, 3)


def test_stable_states_are_resumed_at_their_own_boundary() -> None:
    """A resend adopts the one state at the hit and writes the next in a block of its own, without any copy."""
    driver = running(stable_driver(), 0, 20, 20)
    driver.do(act.Finish(0))
    driver.submit(1, 20)
    hit = driver.do(act.BeginStep(), act.Lookup(1))
    assert (hit.local, hit.lists) == (16, ((1, 2), (0, 0, 0, 7)))
    driver.do(act.Allocate(1, 4, 16))
    assert driver.close().copies == ()
    assert driver.tables(1)[1][:4] == [0, 0, 0, 7]
    assert states_and_cells_are_right(driver)


def test_a_stable_state_is_not_adopted_in_the_step_that_computes_it() -> None:
    """COW-4: the sibling's demand is above the pool in the step that registers the state; the next step admits it (LV-1)."""
    driver = stable_driver()
    driver.submit(0, 20)
    driver.submit(1, 18)
    driver.do(act.BeginStep(), act.Lookup(0), act.Allocate(0, 20))
    hit = driver.do(act.Lookup(1))
    assert hit.local == 16
    record = driver.do(act.Allocate(1, 2, 16))
    assert (record.admitted, record.demand) == (False, 1 + 41)
    driver.close()
    driver.do(act.BeginStep(), act.Lookup(1))
    assert driver.do(act.Allocate(1, 2, 16)).admitted


# --- scratch ------------------------------------------------------------------------------------------------------


def test_a_scratch_group_has_one_block_per_request() -> None:
    """TB-15: one block from admission to the end, whatever is computed; never keyed, adopted or shared; its E counts for S."""
    driver = driver_of(Group(FA, 4), Group(SCRATCH, 6))
    assert (driver.world.config.scheduler_block_size, driver.world.config.row_capacity[1]) == (12, 1)
    running(driver, 0, 30, 3, 20, 7)
    assert [len(table) for table in driver.tables(0)] == [8, 1]
    (own,) = driver.tables(0)[1]
    driver.submit(1, 30)
    hit = driver.do(act.BeginStep(), act.Lookup(1))
    assert (hit.local, hit.lists[1]) == (24, ())
    record = driver.do(act.Allocate(1, 6, 24))
    assert (record.demand, [len(blocks) for blocks in record.new_blocks]) == (3, [2, 1])
    (other,) = driver.tables(1)[1]
    driver.close()
    assert own != other
    assert driver.keys(1) == {}
    assert driver.request(1).groups[1].num_cached == ABSENT
    driver.do(act.Preempt(1))
    assert driver.world.pool.ref[own] == 1
    assert driver.world.pool.ref[other] == 0


def test_a_lookup_finds_nothing_in_a_scratch_group() -> None:
    """T11, T15: its lists are empty whatever is keyed, and it skips no tokens."""
    driver = running(driver_of(Group(FA, 4), Group(SCRATCH, 4)), 0, 8, 8)
    kind = kinds.of(SCRATCH)
    assert kind.find_hit(driver.world.config, driver.world.pool, [1, 2], (1, 1), 8, False) == (0, ((), ()))
    assert kind.skipped_tokens(driver.world.config.groups[1], 8) == 0


# --- the admission gate -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "steps", "need"),
    [
        (Group(FA, 4), 1, 12),
        (Group(SWA, 4, window=5), 1, 6 + 4),  # ceil((4 + 8) / 4) + 1
        (Group(SWA, 4, window=5), 2, 6 + 6),  # ceil((4 + 16) / 4) + 1
        (Group(SWA, 4, window=40), 1, 6 + 6),  # the cap of 13 is above what 24 tokens need
        (Group(CHUNK, 4, window=8), 1, 6 + 4),  # ceil((8 + 8) / 4)
        (Group(CHUNK, 4, window=7), 2, 6 + 6),  # ceil((7 + 16) / 4)
        (Group("mamba_align", 4), 1, 6 + 1),
        (Group(STABLE, 4), 1, 6 + 6),
        (Group(SCRATCH, 4), 1, 6 + 1),
    ],
)
def test_the_gate_counts_the_whole_sequence_with_the_caps(group: Group, steps: int, need: int) -> None:
    """T16.2, 2.8: FA4 beside a group: 24 tokens, chunks of 8, `steps` steps in flight; one block less is too few."""
    for free, admitted in ((need, True), (need - 1, False)):
        driver = driver_of(Group(FA, 4), group, max_chunk=8, max_steps_in_flight=steps, num_blocks=free + 1)
        driver.submit(0, 24)
        driver.do(act.BeginStep(), act.Lookup(0))
        before = driver.world
        record = driver.do(act.Allocate(0, 8, full_sequence=True))
        assert record.admitted is admitted
        if not admitted:
            assert (record.demand, record.free_before) == (need, free)
            assert driver.world == evolve(before, hit=None)
            driver.do(act.Lookup(0))
            assert driver.do(act.Allocate(0, 8)).admitted


def test_the_gate_comes_before_the_windows_are_nulled() -> None:
    """T16.2: a refusal by the gate has no effect at all, one by the demand has moved the window (T16.3)."""
    driver = running(driver_of(Group(FA, 4), Group(SWA, 4, window=5), num_blocks=9), 0, 38, 16)
    driver.do(act.BeginStep())
    before = driver.world
    record = driver.do(act.Allocate(0, 1, full_sequence=True))
    assert (record.admitted, record.demand, record.free_before) == (False, 6 + 6, 0)
    assert driver.world == before
    assert driver.do(act.Allocate(0, 1)).admitted


@pytest.mark.parametrize(
    ("group", "cap"),
    [(Group(SWA, 4, window=6), 5), (Group(CHUNK, 4, window=6), 4)]
    + [(Group(kind, 4), None) for kind in (FA, "mamba_align", STABLE, SCRATCH)],
)
def test_only_windows_and_chunks_have_a_cap(group: Group, cap: int | None) -> None:
    """2.8: with 8 tokens in flight a window of 6 needs ceil(13 / 4) + 1 blocks and a chunk of 6 ceil(14 / 4)."""
    assert kinds.of(group.kind).admission_cap(group, 8, 100) == cap


def test_the_cap_holds_for_the_gate_alone() -> None:
    """T17: the cap of 4 blocks does not keep a running request from taking its ninth and tenth."""
    driver = running(driver_of(Group(SWA, 4, window=5), max_chunk=8), 0, 40, 8, 8, 8, 8)
    driver.do(act.BeginStep())
    assert driver.do(act.Allocate(0, 8)).demand == 2


# --- what every kind owes, on random runs -------------------------------------------------------------------------


RUNS: tuple[tuple[tuple[Group, ...], dict[str, Any]], ...] = (
    ((Group(FA, 4), Group(SWA, 4, window=5)), {}),
    ((Group(FA, 2), Group(SWA, 2, window=7)), {"dcp_size": 2}),
    ((Group(SWA, 2, window=3), Group(CHUNK, 2, window=4)), {}),
    ((Group(FA, 4), Group(CHUNK, 4, window=6)), {}),
    ((Group(FA, 2), Group(STABLE, 4)), {"dcp_size": 2}),
    ((Group(FA, 2), Group(STABLE, 2), Group(SCRATCH, 3), Group(SWA, 2, window=2)), {}),
    ((Group(FA, 4), Group("mamba_align", 4), Group(SWA, 2, window=4)), {"hash_block_size": 2, "retention": 0}),
    ((Group(FA, 4), Group("mamba_align", 4), Group(SWA, 2, window=4)), {"hash_block_size": 2, "use_eagle": True}),
    ((Group(FA, 2), Group(FA, 2, draft=True), Group(SWA, 1, window=4)), {"use_eagle": True, "retention": 0}),
    ((Group(FA, 2), Group(SWA, 2, window=4), Group(SWA, 1, window=1)), {"retention": 4}),
    ((Group(FA, 4), Group(SWA, 4, window=5), Group(CHUNK, 4, window=4)), {"num_draft_tokens": 3}),
    ((Group(FA, 4), Group("mamba_align", 4, speculative_blocks=2), Group(SWA, 2, window=4)), {"num_draft_tokens": 2}),
)


def states_and_cells_are_right(driver: Driver) -> bool:
    """Tell whether blocks hold what tables and keys promise: every live position, the running states, every key (CC-1 to 3)."""
    world, config = driver.world, driver.world.config

    def cells(group: int, block: int, position: int) -> set[int]:
        content = world.contents[block]
        return {content[at] for at in config.cells[group][position % config.sizes[group]]} if content else {-1}

    for request in world.requests:
        if request.status is not Status.RUNNING:
            continue
        path = prefixes.path(world.prefixes, request.tip, 0, request.num_tokens)
        for group, state in enumerate(request.groups):
            spec, size = config.groups[group], config.sizes[group]
            first = kinds.of(spec.kind).skipped_tokens(spec, request.computed)
            if group in config.positional:
                for position in range(first, request.computed):
                    assert cells(group, state.table[position // size], position) == {path[position]}
            elif group in config.recurrent and not config.num_draft_tokens:
                content = world.contents[state.table[(request.computed - 1) // size]]
                assert set(content[1:]) == {path[request.computed - 1]}
    for node, group, _, block in world.pool.entries:
        depth, size = world.prefixes.depth[node], config.sizes[group]
        if group in config.recurrent:
            assert set(world.contents[block][1:]) == {node}
        else:
            path = prefixes.path(world.prefixes, node, 0, depth)
            for position in range((depth - 1) // size * size, depth):
                assert cells(group, block, position) == {path[position]}
    return True


def tables_are_right(config: Config, before: Any, after: Any, wanted: int) -> None:
    """Check one admitted request: nulls behind the window and nowhere else, tables append-only but for a copy (TB-2 to TB-5)."""
    for group, spec in enumerate(config.groups):
        table, size = after.groups[group].table, config.sizes[group]
        if spec.kind in (FA, SWA, CHUNK):
            behind = kinds.of(spec.kind).skipped_tokens(spec, after.computed) // size
            assert [entry == 0 for entry in table] == [index < behind for index in range(len(table))]
            assert len(table) >= -(-wanted // size)
        if spec.kind in (SWA, CHUNK, STABLE):
            old = before.groups[group].table
            assert all(new in (entry, 0) for entry, new in zip(old, table, strict=False))
        if spec.kind == SCRATCH:
            assert len(table) == 1


class Run:
    """A random run of one configuration; every allocation is checked."""

    def __init__(self, config: Config, seed: int) -> None:
        self.driver, self.rng = Driver(config), random.Random(seed)
        self.next = self.hits = self.nulled = self.refused = self.rejected = 0
        self.drafts: dict[int, tuple[int, ...]] = {}

    def allocate(self, request: int, local: int = 0, external: int = 0) -> Record | None:
        """Allocate a random chunk; None if there is nothing left to compute or T22 skips the request."""
        found, rng, config = self.driver.request(request), self.rng, self.driver.world.config
        start = found.computed + local + external
        amount = rng.randint(1, max(found.num_tokens - start, 1))
        if config.snapshots:
            amount = step.clip(self.driver.world, found, start, amount)
        if not amount or start >= found.num_tokens:
            return None
        drafts: tuple[int, ...] = ()
        if start >= max(found.num_prompt, found.num_tokens - 1):
            room = min(config.num_draft_tokens, config.max_model_len - found.num_tokens)
            drafts = tuple(rng.randint(1, 2) for _ in range(rng.randint(0, room)))
        amount += len(drafts)
        lookahead = rng.choice([0, 0, 1, 3])
        record = self.driver.do(act.Allocate(request, amount, local, external, lookahead, drafts))
        if record.admitted:
            assert len(self.driver.world.pool.free) == record.free_before - record.demand
            tables_are_right(config, found, self.driver.request(request), start + amount + lookahead)
            self.nulled += any(0 in state.table for state in self.driver.request(request).groups)
            self.drafts[request] = drafts
        self.refused += not record.admitted
        return record

    def sampled(self, request: int) -> tuple[int, ...]:
        """Return some accepted drafts and a sampled token."""
        drafts = self.drafts.get(request, ())
        accepted = self.rng.randint(0, len(drafts))
        self.rejected += len(drafts) - accepted
        return (*drafts[:accepted], self.rng.randint(1, 2))

    def plan(self) -> None:
        """One step: running requests first, then waiting ones if nobody was preempted; then all of it runs."""
        driver, rng = self.driver, self.rng
        driver.do(act.BeginStep())
        preempted = False
        for request in [found.request for found in driver.world.requests if found.status is Status.RUNNING]:
            record = self.allocate(request)
            if record and not record.admitted:
                driver.do(act.Preempt(request))
                preempted = True
        waiting = [found.request for found in driver.world.requests if found.status is not Status.RUNNING]
        for request in [] if preempted else waiting:
            hit = driver.do(act.Lookup(request))
            self.hits += hit.local > 0
            external = 0
            if rng.random() < 0.2 and hit.local % driver.world.config.scheduler_block_size == 0:
                external = rng.randint(0, 3) * driver.world.config.alignment
            if hit.local + external < driver.request(request).num_tokens:
                self.allocate(request, hit.local, external)
        driver.close(*((found.request, self.sampled(found.request)) for found in driver.world.requests))

    def between(self) -> None:
        """Submit and finish requests."""
        driver, rng = self.driver, self.rng
        if len(driver.world.requests) < 3:
            driver.submit(self.next, tuple(rng.choice((1,) * 9 + (2,)) for _ in range(rng.randint(1, 18))))
            self.next += 1
        for found in driver.world.requests:
            if rng.random() < 0.2 or found.num_tokens > 24:
                driver.do(act.Finish(found.request))


@pytest.mark.parametrize(
    ("groups", "settings"),
    RUNS,
    ids=[f"{number}-" + "-".join(group.kind for group in groups) for number, (groups, _) in enumerate(RUNS)],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_kind_keeps_its_promises(groups: tuple[Group, ...], settings: dict[str, Any], seed: int) -> None:
    """PC-7 (a demand is what is taken), TB-2 to TB-5, CC-1 to CC-3, PC-10, on random steps in a tight pool."""
    config = configure(groups, num_blocks=26, max_running=3, max_model_len=32, **settings)
    run = Run(config, seed)
    for _ in range(120):
        run.between()
        run.plan()
        assert states_and_cells_are_right(run.driver)
    assert min(run.hits, run.nulled) > 0
    assert (run.rejected > 0) == (config.num_draft_tokens > 0)
    for found in run.driver.world.requests:
        run.driver.do(act.Finish(found.request))
    assert len(run.driver.world.pool.free) == config.num_blocks - 1
