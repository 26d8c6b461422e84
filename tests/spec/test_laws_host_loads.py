"""The laws of loads, of the bytes that transfers move, and of the host's events: real moments, and the same ones tampered with.

The prompt of 11 tokens (see ``test_laws_host``) is stored, the device is wiped, and the prompt is sent again: 10 tokens are loaded
into two attention blocks and the block of the state at 10.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Offload
from kvproof.core.offload.state import Stage
from kvproof.core.records import Event
from kvproof.core.world import Status, World
from kvproof.spec import faults
from kvproof.spec.faults.base import planted
from kvproof.spec.laws.base import Moment
from tests.spec import stories
from tests.spec.host_stories import HostRun, host, hosted, with_host, with_host_content, with_host_pool, with_load
from tests.spec.stories import Moments, Tamper, acted, after, both, put, recorded, with_content, with_plan, with_pool

TOKENS = 11


def wiped(**settings: Any) -> HostRun:
    """A run in which the prompt is on the host and nowhere else."""
    run = HostRun(hosted(**settings))
    run.send(0, TOKENS)
    run.compute(0, 8, 2, 1)
    run.do(act.Finish(0))
    run.quiet("quiet")
    assert stories.answer(run.do(act.ResetCache(), "wiped")).done
    return run


@cache
def loaded() -> Moments:
    """The prompt is loaded, promoted and computed to its end."""
    run = wiped()
    run.send(1, TOKENS)
    assert run.load(1, "load") == 10
    run.arrive(1, "in")
    run.do(act.BeginStep())
    run.do(act.Promote(1), "promote")
    run.do(act.Allocate(1, 1), "behind")
    run.step("last", act.Output(1, (1,)))
    run.do(act.Finish(1), "finish")
    run.quiet()
    return run.named


@cache
def aborted() -> Moments:
    """The request finishes while its load runs."""
    run = wiped()
    run.send(1, TOKENS)
    run.load(1, "load")
    run.step("in")
    run.do(act.Finish(1), "finish")
    run.do(act.RunLoad(0), "copy")
    run.do(act.CompleteLoad(1), "complete")
    return run.named


@cache
def never_issued() -> Moments:
    """The request finishes before a step was told of its load: with two steps in flight it is held back (T36.1)."""
    held = Offload(num_blocks=16, workers=2, hold_loads=True)
    run = wiped(offload=held, max_steps_in_flight=2, defer_block_free=True)
    run.send(2, (7, 7, 7, 7, 7, 7, 7, 7, 7))
    run.send(1, TOKENS)
    run.do(act.BeginStep())
    run.do(act.Lookup(2))
    run.do(act.Allocate(2, 8))
    run.dispatch()
    run.load(1, "load")
    run.dispatch("in")
    run.do(act.Finish(1), "finish")
    return run.named


@cache
def failed() -> Moments:
    """The load brings nothing: the request starts again."""
    run = wiped()
    run.send(1, TOKENS)
    run.load(1, "load")
    run.arrive(1, "in", failed=True, valid=0)
    return run.named


@cache
def behind() -> Moments:
    """16 tokens; the device keeps the first attention block and the state at 8: external tokens continue behind 8."""
    run = HostRun(hosted())
    run.send(0, 17)
    run.compute(0, 8, 8, 1)
    run.do(act.Finish(0))
    run.quiet()
    kept = {block for node, _, _, block in run.world.pool.entries if run.world.prefixes.depth[node] == 8}
    run.do(act.EvictBlocks(tuple(block for block in range(1, 24) if block not in kept)))
    run.send(1, 17)
    assert run.load(1, "load", start=8, local=8) == 8
    run.arrive(1, "in")
    return run.named


@cache
def given_up() -> Moments:
    """The host is reset while the load runs: it is abandoned, and counts when it is reported (C-64)."""
    run = wiped()
    run.send(1, TOKENS)
    run.load(1, "load")
    run.step("in")
    run.do(act.ResetHost(), "reset")
    run.do(act.RunLoad(0), "copy")
    run.do(act.CompleteLoad(1), "complete")
    return run.named


STORIES = {
    "given up": given_up,
    "loaded": loaded,
    "aborted": aborted,
    "never issued": never_issued,
    "failed": failed,
    "behind": behind,
}


def moment(name: str) -> Moment:
    """A moment by story and name."""
    story, _, rest = name.partition(": ")
    return STORIES[story]()[rest]


def pairs(*found: tuple[int, int, int, int]) -> Tamper:
    """Other copies in the record and, in the same order, in the load that waits."""

    def change(m: Moment) -> Moment:
        device, source = tuple(pair[2] for pair in found), tuple(pair[3] for pair in found)
        return recorded(pairs=found)(after(lambda world: with_load(world, device=device, host=source))(m))

    return change


def device_keyed(block: int, node: int = 8, group: int = 0) -> Tamper:
    """A device block with a key behind a moment."""
    return after(lambda w: with_pool(w, entries=tuple(sorted((*w.pool.entries, (node, group, 900, block))))))


def saying(at: int, **changes: Any) -> Tamper:
    """One event of a moment changed."""

    def change(m: Moment) -> Moment:
        said = list(stories.answer(m).events)
        said[at] = evolve(said[at], **changes)
        return recorded(events=tuple(said))(m)

    return change


def also(*events: Event) -> Tamper:
    """More events behind those of a moment."""
    return lambda m: recorded(events=(*stories.answer(m).events, *events))(m)


def silent(m: Moment) -> Moment:
    """A moment without its events."""
    return recorded(events=())(m)


def freed(m: Moment) -> Moment:
    """The blocks of the load free behind a moment, with nobody's reference."""
    load = host(m.before).loads[0]
    ref = tuple(0 if block in load.device else count for block, count in enumerate(m.after.pool.ref))
    return after(lambda w: with_pool(w, ref=ref, free=(*w.pool.free, *load.device)))(m)


PAIRS = ((0, 0, 4, 2), (0, 1, 6, 4), (1, 2, 7, 3))
"""What the load of 10 tokens copies: (group, column, device block, host block)."""

SCANNED = "loaded: quiet CompleteStore 1.1"
HANDED = "loaded: quiet CompleteStore 0.1"

CASES: list[tuple[str, str, str, Tamper]] = [
    ("LD-1", "one block too few", "loaded: load Allocate", pairs(*PAIRS[:1], PAIRS[2])),
    ("LD-1", "one column further", "loaded: load Allocate", pairs((0, 1, 6, 2), PAIRS[2])),
    ("LD-1", "counted from the start", "behind: load Allocate", lambda m: pairs((0, 0, *stories.answer(m).pairs[0][2:]))(m)),
    ("LD-1", "into another block", "loaded: load Allocate", pairs((0, 0, 9, 2), *PAIRS[1:])),
    ("LD-1", "another load waits", "loaded: load Allocate", after(lambda w: with_load(w, host=(2, 4, 9)))),
    ("LD-2", "behind a misaligned prefix", "loaded: load Allocate", acted(local=4)),
    ("LD-2", "not whole hash blocks", "loaded: load Allocate", acted(external=9)),
    ("LD-3", "another group's block", "loaded: load Allocate", pairs(PAIRS[0], PAIRS[1], (1, 2, 7, 2))),
    ("LD-3", "another range", "loaded: load Allocate", pairs((0, 0, 4, 4), (0, 1, 6, 2), PAIRS[2])),
    ("LD-4", "from the null block", "loaded: load Allocate", pairs(*PAIRS, (1, 0, 9, 0))),
    ("LD-4", "to the null block", "loaded: load Allocate", pairs(*PAIRS, (1, 0, 0, 3))),
    (
        "LD-5",
        "a token missing",
        "loaded: in CompleteLoad",
        after(lambda w: with_content(w, 6, (0, 9, -1, -1, -1, -1, -1, -1, -1))),
    ),
    ("LD-5", "another state", "loaded: in CompleteLoad", after(lambda w: with_content(w, 7, (1, 8, 8)))),
    ("LD-5", "a block missing", "loaded: in CompleteLoad", after(lambda w: stories.with_state(w, 1, 0, table=(4,)))),
    ("LD-6", "at the allocation", "loaded: load Allocate", device_keyed(4)),
    ("LD-6", "while it runs", "loaded: in submit", device_keyed(7, 10, 1)),
    ("LD-7", "free", "loaded: in RunLoad", freed),
    ("LD-7", "free behind the end", "aborted: finish", freed),
    ("LD-7", "scheduled", "loaded: in Drain", lambda m: after(lambda w: with_plan(w, scheduled=behind_share()))(m)),
    ("LD-7", "running", "loaded: in submit", after(lambda w: stories.with_request(w, 1, status=Status.RUNNING))),
    ("LD-7", "another table", "loaded: in submit", after(lambda w: stories.with_state(w, 1, 0, table=(4,)))),
    ("LD-8", "in the list", "loaded: in Drain", recorded(zeroed=(6,))),
    ("LD-8", "in the step", "loaded: in Dispatch", after(lambda w: evolve(w, steps=(evolve(w.steps[0], zero=(4,)),)))),
    ("LD-8", "zeroed", "loaded: in zero", after(lambda w: with_content(w, 7, (1, -1, -1)))),
    ("CC-4", "another state", HANDED, after(lambda w: with_host_content(w, 1, (1, 9, 9)))),
    ("CC-4", "one rank missing", HANDED, after(lambda w: with_host_content(w, 1, (1, 8, -1)))),
    ("CC-4", "tokens missing", SCANNED, after(lambda w: with_host_content(w, 2, (0, 1, 3, 5, -1, 2, 4, 6, 8)))),
    ("CC-4", "another group's bytes", SCANNED, after(lambda w: with_host_content(w, 2, (1, 8, 8)))),
    ("CC-5", "bytes from before the forward", "loaded: quiet RunStore 0", both(lambda w: unwritten(w, 2))),
    (
        "CC-5",
        "half a block",
        "loaded: quiet RunStore 1",
        after(lambda w: with_host_content(w, 2, (0, 1, 3, 5, 7, -1, -1, -1, -1))),
    ),
    (
        "CC-5",
        "the next state",
        "loaded: quiet RunStore 0",
        both(lambda w: with_host_content(with_content(w, 2, (1, 9, 9)), 1, (1, 9, 9))),
    ),
    ("CC-5", "overwritten before", "loaded: 0 2 forward", after(lambda w: with_content(w, 2, (1, 11, 11)))),
    ("CC-5", "zeroed before", "loaded: 0 2 zero", after(lambda w: with_content(w, 1, ()))),
    ("CC-6", "a block that it did not take", "loaded: load Allocate", recorded(taken=(6, 7))),
    ("CC-6", "the end of a copy", "loaded: load Allocate", after(lambda w: with_plan(w, copies=((0, 9, 4),)))),
    (
        "CC-6",
        "a block with another holder",
        "loaded: load Allocate",
        lambda m: after(lambda w: with_pool(w, ref=put(w.pool.ref, 4, 3)))(m),
    ),
    ("CC-6", "a keyed block", "loaded: in RunLoad", device_keyed(4)),
    ("CC-6", "another request's block", "loaded: in RunLoad", after(lambda w: evolve(w, requests=(*w.requests, second(w))))),
    ("CC-6", "blocks that it does not name", "loaded: in RunLoad", after(lambda w: with_content(w, 9, (0, 1)))),
    ("COW-3", "a load over a copy's source", "loaded: in RunLoad", both(lambda w: copying(w, 4))),
    ("HB-8", "inside a hash block", "loaded: load LookupExternal", recorded(external=9)),
    ("PC-3", "a store without a pin", "loaded: 0 0 BuildMetadata", after(lambda w: with_pool(w, ref=put(w.pool.ref, 2, 0)))),
    ("PC-3", "a load without pins", "loaded: load Allocate", after(lambda w: with_pool(w, ref=put(w.pool.ref, 4, 1)))),
    ("PC-8", "a complete store moves others", HANDED, after(lambda w: with_pool(w, free=w.pool.free[::-1]))),
    ("PC-8", "a complete load moves others", "aborted: complete", after(lambda w: with_pool(w, free=w.pool.free[::-1]))),
    (
        "PC-8",
        "a failed load frees another way",
        "failed: in CompleteLoad",
        after(lambda w: with_pool(w, free=w.pool.free[::-1])),
    ),
    (
        "PC-10",
        "a host block held",
        "loaded: quiet CompleteStore 3.1",
        after(lambda w: with_host_pool(w, ref=put(host(w).pool.ref, 5, 1))),
    ),
    ("PC-10", "a device block held", "aborted: complete", after(lambda w: with_pool(w, ref=put(w.pool.ref, 4, 1)))),
    ("EV-1", "other tokens on the host", SCANNED, saying(0, tokens=(1, 2, 3, 4, 5, 6, 7, 9))),
    ("EV-1", "another boundary on the host", HANDED, saying(0, tokens=(5, 6, 7, 8), boundary=9)),
    ("EV-2", "a hash block's tokens of a whole block", SCANNED, saying(0, size=2, tokens=(7, 8))),
    ("EV-2", "another size without tokens", HANDED, saying(0, size=2)),
    ("EV-3", "another parent on the host", SCANNED, saying(0, parent=4)),
    ("EV-3", "a parent without tokens", HANDED, saying(0, parent=4)),
    ("EV-4", "a host key removed that is there", HANDED, also(Event("removed", "host", 1, 8))),
    ("EV-5", "a host key in silence", SCANNED, silent),
    ("EV-5", "said of the device", SCANNED, saying(0, medium="device")),
    ("EV-6", "a host key said twice", SCANNED, lambda m: also(stories.answer(m).events[0])(m)),
    ("CN-4", "counted when it is issued", "loaded: in BuildMetadata", after(lambda w: with_host(w, load_blocks=3))),
    ("CN-4", "an abandoned load uncounted", "given up: complete", after(lambda w: with_host(w, load_blocks=0))),
    ("CN-4", "a load that was never issued", "never issued: finish", after(lambda w: with_host(w, load_blocks=3))),
    ("HO-4", "a store that a load ends", "loaded: quiet RunStore 1", after(lambda w: with_host(w, stores=()))),
]


def unwritten(world: World, block: int) -> World:
    """A world in which the state of a block was not written when it was copied."""
    changed = with_content(world, block, (1, -1, -1))
    return with_host_content(changed, 1, (1, -1, -1))


def behind_share() -> Any:
    """The share of the chunk behind the load."""
    return moment("loaded: behind").after.plan.scheduled


def second(world: World) -> Any:
    """Another request that holds the blocks of the loading one."""
    return evolve(world.requests[-1], request=7)


def copying(world: World, block: int) -> World:
    """A world whose open plan still has to copy a block."""
    return with_plan(world, copies=((0, block, 9),))


@pytest.mark.parametrize(("law", "what", "name", "tamper"), CASES, ids=[f"{law} {what}" for law, what, _, _ in CASES])
def test_a_law_sees_what_is_wrong(law: str, what: str, name: str, tamper: Tamper) -> None:
    """The law holds in the real moment; in the tampered one it does not."""
    del what
    real = moment(name)
    assert not stories.judged(law, real)
    assert stories.judged(law, tamper(real))


@pytest.mark.parametrize("story", STORIES)
def test_no_law_is_broken_in_a_story(story: str) -> None:
    stories.holds_throughout(STORIES[story]())


@pytest.mark.parametrize("law", ["LD-1", "LD-2", "LD-3", "LD-4", "LD-5", "LD-6", "LD-7", "LD-8", "CC-4", "CC-5", "CC-6"])
def test_every_premise_is_true_in_the_story_of_a_load(law: str) -> None:
    check, on = stories.LAWS[law].check, stories.LAWS[law].on
    assert check is not None
    assert any(check(m) is not None for m in loaded().values() if not on or isinstance(m.action, on))


def test_the_stories_say_what_the_cases_build_on() -> None:
    assert stories.answer(moment("loaded: load Allocate")).pairs == PAIRS
    assert stories.answer(moment("aborted: complete")).freed
    load = host(moment("never issued: finish").before).loads[0]
    assert load.stage is Stage.WAITING
    assert not stories.answer(moment("never issued: finish")).deferred
    columns = [(group, column) for group, column, _, _ in stories.answer(moment("behind: load Allocate")).pairs]
    assert columns == [(0, 1), (1, 3)]


def test_ld_2_sees_a_load_behind_a_misaligned_prefix() -> None:
    """M-MIS-1: the device has 10 tokens of a prompt, inside a scheduler block, and the host has 16."""
    run = HostRun(hosted(offload=Offload(num_blocks=30)))
    run.send(0, 17)
    run.compute_all(0)
    run.do(act.Finish(0))
    run.quiet()
    run.do(act.ResetCache())
    run.send(1, TOKENS, skip_reading=True)
    run.compute(1, 8, 2, 1)
    run.send(2, 17)
    with planted(faults.by_id("M-MIS-1")):
        run.do(act.BeginStep())
        assert stories.answer(run.do(act.Lookup(2))).local == 10
        found = run.do(act.LookupExternal(2, 10))
        assert stories.judged("CP-6", found)
        load = run.do(act.Allocate(2, 0, local=10, external=stories.answer(found).external, load=True))
    assert stories.judged("LD-2", load)
