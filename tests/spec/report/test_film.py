"""Films: what each block is after each action, in words, derived by hand from the semantics."""

from __future__ import annotations

import pytest

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.config import Offload
from kvproof.core.world import new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines.scope_parts import full, mamba
from kvproof.spec.report import film as films
from kvproof.spec.report import lineage

CLOSE = (act.Drain(), act.BuildMetadata(), act.Dispatch())


def shot(config, *actions):
    """Return the film of legal actions."""
    world, moments = new_world(config), []
    for action in actions:
        moments.append(judges.attempt(world, action))
        assert moments[-1].refusal is None, (action, moments[-1].refusal)
        world = moments[-1].after
    return films.film(config, moments)


def executed(config):
    return tuple(map(act.Execute, config.parts))


@pytest.fixture(scope="module")
def plain():
    """One group of blocks of two tokens; four tokens computed and finished, then the same prompt again."""
    config = configs.configure((full(2),), max_model_len=8, num_blocks=6, max_running=1)
    first = (act.Submit(0, (7, 8, 9, 7)), act.BeginStep(), act.Lookup(0), act.Allocate(0, 4), *CLOSE, *executed(config))
    again = (act.Output(0, (5,)), act.Finish(0), act.Submit(0, (7, 8, 9, 7)), act.BeginStep(), act.Lookup(0))
    return shot(config, *first, *again, act.Allocate(0, 2, local=2))


def at(film, kind, number=0):
    """Return the frame behind the number-th action of a kind."""
    places = [place for place, moment in enumerate(film.moments) if type(moment.action) is kind]
    return film.frames[places[number] + 1]


def test_the_beginning_has_free_blocks_and_nothing_else(plain):
    first = plain.frames[0]
    assert (first.position, first.phase, first.settled, first.requests) == (-1, "no plan open", True, ())
    assert first.free == (1, 2, 3, 4, 5)
    assert [(one.refs, one.place, one.owners, one.claims, one.bytes) for one in first.device] == [
        (0, place, (), (), "unwritten") for place in range(5)
    ]


def test_an_admission_takes_blocks_and_keys_them_before_anything_is_written(plain):
    frame = at(plain, act.Allocate)
    assert not frame.settled
    one, two = frame.of("device", 1), frame.of("device", 2)
    assert (one.refs, one.place, one.owners) == (1, None, (("r0", 0, 0),))
    assert two.owners == (("r0", 0, 1),)
    assert [(claim.text, claim.primary, claim.wrong) for claim in one.claims] == [("g0 r0@2", True, "position 0 has unwritten")]
    assert [claim.text for claim in two.claims] == ["g0 r0@4"]
    assert frame.of("device", 3).place == 0


def test_behind_the_forward_the_bytes_are_what_the_keys_claim(plain):
    frame = next(
        frame for frame, moment in zip(plain.frames[1:], plain.moments, strict=True) if moment.action == act.Execute("forward")
    )
    one, two = frame.of("device", 1), frame.of("device", 2)
    assert (one.group, one.ranks, two.ranks) == (0, ("r0[0,2)",), ("r0[2,4)",))
    assert not one.wrong
    assert not two.wrong
    assert frame.requests == ("r0 running, 4 of 4 tokens computed, 4 in flight",)


def test_a_number_that_is_submitted_again_has_another_name_and_keeps_the_prefix(plain):
    last = plain.frames[-1]
    # The hit ends on a whole block, the last token is computed again: block 1 is shared, a new one is taken behind it.
    assert last.of("device", 1).owners == (("r0.2", 0, 0),)
    assert last.of("device", 1).bytes == "r0[0,2)"
    assert last.requests[0].startswith("r0.2 running")


def test_ranks_are_told_apart_and_a_state_by_its_boundary():
    config = configs.configure((full(1), mamba(2)), max_model_len=8, num_blocks=8, max_running=1, dcp_size=2)
    run = (act.Submit(0, (7, 8)), act.BeginStep(), act.Lookup(0), act.Allocate(0, 2), *CLOSE, *executed(config))
    frame = shot(config, *run).frames[-1]
    attention, state = frame.of("device", 1), frame.of("device", 2)
    assert attention.ranks == ("r0[0]", "r0[1]")
    assert attention.bytes == "r0[0] | r0[1]"
    assert state.ranks == ("state r0@2", "state r0@2")
    assert state.bytes == "state r0@2"


def test_stores_pin_both_tiers():
    config = configs.configure((full(1),), max_model_len=4, num_blocks=5, max_running=1, offload=Offload(num_blocks=4))
    run = [act.Submit(0, (7, 8)), act.BeginStep(), act.Lookup(0), act.Allocate(0, 2), *CLOSE, *executed(config)]
    run += [act.Output(0, (5,)), act.BeginStep(), act.Allocate(0, 1), act.Drain(), act.BuildMetadata()]
    film = shot(config, *run)
    frame = film.frames[-1]
    stored = [block.block for block in frame.device if block.pins == ("store 0",)]
    assert stored
    held = [block for block in frame.host if block.pins == ("store 0",)]
    assert [block.refs for block in held] == [1] * len(stored)
    life = lineage.life(film, "device", stored[0])
    assert "is held by store 0" in life.events[-1].text


def test_the_life_of_a_block_is_told_action_by_action(plain):
    life = lineage.life(plain, "device", 2)
    told = {event.position: (event.kinds, event.text) for event in life.events}
    kinds = [type(plain.moments[position].action) for position in told]
    assert kinds == [act.Allocate, act.Execute, act.Finish]
    allocated, written, finished = told.values()
    assert allocated == (
        ("owned", "references", "taken", "keyed"),
        "becomes column 1 of r0 in g0; references 0 → 1; leaves the free queue (it stood at place 1); gets the key g0 r0@4",
    )
    assert written == (("written",), "forward writes it: unwritten → g0 r0[2,4)")
    assert finished[0] == ("released", "references", "freed")


def test_to_move_up_in_the_free_queue_is_no_change(plain):
    frame = next(number for number, one in enumerate(plain.frames) if one.position >= 0 and one.of("device", 1).refs)
    assert plain.frames[frame - 1].of("device", 5).place == 4
    assert plain.frames[frame].of("device", 5).place == 2
    assert lineage.touched(plain, frame) == [("device", 1), ("device", 2)]
    assert lineage.touched(plain, 0) == []
