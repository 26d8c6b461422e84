"""T36 one step at a time: drafts, what an output may bring, what it confirms, and what it registers."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import errors, outputs
from kvproof.core.config import Config, Group, configure
from kvproof.core.contents import UNWRITTEN
from kvproof.core.step import refusal
from kvproof.spec import macros
from tests.driving import Driver

FULL, MAMBA = "full_attention", "mamba_align"


def speculative(block_size: int = 16, drafts: int = 3, **settings: Any) -> Config:
    """One full-attention group and a drafter of three tokens."""
    defaults: dict[str, Any] = {"num_blocks": 40, "max_model_len": 256, "num_draft_tokens": drafts}
    return configure((Group(FULL, block_size),), **(defaults | settings))


def decoding(tokens: int = 20, **settings: Any) -> Driver:
    """Request 0 computed a prompt of 1, 2, ... and sampled token 7."""
    driver = Driver(speculative(**settings))
    driver.submit(0, tokens)
    driver.do(act.BeginStep())
    driver.allocate(0, tokens)
    driver.close((0, 7))
    return driver


def draft(driver: Driver, *drafts: int, request: int = 0) -> act.Allocate:
    """The allocation of one token and these drafts."""
    return act.Allocate(request, 1 + len(drafts), drafts=drafts)


def test_the_worked_example_of_output_processing() -> None:
    """T36, G15: P=20, B=16: computed 16, 20, then 24 with 3 drafts, of which 1 is accepted: 22 computed, 23 tokens."""
    driver = Driver(speculative())
    driver.submit(0, 20)
    driver.chunk(0, 16)
    assert driver.counts(0) == (16, 20, 0)
    driver.chunk(0, 4)
    assert driver.counts(0) == (20, 21, 0)
    driver.do(act.BeginStep(), draft(driver, 5, 6, 7), *macros.CLOSE)
    assert driver.counts(0) == (24, 21, 4)
    driver.do(*macros.EXECUTE)
    assert driver.do(act.Output(0, (5, 8))).rejected == 2
    assert driver.counts(0) == (22, 23, 0)
    assert driver.spelled(driver.request(0).tip)[20:] == [9, 5, 8]


@pytest.mark.parametrize(
    ("tokens", "computed", "known"),
    [((8,), 21, 22), ((5, 8), 22, 23), ((5, 6, 8), 23, 24), ((5, 6, 7, 8), 24, 25), ((5,), 21, 22)],
)
def test_every_number_of_accepted_drafts(tokens: tuple[int, ...], computed: int, known: int) -> None:
    """T36.5, RQ-3: computed falls by the rejected drafts, and is one less than the tokens known, whatever is accepted."""
    driver = decoding()
    driver.do(act.BeginStep(), draft(driver, 5, 6, 7))
    driver.close((0, tokens))
    assert driver.counts(0) == (computed, known, 0)
    assert driver.world.worker.accepted[0] == len(tokens)
    assert driver.spelled(driver.request(0).tip)[20:] == [7, *tokens]


def test_the_next_step_overwrites_rejected_drafts() -> None:
    """T0 f: drafts are written where they stand; a rejected one stays until the next chunk, which starts behind the accepted."""
    driver = decoding(tokens=4, block_size=16)
    (block,) = driver.tables(0)[0]
    driver.do(act.BeginStep(), draft(driver, 5, 6, 8))
    driver.close((0, (5, 2)))
    assert driver.cells(block)[:9] == [1, 2, 3, 4, 7, 5, 6, 8, UNWRITTEN]
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    driver.close((0, 3))
    assert driver.cells(block)[:9] == [1, 2, 3, 4, 7, 5, 2, 8, UNWRITTEN]
    assert driver.counts(0) == (7, 8, 0)


def test_planning_never_registers_drafts() -> None:
    """T16.7, HB-14: 15 tokens and 3 drafts, H=16: the key at 16 comes with the output that accepts the first draft."""
    driver = decoding(tokens=14)
    assert driver.counts(0) == (14, 15, 0)
    driver.do(act.BeginStep(), draft(driver, 5, 6, 8), *macros.CLOSE, *macros.EXECUTE)
    assert driver.keys(0) == {}
    assert driver.request(0).groups[0].num_cached == -1
    driver.do(act.Output(0, (5, 2)))
    assert driver.counts(0) == (16, 17, 0)
    (block,) = driver.tables(0)[0][:1]
    assert driver.keys(0) == {16: [block]}
    assert driver.request(0).groups[0].num_cached == 1
    assert driver.spelled(driver.world.pool.key_node[block])[-2:] == [7, 5]


@pytest.mark.parametrize("drafts", [0, 1])
def test_an_output_registers_only_with_a_drafter(drafts: int) -> None:
    """T36.7: without placeholders and drafter an output registers nothing; an evicted key comes back at the next plan only."""
    driver = Driver(speculative(block_size=4, drafts=drafts))
    driver.submit(0, 6)
    driver.do(act.BeginStep())
    driver.allocate(0, 6)
    driver.do(*macros.CLOSE, *macros.EXECUTE)
    # The full block is keyed at planning; only what an output registers again would count it anew.
    request = driver.request(0)
    state = evolve(request.groups[0], num_cached=0)
    driver.world = evolve(driver.world, requests=(evolve(request, groups=(state,)),))
    (block,) = driver.keys(0)[4]
    driver.do(act.EvictBlocks((block,)), act.Output(0, (9,)))
    assert driver.keys(0) == ({4: [block]} if drafts else {})


def test_the_output_of_a_chunk_inside_the_prompt_registers_nothing() -> None:
    """T36.7: the engine calls only where tokens were sampled."""
    driver = Driver(speculative(block_size=4))
    driver.submit(0, 6)
    driver.do(act.BeginStep())
    driver.allocate(0, 4)
    driver.do(*macros.CLOSE, *macros.EXECUTE, act.EvictBlocks((driver.tables(0)[0][0],)))
    request = driver.request(0)
    driver.world = evolve(driver.world, requests=(evolve(request, groups=(evolve(request.groups[0], num_cached=0),)),))
    driver.do(act.Output(0))
    assert driver.keys(0) == {}


def test_drafts_with_the_last_chunk_of_a_prompt_and_with_an_admission() -> None:
    """T36: a chunk that reaches the end of the prompt may carry drafts, also in the step that admits the request."""
    driver = Driver(speculative())
    driver.submit(0, 20)
    driver.chunk(0, 16)
    driver.do(act.BeginStep(), act.Allocate(0, 6, drafts=(5, 6)))
    driver.close((0, (5, 6, 4)))
    assert driver.counts(0) == (22, 23, 0)
    driver.submit(1, 17)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == 16
    driver.do(act.Allocate(1, 3, 16, drafts=(8, 8)))
    driver.close((1, 4))
    assert driver.counts(1) == (17, 18, 0)


def test_a_refused_allocation_leaves_no_draft_behind() -> None:
    """PC-9: where blocks are short, the drafts do not enter the prefix table either."""
    driver = decoding(tokens=7, block_size=4, num_blocks=3)
    driver.do(act.BeginStep())
    before = driver.world.prefixes
    assert driver.do(draft(driver, 5, 6, 8)).admitted is False
    assert driver.world.prefixes == before
    assert driver.do(act.Allocate(0, 1)).admitted is True


def test_at_the_model_length_fewer_tokens_are_delivered() -> None:
    """T36.6: L=24, 22 tokens known: of 2 accepted drafts and 1 more token only 2 are taken; computed stays below by one."""
    driver = decoding(tokens=21, max_model_len=24)
    assert driver.counts(0) == (21, 22, 0)
    driver.do(act.BeginStep())
    assert isinstance(refusal(driver.world, draft(driver, 5, 6, 7)), errors.BeyondModelLength)
    driver.do(draft(driver, 5, 6), *macros.CLOSE, *macros.EXECUTE)
    assert driver.counts(0) == (24, 22, 3)
    assert isinstance(refusal(driver.world, act.Output(0, (5, 6, 1))), errors.OutputMismatch)
    assert driver.do(act.Output(0, (5, 6))).rejected == 1
    assert driver.counts(0) == (23, 24, 0)
    # The last token can still be computed, but nothing is sampled behind it.
    driver.do(act.BeginStep(), act.Allocate(0, 1), *macros.CLOSE, *macros.EXECUTE)
    assert isinstance(refusal(driver.world, act.Output(0, (1,))), errors.OutputMismatch)
    driver.do(act.Output(0))
    assert driver.counts(0) == (24, 24, 0)
    driver.do(act.BeginStep())
    assert isinstance(refusal(driver.world, act.Allocate(0, 1)), errors.BeyondKnownTokens)


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (act.Allocate(0, 5, drafts=(5, 6, 7, 8)), errors.TooManyDrafts),
        (act.Allocate(0, 3, drafts=(5,)), errors.BeyondKnownTokens),
        (act.Allocate(0, 2), errors.BeyondKnownTokens),
        (act.Allocate(0, 1, drafts=(5,)), errors.MisplacedDrafts),
        (act.Allocate(0, 2, drafts=(5, 6)), errors.MisplacedDrafts),
        (act.Allocate(0, 2, drafts=(-1,)), errors.NothingToAllocate),
    ],
)
def test_drafts_that_are_refused(action: act.Allocate, error: type[errors.Refusal]) -> None:
    """T36: no more than the drafter gives, behind the last known token, which the chunk computes."""
    driver = decoding()
    driver.do(act.BeginStep())
    assert type(refusal(driver.world, action)) is error


def test_drafts_inside_a_prompt_are_refused() -> None:
    """T36: a chunk that ends inside the prompt has no drafts, also if their number would fit into the prompt."""
    driver = Driver(speculative())
    driver.submit(0, 20)
    driver.do(act.BeginStep(), act.Lookup(0))
    for action in (act.Allocate(0, 18, drafts=(5, 6)), act.Allocate(0, 20, drafts=(20,))):
        assert type(refusal(driver.world, action)) is errors.MisplacedDrafts


@pytest.mark.parametrize("tokens", [(), (6, 8), (5, 7, 8), (5, 6, 7, 8, 9)])
def test_outputs_that_do_not_fit_the_drafts(tokens: tuple[int, ...]) -> None:
    """T36.5: accepted drafts come first and in order, then one sampled token; an end of the known tokens always samples."""
    driver = decoding()
    driver.do(act.BeginStep(), draft(driver, 5, 6, 7), *macros.CLOSE, *macros.EXECUTE)
    refused = refusal(driver.world, act.Output(0, tokens))
    assert type(refused) is errors.OutputMismatch
    assert all(isinstance(value, int) for value in refused.values.values())


def test_an_output_waits_for_the_end_of_the_plan() -> None:
    """T0: outputs are processed between plans."""
    driver = decoding(max_steps_in_flight=2)
    driver.submit(1, 3)
    driver.do(act.BeginStep(), act.Allocate(0, 1), *macros.CLOSE, *macros.EXECUTE)
    driver.world = evolve(driver.world, phase=driver.world.phase.PLAN_RUNNING)
    assert type(refusal(driver.world, act.Output(0, (1,)))) is errors.PhaseError


def test_rejected_drafts_never_lower_below_nothing() -> None:
    """T36.5: `computed` falls only as far as it goes."""
    request = decoding().request(0)
    assert outputs.take_back(evolve(request, computed=2), 3).computed == 0
    assert outputs.take_back(request, 3).computed == 17
