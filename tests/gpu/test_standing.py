"""Everything that both sides hold beside pools, rows and bytes is compared: each part spoiled once must be found."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")

from kvproof.core import actions as act  # noqa: E402
from kvproof.core.config import Offload  # noqa: E402
from kvproof.gpu import compare, counterexamples, differential, goldens, standing  # noqa: E402
from kvproof.gpu.world import Stage, Status  # noqa: E402
from kvproof.spec import macros  # noqa: E402

# --- runs that end in the middle of something -------------------------------------------------------------------------


def admitted():
    """An open plan: request 1 has adopted a hit inside a block and owes nothing more, its copy is planned (G6)."""
    script = goldens.hybrid(4, 4, dcp_size=2).submit(0, 14).chunk(0, 12).chunk(0, 2).do(act.Finish(0))
    return script.submit(1, 12, 51, 52, 53, 54).do(act.BeginStep()).plan(1, 4)


def looked_up():
    """A lookup that nobody has adopted yet."""
    script = goldens.hybrid(4, 4, dcp_size=2).submit(0, 14).chunk(0, 12).chunk(0, 2).do(act.Finish(0))
    return script.submit(1, 12, 51, 52, 53, 54).do(act.BeginStep(), act.Lookup(1))


def owing():
    """A producer that owes the copy of its tail, with keys to be given back if its plan is withdrawn (G9, G17)."""
    script = goldens.hybrid(64, 64, hash_block_size=16).submit(0, 50).chunk(0, 48)
    while script.live(0).computed < 63:
        script.chunk(0, 2 if script.live(0).computed == 48 else 1)
    return script.do(act.BeginStep()).plan(0, 1)


def tail():
    """The same behind the chunk that registers the tail."""
    return goldens.hybrid(64, 64, hash_block_size=16).submit(0, 50).chunk(0, 48)


def flying():
    """A step in flight with a copy (G6)."""
    return admitted().do(*macros.CLOSE)


def deferred():
    """A finished request whose step is in flight: its blocks wait for the fence."""
    script = goldens.hybrid(4, 4, defer_block_free=True, max_steps_in_flight=2).submit(0, 8)
    return script.do(act.BeginStep()).plan(0, 4).do(*macros.CLOSE, act.Finish(0))


def hosted(*last):
    """G2 and G3 up to a pinned hit, and what comes behind it."""
    script = goldens.hybrid(16, 16, dcp_size=4, offload=Offload(num_blocks=20)).submit(0, 50)
    script.chunk(0, 48).chunk(0, 2).do(act.Finish(0)).stored().wipe().submit(1, 50)
    return script.do(act.BeginStep(), act.Lookup(1), act.LookupExternal(1, 0), *last)


def loading():
    """A load that is submitted."""
    return hosted(act.Allocate(1, 0, external=48, load=True)).close()


def abandoned():
    """A load that runs and is abandoned by a reset of the host."""
    return loading().do(act.ResetHost())


def storing():
    """A store that is submitted, and what a finished request left to be stored."""
    script = goldens.hybrid(16, 16, dcp_size=4, offload=Offload(num_blocks=20)).submit(0, 50)
    return script.chunk(0, 48).chunk(0, 2).do(act.Finish(0))


def stored():
    """A store that is submitted."""
    return storing().do(act.BeginStep()).close()


def storing_no_more():
    """A store that runs and is abandoned by a reset of the host."""
    return stored().do(act.ResetHost())


@functools.cache
def written(run):
    script = run()
    return script.config, tuple(script.actions)


def both_of(run):
    both = differential.run(*written(run))
    assert both.difference is None, both.difference.text()
    return both


# --- what is spoiled --------------------------------------------------------------------------------------------------


def request(number, name, value):
    def spoil(world):
        assert getattr(world.requests[number], name) != value
        setattr(world.requests[number], name, value)

    return spoil


def holding(number, group, name, value):
    def spoil(world):
        assert getattr(world.requests[number].groups[group], name) != value
        setattr(world.requests[number].groups[group], name, value)

    return spoil


def changed(path, name, value):
    """Set an attribute of what ``path`` leads to; a callable value gets the one before."""

    def spoil(world):
        at = path(world)
        before = getattr(at, name)
        setattr(at, name, value(before) if callable(value) else value)

    return spoil


def touched(path):
    """Add one to the first element of a tensor."""

    def spoil(world):
        tensor = path(world)
        tensor.view(-1)[0] += 1

    return spoil


def itself(world):
    return world


def plan(world):
    return world.plan


def step(world):
    return world.steps[0]


def host(world):
    return world.host


def another_token(world):
    line = world.requests[1].line
    line.digests[line.count] += 1


def no_hit(world):
    world.hit = None


def no_undo(world):
    world.plan.undo = {}


def other_undo(world):
    world.plan.undo[0].primary[0] += 1


def fewer_registered(world):
    assert world.plan.registered
    world.plan.registered.pop()


def fewer_pins(world):
    world.host.pinned.clear()


def share_forgets_a_token(world):
    world.steps[0].shares[0].known -= 1


def no_steps(world):
    world.steps.clear()


def other_fence(world):
    fence, tables = world.deferred[0]
    world.deferred[0] = (fence + 1, tables)


CASES = [
    (admitted, lambda world: world.requests.pop(1), "requests"),
    (admitted, request(1, "status", Status.WAITING), "status"),
    (admitted, request(1, "num_prompt", 3), "num_prompt"),
    (admitted, request(1, "junction", 77), "junction"),
    (admitted, request(1, "in_flight", 2), "in_flight"),
    (admitted, request(1, "stale", 2), "stale"),
    (admitted, request(1, "placeholders", 2), "placeholders"),
    (admitted, request(1, "computed", 2), "computed"),
    (admitted, request(1, "skip_reading", True), "skip_reading"),
    (admitted, request(1, "drop_stale", True), "drop_stale"),
    (admitted, request(1, "loaded", True), "loaded"),
    (admitted, request(1, "preempted", True), "preempted before"),
    (admitted, another_token, "tokens"),
    (admitted, holding(1, 0, "num_cached", 9), "num_cached"),
    (tail, holding(0, 1, "partial_index", 3), "owed copy"),
    (tail, touched(lambda world: world.requests[0].groups[1].partial_source), "owed copy"),
    (admitted, holding(1, 1, "allocated", False), "allocated"),
    (admitted, holding(1, 1, "retired", 99), "retired"),
    (tail, holding(0, 1, "tail_boundary", 32), "tail boundary"),
    (admitted, holding(1, 1, "checkpoint", (4, 0)), "reserved checkpoint"),
    (looked_up, no_hit, "hit"),
    (looked_up, touched(lambda world: world.hit.lists[0]), "hit"),
    (looked_up, changed(lambda world: world.hit, "diverged", True), "hit"),
    (admitted, changed(lambda world: world.plan.shares[0], "start", 3), "plan"),
    (admitted, changed(lambda world: world.plan.shares[0], "loaded_from", 3), "plan"),
    (admitted, changed(plan, "copies", []), "copies planned"),
    (admitted, changed(plan, "zero", lambda zero: zero[1:]), "blocks to be zeroed"),
    (admitted, changed(plan, "preempted", True), "preempted in the plan"),
    (admitted, changed(plan, "store", 4), "events of the plan"),
    (tail, fewer_registered, "keys registered in this step"),
    (owing, no_undo, "keys of a withdrawal"),
    (owing, other_undo, "keys of a withdrawal"),
    (flying, no_steps, "steps in flight"),
    (flying, changed(lambda world: world.steps[0].shares[0], "row", 1), "step"),
    (flying, share_forgets_a_token, "prefix of a share"),
    (flying, touched(lambda world: world.steps[0].copies[1]), "copies"),
    (flying, changed(step, "zero", lambda zero: zero[1:]), "blocks zeroed"),
    (flying, changed(step, "part", 1), "progress of a step"),
    (flying, changed(step, "opened", True), "progress of a step"),
    (flying, changed(step, "due", []), "progress of a step"),
    (flying, changed(step, "flush", True), "events of a step"),
    (deferred, other_fence, "deferred frees"),
    (deferred, touched(lambda world: world.deferred[0][1][0]), "deferred frees"),
    (deferred, changed(itself, "issued", 5), "steps issued and processed"),
    (deferred, changed(itself, "processed", 5), "steps issued and processed"),
    (hosted, fewer_pins, "pinned hits"),
    (hosted, touched(lambda world: world.host.pinned[1].lists[0]), "pinned hits"),
    (hosted, changed(lambda world: world.host.pinned[1], "start", 16), "pinned hits"),
    (loading, changed(lambda world: world.host.loads[0], "stage", Stage.BUILT), "loads"),
    (loading, changed(lambda world: world.host.loads[0], "condemned", True), "loads"),
    (loading, changed(lambda world: world.host.loads[0], "finished", True), "loads"),
    (loading, changed(lambda world: world.host.loads[0], "event", 3), "loads"),
    (loading, touched(lambda world: world.host.loads[0].device), "loads"),
    (loading, touched(lambda world: world.host.loads[0].host), "loads"),
    (abandoned, changed(host, "abandoned_loads", []), "abandoned loads"),
    (stored, changed(lambda world: world.host.stores[0], "acks", 1), "stores"),
    (stored, changed(lambda world: world.host.stores[0], "stage", Stage.COPIED), "stores"),
    (stored, touched(lambda world: world.host.stores[0].device), "stores"),
    (storing_no_more, changed(host, "abandoned_stores", []), "abandoned stores"),
    (storing, changed(host, "queued", []), "queued stores"),
    (stored, changed(host, "next_store", 9), "next events"),
    (loading, changed(host, "next_load", 9), "next events"),
]


@pytest.mark.parametrize(("run", "spoil", "part"), CASES, ids=[f"{number}-{case[2]}" for number, case in enumerate(CASES)])
def test_a_spoiled_part_is_found_and_named(run, spoil, part):
    both = both_of(run)
    spoil(both.tensors)
    found = compare.first_difference(both.model, both.tensors, both.expected)
    assert found is not None
    assert found.part == part
    law = counterexamples.law_of(found, both.actions[-1])
    assert counterexamples.sentence_of(law)


def test_every_part_is_spoiled_by_some_case():
    named = {part for _, _, part in CASES}
    for run in {run for run, _, _ in CASES}:
        both = both_of(run)
        assert {part.name for part in standing.parts(both.model, both.tensors, both.expected.known)} <= named | {"num_tokens"}


# --- rows behind their length -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "part"), [(3, "entry behind a row"), (-1, "entry behind all rows")], ids=["behind a row", "behind all rows"]
)
def test_an_entry_behind_the_length_of_a_row_is_compared(entry, part):
    both = both_of(flying)
    buffer = both.tensors.rows.buffers[0]
    assert both.tensors.rows.lengths[0, 0] <= 3
    buffer[entry] = 7
    found = compare.first_difference(both.model, both.tensors, both.expected)
    assert found is not None
    assert (found.part, found.expected, found.actual) == (part, 0, 7)


def test_what_a_row_held_before_may_stand_behind_its_length():
    # Row 0 had the entries of request 0, then fewer of request 1: what stands behind these was written once, and is known.
    script = goldens.hybrid(4, 4).submit(0, 14).chunk(0, 12).chunk(0, 2).do(act.Finish(0)).wipe()
    both = differential.run(script.config, script.submit(1, 4).chunk(1, 4).actions)
    assert both.difference is None, both.difference.text()
    rows = both.tensors.rows
    behind = rows.buffers[0][int(rows.lengths[0, 0]) : 4]
    assert behind.any()
    behind += 1
    found = compare.first_difference(both.model, both.tensors, both.expected)
    assert found is not None
    assert found.part == "entry behind a row"


def test_what_was_not_seen_to_be_written_is_not_compared():
    script = goldens.hybrid(4, 4).submit(0, 14).chunk(0, 12).chunk(0, 2).do(act.Finish(0)).wipe().submit(1, 4).chunk(1, 4)
    both = differential.run(script.config, script.actions, every=1 << 30)
    assert both.difference is None, both.difference.text()
