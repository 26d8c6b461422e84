"""HB-18 and PC-15: what an allocation has to register, and the order of the host's free queue, by hand from T7 to T10 and T28."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.actions import Action
from kvproof.core.config import Offload
from kvproof.core.world import new_world
from kvproof.spec import faults, naive_hits
from kvproof.spec import judge as judges
from kvproof.spec.engines.scope_parts import full, mamba, window
from kvproof.spec.laws import by_id, host_queue, registering
from kvproof.spec.laws.base import Moment

SIZES: dict[str, Any] = {"max_model_len": 64, "num_blocks": 32, "max_running": 2}


def sized(**more: Any) -> dict[str, Any]:
    """The usual sizes, and others."""
    return {**SIZES, **more}


def admitted(config, tokens, chunk) -> Moment:
    """The first allocation of a request: ``chunk`` of its tokens."""
    world = new_world(config)
    for action in (act.Submit(0, tuple(range(tokens))), act.BeginStep(), act.Lookup(0)):
        world = judges.attempt(world, action).after
    return judges.attempt(world, act.Allocate(0, chunk))


def further(moment: Moment, chunk, *between) -> Moment:
    """The next allocation of a request behind an executed step and other actions."""
    world = moment.after
    parts = map(act.Execute, world.config.parts)
    for action in (act.Drain(), act.BuildMetadata(), act.Dispatch(), *parts, act.Output(0), *between, act.BeginStep()):
        step = judges.attempt(world, action)
        assert step.refusal is None, action
        world = step.after
    return judges.attempt(world, act.Allocate(0, chunk))


def boundaries(moment: Moment, group=0):
    """The boundaries of the keys of a group, in tokens."""
    prefixes = moment.after.prefixes
    return sorted(prefixes.depth[node] for node, of, _, _ in moment.after.pool.entries if of == group)


def without(moment: Moment, boundary, group=0) -> Moment:
    """The same moment, where a key is left out."""
    prefixes = moment.after.prefixes
    entries = tuple(e for e in moment.after.pool.entries if (prefixes.depth[e[0]], e[1]) != (boundary, group))
    assert len(entries) < len(moment.after.pool.entries)
    return evolve(moment, after=evolve(moment.after, pool=evolve(moment.after.pool, entries=entries)))


def judged(name: str, moment: Moment):
    """What a law says of a moment."""
    check = by_id(name).check
    assert check is not None
    found = check(moment)
    return None if found is None else list(found)


def missing(moment: Moment):
    """What HB-18 misses, as (group, column, boundary); None where nothing had to be registered."""
    found = judged("HB-18", moment)
    if found is None:
        return None
    values = [dict(one.values) for one in found]
    return [(one["group"], one["column"], one["boundary"]) for one in values]


ONE = configs.configure((full(4), mamba(16)), **sized(hash_block_size=2))
FINE = configs.configure((full(4), mamba(4)), **sized(hash_block_size=2))
"""E = 4 of full attention, states every 4 or 16 tokens, H = A = 2: hits may end inside a block."""


def test_full_entries_and_the_prompt_tail_are_named():
    # P = 11: the tail is floor(10 / 2) * 2 = 10; 10 tokens fill two blocks of four.
    moment = admitted(ONE, 11, 10)
    assert boundaries(moment) == [4, 8, 10]
    assert missing(moment) == []
    assert missing(without(moment, 8)) == [(0, 1, 8)]
    assert missing(without(moment, 10)) == [(0, 2, 10)]


def test_a_tail_behind_the_chunk_is_not_named():
    moment = admitted(FINE, 11, 8)
    assert boundaries(moment) == [4, 8]
    assert missing(moment) == []


def test_a_state_is_named_where_its_chunk_ends_at_the_prompts_checkpoint():
    # ck(11, 2) = 10: the state behind 10 tokens lies in column 2 (T10.2b); before that a chunk ends with a block, at 8.
    first = admitted(FINE, 11, 8)
    assert (boundaries(first, 1), missing(first)) == ([8], [])
    assert missing(without(first, 8, 1)) == [(1, 1, 8)]
    second = further(first, 2)
    assert (boundaries(second, 1), missing(second)) == ([8, 10], [])
    assert missing(without(second, 10, 1)) == [(1, 2, 10)]


def test_what_retention_does_not_keep_is_not_named():
    # A window of 5 with E = 4 and A = 4 (no recurrent group, so that S = 4): retention 0 keeps the blocks that a resend of 13
    # tokens reads: it resumes at 12, so ceil(4 / 4) = 1 block, column 2.
    config = configs.configure((full(4), window(4, 5)), **sized(retention=0))
    moment = admitted(config, 13, 13)
    assert boundaries(moment, 0) == [4, 8, 12]
    assert boundaries(moment, 1) == [12]
    assert missing(moment) == []
    assert missing(without(moment, 12, 1)) == [(1, 2, 12)]


def test_what_was_keyed_before_and_taken_away_is_not_named_again():
    first = admitted(FINE, 11, 8)
    block = first.after.requests[0].groups[0].table[0]
    again = further(first, 2, act.EvictBlocks((block,)))
    assert boundaries(again) == [8, 10]
    assert missing(again) == []
    assert missing(without(again, 10)) == [(0, 2, 10)]


def test_nothing_is_named_without_caching_and_of_a_refusal():
    off = configs.configure((full(4),), **sized(caching=False))
    assert missing(admitted(off, 8, 8)) is None
    tight = configs.configure((full(4),), **sized(num_blocks=2))
    moment = admitted(tight, 8, 8)
    assert moment.record is not None
    assert not moment.record.admitted
    assert missing(moment) is None


@pytest.mark.parametrize(("fault", "ten", "eight"), [("M-KEY-3", [(0, 2, 10)], []), ("M-KEY-4", [], [(0, 1, 8), (1, 1, 8)])])
def test_the_faults_leave_something_out(fault, ten, eight):
    """Behind ten tokens the tail ends and no full entry; behind eight a full entry does."""
    with faults.planted(faults.by_id(fault)):
        assert missing(admitted(ONE, 11, 10)) == ten
        assert missing(admitted(FINE, 11, 8)) == eight


# --- the host's queue -------------------------------------------------------------------------------------------------

HOST = configs.configure((full(1),), max_model_len=4, num_blocks=6, max_running=1, offload=Offload(num_blocks=5))
STEP: tuple[Action, ...] = (act.Drain(), act.BuildMetadata(), act.Dispatch(), *map(act.Execute, HOST.parts))


def stored():
    """Two tokens are computed and confirmed, a store of their blocks is copied; its completion is still to come."""
    world = new_world(HOST)
    run: list[Action] = [act.Submit(0, (7, 8)), act.BeginStep(), act.Lookup(0), act.Allocate(0, 2), *STEP, act.Output(0, (5,))]
    run += [act.BeginStep(), act.Allocate(0, 1), *STEP, act.RunStore(0)]
    for action in run:
        moment = judges.attempt(world, action)
        assert moment.refusal is None, action
        world = moment.after
    assert world.host is not None
    assert [store.host for store in world.host.stores] == [(1, 2)]
    assert world.host.pool.free == (3, 4)
    return world


def order(moment: Moment):
    found = judged("PC-15", moment)
    return None if found is None else [dict(one.values).get("expected") for one in found]


def test_what_was_stored_stands_behind_what_holds_nothing():
    moment = judges.attempt(stored(), act.CompleteStore(0))
    assert moment.after.host is not None
    assert moment.after.host.pool.free == (3, 4, 1, 2)
    assert order(moment) == []


@pytest.mark.parametrize("wrong", [(1, 2, 3, 4), (3, 4, 2, 1), (4, 3, 1, 2)])
def test_another_order_is_a_finding(wrong):
    moment = judges.attempt(stored(), act.CompleteStore(0))
    assert moment.after.host is not None
    host = evolve(moment.after.host, pool=evolve(moment.after.host.pool, free=wrong))
    assert order(evolve(moment, after=evolve(moment.after, host=host))) == [(3, 4, 1, 2)]


def test_given_back_before_it_is_keyed_is_a_finding():
    world = stored()
    with faults.planted(faults.by_id("M-LRU-2")):
        moment = judges.attempt(world, act.CompleteStore(0))
    assert moment.after.host is not None
    assert moment.after.host.pool.free == (1, 2, 3, 4)
    assert order(moment) == [(3, 4, 1, 2)]


def test_a_store_takes_the_front():
    world = new_world(HOST)
    run: list[Action] = [act.Submit(0, (7, 8)), act.BeginStep(), act.Lookup(0), act.Allocate(0, 2), *STEP, act.Output(0, (5,))]
    for action in (*run, act.BeginStep(), act.Allocate(0, 1), act.Drain()):
        world = judges.attempt(world, action).after
    moment = judges.attempt(world, act.BuildMetadata())
    assert moment.record is not None
    assert moment.record.store_host == (1, 2)
    assert order(moment) == []
    other = evolve(moment, record=evolve(moment.record, store_host=(3, 4)))
    found = judged("PC-15", other)
    assert found is not None
    assert [one.message for one in found] == ["a store does not take host blocks from the front of the free queue"]


def test_what_touches_no_host_block_is_not_judged():
    world = new_world(HOST)
    assert order(judges.attempt(world, act.Submit(0, (7, 8)))) is None
    assert order(judges.attempt(new_world(FINE), act.BeginStep())) is None


def test_the_laws_judge_independently():
    assert naive_hits.alignment(FINE) == 2
    assert {law.id for law in (*registering.LAWS, *host_queue.LAWS)} == {"HB-18", "PC-15"}
