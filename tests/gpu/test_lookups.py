"""What a lookup finds is found by the tensors' own keys: nothing of it is told, and a wrong own lookup is a difference at once."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from attrs import evolve  # noqa: E402

from kvproof.core import actions as act  # noqa: E402
from kvproof.core.config import Offload  # noqa: E402
from kvproof.gpu import differential, goldens, keys, told  # noqa: E402
from kvproof.gpu import pool as pools  # noqa: E402
from kvproof.gpu.differential import Differential  # noqa: E402
from kvproof.gpu.told import Told  # noqa: E402
from kvproof.gpu.world import Hit  # noqa: E402
from kvproof.spec import judge  # noqa: E402


def lagging():
    """Two children of a connector that can use divergent hits: the state at 12 is gone, attention reaches further (G7, T12)."""
    script = goldens.hybrid(4, 4, dcp_size=2, max_chunk=4, connectors=(True,)).submit(0, 14)
    for amount in (4, 4, 4, 2):
        script.chunk(0, amount)
    return script.do(act.Finish(0), act.EvictBlocks((5,))).submit(1, 16).do(act.BeginStep(), act.Lookup(1))


def hosted():
    """A resend that the device has forgotten, looked up on the host (G3)."""
    script = goldens.hybrid(16, 16, dcp_size=4, offload=Offload(num_blocks=20)).submit(0, 50)
    script.chunk(0, 48).chunk(0, 2).do(act.Finish(0)).stored().wipe().submit(1, 50)
    return script.do(act.BeginStep(), act.Lookup(1), act.LookupExternal(1, 0))


def resend():
    """A resend that hits inside an attention block on two ranks, and a state (G6)."""
    script = goldens.hybrid(4, 4, dcp_size=2).submit(0, 14).chunk(0, 12).chunk(0, 2).do(act.Finish(0))
    return script.submit(1, 12, 51, 52, 53, 54).do(act.BeginStep(), act.Lookup(1))


SCRIPTS = {"device": resend, "divergent": lagging, "host": hosted}
FOUND = keys.found


def nothing(world, pool, request, start):
    return evolve(FOUND(world, pool, request, start), entries=())


def another_block_of(group):
    def found(world, pool, request, start):
        right = FOUND(world, pool, request, start)
        entries = tuple((at, of, number, block + (of == group)) for at, of, number, block in right.entries)
        return evolve(right, entries=entries)

    return found


def a_boundary_too_early(world, pool, request, start):
    right = FOUND(world, pool, request, start)
    return evolve(right, entries=tuple(entry for entry in right.entries if entry[0] < len(right.entries) // 2 - 1))


def hit_of(both: Differential) -> Hit:
    """The hit of the last lookup on the device."""
    assert both.tensors.hit is not None
    return both.tensors.hit


def first_difference(script):
    return differential.run(script.config, script.actions)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_hit_in_every_group_and_are_equal(name):
    script = SCRIPTS[name]()
    both = first_difference(script)
    assert both.difference is None, both.difference.text()
    host = both.tensors.host
    assert all(blocks.any() for blocks in (hit_of(both).lists if host is None else host.pinned[1].lists))
    assert name != "divergent" or hit_of(both).diverged


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize(
    "wrong",
    [nothing, another_block_of(0), another_block_of(1), a_boundary_too_early],
    ids=["none", "attention", "state", "short"],
)
def test_a_wrong_own_lookup_is_a_difference_at_that_lookup(name, wrong, monkeypatch):
    script = SCRIPTS[name]()
    monkeypatch.setattr(keys, "found", wrong)
    both = first_difference(script)
    assert both.difference is not None
    assert both.difference.part in ("hit", "junction", "pinned hits", "references")
    assert len(both.actions) == len(script.actions), "only the last action is a lookup that hits"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_wrong_answer_of_the_key_map_is_a_difference(name, monkeypatch):
    right = pools.find
    monkeypatch.setattr(pools, "find", lambda pool, wanted: right(pool, wanted).flip(0))
    both = first_difference(SCRIPTS[name]())
    assert both.difference is not None


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_of_a_lookup_is_told(name):
    script = SCRIPTS[name]()
    world = differential.begin(script.config).model
    for action in script.actions:
        moment = judge.attempt(world, action)
        if isinstance(action, act.Lookup | act.LookupExternal):
            assert told.of(moment) == Told()
        world = moment.after


def test_what_opts_out_of_reading_is_not_looked_up():
    script = goldens.hybrid(4, 4).submit(0, 8).chunk(0, 4).chunk(0, 4).do(act.Finish(0))
    script.do(act.Submit(1, tuple(range(1, 9)), skip_reading=True), act.BeginStep(), act.Lookup(1))
    both = first_difference(script)
    assert both.difference is None, both.difference.text()
    assert hit_of(both).local == 0


def test_the_joint_hit_is_found_where_it_is_asked_for():
    script = lagging().do(act.Lookup(1, common=True))
    both = first_difference(script)
    assert both.difference is None, both.difference.text()
    assert not hit_of(both).diverged
    assert hit_of(both).local < hit_of(first_difference(lagging())).local


@pytest.mark.parametrize("start", [4, 64])
def test_an_external_lookup_that_may_find_nothing_finds_nothing(start):
    # 4 is inside a scheduler block, behind 64 no token but the last is left.
    script = goldens.hybrid(16, 16, dcp_size=4, offload=Offload(num_blocks=20)).submit(0, 65).chunk(0, 64).chunk(0, 1)
    script.do(act.Finish(0)).stored().wipe().submit(1, 65).do(act.BeginStep(), act.Lookup(1), act.LookupExternal(1, start))
    both = first_difference(script)
    assert both.difference is None, both.difference.text()
    assert both.tensors.host is not None
    assert both.tensors.host.pinned == {}
